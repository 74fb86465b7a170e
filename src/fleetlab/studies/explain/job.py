"""One job: find the one that is meant, simulate the scenario around it, and read its timeline off that, as tables."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from difflib import get_close_matches
from typing import Any

import numpy as np
import polars as pl

from fleetlab.core import Scenario, Workload, WorkloadError
from fleetlab.core.catalog import HOLDERS, REASONS
from fleetlab.core.durations import clock_text, duration, plural
from fleetlab.core.job_classes import WHOLE
from fleetlab.core.names import clip
from fleetlab.core.progress import Progress
from fleetlab.sim import SimResult, simulate

# -- by the log's own id, its number, its user or group ----------------------------------------------------------------

WHO = ("user", "group", "app", "queue")  # columns to search by COLUMN=VALUE, and by a name alone
NUMBER = "#"  # before the number of a job, where the log's own ids are numbers too
NEAR = 3  # names that a hint repeats
MOST_NAMES = 200_000  # that are compared with a name that none has


def names_of(scenario: Scenario) -> pl.DataFrame:
    """Return the log's own id of each job, as `job` and `name`; empty where the trace has none."""
    names = scenario.trace.names
    if names is None or "name" not in names.collect_schema().names():
        return pl.DataFrame(schema={"job": pl.Int64, "name": pl.String})
    return scenario.by_job(names).select("job", pl.col("name").cast(pl.String)).collect()


def find_jobs(scenario: Scenario, words: str, names: pl.DataFrame) -> list[int]:
    """Return the jobs that some words mean; several where they name a user, a group, an array or a shared name."""
    text, frame = words.strip(), scenario.workload.frame
    column, equals, value = text.partition("=")
    if equals and column.strip() in WHO:
        return _by_column(frame, column.strip(), value.strip())
    if jobs := _by_name(names, text):
        return jobs
    digits = text.removeprefix(NUMBER)
    if digits.isascii() and digits.isdigit() and int(digits) < frame.height:
        return [int(digits)]
    for name in WHO:
        if jobs := frame.filter(pl.col(name).cast(pl.String) == text)["job"].to_list():
            return jobs
    raise WorkloadError(f"no job is called that: `{clip(text)}`", hint=_hint(frame, names, text))


def _by_name(names: pl.DataFrame, text: str) -> list[int]:
    """Return the jobs with that id: as the log has it, without its cluster or namespace, or of an array or parts."""
    name, inner = pl.col("name"), pl.col("name").str.split("/").list.last()
    parts = [whole.str.starts_with(f"{text}{mark}") for whole in (name, inner) for mark in "_+"]
    for matches in (name == text, inner == text, pl.any_horizontal(parts)):
        if text and (jobs := names.filter(matches)["job"].to_list()):
            return jobs
    return []


def _by_column(frame: pl.DataFrame, column: str, value: str) -> list[int]:
    text = pl.col(column).cast(pl.String)
    if jobs := frame.filter(text == value)["job"].to_list():
        return jobs
    names = frame[column].cast(pl.String).drop_nulls()
    near = get_close_matches(value, names.unique().to_list(), NEAR, 0.0)
    msg = f"no job has the {column}: `{clip(value)}`"
    hint = f"near to it are {', '.join(map(clip, near))}" if near else f"the log names no {column} of any job"
    raise WorkloadError(msg, hint=hint)


def _hint(frame: pl.DataFrame, names: pl.DataFrame, text: str) -> str:
    columns = [frame[name].cast(pl.String).drop_nulls().unique() for name in WHO]
    every = pl.concat([names["name"].head(MOST_NAMES), *columns]).unique(maintain_order=True).to_list()
    near = get_close_matches(text, every, NEAR, 0.5)
    close = f"near to it are {', '.join(map(clip, near))}; " if near else ""
    return f"{close}a job is the log's own id, {NUMBER}0 to {NUMBER}{frame.height - 1}, user=… or group=…"


# -- the simulation around a job ---------------------------------------------------------------------------------------

LARGE = 150_000  # jobs: of more, those of some days are simulated
ONE_DAY = 86_400.0
BEFORE, AFTER = ONE_DAY, 2 * ONE_DAY  # around the submission of the job, whose jobs can be named
WARM_UP = "2d"  # before that


@dataclass(frozen=True, slots=True, eq=False)
class JobSimulation:
    """A simulation, and the number of the job in it."""

    scenario: Scenario
    result: SimResult
    job: int
    whole: Scenario  # of all jobs, whose numbers and times are reported
    notes: tuple[str, ...] = ()

    @property
    def jobs_before(self) -> int:
        """How many jobs of the whole come before the first of the simulation."""
        return self.scenario.first_row - self.whole.first_row

    @property
    def begin(self) -> float:
        """When the simulation begins, in seconds of the whole."""
        return self.scenario.begin - self.whole.begin


