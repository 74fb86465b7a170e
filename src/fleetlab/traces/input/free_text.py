"""Rows with columns of free text, which may hold separators and line ends, in a table that quotes nothing.

A row begins where a line looks like one. Which of its separators are inside free text is told by the other columns:
each must look as its kind does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

MOST_LINES = 1000  # of one row
MOST_WAYS = 5000  # in which a row may come apart, looked at

Row = list[str]


@dataclass(frozen=True)
class FreeText:
    """Which columns of a table are free text, how the others look, and how its rows begin."""

    columns: frozenset[str]
    begins: re.Pattern[str]  # the start of a row's first line
    forms: Mapping[str, re.Pattern[str]] = field(default_factory=dict)
    choose: Callable[[Sequence[dict[str, str]]], int] = lambda _: 0  # among several ways in which a row comes apart

    def length(self, lines: Sequence[str], columns: Sequence[str], separator: str, *, ended: bool) -> int:
        """How many of the lines are the row that begins with the first; 0 if lines after them may be its too."""
        width = len(columns) - 1
        marks, lasts = lines[0].count(separator), columns[-1] in self.columns
        for k in range(1, min(len(lines), MOST_LINES)):
            if marks >= width and not lasts:
                return k
            if self.begins.match(lines[k]) or lines[k].count(separator) == width:
                return _without_blank(lines[:k])
            marks += lines[k].count(separator)
        open_end = marks < width or lasts
        return 0 if open_end and not ended and len(lines) < MOST_LINES else _without_blank(lines[:MOST_LINES])

    def fields(self, text: str, columns: Sequence[str], separator: str) -> Row | None:
        """The fields of a row; None if it cannot be one."""
        parts = text.split(separator)
        if len(parts) == len(columns) and "\n" not in text:
            return parts
        ways: list[Row] = []
        self._come_apart(parts, columns, separator, [], ways)
        if not ways:
            return None
        at = self.choose([dict(zip(columns, way, strict=True)) for way in ways]) if len(ways) > 1 else 0
        return ways[at]

    def _come_apart(self, parts: Row, columns: Sequence[str], separator: str, row: Row, ways: list[Row]) -> None:
        if len(ways) >= MOST_WAYS or len(parts) < len(columns):
            return
        if not columns:
            if not parts:
                ways.append(row)
            return
        free = columns[0] in self.columns
        longest = len(parts) - len(columns) + 1 if free else 1
        for size in range(1, longest + 1):
            text = separator.join(parts[:size])
            if self._fits(columns[0], text, free=free):
                self._come_apart(parts[size:], columns[1:], separator, [*row, text], ways)

    def _fits(self, column: str, text: str, *, free: bool) -> bool:
        form = self.forms.get(column)
        return bool(form.fullmatch(text)) if form else free or "\n" not in text


def _without_blank(lines: Sequence[str]) -> int:
    """Lines but for empty ones at the end, which are between rows."""
    size = len(lines)
    while size > 1 and not lines[size - 1].strip():
        size -= 1
    return size
