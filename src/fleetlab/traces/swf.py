"""The Standard Workload Format, version 2.2, in which the Parallel Workloads Archive keeps its logs.

Eighteen numbers a line, -1 where one is not known; lines that begin with `;` are comments, and those at the top
describe the machine. It is a format of CPU machines: a job of p processors becomes a gang of p instances with one CPU
each, since all that the format promises is that they run at the same time, and not on which nodes. Requested
processors are used before allocated ones; memory is the requested one.

User, group and application numbers become names ("12"). The time that users requested is the series `requested`. Where
jobs were swapped out, a job's line is followed by one for each burst (status 2, 3 or 4): they are the series `bursts`.
Not kept: CPU time and memory used, queue and partition, the preceding job and the think time after it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import polars as pl

from fleetlab.core import Cluster, Trace, TraceError, Workload
from fleetlab.traces.input.files import LONGEST, Block, SourceFile, blocks, prefetch, sources
from fleetlab.traces.input.format import Format, Peek, finish, relative_to_first
from fleetlab.traces.input.intake import Intake, Rule
from fleetlab.traces.input.times import LATEST, is_zone, valid_zone

FIELDS = (
    *("number", "submit", "wait", "run", "allocated", "used_cpu", "used_memory"),
    *("processors", "requested", "memory", "status", "user", "group", "app"),
    *("queue", "partition", "preceding", "think"),
)
COUNTED = ("number", "allocated", "processors", "status", "user", "group", "app")
KNOWN_IF_NOT_NEGATIVE = ("submit", "wait", "run", "allocated", "processors", "requested", "memory")
WORDS = ("MaxNodes", "MaxProcs", "UnixStartTime", "TimeZoneString")
HEADER = re.compile(rf"^[ \t]*;[ \t]*({'|'.join(WORDS)})[ \t]*:[ \t]*(\S+)", re.MULTILINE)
MOST = 10_000_000  # processors of one machine, or nodes

RULES: list[Rule] = [
    *[(f"`{f}` is not finite", pl.col(f).is_finite().not_(), f) for f in FIELDS],
    *[(f"`{f}` is not a whole number", pl.col(f) % 1 != 0, f) for f in COUNTED],
    *[(f"`{f}` is too large", pl.col(f).abs() > 1e15, f) for f in FIELDS],
    ("no job number", pl.col("number") < 0, "number"),
    *[(f"`{f}` is negative", (pl.col(f) < 0) & (pl.col(f) != -1), f) for f in KNOWN_IF_NOT_NEGATIVE],
    *[(f"`{f}` is implausibly long", pl.col(f) > LATEST, f) for f in ("submit", "wait", "run", "requested")],
    *[(f"`{f}` is more than any machine has", pl.col(f) > MOST, f) for f in ("allocated", "processors")],
    ("`memory` is more than any machine has", pl.col("memory") > 1e12, "memory"),
    ("unknown status", pl.col("status").is_between(-1, 5).not_(), "status"),
]
JOB_RULES: list[Rule] = [
    ("no submit time", pl.col("submit") < 0),
    ("duplicate job number", ~pl.col("number").is_first_distinct(), "number"),
]
BURST = pl.col("status").is_in([2.0, 3.0, 4.0])


def read(path: Path, intake: Intake, *, zone: str | None = None) -> Trace:
    """Read a log, plain or gzipped; `zone` names the clock of a log whose header does not."""
    source = _file(path)
    header = {"TimeZoneString": valid_zone(zone)} if zone else {}
    empty = pl.DataFrame(schema={"line": pl.Int64, **dict.fromkeys(FIELDS, pl.Float64)})
    lines = pl.concat([empty, *_batches(source, intake, header)])
    records = intake.validate(lines.filter(~BURST), "jobs", source.name, JOB_RULES)
    jobs, zero = relative_to_first(_jobs(records))
    jobs = jobs.with_columns(job=pl.int_range(pl.len(), dtype=pl.Int64))
    bursts = _bursts(lines.filter(BURST), jobs, intake, source)
    clock = header.get("TimeZoneString", "")
    cluster = _cluster(header, jobs)
    workload = Workload.of(
        _columns(jobs), source=f"swf:{source.stem}", epoch=_epoch(header, zero), zone=clock if is_zone(clock) else None
    )
    intake.keep("jobs", len(workload) + bursts.height)
    requested = jobs.filter(pl.col("requested") >= 0).select("job", seconds="requested")
    return finish(
        intake,
        workload,
        cluster=cluster,
        names=jobs.select("job", name=_number("number")).lazy(),
        series={n: f.lazy() for n, f in (("requested", requested), ("bursts", bursts)) if f.height},
        notes=_notes(jobs, cluster, None if is_zone(clock) else clock),
        settings={"zero": zero, "header": header},
    )


def _file(path: Path) -> SourceFile:
    if not path.is_dir():
        return SourceFile(path)
    logs = [s for s in sources(path) if ".swf" in s.name.lower()]
    if len(logs) != 1:
        raise TraceError(f"not one log with the ending .swf or .swf.gz in: {path}", hint="name the log itself")
    return logs[0]


# -- lines -------------------------------------------------------------------------------------------------------


def _batches(source: SourceFile, intake: Intake, header: dict[str, str]) -> Iterator[pl.DataFrame]:
    """The lines of a log as numbers, block by block; what its comments say of the machine goes into `header`."""
    intake.read("jobs", 0)
    empty = True
    for block in prefetch(blocks(source)):
        before = intake.rows["jobs"]
        text = block.data.decode("utf-8", "replace").removeprefix("\ufeff")
        for word, value in HEADER.findall(text):
            header.setdefault(word, value)
        intake.read("jobs", len(block.too_long))
        reason = f"the line is longer than {LONGEST:,} bytes"
        intake.reject("jobs", source.name, [(line, reason) for line in block.too_long])
        numbers = _numbers(_rows(text, block), source, intake)
        if intake.rows["jobs"] and not before and numbers.is_empty():
            msg = f"{source.name}: not a log in the Standard Workload Format: none of its first lines is 18 numbers"
            raise TraceError(msg, hint="`fleetlab traces` lists what each format expects; `csv` reads any table")
        empty = empty and not text.strip()
        yield intake.validate(numbers, "jobs", source.name, RULES)
        intake.progress("reading jobs", intake.rows["jobs"], block.share)
    if empty:
        raise TraceError(f"{source.name}: the file is empty", hint="a log has a line of 18 numbers for each job")


def _rows(text: str, block: Block) -> pl.DataFrame:
    """Lines that are neither empty nor a comment, split where there is white space."""
    lines = pl.DataFrame({"text": text.split("\n")}, schema={"text": pl.String})
    lines = lines.with_columns(pl.col("text").str.strip_chars(), line=block.line + pl.int_range(pl.len()))
    rows = lines.filter((pl.col("text") != "") & ~pl.col("text").str.starts_with(";"))
    return rows.select("line", fields=pl.col("text").str.extract_all(r"\S+"))


def _numbers(rows: pl.DataFrame, source: SourceFile, intake: Intake) -> pl.DataFrame:
    intake.read("jobs", rows.height)
    counted = rows.with_columns(count=pl.col("fields").list.len())
    wrong = f"{len(FIELDS)} fields expected, got"
    rows = intake.validate(counted, "jobs", source.name, [(wrong, pl.col("count") != len(FIELDS), "count")])
    texts = rows.select(
        "line", *[pl.col("fields").list.get(k, null_on_oob=True).alias(f) for k, f in enumerate(FIELDS)]
    )
    number = {f: pl.col(f).cast(pl.Float64, strict=False) for f in FIELDS}
    rules: list[Rule] = [(f"`{f}` is not a number", as_number.is_null(), f) for f, as_number in number.items()]
    return intake.validate(texts, "jobs", source.name, rules).with_columns(**number)


# -- tables ------------------------------------------------------------------------------------------------------


def _or_none(column: str) -> pl.Expr:
    return pl.when(pl.col(column) >= 0).then(pl.col(column))


def _number(column: str) -> pl.Expr:
    return _or_none(column).cast(pl.Int64).cast(pl.String)


def _jobs(records: pl.DataFrame) -> pl.DataFrame:
    run, wait, status = _or_none("run"), _or_none("wait"), pl.col("status")
    never_ran = (status == 5) & ((pl.col("run") < 0) | ((pl.col("run") == 0) & (pl.col("allocated") <= 0)))
    start = pl.when(~never_ran).then(pl.col("submit") + wait)
    count = pl.when(pl.col("processors") > 0).then("processors").otherwise("allocated")
    return records.with_columns(
        runtime=pl.when(~never_ran).then(run),
        start=start,
        end=start + run,
        instances=pl.max_horizontal(count, 1).cast(pl.Int64),
        cpu_milli=pl.when(count > 0).then(1000).otherwise(0),
        # KiB of one processor, rounded up to whole MiB.
        memory_mib=(_or_none("memory").fill_null(0) / 1024).ceil().cast(pl.Int64),
        ended=_ended(),
    )


def _ended() -> pl.Expr:
    return (
        pl.when(pl.col("status") == 0).then(pl.lit("failed"))
        .when(pl.col("status") == 5).then(pl.lit("cancelled"))
        .when((pl.col("status") == 1) | (pl.col("run") >= 0)).then(pl.lit("completed"))
        .when(pl.col("wait") >= 0).then(pl.lit("running"))
        .otherwise(pl.lit("waiting"))
    )  # fmt: skip


def _columns(jobs: pl.DataFrame) -> pl.DataFrame:
    return jobs.select(
        *("submit", "runtime", "instances", "cpu_milli", "memory_mib", "start", "end"),
        status="ended",
        user=_number("user"),
        group=_number("group"),
        app=_number("app"),
    )


def _bursts(lines: pl.DataFrame, jobs: pl.DataFrame, intake: Intake, source: SourceFile) -> pl.DataFrame:
    """One row a burst, in the order of the log: how long it waited since the last one, and ran."""
    named = lines.join(jobs.select("number", "job"), on="number", how="left", maintain_order="left")
    orphan: Rule = ("a burst of a job that has no line", pl.col("job").is_null(), "number")
    bursts = intake.validate(named, "jobs", source.name, [orphan])
    status = pl.col("status").cast(pl.Int64).replace_strict({2: "continued", 3: "completed", 4: "failed"})
    return bursts.select("job", wait=_or_none("wait"), runtime=_or_none("run"), status=status.cast(pl.String))


def _epoch(header: dict[str, str], zero: float) -> float | None:
    begun = _amount(header, "UnixStartTime", LATEST)
    return begun + zero if begun else None


def _amount(header: dict[str, str], word: str, most: float) -> int | None:
    match = re.match(r"\d{1,15}(?!\d)", header.get(word, ""))
    return int(match[0]) if match and 0 < int(match[0]) <= most else None


def _cluster(header: dict[str, str], jobs: pl.DataFrame) -> Cluster | None:
    """The machine of the header: its processors spread over its nodes, or all in one where it names no nodes."""
    processors = _amount(header, "MaxProcs", MOST) or _amount(header, "MaxNodes", MOST)
    if processors is None:
        return None
    nodes = min(_amount(header, "MaxNodes", MOST) or 1, processors)
    each, more = divmod(processors, nodes)
    largest = int(jobs["memory_mib"].max() or 0)  # type: ignore[arg-type]
    node = pl.int_range(nodes, dtype=pl.Int64, eager=True).alias("node")
    cpus = each + (pl.col("node") < more).cast(pl.Int64)
    # The header does not tell the memory: enough of it never to be what a job waits for.
    frame = pl.DataFrame(node).select(
        node=pl.concat_str(pl.lit("node-"), "node"), cpu_milli=cpus * 1000, memory_mib=cpus * largest
    )
    return Cluster.of(frame, source="swf")


def _notes(jobs: pl.DataFrame, cluster: Cluster | None, no_zone: str | None) -> tuple[str, ...]:
    notes = ["each processor is one instance with one CPU; the format has no GPUs"]
    if missing := jobs.filter(pl.col("cpu_milli") == 0).height:
        notes.append(f"jobs without a number of processors, set to 0 CPUs: {missing:,}")
    if missing := jobs.filter((pl.col("status") == -1) & (pl.col("run") >= 0)).height:
        notes.append(f"jobs with a runtime but no status, read as completed: {missing:,}")
    if cluster is None:
        notes.append("the header has no machine size: provide a cluster to simulate it")
    elif (cluster.frame["memory_mib"] > 0).any():
        notes.append("the header has no machine memory: set to what its jobs request")
    if no_zone is not None:
        notes.append(f"the header has no known time zone: {no_zone or 'nothing'}")
    return tuple(notes)


def _fits(peek: Peek) -> bool:
    return any(_is_log(peek.beginning(source)) for source in peek.files.values())


def _is_log(text: str) -> bool:
    lines = [line.split() for line in text.lstrip("\ufeff").split("\n")[:-1] if line.strip()]
    first = next((fields for fields in lines if not fields[0].startswith(";")), None)
    if first is None:
        return bool(HEADER.search(text))
    return len(first) == len(FIELDS) and all(re.fullmatch(r"-?\d+(\.\d*)?", field) for field in first)


FORMAT = Format.of("swf", read, _fits, options=frozenset({"zone"}))
