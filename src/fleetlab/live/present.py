"""The present state of a cluster by its last poll: jobs that wait with their reasons, and free GPUs."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

from fleetlab.core import Cluster, FleetlabError, Trace, TraceError
from fleetlab.live.rows import UP, Poll
from fleetlab.live.sources import Source
from fleetlab.live.trace import read_rows

MOST_LABELS = 50  # queues, reasons, GPU types that are told apart; others are "other"
OTHER = "other"
WAITING = {"queue": pl.String, "reason": pl.String, "jobs": pl.Int64, "gpus": pl.Float64, "longest": pl.Float64}
TEAMS = {"team": pl.String, "state": pl.String, "jobs": pl.Int64, "gpus": pl.Float64}
RUNNING = {"queue": pl.String, "jobs": pl.Int64, "gpus": pl.Float64}
GPUS = {"gpu_type": pl.String, "gpus": pl.Int64, "up": pl.Float64, "allocated": pl.Float64, "fragmented": pl.Float64}


def _empty(schema: dict[str, type[pl.DataType]]) -> pl.DataFrame:
    return pl.DataFrame(schema=schema)


@dataclass(frozen=True, slots=True)
class Present:
    """The cluster at the last good poll, by partition or queue, by reason, and by GPU type."""

    at: float
    waiting: pl.DataFrame = field(default_factory=lambda: _empty(WAITING))
    running: pl.DataFrame = field(default_factory=lambda: _empty(RUNNING))
    gpus: pl.DataFrame = field(default_factory=lambda: _empty(GPUS))
    teams: pl.DataFrame = field(default_factory=lambda: _empty(TEAMS))  # Slurm's accounts, Kubernetes' namespaces
    starts: dict[str, tuple[str, float]] = field(default_factory=dict)  # of running jobs, by name: queue and wait


# Of each query of its other engine, the default, polars 2.1 keeps 16 bytes until it has to spill to disk.
@pl.Config(engine_affinity="in-memory", apply_on_context_enter=True)
def present_of(source: type[Source], poll: Poll, site: Path | None) -> Present:
    """Read the rows of a poll as a trace, and count."""
    try:
        trace = read_rows(source, (row.data for row in poll.rows.values()), poll.nodes, site)
    except TraceError:  # nothing there to read
        return Present(poll.at)
    jobs = _jobs(source, trace, poll)
    waiting = (
        jobs.filter(pl.col("status") == "waiting")
        .with_columns(waited=pl.max_horizontal(poll.at - pl.col("submit"), 0.0))
        .group_by("queue", "reason")
        .agg(jobs=pl.len().cast(pl.Int64), gpus=pl.col("gpus").sum(), longest=pl.col("waited").max())
        .sort("jobs", "queue", "reason", descending=[True, False, False])
    )
    runs = jobs.filter(pl.col("status") == "running")
    running = runs.group_by("queue").agg(jobs=pl.len().cast(pl.Int64), gpus=pl.col("gpus").sum()).sort("queue")
    waits = runs.filter(pl.col("start").is_not_null()).select("name", "queue", wait=pl.col("start") - pl.col("submit"))
    starts = {name: (queue, wait) for name, queue, wait in waits.iter_rows()}
    at_hand = jobs.filter(pl.col("status").is_in(["waiting", "running"])).rename({"status": "state"})
    teams = at_hand.group_by("team", "state").agg(jobs=pl.len().cast(pl.Int64), gpus=pl.col("gpus").sum())
    return Present(poll.at, waiting, running, _gpus(trace, poll), teams.sort("team", "state"), starts)


def _jobs(source: type[Source], trace: Trace, poll: Poll) -> pl.DataFrame:
    """Return what counts of each job, in Unix time, with few names of queues and reasons."""
    epoch = trace.workload.epoch or 0.0
    frame = trace.workload.frame.select(
        "job", "submit", "start", status=pl.col("status").cast(pl.String),
        gpus=pl.col("gpu_milli").cast(pl.Int64) * pl.col("instances") / 1000,
        partition=pl.col("partitions").list.first(), of_queue=pl.col("queue").cast(pl.String),
        user=pl.col("user").cast(pl.String), app=pl.col("app").cast(pl.String),
    )  # fmt: skip
    # The reader of Slurm's log keeps the account as the application, that of pods the namespace as the user.
    is_slurm = source.format == "slurm"
    queue, team = ("partition", "app") if is_slurm else (pl.coalesce("of_queue", "user"), "user")
    assert trace.names is not None
    said = {name: row.reason for row in poll.rows.values() if row.reason for name in source.job_names(row.data)}
    reasons = pl.DataFrame(
        {"name": list(said), "said": list(said.values())}, schema=dict.fromkeys(("name", "said"), pl.String)
    )
    frame = frame.join(trace.names.collect(), on="job", how="left").join(reasons, on="name", how="left")
    if is_slurm:  # tasks of an array that have not been split off have one row
        by_series = trace.series.get("reason")
        if by_series is not None:
            frame = frame.join(by_series.collect(), on="job", how="left")
            frame = frame.with_columns(said=pl.coalesce("said", "reason")).drop("reason")
    frame = frame.with_columns(
        pl.col("submit", "start") + epoch, queue=queue, team=team, reason=pl.col("said").fill_null("None")
    ).with_columns(pl.col("queue", "team").fill_null("none"))
    return frame.with_columns(_few(frame, column) for column in ("queue", "team", "reason"))


def _few(frame: pl.DataFrame, column: str) -> pl.Expr:
    common = frame[column].value_counts(sort=True).head(MOST_LABELS)[column]
    return pl.when(pl.col(column).is_in(common.implode())).then(column).otherwise(pl.lit(OTHER)).alias(column)


def _gpus(trace: Trace, poll: Poll) -> pl.DataFrame:
    if trace.cluster is None or not trace.cluster.gpus:
        return _empty(GPUS)
    from fleetlab.sim.free import free_gpus  # brings the compiler

    used = _used(trace, trace.cluster, poll)
    try:
        made = free_gpus(trace.workload, trace.cluster, used)
    except FleetlabError:  # a cluster beyond what is simulated: its GPUs can be counted all the same
        made = _counted(trace.cluster, used)
    return made.select(pl.col(name).cast(kind) for name, kind in GPUS.items())


def _counted(cluster: Cluster, used: dict[str, tuple[int, int, bool]]) -> pl.DataFrame:
    """Return GPUs by type without what is fragmented."""
    rows = [
        (kind or "", gpus, gpus if up else 0, min(gpus, milli / 1000) if up else 0.0)
        for name, kind, gpus in cluster.frame.filter(pl.col("gpus") > 0).select("node", "gpu_type", "gpus").iter_rows()
        for milli, _, up in [used.get(name, (0, 0, True))]
    ]
    names = ["gpu_type", "gpus", "up", "allocated"]
    frame = pl.DataFrame(rows, schema=names, orient="row").group_by("gpu_type").agg(pl.all().sum()).sort("gpu_type")
    return frame.with_columns(fragmented=pl.lit(None))


def _used(trace: Trace, cluster: Cluster, poll: Poll) -> dict[str, tuple[int, int, bool]]:
    """Return what is allocated on each node: as the source tells, or by where jobs run."""
    if poll.used is not None:
        return {name: (use.gpu_milli, use.cpu_milli, poll.states[name] == UP) for name, use in poll.used.items()}
    used = {name: (0, 0, poll.states.get(name, UP) == UP) for name in cluster.frame["node"]}
    if trace.placements is not None:
        runs = trace.workload.frame.filter(pl.col("status") == "running").select("job", "gpu_milli", "cpu_milli")
        placed = trace.placements.select("job", pl.col("node").cast(pl.String)).collect().join(runs, on="job")
        sums = placed.group_by("node").agg(pl.col("gpu_milli").cast(pl.Int64).sum(), pl.col("cpu_milli").sum())
        for name, gpu, cpu in sums.iter_rows():
            if name in used:
                used[name] = (gpu, cpu, used[name][2])
    return used