def simulation_of(scenario: Scenario, job: int, progress: Progress, *, large: int = LARGE) -> JobSimulation:
    """Simulate the scenario; of a large log, the days around a job, until it has started."""
    if len(scenario.workload) <= large or scenario.window or scenario.workload.frame["initial"][job]:
        return JobSimulation(scenario, simulate(scenario, progress=progress), job, scenario)
    row, later = scenario.first_row + job, AFTER
    submit = float(scenario.trace.workload.frame["submit"][row])
    last = float(scenario.trace.workload.frame["submit"][-1])
    while True:
        window = (max(submit - BEFORE, 0.0), submit + later)
        part = scenario.replace(window=window, warm_up=WARM_UP)
        job_in_part = row - part.first_row
        result = simulate(part, progress=progress)
        if result.refused["job"].is_in([job_in_part]).any() or _started_within(
            result, job_in_part, window[1] - window[0]
        ):
            break
        if window[1] > last:
            break
        later *= 4
    note = (
        f"of {len(scenario.workload):,} jobs, the {len(part.workload):,} that were submitted from "
        f"{duration(submit - window[0])} before to {duration(later)} after it are simulated, after those of "
        f"{duration(2 * ONE_DAY)} and what then still ran: window=0.. simulates all"
    )
    return JobSimulation(part, result, job_in_part, scenario, (note,))


def _started_within(result: SimResult, job: int, seconds: float) -> bool:
    """Whether a job started while jobs still arrived: after that too little is in its way."""
    start = result.jobs["start"].filter(result.jobs["job"] == job)
    load = 1.0 if result.scenario is None else result.scenario.load
    return len(start) == 1 and start[0] is not None and start[0] <= seconds / load


# -- the timeline: when, why, who and where ----------------------------------------------------------------------------

LISTED = 20  # holders and overtakers in a table
TIMES = ("from", "until", "submit", "eligible", "start", "end")  # columns
HOUR, DAY = 3600.0, 86_400.0
BACKFILLED, AHEAD = "behind it in the queue", "ahead of it by the order"
LATER = "submitted after it"  # where ranks change with time, no job is ahead or behind for good
REQUESTED_GPUS = pl.col("gpu_milli").cast(pl.Int64) * pl.col("instances") / WHOLE


@dataclass(frozen=True, slots=True, eq=False)
class JobTimeline:
    """What happened to one job; times are seconds from the first submission."""

    job: int
    name: str | None  # the log's own id
    row: dict[str, Any]  # of the workload
    simulated: dict[str, Any]  # of the simulated jobs
    segments: pl.DataFrame  # from, until, wait, reason, meaning
    holders: pl.DataFrame  # jobs that held what it was missing
    heads: pl.DataFrame  # who was first in the queue while it fitted, and did not start
    overtakers: pl.DataFrame  # jobs that came later and started earlier where it could have
    runs: pl.DataFrame  # where it ran: from, until, node, GPUs
    neighbors: pl.DataFrame  # jobs on the same GPUs at the same time
    counts: dict[str, float]  # totals, of which the tables list the first

    def counted_from(self, jobs: int, seconds: float) -> JobTimeline:
        """Return the timeline with so many jobs, and so many seconds, before the first."""
        if not jobs and not seconds:
            return self
        later = {name: value for name in TIMES if (value := self.simulated.get(name)) is not None}
        row = {name: value for name in TIMES if (value := self.row.get(name)) is not None}
        return replace(
            self, job=self.job + jobs, row=self.row | {name: value + seconds for name, value in row.items()},
            simulated=self.simulated | {name: value + seconds for name, value in later.items()},
            segments=counted_from(self.segments, jobs, seconds), holders=counted_from(self.holders, jobs, seconds),
            heads=counted_from(self.heads, jobs, seconds),
            overtakers=counted_from(self.overtakers, jobs, seconds), runs=counted_from(self.runs, jobs, seconds),
            neighbors=counted_from(self.neighbors, jobs, seconds),
        )  # fmt: skip

    @property
    def wait(self) -> float:
        """All its waiting, s."""
        return float(self.simulated["wait"])

    @property
    def start(self) -> float | None:
        """When it first started."""
        return None if self.simulated["start"] is None else float(self.simulated["start"])

    @property
    def eligible(self) -> float:
        """Since when it could have run."""
        first = self.segments.filter(pl.col("reason") == REASONS.names[0])
        begins = first.height and first["from"][0] == self.segments["from"][0]
        return float(first["until"][0]) if begins else float(self.simulated["submit"])

    @property
    def recorded_wait(self) -> float | None:
        """What the log recorded, where it did."""
        start, submit = self.row["start"], self.row["submit"]
        return None if start is None or start < submit or self.row["initial"] else float(start - submit)


