"""Read TOML files, and write plain values as TOML."""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fleetlab.core.errors import WorkloadError

BARE = re.compile(r"[A-Za-z0-9_-]+")


def load(path: Path, what: str, hint: str) -> dict[str, Any]:
    """Return the content of a TOML file; raise if there is none, with a hint about what should be in it."""
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except OSError as e:
        msg = f"cannot read {what}: {path}: {e.strerror}"
    except (ValueError, RecursionError) as e:  # not UTF-8, a number of thousands of digits, brackets without end
        msg = f"{path.name}: not TOML: {e}"
    raise WorkloadError(msg, hint=hint)


def dumps(values: Mapping[str, Any]) -> str:
    """Return one line per key, tables inline.

    >>> print(dumps({"order": "sjf", "load": 1.5, "quota": {"ada": 16}}), end="")
    order = "sjf"
    load = 1.5
    quota = { ada = 16 }
    """
    return "".join(f"{_key(name)} = {_value(value)}\n" for name, value in values.items())


def _key(name: str) -> str:
    return name if BARE.fullmatch(name) else _text(name)


def _value(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_key(k)} = {_value(v)}" for k, v in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_value, value)) + "]"
    return str(value)


def _text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")  # the one control character JSON lets pass
