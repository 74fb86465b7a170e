"""Frozen records as plain values, which JSON and TOML can hold, and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from fleetlab.core.errors import PolicyError
from fleetlab.core.names import lookup

Record = TypeVar("Record")


def to_values(record: Any) -> dict[str, Any]:  # noqa: ANN401
    """Return the fields that differ from their defaults."""
    values: dict[str, Any] = {}
    for f in fields(record):
        default = f.default if f.default_factory is MISSING else f.default_factory()
        if (value := getattr(record, f.name)) != default:
            values[f.name] = _plain(value)
    return values


def _plain(value: Any) -> Any:  # noqa: ANN401
    if hasattr(value, "to_values"):
        return value.to_values()
    if is_dataclass(value):
        return to_values(value)
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    return [_plain(v) for v in value] if isinstance(value, tuple | list) else value


def from_values(kind: type[Record], values: Any, what: str) -> Record:  # noqa: ANN401
    """Build a record from plain values; an unknown field is refused with the closest known one."""
    if not isinstance(values, Mapping):
        msg = f"not a {what}: {values!r}"
        raise PolicyError(msg, hint=f"a table of {', '.join(f.name for f in fields(kind))}")  # type: ignore[arg-type]
    hints = get_type_hints(kind)
    names = [f.name for f in fields(kind)]  # type: ignore[arg-type]
    read = {lookup(f"field of a {what}", name, names): value for name, value in values.items()}
    try:
        return kind(**{name: _read(hints[name], value, name) for name, value in read.items()})
    except TypeError as e:
        raise PolicyError(f"not a {what}: {e}", hint=f"it has {', '.join(names)}") from None


def _read(hint: Any, value: Any, name: str) -> Any:  # noqa: ANN401
    if isinstance(value, Mapping | list | tuple) and get_origin(hint) in (Union, UnionType):
        hint = next((one for one in get_args(hint) if is_dataclass(one) or get_origin(one) is tuple), hint)
    if hasattr(hint, "from_values"):
        return hint.from_values(value)
    if is_dataclass(hint):
        return from_values(hint, value, name)  # type: ignore[arg-type]
    if isinstance(value, list | tuple):
        inner = get_args(hint) if get_origin(hint) is tuple else (None, ...)
        kinds = inner[:1] * len(value) if inner[1:] == (...,) else inner
        return tuple(_read(kind, one, name) for kind, one in zip(kinds, value, strict=False))
    return value
