"""Which scenario is used: as configured, unless another is closer to a part of the log on which nothing was fitted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fleetlab.core import Scenario
from fleetlab.stats import BETTER, WORSE, BlockBootstrap, Floats, is_decided, over_replicas, verdict
from fleetlab.studies.calibrate.likelihood import explains_better, simulated_starts, wait_likelihoods
from fleetlab.studies.calibrate.recorded import RecordedJobs
from fleetlab.studies.replicas import Plan, Replication, Replicator
from fleetlab.studies.runner import Arrays

CONFIGURED = "as configured"
FIT, CHOSEN_ON, HELD_OUT = "fitted", "chosen on", "held out"


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of a log, by submission: one to fit on, one to choose on, and one that judges and chose nothing."""

    fitted: int  # jobs
    chosen_on: int
    jobs: int

    @classmethod
    def of(cls, jobs: int, fit: float) -> Parts:
        """Return the parts: of what is not fitted on, a half chooses and a half judges."""
        fitted = int(fit * jobs)
        return cls(fitted, fitted + (jobs - fitted) // 2, jobs)

    def rows(self, part: str) -> NDArray[np.bool_]:
        """Return the jobs of a part."""
        bounds = [0, self.fitted, self.chosen_on, self.jobs]
        k = (FIT, CHOSEN_ON, HELD_OUT).index(part)
        return np.asarray((np.arange(self.jobs) >= bounds[k]) & (np.arange(self.jobs) < bounds[k + 1]))


@dataclass(frozen=True, eq=False)
class Choice:
    """The scenario that is used, its starts, and how each candidate did on the part that chose."""

    name: str
    scenario: Scenario
    starts: Floats
    table: pl.DataFrame
    note: str  # on replicas


def replica_starts(scenario: Scenario) -> dict[str, Floats]:
    """Return the start of each job in one replica of a scenario, and its wait."""
    start = simulated_starts(scenario)
    return {"wait": np.maximum(start - scenario.workload.frame["submit"].to_numpy(), 0.0)}


def choose(
    configured: Scenario, starts: Floats, candidates: Mapping[str, Scenario], log: RecordedJobs, rows: NDArray[np.bool_]
) -> Choice:
    """Choose among the scenario as configured, which starts jobs at `starts`, and candidates, by some jobs of a log.

    All are simulated in paired replicas. A candidate must explain the waits of these jobs better, in replicas and over
    blocks of time, and its mean wait must not be farther off beyond noise.
    """
    scenarios = {CONFIGURED: configured} | dict(candidates)
    jobs = np.flatnonzero(rows & log.compared)
    recorded, blocks = log.wait[jobs], BlockBootstrap.of_times(log.submit[jobs])

    def explained(results: Sequence[Mapping[str, Arrays]], name: str) -> Floats:
        """Return the log-likelihood of each wait in each replica; of one that never ends, as if it ended at last."""
        last = float(log.submit[-1])
        waits = (np.nan_to_num(np.asarray(result[name]["wait"])[jobs], nan=last) for result in results)
        return np.array([wait_likelihoods(wait, recorded)[0] for wait in waits])

    def undecided(runs: Replication) -> bool:
        own = explained(runs.results, CONFIGURED).mean(axis=1)
        gains = [own - explained(runs.results, name).mean(axis=1) for name in candidates]
        return not all(is_decided(gain, own.mean(), margin=0.0) for gain in gains)

    plan = Plan() if candidates else Plan(1)
    runs = Replicator(replica_starts, scenarios, plan, workers=0).run(undecided)
    by_job = {name: explained(runs.results, name) for name in scenarios}
    own = by_job[CONFIGURED]
    off = {
        name: np.array([np.nanmean(result[name]["wait"][jobs] - recorded) for result in runs.results])
        for name in scenarios
    }
    passes = [
        name for name in candidates
        if verdict(own.mean(axis=1) - by_job[name].mean(axis=1), own.mean(), margin=0.0) == BETTER
        and explains_better(blocks, own.mean(axis=0), by_job[name].mean(axis=0))
        and verdict(np.abs(off[name]) - np.abs(off[CONFIGURED]), recorded.mean(), margin=0.0) != WORSE
    ]  # fmt: skip
    best = max(passes, key=lambda name: by_job[name].sum(), default=CONFIGURED)
    errors = [over_replicas(values).interval() for values in off.values()]
    table = pl.DataFrame({
        "candidate": list(scenarios),
        "jobs": [len(jobs)] * len(scenarios),
        "log-likelihood": [float(values.sum(axis=1).mean()) for values in by_job.values()],
        "mean wait": [float(recorded.mean()) + error.value for error in errors],
        "mean wait error": [error.value for error in errors],
        "mean wait error low": pl.Series([error.low for error in errors], nan_to_null=True),
        "mean wait error high": pl.Series([error.high for error in errors], nan_to_null=True),
        "used": [name == best for name in scenarios],
    })  # fmt: skip
    chosen = starts if best == CONFIGURED else simulated_starts(scenarios[best])
    return Choice(best, scenarios[best], chosen, table, runs.note())
