"""Any delimited table with a header, turned into a workload by a map: `gpu_milli=gpus*1000`, `submit=created_at`.

A column that is named as in a workload needs no map, and others are guessed from common names (see `guess`). Moments
are recognised by how they look (see `moments`). An empty cell, and words such as NULL, N/A or Unknown, mean that
nothing is there: no start, no end, none of that resource.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import polars as pl

from fleetlab.core import Trace, TraceError, Workload
from fleetlab.traces.input.files import SourceFile, sources
from fleetlab.traces.input.format import Format, Peek, finish, relative_to_first
from fleetlab.traces.input.intake import Intake, TableSchema
from fleetlab.traces.input.line_blocks import LONGEST
from fleetlab.traces.input.log_start import clip_to_start, moment
from fleetlab.traces.input.times import moments
from fleetlab.traces.input.timestamps import valid_zone
from fleetlab.traces.table import cells
from fleetlab.traces.table.expression import named
from fleetlab.traces.table.guess import guess, told
from fleetlab.traces.table.jobs import to_jobs
from fleetlab.traces.table.mapping import ESTIMATE, TIMES, ColumnMap, column_map, listed, map_option

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
    lines = _beginning(source)
    separator = _separator(lines[0])
    header, *first = (_fields(line, separator) for line in lines)
    given = dict(map or {})
    plan = column_map(given, header, valid_zone(zone or "UTC"))
    guesses = guess(plan, given, header, first)
    guessed = {g.target: g.expression for g in guesses}
    plan = plan.with_guesses(guessed)
    if "submit" not in plan.nodes:
        raise _no_submit(source, header, first)
    rows = cells.read(source, _table(plan, separator), intake, plan)
    begin = moment(since, plan.zone)
    jobs, info = to_jobs(rows, source, intake, plan, begin)
    jobs, older = clip_to_start(jobs, begin)
    jobs, zero = relative_to_first(jobs)
    workload = Workload.of(
        jobs.drop("name", ESTIMATE), source=f"csv:{source.stem}", epoch=zero if info.dated else None, zone=zone
    )
    intake.keep(cells.NAME, len(workload))
    number = pl.int_range(pl.len(), dtype=pl.Int64)
    named = jobs.select(job=number, name="name").lazy()
    estimates = {ESTIMATE: jobs.select(job=number, seconds=ESTIMATE).drop_nulls().lazy()}
    return finish(
        intake,
        workload,
        source=workload.source,
        names=named if "job" in plan.nodes else None,
        series=estimates if ESTIMATE in plan.nodes else {},
        notes=(*told(plan, given, guesses, header), *info.notes(plan, zone_given=zone is not None), *older),
        settings={"map": given | guessed, "zone": zone, "since": since, "separator": separator, "zero": zero},
    )


class FirstLook(NamedTuple):
    """The names of the columns, the first rows, and which column would be taken for which."""

    header: list[str]
    rows: list[list[str]]
    spelled: list[str]  # the columns as expressions have them
    map: dict[str, str]
    note: str  # why nothing was guessed


def first_look(path: Path) -> FirstLook:
    """Look at the beginning of a table, as `read` does."""
    lines = _beginning(_one(path))
    separator = _separator(lines[0])
    header, *rows = (_fields(line, separator) for line in lines)
    plan, note, guesses = column_map({}, header, "UTC"), "", []
    try:
        guesses = guess(plan, {}, header, rows)
    except TraceError as e:
        note = f"{e}: {e.hint}" if e.hint else str(e)
    texts = {target: named(target) for target in plan.nodes} | {g.target: g.expression for g in guesses}
    return FirstLook(header, [row for row in rows if row], [named(name) for name in header], texts, note)


def _one(path: Path) -> SourceFile:
    there = sources(path)
    if len(there) != 1:
        msg = f"not one file, but {len(there)}, in: {path}"
        raise TraceError(msg, hint="name the table itself")
    return there[0]


def _table(plan: ColumnMap, separator: str) -> TableSchema:
    return TableSchema(cells.NAME, dict.fromkeys(plan.columns, pl.String), separator=separator)


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


FORMAT = Format(
    name="csv",
    title="Any delimited table, by a map",
    expects="one file with column names in its first line; common names are known, others by --map submit=COLUMN …",
    licence="yours",
    origin="yours",
    read=read,
    fits=_fits,
    options=frozenset({"map", "zone", "since"}),
    any_table=True,
)
