"""What `kubectl get … -o json` writes, one object at a time, and safe ways to look into one.

Of a list only the object at hand is held as such: a cluster's pods as Python objects take ten times their text. Nothing
is taken for granted of an object; what is not as Kubernetes writes it raises Malformed, which names the place.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, TypeVar

from fleetlab.traces._source import Source
from fleetlab.traces._stamps import LATEST
from fleetlab.workload import TraceError

LARGEST = 4 << 30  # bytes of one file, unpacked

_SPACE = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder()
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Object = dict[str, Any]
T = TypeVar("T")


class Malformed(ValueError):
    """A place in an object does not hold what Kubernetes puts there; the message is the reason to reject it."""

    def __init__(self, reason: str) -> None:
        # JSON can spell half a character, which no file can hold.
        super().__init__(reason.encode("utf-8", "replace").decode())


def items(source: Source) -> Iterator[tuple[int, object, float]]:
    """Each object of a file, in lists or one after the other: its number from 1, itself, and the share read so far."""
    walk = _Walk(_text(source), source.name)
    number = 0
    while walk.next():
        for item in walk.document():
            number += 1
            yield number, item, walk.at / len(walk.text)
    if not number and not walk.lists:
        msg = f"{source.name}: the file is empty"
        raise TraceError(msg, hint="kubectl get pods,nodes -A -o json")


def _text(source: Source) -> str:
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
        raise TraceError(msg, hint="kubectl get pods,nodes -A -o json") from None


class _Walk:
    """A position in the text of a file, and the steps that JSON allows from there."""

    def __init__(self, text: str, name: str) -> None:
        self.text, self.name, self.at, self.lists = text, name, 0, 0

    def next(self) -> str:
        space = _SPACE.match(self.text, self.at)
        self.at = space.end() if space else self.at
        return self.text[self.at : self.at + 1]

    def take(self, sign: str) -> None:
        if self.next() != sign:
            why = f"`{sign}` expected"
            raise self.broken(why)
        self.at += 1

    def value(self) -> Any:  # noqa: ANN401  JSON may hold anything
        self.next()
        try:
            found, self.at = _DECODER.raw_decode(self.text, self.at)
        except RecursionError:
            why = "nested too deep"
            raise self.broken(why) from None
        except ValueError as e:
            raise self.broken(str(e)[:80]) from None
        return found

    def document(self) -> Iterator[object]:
        """The objects of a list, or the object itself if it is none."""
        whole: Object = {}
        listed = False
        for key in self._keys():
            if key == "items" and self.next() == "[":
                listed = True
                yield from self._elements()
            else:
                whole[key] = self.value()
        self.lists += listed
        if not listed:
            yield whole

    def _keys(self) -> Iterator[str]:
        self.take("{")
        if self.next() != "}":
            yield self._key()
            while self.next() == ",":
                self.at += 1
                yield self._key()
        self.take("}")

    def _key(self) -> str:
        key = self.value()
        self.take(":")
        return str(key)

    def _elements(self) -> Iterator[object]:
        self.take("[")
        if self.next() != "]":
            yield self.value()
            while self.next() == ",":
                self.at += 1
                yield self.value()
        self.take("]")

    def broken(self, why: str) -> TraceError:
        line = self.text.count("\n", 0, self.at) + 1
        msg = f"{self.name}: not JSON, or cut off, at line {line:,}: {why}"
        return TraceError(msg, hint="write it again: kubectl get pods,nodes -A -o json")


# -- looking into an object ----------------------------------------------------------------------------------------


def members(value: object, where: str) -> Object:
    """An object's members; none where there is nothing."""
    found: Object = _checked(value, dict, {}, where, "an object")
    for key in found:
        _spelt(key, where)
    return found


def elements(value: object, where: str) -> list[Any]:
    """A list's elements; none where there is nothing."""
    return _checked(value, list, [], where, "a list")


def words(value: object, where: str) -> str:
    """A text; empty where there is nothing."""
    return _spelt(_checked(value, str, "", where, "a text"), where)


def _spelt(text: str, where: str) -> str:
    if not text.isascii() and any("\ud800" <= sign <= "\udfff" for sign in text):
        msg = f"`{where}` has half a character: {text[:80]}"
        raise Malformed(msg)
    return text


def whole(value: object, where: str) -> int:
    """A whole number; 0 where there is nothing."""
    return _checked(value if not isinstance(value, bool) else "", int, 0, where, "a whole number")


def _checked(value: object, kind: type[T], nothing: T, where: str, what: str) -> T:
    if value is None:
        return nothing
    if not isinstance(value, kind):
        msg = f"`{where}` is not {what}: {shown(value)}"
        raise Malformed(msg)
    return value


def shown(value: object) -> str:
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
        raise Malformed(msg)
    return seconds if seconds > 0 else None
