"""One simulated scenario, small enough to keep: its result as JSON, and the bootstrap replicates of each metric.

Two scenarios of one trace simulate the same jobs in the same blocks, so that their differences are paired: a busy hour
is in both, and cancels.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from fleetlab.core import Estimate, Provenance, Result, Workload, WorkloadError, as_json
from fleetlab.core.catalog import REASONS
from fleetlab.core.progress import Progress, silent
from fleetlab.core.scenario import Scenario
from fleetlab.sim import SimResult, simulate
from fleetlab.stats import Replicates
from fleetlab.web.assumed_cluster import MOST_NODES


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
    run = simulate(scenario if jobs is all_jobs else scenario.on(jobs, np.arange(len(jobs))), progress=progress)
    gpu_nodes = scenario.cluster.frame.group_by("gpu_type").len().filter(pl.col("gpu_type").is_not_null())
    outcome = {
        "replicates": {name: encode(replicates) for name, replicates in run.replicates.items()},
        "reasons": _reasons(run),
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


def _reasons(run: SimResult) -> dict[str, dict[str, Any]]:
    """Return the mean wait per job by reason, where there is any."""
    bootstrap = run.blocks(run.jobs)
    columns = zip(REASONS.names, run.ledger.columns[1:], strict=True)
    seconds = {reason: run.ledger[column].to_numpy() for reason, column in columns}
    return {reason: encode(bootstrap.means(values)) for reason, values in seconds.items() if values.any()}


def encode(replicates: Replicates) -> dict[str, Any]:
    """Return replicates as JSON has them."""
    values = [v if math.isfinite(v) else None for v in replicates.values.tolist()]
    return {
        "values": values,
        "blocks": replicates.blocks,
        "df": replicates.df if math.isfinite(replicates.df) else None,
        "independent": replicates.independent,
    }


def decode(values: Mapping[str, Any]) -> Replicates:
    """Undo `encode`."""
    numbers = np.array([math.nan if v is None else v for v in values["values"]], dtype=np.float64)
    df = math.inf if values["df"] is None else values["df"]
    return Replicates(numbers, values["blocks"], df, independent=values["independent"])
