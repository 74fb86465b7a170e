"""Weeks of a trace, cut by submission: some to learn on, and later ones, seen by nobody before, to be judged on.

Weeks in a row are played as one. Before them comes a warm-up, which fills the cluster and its queue and does not count.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fleetlab.core import Cluster, Trace, Workload, WorkloadError
from fleetlab.sim import simulate
from fleetlab.studies.believed import believed

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

DAY = 86_400.0
ALMOST = 0.9  # of a week: so much of the last one makes it a week
LEAST = 2  # held-out weeks: of one alone nobody can tell how sure its difference is


@dataclass(frozen=True, slots=True, eq=False)
class Stretch:
    """Weeks in a row, with their warm-up, as they are played."""

    workload: Workload
    estimate: str | pl.Series
    first: int  # which week of the trace is the first that counts
    week: Ints  # [jobs]: 0 is the first that counts; -1: warm-up

    def means(self, cluster: Cluster, column: str, rules: Mapping[str, Any], seed: int) -> dict[int, float]:
        """What a job has of something on the mean, by week of the trace: all jobs that can run, to their end."""
        jobs = simulate(self.workload, cluster, **rules, estimate=self.estimate, seed=seed).jobs
        week, values = self.week[jobs["job"].to_numpy()], jobs[column].to_numpy()
        count = np.bincount(week[week >= 0])
        total = np.bincount(week[week >= 0], weights=values[week >= 0])
        return {self.first + k: float(total[k] / n) for k, n in enumerate(count) if n}


def cut(
    trace: Trace, *, train: int | None, held_out: int | None, days: float, warm: float, estimate: str
) -> tuple[Stretch, Stretch]:
    """The weeks to learn on, and the last ones of the trace, to be judged on; half and half unless told."""
    if not (0 < days < 1e5 and 0 <= warm < 1e5):
        msg = f"a week has more than 0 days and a warm-up not fewer: {days:g} and {warm:g}"
        raise WorkloadError(msg, hint="days=7, warm=1")
    submit = trace.workload.frame["submit"]
    there = int((float(submit[-1]) if len(submit) else 0.0) / (days * DAY) + 1 - ALMOST)
    asked = [k for k in (train, held_out) if k is not None]
    held = held_out if held_out is not None else there - (train if train is not None else there // 2)
    learnt = train if train is not None else there - held
    if there > len(submit):
        msg = f"{trace.workload.source}: more weeks of {days:g} days than jobs: {there:,}"
        raise WorkloadError(msg, hint="longer weeks: a mean needs jobs")
    if learnt < 1 or held < LEAST or learnt + held > there:
        wanted = f", {max(0, learnt)} to learn on and {max(0, held)} held out" if asked else ""
        msg = f"{trace.workload.source}: too few weeks of {days:g} days: {there}{wanted}"
        raise WorkloadError(
            msg, hint="at least 1 to learn on and 2 held out; a shorter trace has more weeks of `days=1`"
        )
    told = believed(trace, estimate)
    begin = there - held - learnt
    edges = (begin, begin + learnt, there)
    first, second = (_stretch(trace.workload, told, a, b, days, warm) for a, b in pairwise(edges))
    for stretch, least, what in ((first, 1, "to learn on"), (second, LEAST, "held out")):
        if (some := len(np.unique(stretch.week[stretch.week >= 0]))) < least:
            msg = f"{trace.workload.source}: too few weeks {what} with jobs that count: {some}"
            raise WorkloadError(msg, hint="more weeks, longer weeks, or a shorter warm-up")
    return first, second


def _stretch(workload: Workload, estimate: str | pl.Series, first: int, end: int, days: float, warm: float) -> Stretch:
    """Weeks from `first` up to `end`; the warm-up of the trace's first week is taken from that week."""
    week, begin = days * DAY, max(0.0, first * days * DAY - warm * DAY)
    inside = (pl.col("submit") >= begin) & (pl.col("submit") < end * week)
    frame = workload.frame.with_row_index("row").filter(inside)
    submit = frame["submit"].to_numpy()
    counts = (submit >= first * week) & (submit >= begin + warm * DAY)
    jobs = frame.drop("row", "start", "end").with_columns(pl.col("submit") - (submit[0] if len(submit) else 0.0))
    return Stretch(
        Workload.of(jobs, source=workload.source),
        estimate if isinstance(estimate, str) else estimate.gather(frame["row"]),
        first,
        np.where(counts, (submit // week).astype(np.int64) - first, -1),
    )
