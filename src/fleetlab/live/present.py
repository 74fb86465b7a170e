"""The present state of a cluster by its last poll, printed by `fleetlab watch` and served to Prometheus.

Prometheus gets gauges of the last good poll with their age, and counters since the watch began. Labels are bounded:
queues, teams, reasons and GPU types as they are kept here, and counters count the first of these alone, for a watch of
months sees many; never jobs or users.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from fleetlab.core import Cluster, Estimate, FleetlabError, Provenance, Trace, TraceError
from fleetlab.core.durations import plural
from fleetlab.core.result import FieldsResult
from fleetlab.core.sources import DOWN, DRAINED, UP, Poll, Source
from fleetlab.live.journal import queue_of, read_rows

if TYPE_CHECKING:
    from prometheus_client.core import Metric

MOST_LABELS = 50  # queues, reasons, GPU types with a label of their own; others are "other"
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
        queue=queue_of(source), team=pl.col(source.team).cast(pl.String),
    )  # fmt: skip
    assert trace.names is not None
    reason_of = {name: row.reason for row in poll.rows.values() if row.reason for name in source.job_names(row.data)}
    reasons = pl.DataFrame(
        {"name": list(reason_of), "given": list(reason_of.values())}, schema=dict.fromkeys(("name", "given"), pl.String)
    )
    frame = frame.join(trace.names.collect(), on="job", how="left").join(reasons, on="name", how="left")
    if (by_series := trace.series.get("reason")) is not None:  # of tasks of an array that have one row
        frame = frame.join(by_series.collect(), on="job", how="left")
        frame = frame.with_columns(given=pl.coalesce("given", "reason")).drop("reason")
    frame = frame.with_columns(
        pl.col("submit", "start") + epoch, reason=pl.col("given").fill_null("None")
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
        table = free_gpus(trace.workload, trace.cluster, used)
    except FleetlabError:  # a cluster beyond what is simulated: its GPUs can be counted all the same
        table = _counted(trace.cluster, used)
    return table.select(pl.col(name).cast(kind) for name, kind in GPUS.items())


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


class Watched(FieldsResult):
    """A running cluster at one moment."""


def watched(system: str, name: str, present: Present) -> Watched:
    """Return the tables of a present."""
    waiting, running, gpus = present.waiting, present.running, present.gpus
    free = float(gpus["up"].sum()) - float(gpus["allocated"].sum())
    at = f"{datetime.fromtimestamp(present.at, UTC):%Y-%m-%d %H:%M:%S} UTC"
    jobs, runs = int(waiting["jobs"].sum()), int(running["jobs"].sum())
    estimates = [
        Estimate.exact("jobs that wait", jobs),
        Estimate.exact("GPUs that they request", float(waiting["gpus"].sum())),
        Estimate.exact("jobs that run", runs),
        Estimate.exact("GPUs", int(gpus["gpus"].sum())),
        Estimate.exact("GPUs free", free),
    ]
    frames = {
        "waiting": waiting.rename({"gpus": "GPUs", "longest": "longest wait, s"}),
        "running": running.rename({"gpus": "GPUs"}),
        "gpus": gpus.select(
            "gpu_type", GPUs="gpus", allocated="allocated", free=pl.col("up") - pl.col("allocated"),
            fragmented="fragmented", unavailable=pl.col("gpus") - pl.col("up"),
        ),
    }  # fmt: skip
    finding = f"{name} at {at}: {plural(jobs, 'job')} wait, {runs:,} run, {free:,g} GPUs are free."
    notes = (
        "waits are by the reason that the scheduler gives",
        "fragmented: free GPUs that the jobs at hand cannot use, weighed by how frequent these are",
    )
    provenance = Provenance("watch", f"{system}:{name}", {"at": present.at})
    return Watched(provenance, (finding,), tuple(estimates), frames, {}, notes)


# -- for Prometheus --------------------------------------------------------------------------------------------------


PREFIX = "fleetlab_"
# Waits of jobs that started, in seconds: at once, minutes, hours, days.
BUCKETS = (1.0, 60.0, 600.0, 3600.0, 14_400.0, 86_400.0, 604_800.0)
QUEUE = ("queue",)
WHY = ("queue", "reason")
TEAM = ("team", "state")
BACK = "back"
NODE_EVENTS = (DOWN, DRAINED, BACK)
# Each metric: what it is, its labels, and what it says.
GAUGES: dict[str, tuple[Sequence[str], str]] = {
    "queue_jobs": (WHY, "Jobs that wait, by partition or queue and by the reason the scheduler gives"),
    "queue_gpus": (WHY, "GPUs that waiting jobs request"),
    "queue_longest_wait_seconds": (WHY, "How long the job has waited that waits longest"),
    "running_jobs": (QUEUE, "Jobs that run"),
    "running_gpus": (QUEUE, "GPUs that running jobs hold, as requested"),
    "team_jobs": (TEAM, "Jobs that wait or run, by Slurm account or Kubernetes namespace"),
    "team_gpus": (TEAM, "GPUs that these jobs request"),
    "nodes": (("state",), "Nodes: up, drained (or cordoned: no new jobs), or down"),
    "gpus": (("gpu_type", "state"), "GPUs: allocated, free, or unavailable since their node is down or drained"),
    "gpus_fragmented": (("gpu_type",), "Free GPUs that the jobs at hand cannot use, as the FGD paper counts them"),
    "predicted_wait_seconds": (("queue", "quantile"), "Predicted time to start of the jobs that wait: over these jobs"),
    "predicted_request_seconds": (("request", "quantile"), "Predicted time to start of a job that came now"),
    "predicted_age_seconds": ((), "Seconds since the queue was that predictions are of"),
    "watch_up": (("part",), "Whether this part answered at the last poll"),
    "watch_age_seconds": ((), "Seconds since the last complete poll: how stale everything else here is"),
    "watch_poll_seconds": ((), "How long the last poll took"),
    "watch_store_bytes": ((), "Bytes of the store on disk, without the trace"),
    "watch_missing_jobs": ((), "Jobs that are listed no more, and of which nobody tells yet how they ended"),
}
COUNTERS: dict[str, tuple[Sequence[str], str]] = {
    "wait_seconds": (WHY, "Seconds that jobs have waited, by the reason at each poll"),
    "node_events": (("event",), "Nodes that went down, were drained, or came back, from poll to poll"),
    "jobs_ended": ((), "Jobs that ended, or whose end nobody saw"),
    "watch_polls": ((), "Polls that gave a complete list of jobs"),
    "watch_failures": (("part",), "Questions that had no answer"),
    "watch_rows": ((), "Rows written to the store"),
}
HISTOGRAM = "start_wait_seconds"
Counts = defaultdict[tuple[str, ...], float]  # by labels


@dataclass(eq=False)
class Metrics:
    """What is served; the watcher sets it, and a scrape reads it."""

    present: Present | None = None
    up: dict[str, bool] = field(default_factory=dict)
    values: dict[str, float] = field(default_factory=dict)  # gauges without labels
    predicted: dict[str, dict[tuple[str, str], float]] = field(default_factory=dict)
    predicted_at: float | None = None
    counts: dict[str, Counts] = field(default_factory=lambda: {name: defaultdict(float) for name in COUNTERS})
    waits: dict[str, list[float]] = field(default_factory=dict)  # by queue: counts by bucket, then the sum
    nodes: dict[str, str] = field(default_factory=dict)  # their states at the last list of them
    labels: dict[str, set[str]] = field(default_factory=dict)  # of counters: values so far

    def waited(self, queue: str, reason: str, seconds: float) -> None:
        """Count seconds of jobs that wait."""
        self.counts["wait_seconds"][self._label("queue", queue), self._label("reason", reason)] += seconds

    def _label(self, name: str, value: str) -> str:
        """Return a label of a counter, which is never forgotten: beyond the first values it is `other`."""
        values = self.labels.setdefault(name, set())
        if value not in values and len(values) >= MOST_LABELS:
            return OTHER
        values.add(value)
        return value

    def take_nodes(self, states: dict[str, str]) -> dict[str, list[str]]:
        """Take over a list of nodes; count those whose state has changed, and return them by what happened."""
        changed: dict[str, list[str]] = {event: [] for event in NODE_EVENTS}
        for node, state in states.items():
            if self.nodes.get(node, state) != state:
                changed[BACK if state == UP else state].append(node)
        for event, nodes in changed.items():
            self.counts["node_events"][event,] += len(nodes)
        self.nodes = states
        return changed

    def observe(self, queue: str, wait: float) -> None:
        """Count a job that started."""
        row = self.waits.setdefault(self._label("queue", queue), [0.0] * (len(BUCKETS) + 2))
        for k, limit in enumerate(BUCKETS):
            row[k] += wait <= limit
        row[-2] += 1
        row[-1] += wait

    def collect(self) -> Iterator[Metric]:
        """Give every metric, also one that has no values yet."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        gauges = self._gauges()
        for name, (labels, text) in GAUGES.items():
            family = GaugeMetricFamily(PREFIX + name, text, labels=labels)
            for key, value in gauges.get(name, {}).items():
                family.add_metric(key, value)
            yield family
        for name, (labels, text) in COUNTERS.items():
            counter = CounterMetricFamily(PREFIX + name, text, labels=labels)
            counts = self.counts[name] or ({(): 0.0} if not labels else {})
            for key, value in list(counts.items()):
                counter.add_metric(key, value)
            yield counter
        yield self._histogram()

    def _gauges(self) -> dict[str, dict[tuple[str, ...], float]]:
        now = time.time()
        gauges: dict[str, dict[tuple[str, ...], float]] = {name: {(): v} for name, v in self.values.items()}
        if self.nodes:
            counted = Counter(self.nodes.values())
            gauges["nodes"] = {(state,): float(counted[state]) for state in (UP, DRAINED, DOWN)}
        gauges["watch_up"] = {(part,): float(up) for part, up in self.up.items()}
        gauges |= {name: dict(rows) for name, rows in self.predicted.items()}  # type: ignore[arg-type]
        if self.predicted_at is not None:
            gauges["predicted_age_seconds"] = {(): now - self.predicted_at}
        if self.present is not None:
            gauges["watch_age_seconds"] = {(): now - self.present.at}
            gauges |= _of_present(self.present)
        return gauges

    def _histogram(self) -> Metric:
        from prometheus_client.core import HistogramMetricFamily

        text = "Waits of jobs that started while they were watched, from submission to start"
        family = HistogramMetricFamily(PREFIX + HISTOGRAM, text, labels=QUEUE)
        names = [*(f"{limit:g}" for limit in BUCKETS), "+Inf"]
        for queue, row in list(self.waits.items()):
            family.add_metric((queue,), list(zip(names, row[:-1], strict=True)), row[-1])
        return family


