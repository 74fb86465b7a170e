"""Write YAML: mappings, lists, strings, numbers and text blocks, in the given order."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

# Strings that need no quotes: no special characters, and nothing that looks like a number or a date.
PLAIN = re.compile(r"[A-Za-z_/][A-Za-z0-9_./-]*")
MEANT = {"true", "false", "yes", "no", "on", "off", "y", "n", "null"}


def dump(*documents: Mapping[str, Any], about: Sequence[str] = ()) -> str:
    """Format documents, preceded by comments.

    >>> print(dump({"kind": "Pod", "args": ["on", "-x"]}, about=["a pod"]), end="")
    # a pod
    kind: Pod
    args:
    - "on"
    - "-x"
    """
    head = "".join(f"# {line}".rstrip() + "\n" for line in about)
    return head + "---\n".join("".join(f"{line}\n" for line in _mapping(one, "")) for one in documents)


def _mapping(found: Mapping[str, Any], indent: str) -> Iterator[str]:
    for key, value in found.items():
        yield from _entry(f"{indent}{_word(key)}:", value, indent)


def _entry(head: str, value: object, indent: str) -> Iterator[str]:
    if isinstance(value, Mapping) and value:
        yield head
        yield from _mapping(value, indent + "  ")
    elif isinstance(value, list | tuple) and value:
        yield head
        yield from _list(value, indent)
    elif isinstance(value, str) and "\n" in value:
        yield f"{head} |"
        yield from (f"{indent}  {line}" if line else "" for line in value.removesuffix("\n").split("\n"))
    else:
        yield f"{head} {_scalar(value)}"


def _list(found: Sequence[Any], indent: str) -> Iterator[str]:
    for value in found:
        if isinstance(value, Mapping) and value:
            first, *rest = _mapping(value, indent + "  ")
            yield f"{indent}- {first.removeprefix(indent + '  ')}"
            yield from rest
        else:
            yield f"{indent}- {_scalar(value)}"


def _scalar(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str):
        return _word(value)
    assert value in ({}, [], ()), f"not something that we write: {value!r}"
    return "{}" if value == {} else "[]"


def _word(value: str) -> str:
    if PLAIN.fullmatch(value) and value.lower() not in MEANT:
        return value
    return json.dumps(value)  # a JSON string is a YAML string
