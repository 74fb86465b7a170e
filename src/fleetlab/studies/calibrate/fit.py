"""How well a scenario explains the recorded starts of the first part of a log.

The error of a job is the logarithm of its simulated over its recorded wait, both with 10 s added, as bounded slowdown
does. Errors follow a Laplace law whose scale is that of the scenario itself, so that a few jobs that are far off do
not decide. Waits are counted until the end of the part, on both sides: what comes later is not known yet.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from fleetlab.core import Scenario
from fleetlab.sim.schedule import Played
from fleetlab.sim.simulate import play_scenario, world_of
from fleetlab.sim.world import World
from fleetlab.stats import BlockBootstrap, Floats, Interval, paired_difference
from fleetlab.studies.calibrate.recorded import Recorded

BOUND = 10.0  # seconds that are added to waits
SMALLEST = 1e-3  # scale of errors: a tenth of a second in a wait of a minute and a half
SAME = 1e-3  # seconds: starts that differ by less are the same
GAIN = 10.0  # of log-likelihood, where there are too few jobs for an interval


def simulated_starts(scenario: Scenario, world: World | None = None) -> Floats:
    """Simulate: the start of each job of the workload, NaN of one that did not."""
    jobs = world_of(scenario) if world is None else world
    return starts_of(jobs, play_scenario(scenario, jobs), len(scenario.workload))


def simulated_queues(scenario: Scenario) -> Floats:
    """Simulate: the seconds each job waits for its GPUs, without its start-up; NaN of one that gets none."""
    jobs = world_of(scenario)
    without = replace(jobs, latency=np.zeros(len(jobs.latency)))
    starts = starts_of(without, play_scenario(scenario, jobs), len(scenario.workload))
    return np.asarray(starts - scenario.workload.frame["submit"].to_numpy())


def starts_of(jobs: World, played: Played, count: int) -> Floats:
    """Return the start of each of so many jobs, start-up included; NaN of one that did not."""
    measured = slice(jobs.before, None)
    starts = np.full(count, np.nan)
    starts[jobs.frame["job"].to_numpy()[measured]] = (played.start + jobs.latency)[measured]
    return np.asarray(np.maximum(starts, 0.0))


@dataclass(frozen=True, eq=False)
class Score:
    """How well one scenario explains the recorded starts."""

    scenario: Scenario
    starts: Floats  # [jobs of the part]
    by_job: Floats  # log-likelihood of the start of each job that is compared
    choices: Floats  # log-likelihood of its being taken before others, where it had a choice of the scheduler; else 0
    error: float  # mean absolute logarithm of the ratio of waits
    mean_wait: float
    words: Mapping[str, Any] = field(default_factory=dict)  # what makes the scenario of the one that is calibrated

    @property
    def total(self) -> float:
        """The log-likelihood of all starts and choices."""
        return float(self.by_job.sum() + self.choices.sum())

    def same_schedule(self, other: Score) -> bool:
        """Whether every job starts at the same time."""
        return bool(np.allclose(self.starts, other.starts, rtol=0.0, atol=SAME, equal_nan=True))


class Fit:
    """The first part of a log, by which scenarios are judged."""

    def __init__(self, scenario: Scenario, log: Recorded, jobs: int, done: Callable[[], None]) -> None:
        rows = np.arange(jobs)
        part = replace(scenario.workload, frame=scenario.workload.frame[:jobs])
        self.jobs, self.done = jobs, done
        self.until = float(log.submit[jobs] if jobs < len(log) else log.submit[-1])
        self.base = scenario.on(part, rows).replace(until=self.until)
        self.submit = log.submit[:jobs]
        self.compared = log.known[:jobs] & (self.submit < self.until)
        self.recorded = self._wait(log.start[:jobs])
        self.no_choices = np.zeros(len(self.recorded))
        self.worlds: dict[tuple[object, ...], tuple[World, object]] = {}  # the estimate too: its id is in the key

    def _wait(self, start: Floats) -> Floats:
        """Return the waits until the end of the part, of the jobs that are compared."""
        known = np.where(np.isnan(start), np.inf, start)[self.compared]
        return np.asarray(np.minimum(known, self.until) - self.submit[self.compared])

    @cached_property
    def blocks(self) -> BlockBootstrap:
        """Blocks of time, for intervals of differences."""
        return BlockBootstrap.of_times(self.submit[self.compared], self.until)

    def score(self, scenario: Scenario, choices: Floats | None = None) -> Score:
        """Simulate a variation of `base`, and compare its starts with the recorded ones."""
        starts = simulated_starts(scenario, self._world(scenario))
        self.done()
        wait = self._wait(starts)
        error = np.abs(np.log((wait + BOUND) / (self.recorded + BOUND)))
        scale = max(float(error.mean()), SMALLEST)
        by_job = -np.log(2 * scale) - error / scale
        return Score(
            scenario,
            starts,
            by_job,
            self.no_choices if choices is None else choices,
            float(error.mean()),
            float(wait.mean()),
        )

    def _world(self, scenario: Scenario) -> World:
        """Return the jobs and nodes of a scenario; policies that differ in order, backfill and placement share them."""
        estimate = scenario.policy.estimate
        key = (scenario.nodes, str(scenario.latency), str(scenario.policy.quota), id(estimate))
        if key not in self.worlds:
            self.worlds = {key: (world_of(scenario), estimate)}  # the last one: the next is likely the same
        return self.worlds[key][0]

    def gain(self, before: Score, after: Score) -> Interval:
        """Return how much higher the log-likelihood per job is, with its interval."""
        sides = [self.blocks.means(s.by_job + s.choices) for s in (before, after)]
        return paired_difference(*sides).interval()

    def better(self, before: Score, after: Score) -> bool:
        """Whether a scenario explains the starts significantly better than another."""
        gain = self.gain(before, after)
        return after.total - before.total > GAIN if np.isnan(gain.low) else gain.low > 0