def _of_present(present: Present) -> dict[str, dict[tuple[str, ...], float]]:
    waiting = list(present.waiting.iter_rows(named=True))
    running = list(present.running.iter_rows(named=True))
    gpus = list(present.gpus.iter_rows(named=True))
    by_state = {
        (row["gpu_type"], state): value
        for row in gpus
        for state, value in {
            "allocated": row["allocated"],
            "free": row["up"] - row["allocated"],
            "unavailable": row["gpus"] - row["up"],
        }.items()
    }
    columns = {"queue_jobs": "jobs", "queue_gpus": "gpus", "queue_longest_wait_seconds": "longest"}
    samples = {name: {(r["queue"], r["reason"]): float(r[c]) for r in waiting} for name, c in columns.items()}
    samples |= {f"running_{c}": {(r["queue"],): float(r[c]) for r in running} for c in ("jobs", "gpus")}  # type: ignore[misc]
    teams = list(present.teams.iter_rows(named=True))
    samples |= {f"team_{c}": {(r["team"], r["state"]): float(r[c]) for r in teams} for c in ("jobs", "gpus")}
    samples["gpus"] = by_state
    samples["gpus_fragmented"] = {(r["gpu_type"],): r["fragmented"] for r in gpus if r["fragmented"] is not None}  # type: ignore[misc]
    return samples  # type: ignore[return-value]
