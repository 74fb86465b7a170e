"""The present for Prometheus: gauges of the last good poll with their age, and counters since the watch began.

Labels are bounded: queues, teams, reasons and GPU types as `present` keeps them, and counters count the first of these
alone, for a watch of months sees many; never jobs or users.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fleetlab.live.present import MOST_LABELS, OTHER, Present
from fleetlab.live.rows import DOWN, DRAINED, UP

if TYPE_CHECKING:
    from prometheus_client.core import Metric

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
    made = {name: {(r["queue"], r["reason"]): float(r[c]) for r in waiting} for name, c in columns.items()}
    made |= {f"running_{c}": {(r["queue"],): float(r[c]) for r in running} for c in ("jobs", "gpus")}  # type: ignore[misc]
    teams = list(present.teams.iter_rows(named=True))
    made |= {f"team_{c}": {(r["team"], r["state"]): float(r[c]) for r in teams} for c in ("jobs", "gpus")}
    made["gpus"] = by_state
    made["gpus_fragmented"] = {(r["gpu_type"],): r["fragmented"] for r in gpus if r["fragmented"] is not None}  # type: ignore[misc]
    return made  # type: ignore[return-value]