def counted_from(table: pl.DataFrame, jobs: int, seconds: float) -> pl.DataFrame:
    """Return a table with so many jobs, and so many seconds, before the first."""
    times = [pl.col(name) + seconds for name in TIMES if name in table.columns]
    return table.with_columns(*times, *([pl.col("job") + jobs] if "job" in table.columns else []))


def timeline_of(result: SimResult, job: int, workload: Workload, names: pl.DataFrame) -> JobTimeline:
    """Read the timeline of a job off a simulation."""
    simulated = result.jobs.filter(pl.col("job") == job).row(0, named=True)
    raw = result.wait_segments(job)
    meaning = raw["reason"].replace_strict(REASONS.meanings(), return_dtype=pl.String)
    segments = raw.select(
        pl.col("begin").alias("from"), pl.col("end").alias("until"), (pl.col("end") - pl.col("begin")).alias("wait"),
        "reason",
    ).with_columns(meaning=meaning)  # fmt: skip
    who = _who(result, names)
    others = result.blockers(job).join(who, on="row", how="left", maintain_order="left")
    heads = _heads(result.queue_heads(job).join(who, on="row", how="left", maintain_order="left"))
    holding = _holders(others.filter(pl.col("seconds") > 0))
    passed = _overtakers(others, simulated, ranked=result.played.keys is not None)
    own = names.filter(pl.col("job") == job)["name"]
    runs, beside = _runs(result, job, names)
    counts = {
        "holders": holding.height, "heads": heads.height, "behind heads": float(heads["wait"].sum()),
        "overtakers": passed.height,
        "backfilled": int((passed["how"] == BACKFILLED).sum()),
        **{name: float(holding.filter(pl.col("held by") == name)["wait"].sum()) for name in HOLDERS.names[:3]},
    }  # fmt: skip
    return JobTimeline(
        job, own[0] if len(own) else None, workload.frame.row(job, named=True), simulated, segments,
        holding.head(LISTED), heads.head(LISTED), passed.head(LISTED), runs, beside.head(LISTED), counts,
    )  # fmt: skip


def _who(result: SimResult, names: pl.DataFrame) -> pl.DataFrame:
    """Return who the jobs of a simulation are, by their rows."""
    frame = result.world.frame.with_row_index("row").with_columns(pl.col("row").cast(pl.Int64))
    who = frame.select("row", "job", pl.col("user").cast(pl.String), "submit", GPUs=REQUESTED_GPUS)
    return who.join(names, on="job", how="left", maintain_order="left").drop("job")


def _holders(others: pl.DataFrame) -> pl.DataFrame:
    return others.select(
        "job", "name", "user", "GPUs", pl.col("holder").alias("held by"), pl.col("seconds").alias("wait"),
        (pl.col("gpu_seconds") / HOUR).alias("GPU-hours"), pl.col("begin").alias("from"), pl.col("end").alias("until"),
    )  # fmt: skip


def _heads(first: pl.DataFrame) -> pl.DataFrame:
    """Return the jobs that were at the head of the queue, for how long of its wait, the longest first."""
    by_job = first.group_by("row", "job", "name", "user", "GPUs", maintain_order=True).agg(
        (pl.col("end") - pl.col("begin")).sum().alias("wait"), pl.col("begin").min().alias("from"),
        pl.col("end").max().alias("until"),
    )  # fmt: skip
    return by_job.drop("row").sort("wait", "from", descending=[True, False], maintain_order=True)


def _overtakers(others: pl.DataFrame, simulated: dict[str, Any], *, ranked: bool) -> pl.DataFrame:
    """Return the runs of jobs that came later and began while it waited, the most GPU time first."""
    later = (pl.col("submit") > simulated["submit"]) | (
        (pl.col("submit") == simulated["submit"]) & (pl.col("job") > simulated["job"])
    )
    meanwhile = pl.col("holder") != HOLDERS.names[0]
    behind = pl.when(pl.col("holder") == HOLDERS.names[2]).then(pl.lit(BACKFILLED)).otherwise(pl.lit(AHEAD))
    return (
        others.filter(later & meanwhile & pl.col("job").is_not_null())
        .sort("gpu_seconds", "begin", descending=[True, False], maintain_order=True)
        .select(
            "job", "name", "user", "GPUs", "submit", pl.col("begin").alias("start"), pl.col("end").alias("until"),
            (behind if ranked else pl.lit(LATER)).alias("how"),
            (pl.col("gpu_seconds") / HOUR).alias("GPU-hours"),
        )
    )  # fmt: skip


