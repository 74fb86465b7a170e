"""Simulate each change on the jobs that ran in the baseline, with the same arrivals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl

from fleetlab.core import Scenario
from fleetlab.core.progress import Progress
from fleetlab.sim import SimResult, simulate
from fleetlab.stats import Floats
from fleetlab.studies.diagnose.changes import WhatIf, what_if
from fleetlab.studies.diagnose.ledger import completed
from fleetlab.studies.workers import Call, process_count, run_calls

SLOW = ("gangs", "backfill")  # they take several times as long as the others


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """The waits under one change of the jobs that completed in the baseline; NaN where one does not complete."""

    change: WhatIf
    wait: Floats
    reasons: Mapping[str, float]  # seconds of waiting


def simulate_changes(
    result: SimResult, scenario: Scenario, changes: Sequence[WhatIf], *, workers: int | None, progress: Progress
) -> list[Outcome]:
    """Simulate every change on the jobs that could run in the baseline."""
    changes = sorted(changes, key=lambda c: c.name not in SLOW)  # else one core waits for the other at the end
    outcomes = run_calls(
        f"{__name__}:measure",
        [Call(_only_what_ran(result, scenario), {"change": c.name}) for c in changes],
        workers=process_count(scenario.workload.instances, workers),
        done=lambda count: progress("simulating changes, one at a time", count, count / len(changes)),
    )
    jobs = completed(result)["job"].to_numpy()
    return [
        Outcome(c, o["wait"][jobs], dict(zip(o["reasons"].tolist(), o["seconds"].tolist(), strict=True)))
        for c, o in zip(changes, outcomes, strict=True)
    ]


def _only_what_ran(result: SimResult, scenario: Scenario) -> Scenario:
    """Return the scenario in which jobs that cannot run stay out under any change: without a runtime none can."""
    if not result.refused.height:
        return scenario
    refused = pl.col("job").is_in(result.refused["job"].implode())
    workload = scenario.workload
    kept = replace(workload, frame=workload.frame.with_columns(runtime=pl.when(~refused).then("runtime")))
    return scenario.on(kept).after(scenario)


def measure(scenario: Scenario, change: str) -> dict[str, Any]:
    """Simulate one change: the wait of each job, NaN where it does not complete, and all waiting by reason."""
    changed, jobs = what_if(change, scenario).apply(scenario), scenario.workload.frame
    result = simulate(changed.replace(min_coverage=0.0))  # that of the baseline is looked at
    done = completed(result)
    wait = np.full(len(changed.workload), np.nan)
    wait[done["job"].to_numpy()] = done["wait"].to_numpy()
    if len(wait) != jobs.height:  # gangs were split: a job has waited until its last instance runs
        instances = jobs["instances"].to_numpy()
        wait = np.maximum.reduceat(wait, np.append(0, np.cumsum(instances)[:-1]))
    waited = result.ledger.drop("job").sum()
    return {"wait": wait, "reasons": np.array(waited.columns), "seconds": waited.to_numpy()[0]}
