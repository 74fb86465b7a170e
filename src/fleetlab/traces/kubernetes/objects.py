"""What `kubectl get … -o json` writes, one object at a time, and safe ways to look into one.

Nothing is taken for granted of an object; what is not as Kubernetes writes it raises Malformed, which names the place.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any, TypeVar

from fleetlab.core import TraceError
from fleetlab.traces.input.files import SourceFile
from fleetlab.traces.input.json_walk import Walk
from fleetlab.traces.input.timestamps import LATEST

HINT = "kubectl get pods,nodes -A -o json"
LARGEST = 4 << 30  # bytes of one file, unpacked

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Object = dict[str, Any]
T = TypeVar("T")


class MalformedObject(ValueError):
    """A place in an object does not hold what Kubernetes puts there; the message is the reason to reject it."""

    def __init__(self, reason: str) -> None:
        # JSON can spell half a character, which no file can hold.
        super().__init__(reason.encode("utf-8", "replace").decode())


def items(source: SourceFile) -> Iterator[tuple[int, object, float]]:
    """Each object of a file, in lists or one after the other: its line, itself, and the share read so far."""
    walk = Walk(_text(source), source.name, hint=f"write it again: {HINT}")
    if not walk.next():
        msg = f"{source.name}: the file is empty"
        raise TraceError(msg, hint=HINT)
    while walk.next():
        for line, item in _document(walk):
            yield line, item, walk.at / len(walk.text)


def _text(source: SourceFile) -> str:
    blocks, size = [], 0
    with source.open() as stream:
        while block := stream.read(1 << 24):
            blocks.append(block)
            if (size := size + len(block)) > LARGEST:
                msg = f"{source.name}: larger than what can be read at once: more than {LARGEST:,} bytes"
                raise TraceError(msg, hint="write pods by namespace, one file each, and read their folder")
    data = b"".join(blocks)
    try:
        # A Windows shell writes UTF-16.
        return data.decode(json.detect_encoding(data)).lstrip("\ufeff")
    except UnicodeDecodeError as e:
        msg = f"{source.name}: not text: {e.reason} at byte {e.start:,}"
        raise TraceError(msg, hint=HINT) from None


def _document(walk: Walk) -> Iterator[tuple[int, object]]:
    """The objects of a list, or the object itself if it is none; each with the line it begins on."""
    begun = walk.line
    whole: Object = {}
    listed = False
    for key in walk.members():
        if key == "items" and walk.next() == "[":
            listed = True
            yield from walk.elements()
        else:
            whole[key] = walk.value()
    if not listed:
        yield begun, whole


# -- looking into an object ----------------------------------------------------------------------------------------


def members(value: object, where: str) -> Object:
    """An object's members; none where there is nothing."""
    checked: Object = _checked(value, dict, {}, where, "an object")
    for key in checked:
        _spelt(key, where)
    return checked


def fields(value: object, where: str, known: Iterable[str]) -> Object:
    """An object's members, of which all are known: a misspelt one would be a rule that nobody applies."""
    given, allowed = members(value, where), tuple(known)
    for key in given:
        if key not in allowed:
            msg = f"unknown field `{where}.{key[:80]}`: there are {', '.join(allowed)}"
            raise MalformedObject(msg)
    return given


def elements(value: object, where: str) -> list[Any]:
    """A list's elements; none where there is nothing."""
    return _checked(value, list, [], where, "a list")


def words(value: object, where: str) -> str:
    """A text; empty where there is nothing."""
    return _spelt(_checked(value, str, "", where, "a text"), where)


def _spelt(text: str, where: str) -> str:
    if not text.isascii() and any("\ud800" <= sign <= "\udfff" for sign in text):
        msg = f"`{where}` has an unpaired surrogate: {text[:80]}"
        raise MalformedObject(msg)
    return text


def whole(value: object, where: str) -> int:
    """A whole number; 0 where there is nothing."""
    return _checked(value if not isinstance(value, bool) else "", int, 0, where, "a whole number")


def _checked(value: object, kind: type[T], nothing: T, where: str, what: str) -> T:
    if value is None:
        return nothing
    if not isinstance(value, kind):
        msg = f"`{where}` is not {what}: {display(value)}"
        raise MalformedObject(msg)
    return value


def display(value: object) -> str:
    """What to say of a value: a short one itself, of a large one only what it is."""
    if isinstance(value, (dict, list)):
        return "an object" if isinstance(value, dict) else "a list"
    return str(value)[:80]


def moment(value: object, where: str) -> float | None:
    """A time in Unix seconds; None where there is nothing, or what a program writes that knows no time."""
    text = words(value, where)
    if not text:
        return None
    try:
        seconds = (datetime.fromisoformat(text) - _EPOCH).total_seconds()
    except (ValueError, TypeError, OverflowError):
        seconds = LATEST
    if seconds >= LATEST:
        msg = f"`{where}` is not a time: {text[:80]}"
        raise MalformedObject(msg)
    return seconds if seconds > 0 else None
