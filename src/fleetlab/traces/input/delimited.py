"""Parse the lines of a delimited table into rows; a line that does not parse is returned with the reason.

A block is parsed by polars where it is clean, which is nearly always, and line by line where it is not, so that one
bad line costs one block a slower parse and no other row anything. Both ways give the same rows.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl

from fleetlab.core import TraceError
from fleetlab.traces.input import files
from fleetlab.traces.input.files import Block, SourceFile

MOST_COLUMNS = 10_000
KINDS: dict[str, type[pl.DataType]] = {"": pl.String, "f": pl.Float64, "i": pl.Int64}


@dataclass(frozen=True)
class TableSchema:
    """The shape of a foreign table: its columns in order and what each holds.

    With `header`, columns are found by name, in any order, and others are passed over; those in `optional` may be
    absent and come out as nulls. Without, the columns are all there are; `only` keeps a few of them.
    """

    name: str
    columns: Mapping[str, type[pl.DataType]]
    header: bool = True
    optional: frozenset[str] = frozenset()
    only: frozenset[str] | None = None
    separator: str = ","
    quote: bool = True
    free: FreeText | None = None  # columns that may hold separators and line ends, where nothing is quoted

    @classmethod
    def of(cls, name: str, columns: str, *, optional: str = "", **more: Any) -> TableSchema:  # noqa: ANN401
        """Build one of columns by name, in order: a text, or with `:f` a number and with `:i` a whole number.

        >>> TableSchema.of("jobs", "id gpus:i hours:f").columns
        {'id': String, 'gpus': Int64, 'hours': Float64}
        """
        kinds = dict(word.partition(":")[::2] for word in columns.split())
        return cls(name, {c: KINDS[kind] for c, kind in kinds.items()}, optional=frozenset(optional.split()), **more)

    @property
    def columns_to_read(self) -> dict[str, type[pl.DataType]]:
        """The columns that are read."""
        return {k: v for k, v in self.columns.items() if self.only is None or k in self.only}


@dataclass(frozen=True)
class Layout:
    """A table as this file has it: every column in order, and which of them are wanted."""

    table: TableSchema
    columns: tuple[str, ...]  # columns in the file's order

    @property
    def free(self) -> FreeText | None:
        """How rows come apart, if any of the columns is free text."""
        free = self.table.free
        return free if free is not None and free.columns & set(self.columns) else None

    @property
    def kinds(self) -> dict[str, type[pl.DataType]]:
        """What each column holds; those that are not read are text."""
        return {name: self.table.columns_to_read.get(name, pl.String) for name in self.columns}


@dataclass
class ParsedBlock:
    """What a block turned into: rows, lines that are none, and the record that goes on in the next block."""

    frame: pl.DataFrame
    bad: list[tuple[int, str]] = field(default_factory=list)
    rest: Block | None = None


def read_header(block: Block, source: SourceFile, table: TableSchema) -> tuple[Layout, Block]:
    """The layout that the first line of a file tells, and the block without that line."""
    if block.data.startswith(b"\xef\xbb\xbf"):
        block.data = block.data[3:]
    if not table.header:
        return Layout(table, tuple(table.columns)), block
    first, _, rest = block.data.partition(b"\n")
    check_width(first.count(table.separator.encode()) + 1, source)
    try:
        names = next(csv.reader([first.decode().rstrip("\r")], delimiter=table.separator), [])
    except (UnicodeDecodeError, csv.Error):
        names = []
    names = [name.strip() for name in names]
    missing = [name for name in table.columns if name not in names and name not in table.optional]
    if missing or not names:
        msg = f"{source.name}: missing columns in its first line: {missing or list(table.columns)}"
        raise TraceError(msg, hint="`fleetlab traces` lists what each format expects")
    if len(set(names)) < len(names):
        msg = f"{source.name}: a column is named twice: {next(n for n in names if names.count(n) > 1)!r}"
        raise TraceError(msg, hint="give each column a different name")
    return Layout(table, tuple(names)), Block(rest, block.line + 1, block.share, block.too_long)


def check_width(columns: int, source: SourceFile) -> None:
    """Raise if a first line has more columns than any list of jobs: to compare their names takes minutes."""
    if columns > MOST_COLUMNS:
        msg = f"{source.name}: {columns:,} columns in its first line, and at most {MOST_COLUMNS:,} are read"
        raise TraceError(msg, hint="a list of jobs has a line for each job: are these its rows, turned on their side?")


def parse(block: Block, layout: Layout, *, ended: bool) -> ParsedBlock:
    """The rows of a block; where the file has not `ended`, its last record may go on in the next block."""
    fast = _fast(block, layout)
    rows = _careful(block, layout, ended=ended) if fast is None else ParsedBlock(fast)
    columns = layout.table.columns_to_read
    absent = [pl.lit(None, dtype=v).alias(k) for k, v in columns.items() if k not in layout.columns]
    rows.frame = rows.frame.with_columns(absent).select([*columns, "line"])
    return rows


# -- at full speed -----------------------------------------------------------------------------------------------


def _fast(block: Block, layout: Layout) -> pl.DataFrame | None:
    """Parse a clean block at full speed; None if it is not clean."""
    data = block.data.replace(b"\r\n", b"\n") if b"\r" in block.data else block.data
    lines = data.count(b"\n") + (not data.endswith(b"\n"))
    marks = data.count(layout.table.separator.encode())
    # In a table of one column, a blank line and an empty value have the same number of separators.
    if len(layout.columns) == 1 or marks != lines * (len(layout.columns) - 1):
        return None
    if b"\r" in data or (layout.table.quote and b'"' in data):
        return None
    frame = _scanned(data, layout)
    # Rows too short and too long can cancel out in the count; but a row too short has nothing in its last column.
    if frame is None or frame.height != lines:
        return None
    if frame[layout.columns[-1]].null_count() and not _even(data, layout):
        return None
    return frame.with_columns(line=pl.int_range(block.line, block.line + lines, dtype=pl.Int64))


def _scanned(data: bytes, layout: Layout) -> pl.DataFrame | None:
    names = [name for name in layout.columns if name in layout.table.columns_to_read]
    try:
        scan = pl.scan_csv(
            data,
            has_header=False,
            schema=layout.kinds,
            separator=layout.table.separator,
            quote_char=None,
            raise_if_empty=False,
        )
        return scan.select(list(dict.fromkeys([*names, layout.columns[-1]]))).collect()
    except (pl.exceptions.PolarsError, OSError):  # the latter where a block looks as if it were compressed
        return None


def _even(data: bytes, layout: Layout) -> bool:
    """Has every line as many separators as it should? Their number in all is right already."""
    array = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(array == ord("\n"))
    marks = np.flatnonzero(array == ord(layout.table.separator)).reshape(-1, len(layout.columns) - 1)
    return bool((marks[: len(ends), -1] < ends).all() and (marks[1:, 0] > ends[: len(marks) - 1]).all())


# -- line by line ------------------------------------------------------------------------------------------------


def _careful(block: Block, layout: Layout, *, ended: bool) -> ParsedBlock:
    """Parse line by line; bad lines come back with their reasons."""
    rows = ParsedBlock(pl.DataFrame())
    good: list[list[str]] = []
    at: list[int] = []
    lines = block.data.removesuffix(b"\n").split(b"\n")
    k = 0
    while k < len(lines):
        length, columns = _record(lines, k, block, layout, ended=ended)
        if not length:
            unread = b"\n".join([*lines[k:], b""])
            rows.rest = Block(unread, block.line + k, block.share)
            break
        if isinstance(columns, str):
            rows.bad.append((block.line + k, columns))
        elif columns:
            good.append(columns)
            at.append(block.line + k)
        k += length
    frame = pl.DataFrame(good, schema=dict.fromkeys(layout.columns, pl.String), orient="row")
    frame = frame.with_columns(pl.all().replace("", None)).with_columns(line=pl.Series(at, dtype=pl.Int64))
    rows.frame = _numbers(frame, layout, rows.bad)
    return rows


def _record(
    lines: list[bytes], first: int, block: Block, layout: Layout, *, ended: bool
) -> tuple[int, list[str] | str]:
    """How many lines the record takes that begins here (0: the next block tells), and its fields or what is wrong."""
    if layout.free is not None:
        return _free_record(lines, first, layout, layout.free, ended=ended)
    length = _length(lines, first, block, ended=ended) if layout.table.quote else 1
    if length is None:
        return 0, []
    if not length:
        return 1, "a quote is opened and not closed"
    try:
        text = b"\n".join(lines[first : first + length]).decode().removesuffix("\r")
        fields = _fields(text, layout)
    # If the joined lines do not parse, only the first one is bad: a stray quote must not reject the lines after it.
    except UnicodeDecodeError:
        return 1, "not UTF-8"
    except csv.Error as e:
        return 1, f"not a row of CSV: {e}"
    if fields and len(fields) != len(layout.columns):
        return length, f"{len(layout.columns)} columns expected, got: {len(fields)}"
    return length, fields


def _free_record(
    lines: list[bytes], first: int, layout: Layout, free: FreeText, *, ended: bool
) -> tuple[int, list[str] | str]:
    """The same of a table with free text."""
    if not lines[first].strip():
        return 1, []
    length = 0
    for size in (4, 64, MOST_LINES):  # a row is a line as a rule
        window = [line.decode("utf-8", "replace").removesuffix("\r") for line in lines[first : first + size]]
        whole = first + size >= len(lines)
        length = free.length(
            window, layout.columns, layout.table.separator, ended=ended if whole else size == MOST_LINES
        )
        if length or whole:
            break
    if not length:
        return 0, []
    try:
        text = b"\n".join(lines[first : first + length]).decode().removesuffix("\r")
    except UnicodeDecodeError:
        return 1, "not UTF-8"
    fields = free.fields(text, layout.columns, layout.table.separator)
    # Lines that are no row together may each be one, or be wrong for a reason of their own.
    if fields is None and length > 1:
        length, fields = 1, free.fields(window[0], layout.columns, layout.table.separator)
    if fields is None:
        count = window[0].count(layout.table.separator) + 1
        return length, f"{len(layout.columns)} columns expected, got: {count}"
    return length, fields


def _length(lines: list[bytes], first: int, block: Block, *, ended: bool) -> int | None:
    """How many lines a record has: several if a quoted field holds line ends, 0 if its quote is never closed."""
    if lines[first].count(b'"') % 2 == 0:
        return 1
    size = len(lines[first])
    for k in range(first + 1, len(lines)):
        size += 1 + len(lines[k])
        # What stood on a line that was taken out is not known: no record goes across.
        if size > files.LONGEST or block.line + k in block.too_long:
            return 0
        if lines[k].count(b'"') % 2:
            return k + 1 - first
    return 0 if ended else None


def _fields(text: str, layout: Layout) -> list[str]:
    if not text.strip() and layout.table.separator not in text:
        return []
    if not (layout.table.quote and '"' in text):
        return text.split(layout.table.separator)
    return next(csv.reader([text], delimiter=layout.table.separator, strict=True))


def _numbers(frame: pl.DataFrame, layout: Layout, bad: list[tuple[int, str]]) -> pl.DataFrame:
    """Cast what should be numbers, row by row refusing what is not."""
    for name, kind in layout.kinds.items():
        if kind == pl.String:
            continue
        text = frame[name].str.strip_chars().replace("", None)
        cast = text.cast(kind, strict=False)
        wrong = cast.is_null() & text.is_not_null()
        for line, value in frame.filter(wrong).select("line", name).iter_rows():
            bad.append((line, f"`{name}` is not a number: {value[:80]!r}"))
        frame = frame.with_columns(cast.alias(name)).filter(~wrong)
    return frame


# -- free text -------------------------------------------------------------------------------------------------------


MOST_LINES = 1000  # of one row
MOST_WAYS = 5000  # to split a row into its fields, at most

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
