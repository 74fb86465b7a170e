"""Write plain values as TOML; `tomllib` reads it."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

BARE = re.compile(r"[A-Za-z0-9_-]+")


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
