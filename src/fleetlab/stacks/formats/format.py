"""The interface of a format: which part of a spec it keeps, how it is written, recognized and read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

from fleetlab.devices.errors import BenchError
from fleetlab.stacks.spec import Spec

Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Stack:
    """One format.

    Law: what is kept survives a round trip, `read(write(hold(spec))) == hold(spec)`, and `hold` is idempotent.
    """

    name: str
    hold: Callable[[Spec], Spec]
    write: Callable[[Spec], str]  # of the kept spec
    mine: Callable[[Sequence[Document]], bool]
    read: Callable[[Sequence[Document]], Spec]
    why: Mapping[str, str] = field(default_factory=dict)  # why a part of a spec is not kept


def cannot(stack: str, what: str, hint: str) -> NoReturn:
    """Raise an error for a spec that a stack cannot express at all."""
    msg = f"{stack} cannot express it: {what}"
    raise BenchError(msg, hint=hint)


def unread(what: str, hint: str | None = None) -> NoReturn:
    """Raise an error for a file that cannot be read as a spec."""
    msg = f"cannot be read as a spec: {what}"
    raise BenchError(msg, hint=hint)


def dig(value: object, *path: str | int) -> Any:  # noqa: ANN401
    """Return the value at a path; None if the path does not exist, whatever the types.

    >>> dig({"spec": {"containers": [{"name": "main"}]}}, "spec", "containers", 0, "name")
    'main'
    """
    for step in path:
        if isinstance(value, dict) and isinstance(step, str):
            value = value.get(step)
        elif isinstance(value, list) and isinstance(step, int) and step < len(value):
            value = value[step]
        else:
            return None
    return value


def listed(found: object) -> list[Any]:
    """The value if it is a list, else an empty list."""
    return found if isinstance(found, list) else []


def mapped(found: object) -> dict[str, Any]:
    """The value if it is a mapping, else an empty one."""
    return found if isinstance(found, dict) else {}
