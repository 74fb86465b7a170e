"""The door's counter: every row of a foreign table is let in or written down, with file, line and reason.

Blocks of bytes are parsed by polars where they are clean, which is nearly always, and line by line where they are
not, so that one bad line costs one block a slower parse and no other row anything. Memory holds a block, never a table.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from queue import Queue
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Literal

import numpy as np
import polars as pl

from fleetlab.traces._source import Source
from fleetlab.workload import TraceError
from fleetlab.workload.trace import COUNTS, REJECTS

BLOCK = 32 << 20  # bytes parsed at once: large enough to be quick, small enough to hold several
LONGEST = 1 << 20  # bytes of one line; anything longer is no row of a trace

# What is being read, how many rows of it so far, and how far into the packed bytes (0 to 1).
Tell = Callable[[str, int, float], None]


def silent(_what: str, _rows: int, _share: float) -> None:
    """Tell nobody."""


@dataclass(frozen=True)
class Table:
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


# A rule says what is wrong, with the expression that is true for a bad row; a column after it shows the value.
Rule = tuple[str, pl.Expr] | tuple[str, pl.Expr, str]


@dataclass
class Intake:
    """Counts what comes in, keeps what is turned away, and stages what is too large for memory."""

    tell: Tell = silent
    rows: dict[str, int] = field(default_factory=dict)
    kept: dict[str, int] = field(default_factory=dict)
    _rejects: list[pl.DataFrame] = field(default_factory=list)
    _scratch: TemporaryDirectory[str] | None = None

    # -- reading ------------------------------------------------------------------------------------------------

    def batches(self, source: Source, table: Table) -> Iterator[pl.DataFrame]:
        """The rows of a table, block by block, with the `line` each stands on; bad lines go to the rejects."""
        rows = 0
        self.rows.setdefault(table.name, 0)
        layout: _Layout | None = None
        for block in _ahead(_blocks(source)):
            if layout is None:
                layout, block = _opening(block, source, table)
            self._too_long(block, source, table)
            if not block.data:
                continue
            frame, bad = _parse(block, layout)
            self.rows[table.name] += frame.height + len(bad)
            self.refuse(table.name, source.name, bad)
            rows += frame.height + len(bad)
            self.tell(table.name, rows, block.share)
            if frame.height:
                yield frame
        if layout is None:
            msg = f"{source.name}: the file is empty"
            raise TraceError(msg, hint="`fleetlab traces` says what each format expects")

    def table(self, source: Source, table: Table) -> pl.DataFrame:
        """All rows of a table that fits in memory."""
        empty = pl.DataFrame(schema=_wanted(table) | {"line": pl.Int64})
        return pl.concat([empty, *self.batches(source, table)])

    def _too_long(self, block: _Block, source: Source, table: Table) -> None:
        reason = f"the line is longer than {LONGEST:,} bytes"
        self.rows[table.name] += len(block.too_long)
        self.refuse(table.name, source.name, [(line, reason) for line in block.too_long])

    # -- turning away -------------------------------------------------------------------------------------------

    def sieve(self, frame: pl.DataFrame, table: str, file: str, rules: Sequence[Rule]) -> pl.DataFrame:
        """Turn away each row that breaks a rule, for the first one that it breaks; give the others back."""
        if not rules or frame.is_empty():
            return frame
        broken = frame.select(pl.any_horizontal([rule[1].fill_null(value=False) for rule in rules]).alias("bad"))["bad"]
        if not broken.any():
            return frame
        said = pl.coalesce([pl.when(rule[1].fill_null(value=False)).then(_reason(rule)) for rule in rules])
        # Said of the whole frame before it is filtered: a rule may look at other rows, as one on duplicates does.
        self._note(table, file, frame.select(pl.col("line").cast(pl.Int64), said.alias("reason")).filter(broken))
        return frame.filter(~broken)

    def refuse(self, table: str, file: str, lines: Sequence[tuple[int, str]]) -> None:
        """Turn away lines by number."""
        if lines:
            self._note(table, file, pl.DataFrame(lines, schema={"line": pl.Int64, "reason": pl.String}, orient="row"))

    def _note(self, table: str, file: str, out: pl.DataFrame) -> None:
        named = out.with_columns(table=pl.lit(table), file=pl.lit(file)).select(list(REJECTS))
        self._rejects.append(named.cast(REJECTS))  # type: ignore[arg-type]

    # -- counting -----------------------------------------------------------------------------------------------

    def read(self, table: str, rows: int) -> None:
        """Count rows of a file that is not a delimited table (JSON, say)."""
        self.rows[table] = self.rows.get(table, 0) + rows

    def keep(self, table: str, rows: int) -> None:
        """Count rows that are in the trace: of what came out, not of what went in, so that a loss shows."""
        self.kept[table] = self.kept.get(table, 0) + rows

    def rejects(self) -> pl.DataFrame:
        """Every row turned away, by table, file and line."""
        found = pl.concat([pl.DataFrame(schema=REJECTS), *self._rejects])
        return found.sort("table", "file", "line", maintain_order=True)

    def counts(self) -> pl.DataFrame:
        """Rows read, kept and rejected, by table."""
        away: dict[str, int] = dict(self.rejects().group_by("table").len().iter_rows())
        rows = [(name, n, self.kept.get(name, 0), away.get(name, 0)) for name, n in self.rows.items()]
        return pl.DataFrame(rows, schema=COUNTS, orient="row")

    # -- staging ------------------------------------------------------------------------------------------------

    @property
    def scratch(self) -> TemporaryDirectory[str]:
        """A folder for what is too large for memory; it goes when nobody holds it any more."""
        if self._scratch is None:
            self._scratch = TemporaryDirectory(prefix="fleetlab-")
        return self._scratch


def _reason(rule: Rule) -> pl.Expr:
    what = pl.lit(rule[0])
    if len(rule) == 2:
        return what
    shown = pl.col(rule[2]).cast(pl.String).str.slice(0, 80).fill_null("nothing")
    return pl.concat_str(what, pl.lit(": "), shown)


# -- blocks of whole lines ---------------------------------------------------------------------------------------


@dataclass
class _Block:
    data: bytes  # whole lines
    line: int  # of the first of them, from 1
    share: float  # of the packed file used up
    too_long: list[int] = field(default_factory=list)


def _blocks(source: Source) -> Iterator[_Block]:
    line = 1
    with source.open() as stream:
        size = max(1, source.size)
        held = b""
        while True:
            more = stream.read(BLOCK)
            share = min(1.0, stream.position() / size)
            cut = more.rfind(b"\n") + 1
            if more and not cut:
                held += more
                if len(held) > LONGEST:
                    held = held[: LONGEST + 1]  # it will be turned away: no need to hold the rest of it
                continue
            data, held = held + more[:cut], more[cut:]
            if not more:
                data += held
                held = b""
            if data:
                block = _Block(data, line, share)
                line += data.count(b"\n") + (not data.endswith(b"\n"))
                yield _shorn(block)
            if not more:
                return


def _shorn(block: _Block) -> _Block:
    """Take out lines that are too long, leaving an empty line in place of each, so that numbers still fit."""
    if len(block.data) <= LONGEST:
        return block
    data, at, line = block.data, 0, block.line
    pieces = []
    for found in re.finditer(rb"[^\n]{%d,}" % (LONGEST + 1), data):
        line += data.count(b"\n", at, found.start())
        pieces.append(data[at : found.start()])
        block.too_long.append(line)
        at = found.end()
    if pieces:
        block.data = b"".join([*pieces, data[at:]])
    return block


def _ahead(blocks: Iterator[_Block]) -> Iterator[_Block]:
    """Unpack the next block while this one is being parsed."""
    queue: Queue[_Block | BaseException | None] = Queue(maxsize=1)
    stopped: list[Literal[True]] = []

    def work() -> None:
        try:
            for block in blocks:
                queue.put(block)
                if stopped:
                    return
            queue.put(None)
        except BaseException as e:  # handed over to whoever is reading
            queue.put(e)

    thread = Thread(target=work, daemon=True)
    thread.start()
    try:
        while (item := queue.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        stopped.append(True)
        while thread.is_alive():
            if not queue.empty():
                queue.get()
            thread.join(0.01)


# -- parsing a block ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Layout:
    """A table as this file has it: every column in order, and which of them are wanted."""

    table: Table
    found: tuple[str, ...]  # columns in the file's order

    @property
    def kinds(self) -> dict[str, type[pl.DataType]]:
        wanted = _wanted(self.table)
        return {name: wanted.get(name, pl.String) for name in self.found}


def _wanted(table: Table) -> dict[str, type[pl.DataType]]:
    return {k: v for k, v in table.columns.items() if table.only is None or k in table.only}


def _opening(block: _Block, source: Source, table: Table) -> tuple[_Layout, _Block]:
    if block.data.startswith(b"\xef\xbb\xbf"):
        block.data = block.data[3:]
    if not table.header:
        return _Layout(table, tuple(table.columns)), block
    first, _, rest = block.data.partition(b"\n")
    try:
        names = next(csv.reader([first.decode().rstrip("\r")], delimiter=table.separator), [])
    except (UnicodeDecodeError, csv.Error):
        names = []
    names = [name.strip() for name in names]
    missing = [name for name in table.columns if name not in names and name not in table.optional]
    if missing:
        msg = f"{source.name}: no column in its first line: {missing}"
        raise TraceError(msg, hint="`fleetlab traces` says what each format expects")
    if len(set(names)) < len(names):
        msg = f"{source.name}: a column is named twice: {next(n for n in names if names.count(n) > 1)!r}"
        raise TraceError(msg, hint="give each column a name of its own")
    return _Layout(table, tuple(names)), _Block(rest, block.line + 1, block.share, block.too_long)


def _parse(block: _Block, layout: _Layout) -> tuple[pl.DataFrame, list[tuple[int, str]]]:
    frame = _fast(block, layout)
    frame, bad = (frame, []) if frame is not None else _careful(block, layout)
    absent = [pl.lit(None, dtype=v).alias(k) for k, v in _wanted(layout.table).items() if k not in layout.found]
    return frame.with_columns(absent).select([*_wanted(layout.table), "line"]), bad


def _fast(block: _Block, layout: _Layout) -> pl.DataFrame | None:
    """Parse a clean block at full speed; None if it is not clean."""
    data = block.data
    lines = data.count(b"\n") + (not data.endswith(b"\n"))
    commas = data.count(layout.table.separator.encode())
    if commas != lines * (len(layout.found) - 1) or b"\r" in data or (layout.table.quote and b'"' in data):
        return None
    last = layout.found[-1]
    wanted = [name for name in layout.found if name in _wanted(layout.table)]
    try:
        scan = pl.scan_csv(
            data,
            has_header=False,
            schema=layout.kinds,
            separator=layout.table.separator,
            quote_char=None,
            raise_if_empty=False,
        )
        frame = scan.select(list(dict.fromkeys([*wanted, last]))).collect()
    except pl.exceptions.PolarsError:
        return None
    # Rows too short and too long can cancel out in the count; but a row too short has nothing in its last column.
    if frame.height != lines or (frame[last].null_count() and not _even(block, layout)):
        return None
    return frame.with_columns(line=pl.int_range(block.line, block.line + lines, dtype=pl.Int64))


def _even(block: _Block, layout: _Layout) -> bool:
    """Has every line as many separators as it should? Their number in all is right already."""
    data = np.frombuffer(block.data, np.uint8)
    ends = np.flatnonzero(data == ord("\n"))
    if len(layout.found) == 1:
        return True
    marks = np.flatnonzero(data == ord(layout.table.separator)).reshape(-1, len(layout.found) - 1)
    return bool((marks[: len(ends), -1] < ends).all() and (marks[1:, 0] > ends[: len(marks) - 1]).all())


def _careful(block: _Block, layout: _Layout) -> tuple[pl.DataFrame, list[tuple[int, str]]]:
    """Parse line by line; bad lines come back with their reasons."""
    good: list[list[str]] = []
    at: list[int] = []
    bad: list[tuple[int, str]] = []
    for line, text in _records(block, bad, quoted=layout.table.quote):
        fields = _fields(text, layout)
        if len(fields) != len(layout.found):
            bad.append((line, f"{len(layout.found)} columns expected, found: {len(fields)}"))
        else:
            good.append(fields)
            at.append(line)
    frame = pl.DataFrame(good, schema=dict.fromkeys(layout.found, pl.String), orient="row")
    frame = frame.with_columns(pl.all().replace("", None), line=pl.Series(at, dtype=pl.Int64))
    return _numbers(frame, layout, bad), bad


def _records(block: _Block, bad: list[tuple[int, str]], *, quoted: bool) -> Iterator[tuple[int, str]]:
    lines = block.data.split(b"\n")
    k = 0
    while k < len(lines):
        first, raw = k, lines[k]
        k += 1
        # A quoted field may hold line ends: go on until its quote is closed, but not for ever.
        while quoted and raw.count(b'"') % 2 and k < len(lines) and k - first < 1000:
            raw += b"\n" + lines[k]
            k += 1
        if quoted and raw.count(b'"') % 2:
            bad.append((block.line + first, "a quote is opened and not closed"))
            k = first + 1
            continue
        try:
            text = raw.decode().removesuffix("\r")
        except UnicodeDecodeError:
            bad.append((block.line + first, "not UTF-8"))
            continue
        if text.strip():
            yield block.line + first, text


def _fields(text: str, layout: _Layout) -> list[str]:
    if not (layout.table.quote and '"' in text):
        return text.split(layout.table.separator)
    try:
        return next(csv.reader(io.StringIO(text, newline=""), delimiter=layout.table.separator))
    except csv.Error:
        return []


def _numbers(frame: pl.DataFrame, layout: _Layout, bad: list[tuple[int, str]]) -> pl.DataFrame:
    """Cast what should be numbers, row by row refusing what is not."""
    for name, kind in layout.kinds.items():
        if kind == pl.String:
            continue
        cast = frame[name].str.strip_chars().cast(kind, strict=False)
        wrong = cast.is_null() & frame[name].is_not_null()
        for line, value in frame.filter(wrong).select("line", name).iter_rows():
            bad.append((line, f"`{name}` is not a number: {value[:80]!r}"))
        frame = frame.with_columns(cast.alias(name)).filter(~wrong)
    return frame
