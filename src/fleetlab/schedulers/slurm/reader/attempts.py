"""Rows of sacct that belong to one job: its batch step, pieces of it when it was resized, and its runs.

Each row that ran is a job here, so that none of the GPUs it held is lost: a job that was put back into the queue, or
lost its node, is a job for each run, and the next one depends on the one before. A job that was resized while it ran is
a job for each size: the next one begins when the one before ends.
"""

from __future__ import annotations

import re
from dataclasses import replace

import polars as pl

from fleetlab.core import Trace, Workload

# -- rows of a Slurm log that stand for several tasks of an array: `103_[1-5%2]` is 103_1 to 103_5, two ----------------
# Slurm writes jobs that have not started as one row, and may cut a long list of them off. A few characters can name a
# billion jobs, so they are counted before any is written out; a row of too many, or of an unknown number, stays one.

MOST = 100_000  # jobs of one row
IN_ALL = 1_000_000  # and of all rows together: no cluster holds as many in its queue

_ARRAY = re.compile(r"(.*)_\[([^\[\]%]+)(?:%\d+)?\]")
_SPAN = re.compile(r"(\d{1,9})(?:-(\d{1,9})(?::(\d{1,9}))?)?")


def split_arrays(records: pl.DataFrame) -> pl.DataFrame:
    """One row a job: `array` is true where its row stood for several, `untold` where it still does."""
    several = records.filter(pl.col("name").str.contains("[", literal=True))["name"].value_counts(sort=False)
    known: list[tuple[str, list[str] | None]] = []
    total = 0
    for name, times in several.sort("name").iter_rows():
        fits = total + size(name) * times <= IN_ALL
        jobs = jobs_of(name) if fits else None
        total += len(jobs or ()) * times
        known.append((name, jobs))
    table = pl.DataFrame(known, schema={"name": pl.String, "jobs": pl.List(pl.String)}, orient="row")
    records = records.join(table, on="name", how="left", maintain_order="left")
    array = pl.col("jobs").is_not_null()
    records = records.with_columns(array=array, untold=~array & pl.col("name").str.contains("[", literal=True))
    return records.with_columns(name=pl.coalesce("jobs", pl.concat_list("name"))).drop("jobs").explode("name")


def jobs_of(name: str) -> list[str] | None:
    """The names of the jobs that a row stands for; None where they cannot be told, or are too many.

    >>> jobs_of("103_[1-3,7,10-20:5%2]")
    ['103_1', '103_2', '103_3', '103_7', '103_10', '103_15', '103_20']
    """
    spans = _spans(name)
    if not spans or size(name) > MOST:
        return None
    record = name[: name.rindex("_[")]
    return [f"{record}_{k}" for k in dict.fromkeys(k for span in spans for k in span)]


def size(name: str) -> int:
    """How many jobs a row stands for; 0 where it cannot be told."""
    return sum(len(span) for span in _spans(name))


def _spans(name: str) -> list[range]:
    match = _ARRAY.fullmatch(name)
    parts = [_SPAN.fullmatch(part) for part in match[2].split(",")] if match else []
    spans = [_span(part) for part in parts if part]
    return spans if len(spans) == len(parts) and all(spans) else []


def _span(part: re.Match[str]) -> range:
    first, last, step = int(part[1]), int(part[2] or part[1]), int(part[3] or 1)
    return range(first, last + 1, step) if step else range(0)


LOST = r"^(PREEMPTED|NODE_FAIL)"  # runs that a scheduler or a node ended, not the job or its user


def in_order() -> list[pl.Expr]:
    """By what jobs are ordered: submission, then their numbers, as Slurm gave them within one second."""
    number = pl.col("name").str.extract(r"(\d+)(?:_\d+|_\[.*|\+\d+)?$").cast(pl.Int64, strict=False)
    task = pl.col("name").str.extract(r"[_+](\d+)$").cast(pl.Int64, strict=False).fill_null(-1)
    return [pl.col("submit"), number, task]


def resized(records: pl.DataFrame) -> pl.DataFrame:
    """Let each piece of a resized job begin where the one before ended, and not still run when it has ended.

    Slurm writes a row for each size: the first is RESIZING, and the next has the resizing as its submission but
    still the first start, and the time elapsed since then.
    """
    piece = pl.col("State").str.to_uppercase().str.starts_with("RESIZING") & pl.col("end").is_not_null()
    if not records.select(piece.any()).item():
        return records.with_columns(piece=pl.lit(value=False))
    records = records.with_columns(before=piece).with_row_index("row").sort("name", "submit", maintain_order=True)
    after = pl.col("before").shift(1).over("name").fill_null(value=False) & (pl.col("start") < pl.col("submit"))
    records = records.with_columns(after=after).sort("row")
    return records.with_columns(
        status=pl.when("before").then(pl.lit("completed")).otherwise("status"),
        Start=pl.when("after").then("Submit").otherwise("Start"),
        start=pl.when("after").then("submit").otherwise("start"),
        ElapsedRaw=pl.when("after").then(pl.lit("")).otherwise("ElapsedRaw"),
        piece=pl.col("before") | pl.col("after"),
    ).drop("row", "before", "after")