def _runs(result: SimResult, job: int, names: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return where a job ran, a row a node and run; and who was on the same GPUs meanwhile."""
    own = result.runs(job)
    mine = own.group_by("begin", "end", "node", maintain_order=True).agg(pl.len().alias("instances"), "gpus")
    runs = mine.select(
        pl.col("begin").alias("from"), pl.col("end").alias("until"), "node", "instances",
        pl.Series("GPUs", [_gpu_list(bits) for bits in mine["gpus"]], dtype=pl.String),
    )  # fmt: skip
    if not (own["gpus"] != 0).any():
        return runs, _no_neighbors()
    return runs, _neighbors(result, own, names)


def _no_neighbors() -> pl.DataFrame:
    text = {"name": pl.String, "user": pl.String}
    return pl.DataFrame(
        schema={"job": pl.Int64, **text, "GPUs shared": pl.Int64, "together, s": pl.Float64, "share of run": pl.Float64}
    )


def _neighbors(result: SimResult, own: pl.DataFrame, names: pl.DataFrame) -> pl.DataFrame:
    """Return who held a part of the same GPUs at the same time, and for how long."""
    till = pl.col("end").fill_null(result.played.stopped)
    first, last = own.select(pl.col("begin").min(), till.max()).row(0)
    every = result.runs(within=(first, last))
    there = every.filter(pl.col("node").is_in(own["node"].unique().implode()) & (pl.col("row") != own["row"][0]))
    both = own.select("node", "begin", end=till, gpus="gpus").join(
        there.select("row", "job", "node", "begin", end=till, gpus="gpus"), on="node", suffix=" of"
    )
    together = pl.min_horizontal("end", "end of") - pl.max_horizontal("begin", "begin of")
    shared = pl.Series(np.bitwise_count(both["gpus"].to_numpy() & both["gpus of"].to_numpy()), dtype=pl.Int64)
    both = both.with_columns(shared=shared, together=together).filter((pl.col("shared") > 0) & (pl.col("together") > 0))
    if not both.height:
        return _no_neighbors()
    ran = float(own.select((till - pl.col("begin")).max()).item()) or 1.0
    neighbors = both.group_by("row", "job", maintain_order=True).agg(pl.col("shared").sum(), pl.col("together").max())
    neighbors = neighbors.join(
        _who(result, names).select("row", "name", "user"), on="row", how="left", maintain_order="left"
    )
    return neighbors.sort("together", descending=True, maintain_order=True).select(
        pl.when(pl.col("job") >= 0).then("job").alias("job"), "name", "user", pl.col("shared").alias("GPUs shared"),
        pl.col("together").alias("together, s"), (pl.col("together") / ran).alias("share of run"),
    )  # fmt: skip


def _gpu_list(bits: pl.Series) -> str:
    """Return which GPUs of a node are held, those in a row as a range.

    >>> _gpu_list(pl.Series([0b0111, 0b10000])), _gpu_list(pl.Series([0]))
    ('0-2,4', '')
    """
    every = int(np.bitwise_or.reduce(bits.to_numpy(), initial=0))
    gpus = [k for k in range(every.bit_length()) if every >> k & 1]
    parts: list[list[int]] = []
    for k in gpus:
        if parts and parts[-1][-1] == k - 1:
            parts[-1].append(k)
        else:
            parts.append([k])
    return ",".join(f"{part[0]}-{part[-1]}" if len(part) > 1 else str(part[0]) for part in parts)


def clock_time(seconds: float, workload: Workload) -> str:
    """Return when that is: by the clock of the log, or counted from its first submission."""
    if workload.epoch is None and seconds < DAY:
        return f"{timedelta(seconds=round(seconds, 3))} after the first submission"
    return clock_text(seconds, workload.epoch, workload.zone)


def request_text(row: dict[str, Any]) -> str:
    """Return what a job requests, in words."""
    gpus = row["gpu_milli"] / WHOLE
    each = plural(int(gpus) if gpus.is_integer() else gpus, "GPU") if gpus else "no GPU"
    kinds = f" of type {' or '.join(row['gpu_types'])}" if gpus and row["gpu_types"] else ""
    text = f"{plural(row['instances'], 'instance')} of {each}" if row["instances"] > 1 else each
    cores = f", {plural(row['cpu_milli'] / WHOLE, 'CPU')}" if row["cpu_milli"] else ""
    memory = f", {row['memory_mib'] / 1024:.3g} GiB" if row["memory_mib"] else ""
    limit = f", limit {duration(row['limit'])}" if row["limit"] else ""
    where = f", in {' or '.join(row['partitions'])}" if row["partitions"] else ""
    return f"{text}{kinds}{cores}{memory}{limit}{where}"
