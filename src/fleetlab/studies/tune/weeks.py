"""Weeks of a trace, by submission: some to train on, and later ones, held out, to compare policies on.

Consecutive weeks are simulated in one run. A warm-up before them fills the cluster and its queue and does not count.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from fleetlab.core import Scenario, WorkloadError
from fleetlab.sim import simulate
from fleetlab.stats import Ints

DAY = 86_400.0
ALMOST = 0.9  # of a week: so much of the last one makes it a week
LEAST = 2  # held-out weeks: one has no interval


@dataclass(frozen=True, slots=True, eq=False)
class Weeks:
    """Consecutive weeks with their warm-up."""

    scenario: Scenario  # with the jobs of these weeks and of the warm-up
    first: int  # the first week that counts, of those of the trace
    week: Ints  # [jobs]: 0 is the first week that counts; -1: warm-up

    def means(self, column: str, **words: Any) -> dict[int, float]:  # noqa: ANN401
        """Simulate with some words, and return the mean of a column over the jobs of each week that ran."""
        jobs = simulate(self.scenario.replace(**words, min_coverage=0.0)).jobs
        week, values = self.week[jobs["job"].to_numpy()], jobs[column].to_numpy()
        count = np.bincount(week[week >= 0])
        total = np.bincount(week[week >= 0], weights=values[week >= 0])
        return {self.first + k: float(total[k] / n) for k, n in enumerate(count) if n}


def split(
    scenario: Scenario, *, train: int | None, held_out: int | None, days: float, warm: float
) -> tuple[Weeks, Weeks]:
    """Return the weeks to train on, and the last ones of the trace, held out (default: half of the weeks each)."""
    if not (0 < days < 1e5 and 0 <= warm < 1e5):
        msg = f"a week has more than 0 days and a warm-up at least 0: {days:g} and {warm:g}"
        raise WorkloadError(msg, hint="days=7, warm=1")
    workload = scenario.workload
    submit = workload.frame["submit"]
    there = int((float(submit[-1]) if len(submit) else 0.0) / (days * DAY) + 1 - ALMOST)
    last = held_out if held_out is not None else there - (train if train is not None else there // 2)
    first = train if train is not None else there - last
    if there > len(submit):
        msg = f"{workload.source}: more weeks of {days:g} days than jobs: {there:,}"
        raise WorkloadError(msg, hint="longer weeks: a mean needs jobs")
    if first < 1 or last < LEAST or first + last > there:
        given = (
            f", {max(0, first)} to train on and {max(0, last)} held out" if (train, held_out) != (None, None) else ""
        )
        msg = f"{workload.source}: too few weeks of {days:g} days: {there}{given}"
        raise WorkloadError(
            msg, hint="at least 1 to train on and 2 held out; a shorter trace has more weeks with days=1"
        )
    edges = (there - last - first, there - last, there)
    training, later = (_weeks(scenario, a, b, days, warm) for a, b in pairwise(edges))
    for weeks, least, what in ((training, 1, "to train on"), (later, LEAST, "held out")):
        if (some := len(np.unique(weeks.week[weeks.week >= 0]))) < least:
            msg = f"{workload.source}: too few weeks {what} with jobs that count: {some}"
            raise WorkloadError(msg, hint="more weeks, longer weeks, or a shorter warm-up")
    return training, later


def _weeks(scenario: Scenario, first: int, end: int, days: float, warm: float) -> Weeks:
    """Return the weeks from `first` up to `end`; the warm-up of the first week of the trace is a part of that week."""
    week, begin = days * DAY, max(0.0, first * days * DAY - warm * DAY)
    times = scenario.workload.frame["submit"].to_numpy()
    rows = np.flatnonzero((times >= begin) & (times < end * week))
    submit = times[rows]
    counts = (submit >= first * week) & (submit >= begin + warm * DAY)
    jobs = scenario.workload.take(rows, submit, f"weeks {first + 1} to {end}")
    cold = scenario.on(jobs, rows).replace(warm_up="none")  # its weeks have a warm-up of their own
    return Weeks(cold, first, np.where(counts, (submit // week).astype(np.int64) - first, -1))
