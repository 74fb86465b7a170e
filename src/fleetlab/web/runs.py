"""One simulated scenario, small enough to keep: its result as JSON, and the bootstrap replicates of each metric.

Two scenarios of one trace simulate the same jobs in the same blocks, so that their differences are paired: a busy hour
is in both, and cancels.
"""

from __future__ import annotations

import json
import math
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fleetlab.core import Estimate, Provenance, Result, WorkloadError, as_json
from fleetlab.core.catalog import REASONS
from fleetlab.core.coverage import Coverage
from fleetlab.core.progress import Progress, silent
from fleetlab.core.scenario import Scenario
from fleetlab.sim import SimResult, simulate
from fleetlab.sim.figures import wait_distribution
from fleetlab.stats import Replicates
from fleetlab.studies.requests import NEVER_RUN, never_run
from fleetlab.web.assumed_cluster import MOST_NODES


def run_scenario(
    scenario: Scenario,
    early: Callable[[dict[str, Any]], None] = lambda _: None,
    *,
    progress: Progress = silent,
    simulated: Callable[[SimResult], None] = lambda _: None,
    measured: Callable[[SimResult], None] = lambda _: None,
) -> dict[str, Any]:
    """Simulate a scenario; return its result as `--json` prints it, and what a comparison needs.

    `simulated` gets the run before anything is computed of it, `early` the numbers before the tables are made, which
    take a quarter of the time, and `measured` the run once they are sent.
    """
    if len(scenario.cluster) > MOST_NODES:
        msg = f"a cluster on this page has at most {MOST_NODES:,} nodes, not {len(scenario.cluster):,}"
        raise WorkloadError(msg, hint="`fleetlab simulate` takes more")
    jobs = scenario.workload.frame
    run = simulate(scenario.replace(min_coverage=0.0), progress=progress)  # what cannot run is in the first row
    simulated(run)
    done = run.completed
    gpu_nodes = scenario.cluster.frame.group_by("gpu_type").len().filter(pl.col("gpu_type").is_not_null())
    cannot_run = never_run(run.refused)
    outcome = {
        "replicates": {name: encode(replicates) for name, replicates in run.replicates.items()},
        "exact": [e._asdict() for e in (Estimate.exact(NEVER_RUN, len(cannot_run)), *run.per_day())],
        "reasons": _reasons(run),
        "nodes": dict(gpu_nodes.iter_rows()),
        "refused": dict(run.refused.group_by("reason").len().sort("reason").iter_rows()),
        "gpu_time_that_cannot_run": _gpu_time(jobs[cannot_run]) / (_gpu_time(jobs) or 1.0),
        "completed": pack(np.isin(jobs["job"].to_numpy(), done["job"].to_numpy(), assume_unique=True)),
        "waits": run.recorded.select(pl.len().alias("jobs"), pl.col("recorded", "simulated").mean()).row(0, named=True),
        "distribution": _distribution(run),
        "jobs": jobs.height,
        "clock": [scenario.workload.epoch, scenario.workload.zone],
        "span": float(jobs["submit"].max() or 0.0),  # type: ignore[arg-type]
    }
    early(outcome | {"result": json.loads(as_json(_Numbers(run)))})
    measured(run)
    return outcome | {"result": json.loads(as_json(run))}


def pack(completed: NDArray[np.bool_]) -> str:
    """Return a flag for each job as text, a bit each."""
    return b64encode(np.packbits(completed).tobytes()).decode()


def unpack(completed: str, jobs: int) -> NDArray[np.bool_]:
    """Undo `pack`."""
    return np.unpackbits(np.frombuffer(b64decode(completed), np.uint8), count=jobs).astype(np.bool_)


def completed_by_both(base: Mapping[str, Any], now: Mapping[str, Any]) -> NDArray[np.bool_]:
    """Return which jobs completed in both outcomes: only of these are waits compared."""
    if base["jobs"] != now["jobs"]:
        msg = f"the baseline is of {base['jobs']:,} jobs, and the scenario of {now['jobs']:,}: they cannot be compared"
        raise WorkloadError(msg, hint="`window` and `censored` choose the jobs: set this scenario as baseline, too")
    return unpack(base["completed"], base["jobs"]) & unpack(now["completed"], now["jobs"])


def of_part(outcome: Mapping[str, Any], part: Mapping[str, Any]) -> dict[str, Any]:
    """Return an outcome whose numbers are those of a part of its jobs, as `records` measures it."""
    result = outcome["result"]
    tables = result["tables"] | part["tables"]
    return {**outcome, **part, "result": result | {"summary": part["summary"], "tables": tables}}


def _gpu_time(jobs: pl.DataFrame) -> float:
    return float(jobs.select((pl.col("runtime") * pl.col("gpu_milli") * pl.col("instances")).sum()).item())


@dataclass(frozen=True, slots=True)
class _Numbers(Result):
    """A result without its tables."""

    run: SimResult

    @property
    def provenance(self) -> Provenance:
        return self.run.provenance

    @property
    def coverage(self) -> Coverage | None:
        return self.run.coverage

    @property
    def notes(self) -> tuple[str, ...]:
        return self.run.notes

    def summary(self) -> list[Estimate]:
        return self.run.summary()

    def tables(self) -> dict[str, pl.DataFrame]:
        return {}


def _reasons(run: SimResult) -> dict[str, dict[str, Any]]:
    """Return the mean wait by reason of the jobs that completed, where there is any: as the mean wait is of these."""
    done = run.completed.select("job", "submit")
    bootstrap = run.blocks(done)
    ledger = done.select("job").join(run.ledger, on="job", how="left", maintain_order="left")
    columns = zip(REASONS.names, ledger.columns[1:], strict=True)
    seconds = {reason: ledger[column].to_numpy() for reason, column in columns}
    return {reason: encode(bootstrap.means(values)) for reason, values in seconds.items() if values.any()}


def _distribution(run: SimResult) -> list[dict[str, float]]:
    done = run.completed
    return wait_distribution(done["wait"].to_numpy(), run.blocks(done)).to_dicts() if done.height else []


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
