"""What one scenario gave, small enough to keep: the result as JSON, and each number in blocks of time.

Two scenarios of one trace play the same jobs. Cut into the same blocks, their differences are paired: a busy hour is
in both, and cancels.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl

from fleetlab.core import Estimate, Provenance, Result, Trace, Workload, as_json
from fleetlab.sim import SimResult, simulate
from fleetlab.web.scenario import Scenario
from fleetlab.web.world import beginning, world

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


def played(
    trace: Trace,
    scenario: Scenario,
    early: Callable[[dict[str, Any]], None] = lambda _: None,
    *,
    first: int | None = None,
    tell: Callable[[str, int, float], None] | None = None,
) -> dict[str, Any]:
    """Play it; the result as `--json` prints it, and what it takes to hold it against others.

    `early` is told the numbers before the tables are made, which take a quarter of the time. With `first` only so many
    jobs are played, and no tables are made; `tell` hears how far it is.
    """
    whole = trace.workload
    part = whole if first is None else beginning(whole, first)
    workload, cluster = world(trace, scenario, part)
    run = simulate(
        workload,
        cluster,
        order=scenario.order,
        backfill=scenario.backfill,
        placement=scenario.placement,
        estimate=scenario.estimate,
        sharing=scenario.sharing,
        seed=scenario.seed,
        progress=tell,
    )
    at = _cut(run.jobs["job"], len(workload))
    found = {
        "blocks": _blocks(run.jobs, at),
        "ledger": _ledger(run, at),
        "span": _last(workload),
        "nodes": dict(cluster.frame.group_by("gpu_type").len().filter(pl.col("gpu_type").is_not_null()).iter_rows()),
        "refused": run.refused.height,
        "jobs": (len(part), len(whole)),
        "came": (_last(part), _last(whole)),
    }
    if first is not None:
        return found | {"result": json.loads(as_json(_Numbers(run)))}
    early(found | {"result": json.loads(as_json(_Numbers(run)))})
    return found | {"result": json.loads(as_json(run))}


def _last(workload: Workload) -> float:
    """When the last job comes."""
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


def _cut(job: pl.Series, jobs: int) -> list[slice]:
    """Where each block of the jobs that ran begins and ends; blocks are cut over all jobs, whoever ran."""
    if len(job) < LEAST:
        return []
    edges = np.searchsorted(job.to_numpy(), np.linspace(0, jobs, BLOCKS + 1))
    return [slice(a, b) for a, b in pairwise(edges.tolist())]


def _blocks(jobs: pl.DataFrame, at: list[slice]) -> dict[str, list[float | None]]:
    columns = {name: jobs[name].to_numpy() for name in {column for column, _ in PAIRED.values()}}
    return {metric: [_stat(columns[c][part], q) for part in at] for metric, (c, q) in PAIRED.items()}


def _stat(values: np.ndarray, q: float | None) -> float | None:
    known = values[~np.isnan(values)]
    if not len(known):
        return None
    return float(known.mean() if q is None else np.quantile(known, q))


def _ledger(run: SimResult, at: list[slice]) -> dict[str, dict[str, Any]]:
    """By reason, the seconds that a job waits for it on average: over all, and in each block."""
    found = {}
    for reason in run.ledger.columns[1:]:
        seconds = run.ledger[reason].to_numpy()
        mean = float(seconds.mean()) if len(seconds) else 0.0
        found[reason] = {"mean": mean, "blocks": [_stat(seconds[part], None) for part in at]}
    return found