def first_node(records: pl.DataFrame, steps: pl.DataFrame) -> pl.Series:
    """Return what each job's batch step had, which runs on its first node alone; empty if not known."""
    batch = steps.filter(pl.col("JobID").str.ends_with(".batch")).select("name", "started", first="AllocTRES")
    rows = records.select("name", "start", "end").with_row_index("row")
    runs = rows.join(batch, on="name")
    of_run = (pl.col("started") >= pl.col("start")) & (pl.col("started") <= pl.col("end")).fill_null(value=True)
    first = runs.filter(of_run).unique("row", keep="first").select("row", "first")
    return rows.join(first, on="row", how="left", maintain_order="left")["first"].fill_null("")


def folded(trace: Trace) -> Trace:
    """Return a trace with one row for each job, as far as others ended its runs.

    A run that ended with a preemption or with its node is left out where the job ran again: whoever simulates
    preemption or failing nodes decides that anew. The job is submitted when its first run was, and keeps the runtime of
    the last one. Where that was the last run, how long the job would have run is not known.
    """
    series = trace.series.get("attempts")
    if series is None:
        return trace
    runs = series.collect().filter(~pl.col("resized"))
    lost = runs.filter(pl.col("state").str.contains(LOST))
    ran_again = pl.col("attempt") < pl.col("of")
    return _without(_cut_short(trace, lost.filter(~ran_again)), runs, lost.filter(ran_again))


def _cut_short(trace: Trace, last: pl.DataFrame) -> Trace:
    """Let the runtime of jobs be unknown whose last run others ended; it is at least what was seen of it."""
    if last.is_empty():
        return trace
    cut = pl.col("job").is_in(last["job"].implode())
    seen = pl.coalesce("runtime", pl.col("end") - pl.col("start"))
    frame = trace.workload.frame.with_columns(
        runtime_at_least=pl.when(cut).then(seen).otherwise("runtime_at_least"),
        runtime=pl.when(~cut).then("runtime"),
        end=pl.when(~cut).then("end"),
    )
    what = f"{last.height:,} jobs were ended by a preemption or with their node: they would have run longer than logged"
    return replace(trace, workload=replace(trace.workload, frame=frame), notes=(*trace.notes, what))


def _without(trace: Trace, runs: pl.DataFrame, lost: pl.DataFrame) -> Trace:
    """Leave runs out after which a job ran again; it is submitted when the first of them was."""
    if lost.is_empty():
        return trace
    frame = trace.workload.frame
    times = runs.join(frame.select("job", "submit", "eligible"), on="job").sort("job")
    # The first of the lost runs right before a run.
    new = (~pl.col("job").is_in(lost["job"].implode())).cast(pl.Int64).shift(1).fill_null(0).cum_sum().over("name")
    first = times.with_columns(round=new).with_columns(pl.col("submit", "eligible").first().over("name", "round"))
    frame = frame.join(first.select("job", s="submit", e="eligible"), on="job", how="left", maintain_order="left")
    frame = frame.with_columns(submit=pl.coalesce("s", "submit"), eligible=pl.coalesce("e", "eligible")).drop("s", "e")
    kept = frame.filter(~pl.col("job").is_in(lost["job"].implode()))
    w = trace.workload
    made = Workload.of(kept, source=w.source, epoch=w.epoch, zone=w.zone, notes=w.notes)
    numbers = kept.sort(pl.col("initial").not_(), "submit", maintain_order=True).select(
        "job", now=pl.int_range(pl.len())
    )
    what = f"{lost.height:,} runs that were preempted or lost their node are simulated as parts of the runs after them"
    return replace(
        trace, workload=made, notes=(*trace.notes, what), usage=_numbered(trace.usage, numbers),
        placements=_numbered(trace.placements, numbers), names=_numbered(trace.names, numbers),
        series={name: table for name, old in trace.series.items() if (table := _numbered(old, numbers)) is not None},
    )  # fmt: skip


def _numbered(table: pl.LazyFrame | None, numbers: pl.DataFrame) -> pl.LazyFrame | None:
    """Give the jobs of a table their new numbers; those that are gone leave it."""
    if table is None or "job" not in table.collect_schema():
        return table
    order = table.collect_schema().names()
    return table.join(numbers.lazy(), on="job").with_columns(job=pl.col("now")).select(order)
