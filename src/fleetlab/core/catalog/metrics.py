"""What is measured of a run: columns of its jobs, and numbers of the whole."""

from __future__ import annotations

from dataclasses import dataclass

from fleetlab.core.catalog.catalog import Catalog


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric: its unit, the lowest possible value, and whether lower is better."""

    name: str
    meaning: str
    unit: str = ""
    column: str = ""  # of the table of jobs, where it has one value per job
    least: float = 0.0
    lower_is_better: bool = True


METRICS = Catalog(
    "metric",
    (
        Metric("wait", "time from submission to start, and in the queue after a preemption", "s", "wait"),
        Metric("JCT", "job completion time: submission to end", "s", "jct"),
        Metric("slowdown", "JCT over runtime", "", "slowdown", 1.0),
        Metric("bounded slowdown", "JCT over runtime, with a runtime of at least 10 s", "", "bounded_slowdown", 1.0),
        Metric("GPU allocation", "GPU time allocated to jobs, of the GPU time of nodes that are up", "%",
               lower_is_better=False),
        Metric("fairness", "Jain's index over users of their mean bounded slowdown", "", lower_is_better=False),
        Metric("wasted GPU time", "GPU time lost to failures, checkpoints and restarts", "GPU-h"),
        Metric("energy", "energy by the power model of the prices", "kWh"),
        Metric("cost", "cost by the prices; 1 per GPU-hour where no price is given", "GPU-h or currency"),
    ),
)  # fmt: skip
