"""The text of a JSON file, walked one object at a time, each with the line it begins on.

Of a list only the object at hand is held as such: a cluster's pods as Python objects take ten times their text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from fleetlab.core import TraceError

_SPACE = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder()


class Walk:
    """A position in the text of a file, and the steps that JSON allows from there."""

    def __init__(self, text: str, name: str, *, hint: str, decoder: json.JSONDecoder = _DECODER) -> None:
        self.text, self.name, self.at = text, name, 0
        self._hint, self._decoder = hint, decoder
        self._counted, self._line = 0, 1

    @property
    def line(self) -> int:
        """The line of this position, from 1; each line end is counted once, however often this is read."""
        self._line += self.text.count("\n", self._counted, self.at)
        self._counted = self.at
        return self._line

    def next(self) -> str:
        """The next sign that is no white space, without taking it; empty at the end."""
        space = _SPACE.match(self.text, self.at)
        self.at = space.end() if space else self.at
        return self.text[self.at : self.at + 1]

    def take(self, sign: str) -> None:
        """Go past a sign that must be here."""
        if self.next() != sign:
            why = f"`{sign}` expected"
            raise self.broken(why, self.at)
        self.at += 1

    def value(self) -> Any:  # noqa: ANN401  JSON may hold anything
        """Whatever stands here."""
        self.next()
        try:
            value, self.at = self._decoder.raw_decode(self.text, self.at)
        except RecursionError:
            why = "nested too deep"
            raise self.broken(why, self.at) from None
        except json.JSONDecodeError as e:
            raise self.broken(e.msg, e.pos) from None
        except ValueError as e:  # a number of too many digits
            raise self.broken(str(e)[:80], self.at) from None
        return value

    def elements(self) -> Iterator[tuple[int, Any]]:
        """What a list holds, each with the line it begins on."""
        self.take("[")
        if self.next() != "]":
            yield self.line, self.value()
            while self.next() == ",":
                self.at += 1
                self.next()
                yield self.line, self.value()
        self.take("]")

    def members(self) -> Iterator[str]:
        """The names of an object's members; after each, its value must be taken."""
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

    def broken(self, why: str, at: int) -> TraceError:
        """An error that says where the text stops being JSON."""
        line, column = self.text.count("\n", 0, at) + 1, at - self.text.rfind("\n", 0, at)
        msg = f"{self.name}: not JSON, or truncated, at line {line:,}, column {column:,}: {why}"
        return TraceError(msg, hint=self._hint)
