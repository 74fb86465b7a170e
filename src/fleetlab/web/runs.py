"""One simulated scenario, small enough to keep: its result as JSON, and each metric in blocks of jobs.

Two scenarios of one trace simulate the same jobs. In the same blocks their differences are paired: a busy hour is in
both, and cancels.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl

from fleetlab.core import Estimate, Provenance, Result, Workload, WorkloadError, as_json
from fleetlab.core.catalog import REASONS
from fleetlab.core.progress import Progress, silent
from fleetlab.core.scenario import Scenario
from fleetlab.sim import SimResult, simulate
from fleetlab.web.assumed_cluster import MOST_NODES

BLOCKS = 20
LEAST = 10 * BLOCKS  # jobs: with fewer, no interval is given
# By the metric's name in a summary: what is taken of which column in each block; a number is a quantile.
PAIRED: dict[str, tuple[str, float | None]] = {
    "mean wait": ("wait", None),
    "P50 wait": ("wait", 0.5),
    "P90 wait": ("wait", 0.9),
    "P99 wait": ("wait", 0.99),
    "mean JCT": ("jct", None),
    "P90 JCT": ("jct", 0.9),
    "mean bounded slowdown": ("bounded_slowdown", None),
}


def run_scenario(
    scenario: Scenario,
    early: Callable[[dict[str, Any]], None] = lambda _: None,
    *,
    first: int | None = None,
    progress: Progress = silent,
) -> dict[str, Any]:
    """Simulate a scenario; return its result as `--json` prints it, and what a comparison needs.

    `early` gets the numbers before the tables are made, which take a quarter of the time. With `first`, only so many
    jobs are simulated, and no tables are made.
    """
    all_jobs = scenario.workload
    jobs = all_jobs if first is None else all_jobs.head(first)
    if len(scenario.cluster) > MOST_NODES:
        msg = f"a cluster on this page has at most {MOST_NODES:,} nodes, not {len(scenario.cluster):,}"
        raise WorkloadError(msg, hint="`fleetlab simulate` takes more")
    run = _simulate(scenario if jobs is all_jobs else scenario.on(jobs, np.arange(len(jobs))), progress)
    slices = _slices(run.jobs["job"], len(jobs))
    gpu_nodes = scenario.cluster.frame.group_by("gpu_type").len().filter(pl.col("gpu_type").is_not_null())
    outcome = {
        "blocks": _blocks(run.jobs, slices),
        "reasons": _reasons(run, slices),
        "nodes": dict(gpu_nodes.iter_rows()),
        "refused": run.refused.height,
        "jobs": (len(jobs), len(all_jobs)),
        "span": (_span(jobs), _span(all_jobs)),
    }
    numbers = outcome | {"result": json.loads(as_json(_Numbers(run)))}
    if first is not None:
        return numbers
    early(numbers)
    return outcome | {"result": json.loads(as_json(run))}


def _simulate(s: Scenario, progress: Progress) -> SimResult:
    return simulate(s, progress=progress)


def _span(workload: Workload) -> float:
    """Return when the last job is submitted."""
    return float(workload.frame["submit"].max() or 0.0)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class _Numbers(Result):
    """A result without its tables."""

    run: SimResult

    @property
    def provenance(self) -> Provenance:
        return self.run.provenance

    @property
    def notes(self) -> tuple[str, ...]:
        return self.run.notes

    def summary(self) -> list[Estimate]:
        return self.run.summary()

    def tables(self) -> dict[str, pl.DataFrame]:
        return {}


def _slices(job: pl.Series, jobs: int) -> list[slice]:
    """Return the rows of each block of the jobs that ran; blocks are cut over all jobs, whether they ran or not."""
    if len(job) < LEAST:
        return []
    edges = np.searchsorted(job.to_numpy(), np.linspace(0, jobs, BLOCKS + 1))
    return [slice(a, b) for a, b in pairwise(edges.tolist())]


def _blocks(jobs: pl.DataFrame, slices: list[slice]) -> dict[str, list[float | None]]:
    columns = {name: jobs[name].to_numpy() for name in {column for column, _ in PAIRED.values()}}
    return {metric: [_stat(columns[c][part], q) for part in slices] for metric, (c, q) in PAIRED.items()}


def _stat(values: np.ndarray, q: float | None) -> float | None:
    known = values[~np.isnan(values)]
    if not len(known):
        return None
    return float(known.mean() if q is None else np.quantile(known, q))


def _reasons(run: SimResult, slices: list[slice]) -> dict[str, dict[str, Any]]:
    """Return the mean wait per job by reason: over all jobs, and in each block."""
    means = {}
    for reason, column in zip(REASONS.names, run.ledger.columns[1:], strict=True):
        seconds = run.ledger[column].to_numpy()
        mean = float(seconds.mean()) if len(seconds) else 0.0
        means[reason] = {"mean": mean, "blocks": [_stat(seconds[part], None) for part in slices]}
    return means
