"""Any delimited table with a header, turned into a workload by a map: `gpu_milli=gpus*1000`, `submit=created_at`.

A column that is named as in a workload needs no map, and others are guessed from common names (see `guess`). Moments
are recognised by how they look (see `moments`). An empty cell, and words such as NULL, N/A or Unknown, mean that
nothing is there: no start, no end, none of that resource.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

from fleetlab.core import Trace, TraceError, Workload
from fleetlab.core.trace import PLACEMENTS
from fleetlab.traces.input.delimited import check_width
from fleetlab.traces.input.files import LONGEST, SourceFile, sources
from fleetlab.traces.input.format import Format, Peek, finish, relative_to_first
from fleetlab.traces.input.intake import Intake, TableSchema
from fleetlab.traces.input.times import clip_to_start, moment, moments, valid_zone
from fleetlab.traces.table import cells
from fleetlab.traces.table.expression import ESTIMATE, NODES, TARGETS, TIMES, column_map, listed, map_option, named
from fleetlab.traces.table.guess import guess, mapping_notes
from fleetlab.traces.table.jobs import to_jobs
from fleetlab.traces.table.values import node_names

# How JSON, XML and HTML begin, and no names of columns: `[id],[name]` would be some.
NO_TABLE = re.compile(r"""\s*(?:\{\s*(?:["}]|$)|\[\s*(?:[\[{"\]\d-]|$)|<[?!a-zA-Z])""")
SEPARATORS = (",", "\t", ";", "|")


def read(
    path: Path,
    intake: Intake,
    *,
    map: Mapping[str, str] | None = None,
    zone: str | None = None,
    since: str | None = None,
) -> Trace:
    """Read one delimited file; `map` gives columns of a workload as expressions over those of the file."""
    source = _one(path)
    separator, header, first = _first_rows(source)
    check_width(len(header), source)
    expressions = dict(map or {})
    plan = column_map(expressions, header, valid_zone(zone or "UTC"))
    guesses = guess(plan, expressions, header, first)
    guessed = {g.target: g.expression for g in guesses}
    plan = plan.with_guesses(guessed)
    if "submit" not in plan.nodes:
        raise _no_submit(source, header, first)
    table = TableSchema(cells.NAME, dict.fromkeys(plan.columns, pl.String), separator=separator)
    rows = cells.read(source, table, intake, plan)
    begin = moment(since, plan.zone)
    jobs, info = to_jobs(rows, source, intake, plan, begin)
    jobs, older = clip_to_start(jobs, begin)
    jobs, zero = relative_to_first(jobs)
    own = jobs.drop("name", ESTIMATE, NODES, strict=False)
    workload = Workload.of(own, source=f"csv:{source.stem}", epoch=zero if info.dated else None, zone=zone)
    intake.keep(cells.NAME, len(workload))
    number = pl.int_range(pl.len(), dtype=pl.Int64)
    named = jobs.select(job=number, name="name").lazy()
    estimates = {ESTIMATE: jobs.select(job=number, seconds=ESTIMATE).drop_nulls().lazy()}
    return finish(
        intake,
        workload,
        names=named if "job" in plan.nodes else None,
        series=estimates if ESTIMATE in plan.nodes else {},
        placements=_placements(jobs) if NODES in plan.nodes else None,
        notes=(
            *mapping_notes(plan, expressions, guesses, header),
            *info.notes(plan, zone_given=zone is not None),
            *older,
        ),
        settings={"map": expressions | guessed, "zone": zone, "since": since, "separator": separator, "zero": zero},
    )


def _placements(jobs: pl.DataFrame) -> pl.LazyFrame:
    """Return on which nodes each job ran, one row for each."""
    lists = {one: node_names(one) for one in jobs[NODES].drop_nulls().unique()}
    columns = {NODES: list(lists), "node": list(lists.values())}
    named = pl.DataFrame(columns, schema={NODES: pl.String, "node": pl.List(pl.String)})
    ran = jobs.select(NODES, "status", "start", "end", job=pl.int_range(pl.len(), dtype=pl.Int64))
    rows = ran.filter(pl.col("start").is_not_null()).join(named, on=NODES).explode("node")
    rows = rows.drop_nulls("node").with_columns(worker=pl.int_range(pl.len()).over("job"))
    return rows.select(list(PLACEMENTS)).cast(PLACEMENTS).lazy()  # type: ignore[arg-type]


ROWS = 5
MOST_COLUMNS = 60  # that are shown
CELL = 60  # characters of a cell that are shown


@dataclass(frozen=True, slots=True)
class Preview:
    """What is known of a log before it is read."""

    formats: tuple[str, ...]  # that it looks like, the likeliest first
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    spelled: tuple[str, ...] = ()  # the columns as an expression has them; empty: this is no table
    map: Mapping[str, str] = field(default_factory=dict)  # expressions by column of a workload, as they are guessed
    targets: tuple[str, ...] = ()  # columns of a workload that can be mapped
    note: str = ""  # why nothing was guessed


def preview(path: Path | str) -> Preview:
    """Look at the beginning of a log, as the readers would: what it may be, and which column becomes which."""
    from fleetlab.traces import readers

    peek = Peek(Path(path))
    formats = tuple(f.name for f in readers().values() if f.fits(peek))
    if len(peek.files) != 1:
        lines = zip(peek.files.values(), peek.first_lines, strict=True)
        return Preview(formats, ("file", "first line"), tuple((source.name, line[:CELL]) for source, line in lines))
    source = next(iter(peek.files.values()))
    text = tuple((line[: 2 * CELL],) for line in peek.beginning(source).splitlines()[:ROWS])
    note, guesses = "", []
    try:
        _, header, rows = _first_rows(source)
        plan = column_map({}, header, "UTC")
    except TraceError as e:
        return Preview(formats, ("first lines",), text, note=str(e))
    try:
        guesses = guess(plan, {}, header, rows)
    except TraceError as e:
        note = f"{e}: {e.hint}" if e.hint else str(e)
    if not all(header):  # no names of columns: a log of another kind
        return Preview(formats, ("first lines",), text)
    texts = {target: named(target) for target in plan.nodes} | {g.target: g.expression for g in guesses}
    cells_shown = [tuple(cell[:CELL] for cell in row[:MOST_COLUMNS]) for row in rows if row]
    return Preview(
        formats or (FORMAT.name,), tuple(header[:MOST_COLUMNS]), tuple(cells_shown[:ROWS]),
        tuple(named(name) for name in header[:MOST_COLUMNS]), texts, TARGETS, note,
    )  # fmt: skip


def _first_rows(source: SourceFile) -> tuple[str, list[str], list[list[str]]]:
    """Return the separator, the names of the columns, and the first rows."""
    lines = _beginning(source)
    separator = _separator(lines[0])
    header, *rows = (_fields(line, separator) for line in lines)
    return separator, header, rows


def _one(path: Path) -> SourceFile:
    there = sources(path)
    if len(there) != 1:
        raise TraceError(f"not one file, but {len(there)}, in: {path}", hint="name the table itself")
    return there[0]


def _beginning(source: SourceFile) -> list[str]:
    with source.open() as stream:
        data = stream.read(LONGEST)
    if not data.strip():
        msg = f"{source.name}: the file is empty"
        raise TraceError(msg, hint="a delimited table has the names of its columns in its first line")
    first, *more = data.removeprefix(b"\xef\xbb\xbf").split(b"\n")[:20]
    try:
        header = first.decode().rstrip("\r")
    except UnicodeDecodeError:
        header = ""
    if not header.strip() or not header.replace("\t", " ").isprintable():
        msg = f"{source.name}: its first line is not a list of column names in UTF-8"
        raise TraceError(msg, hint="save the table as CSV in UTF-8, with the names of its columns in its first line")
    if NO_TABLE.match(header):
        msg = f"{source.name}: not a delimited table but JSON or HTML: it begins with {header.lstrip()[:20]!r}"
        raise TraceError(msg, hint="the formats `kubernetes` and `philly` read JSON; convert any other JSON to a table")
    return [header, *(line.decode("utf-8", "replace").rstrip("\r") for line in more)]


def _separator(header: str) -> str:
    # Whatever stands between most names; a separator inside quotes is part of a name.
    unquoted = "".join(header.split('"')[::2])
    return max(SEPARATORS, key=unquoted.count)


def _fields(line: str, separator: str) -> list[str]:
    try:
        return [field.strip() for field in next(csv.reader([line], delimiter=separator), [])]
    except csv.Error:
        return []


def _no_submit(source: SourceFile, header: list[str], rows: list[list[str]]) -> TraceError:
    likely = [name for k, name in enumerate(header) if _looks_like_time(name, [r[k] for r in rows if k < len(r)])]
    msg = f"{source.name}: no column `submit`, and no map for it"
    hint = f"it has {listed(header)}; "
    hint += f"likely times: {listed(likely)}; " if likely else "map the submission time: "
    sayable = [name for name in likely if "`" not in name]  # a backquote cannot stand between backquotes
    return TraceError(msg, hint=hint + map_option("submit", sayable[0] if sayable else "COLUMN"))


def _looks_like_time(name: str, values: list[str]) -> bool:
    seconds, _ = moments(pl.Series(values, dtype=pl.String), "UTC")
    dated = (seconds.is_finite() & (seconds > 1e9) & (seconds < 1e10)).any()
    return dated or any(word in name.casefold() for word in (*TIMES, "time", "date", "_at", "created"))


def _fits(peek: Peek) -> bool:
    return any(peek.has_columns("submit", separator=separator) for separator in SEPARATORS)


FORMAT = Format.of("csv", read, _fits, options=frozenset({"map", "zone", "since"}), any_table=True)
