"""Lay a table out as text: as wide as the screen at most, and no number is ever broken."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from textwrap import wrap

GAP = 2  # spaces between columns
HEADING = 12  # characters of a line of a heading that is broken
# Between a number and its unit no line is broken.
UNIT = re.compile(r"(?<=\d) (?=%|(?:s|min|h|days|ms|[KMGT]iB|GPUs?|nodes?|jobs?)\b)")
TOGETHER = "\u00a0"
SHORT = 7  # characters of a heading that stays in one line: 95 % CI
NARROW = 14  # characters that a column of texts keeps, where it has so many
# A setting is copied, so it stays whole: an environment variable, or a path of keys in a file.
SETTING = re.compile(r"[A-Z]+(?:_[A-Z]+)+|\w+(?:\.\w+(?:\[\])?){2,}")


@dataclass(frozen=True, slots=True)
class Column:
    """A heading and its cells; `joined`: it belongs to the column before, such as an interval to its value."""

    name: str
    numeric: bool
    texts: Sequence[str]
    joined: bool = False

    @property
    def cells(self) -> int:
        """The width of its widest cell."""
        return max(map(len, self.texts), default=0)

    @property
    def widest(self) -> int:
        """The width in which nothing of it is broken."""
        return max(len(self.name), self.cells)

    @property
    def usual(self) -> int:
        """The width with a heading that is broken."""
        lines = wrap(self.name, max(HEADING, self.cells), break_long_words=False)
        return max(self.cells, max(map(len, lines), default=0))

    @property
    def least(self) -> int:
        """The width below which a number, or a word of its heading, would be broken."""
        word = max(map(len, self.name.split()), default=0)
        word = max(word, min(len(self.name), SHORT))
        setting = max((len(text) for text in self.texts if SETTING.fullmatch(text)), default=0)
        return max(word, setting, self.cells if self.numeric else min(self.cells, NARROW))


def layout(columns: Sequence[Column], width: int, *, whole_rows: bool) -> list[str]:
    """Return the lines of a table for a screen of some width; `whole_rows`: each row is one line, however long.

    A table that is too wide has its headings broken, then its texts; then it comes in parts, each with the names of
    its rows.
    """
    widest, usual, least = ([getattr(c, size) for c in columns] for size in ("widest", "usual", "least"))
    if _total(widest) + GAP <= width:
        return _lines(columns, widest)
    if whole_rows or _total(usual) <= width:
        return _lines(columns, usual)
    if _total(least) <= width:
        return _lines(columns, _spread(columns, width))
    lines: list[str] = []
    for part in _parts(columns, width):
        lines += ["", *_lines(part, _spread(part, width))]
    return lines[1:]


def _total(sizes: Sequence[int]) -> int:
    return sum(sizes) + GAP * (len(sizes) - 1)


def _spread(columns: Sequence[Column], width: int) -> list[int]:
    """Give each column its least width, and what is left to those that have use for it, the neediest last."""
    sizes = [c.least for c in columns]
    order = sorted(range(len(columns)), key=lambda k: columns[k].usual - sizes[k])
    for place, k in enumerate(order):
        share = max(0, width - _total(sizes)) // (len(order) - place)
        sizes[k] += min(share, max(0, columns[k].usual - sizes[k]))
    return sizes


def _parts(columns: Sequence[Column], width: int) -> Iterator[list[Column]]:
    """Yield tables that fit, each with the columns that name the rows."""
    names = _names(columns, width)
    part: list[Column] = []
    for group in _groups(columns[len(names) :]):
        if part and _total([c.least for c in (*names, *part, *group)]) > width:
            yield [*names, *part]
            part = []
        part += group
    yield [*names, *part]


def _names(columns: Sequence[Column], width: int) -> list[Column]:
    """Return the first columns of texts, one at least, in half of the screen."""
    names = [columns[0]]
    for column in columns[1:]:
        if column.numeric or _total([c.least for c in (*names, column)]) > width // 2:
            break
        names.append(column)
    return names


def _groups(columns: Sequence[Column]) -> Iterator[list[Column]]:
    """Yield columns that stay together."""
    group: list[Column] = []
    for column in columns:
        if group and not column.joined:
            yield group
            group = []
        group.append(column)
    if group:
        yield group


def _lines(columns: Sequence[Column], sizes: Sequence[int]) -> list[str]:
    heads = [wrap(c.name, w, break_long_words=False) or [""] for c, w in zip(columns, sizes, strict=True)]
    tall = max(map(len, heads))
    rows = [[[""] * (tall - len(head)) + head for head in heads], [["-" * w] for w in sizes]]
    for texts in zip(*(c.texts for c in columns), strict=True):
        cells = zip(texts, columns, sizes, strict=True)
        rows.append([[text] if c.numeric or len(text) <= w else _broken(text, w) for text, c, w in cells])
    return [line for row in rows for line in _row(row, columns, sizes)]


def _broken(text: str, width: int) -> list[str]:
    """Break a text between words; at a hyphen, which may be part of a name, only where a word alone is too wide."""
    whole = together(text)
    lines = wrap(whole, width, break_on_hyphens=max(map(len, whole.split(" ")), default=0) > width)
    return [line.replace(TOGETHER, " ") for line in lines]


def together(text: str) -> str:
    """The text with no place to break a line between a number and its unit."""
    return UNIT.sub(TOGETHER, text)


def _row(cells: Sequence[Sequence[str]], columns: Sequence[Column], sizes: Sequence[int]) -> Iterator[str]:
    """Yield the lines of one row, as many as its highest cell has."""
    for k in range(max(map(len, cells))):
        texts = [cell[k] if k < len(cell) else "" for cell in cells]
        parts = [t.rjust(w) if c.numeric else t.ljust(w) for t, c, w in zip(texts, columns, sizes, strict=True)]
        yield (" " * GAP).join(parts).rstrip()
