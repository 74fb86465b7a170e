"""The intervals in which jobs wait: from submission to the first run, and from an interruption to the next run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fleetlab.core.censoring import Bools
from fleetlab.sim.layout import WAITING, Floats, Ints
from fleetlab.sim.schedule import Schedule
from fleetlab.sim.world import World


@dataclass(frozen=True, slots=True, eq=False)
class Waits:
    """Intervals that take time, from when a job is eligible, in order of their begin."""

    job: Ints
    begin: Floats
    end: Floats
    run: Ints  # that ends it: a row of `Schedule.runs`, -1: none does

    def of(self, jobs: Bools) -> Waits:
        """Return those of some jobs."""
        return self.rows(np.flatnonzero(jobs[self.job]))

    def rows(self, rows: Ints) -> Waits:
        """Return some of them, in that order."""
        return Waits(self.job[rows], self.begin[rows], self.end[rows], self.run[rows])

    def clipped(self, begin: float, end: float) -> Waits:
        """Return the part of each that lies between two times."""
        return Waits(self.job, np.maximum(self.begin, begin), np.minimum(self.end, end), self.run)

    def of_run(self, runs: npt.NDArray[Any], jobs: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return for each interval what is known of its run, or, where none ends it, of its job."""
        at = jobs[self.job]
        ends = self.run >= 0
        at[ends] = runs[self.run[ends]]
        return at

    def split(self, at: Floats) -> tuple[Waits, Bools]:
        """Return intervals that end at a time of their own (`at`) and those that begin there; and which lie before."""
        crossed = np.flatnonzero((self.begin < at) & (at < self.end))
        begin, end = np.append(self.begin, at[crossed]), np.append(self.end, self.end[crossed])
        end[crossed] = at[crossed]
        job, run = np.append(self.job, self.job[crossed]), np.append(self.run, self.run[crossed])
        before = begin < np.append(at, at[crossed])
        order = np.lexsort((job, begin))
        return Waits(job, begin, end, run).rows(order), before[order]


Charged = tuple[Waits, int]  # intervals, and the reason of all of them, as its place in the catalog


def waits(world: World, played: Schedule) -> Waits:
    """Return when jobs wait; a job that waits when the loop stops waits until then."""
    runs = played.runs(world.first)
    order = np.lexsort((runs.begin, runs.job))
    job, begin, end = runs.job[order], world.eligible[runs.job[order]], runs.begin[order]
    run = order
    again = np.flatnonzero(job[1:] == job[:-1]) + 1
    begin[again] = runs.end[order][again - 1]
    last = np.array(world.eligible)
    last[job] = runs.end[order]  # the last assignment of a job stands
    unstarted = np.flatnonzero((played.status == WAITING) & (last < played.stopped))
    job, begin = np.append(job, unstarted), np.append(begin, last[unstarted])
    run = np.append(run, np.full(len(unstarted), -1))
    end = np.append(end, np.full(len(unstarted), played.stopped))
    waiting = np.flatnonzero(end > begin)
    order = waiting[np.lexsort((job[waiting], begin[waiting]))]
    return Waits(job[order], begin[order], end[order], run[order])


def seconds(world: World, played: Schedule) -> Floats:
    """Return the seconds each job waited."""
    intervals = waits(world, played)
    return np.bincount(intervals.job, intervals.end - intervals.begin, minlength=len(world.submit)).astype(np.float64)


def pieces(begin: Floats, end: Floats, edges: Floats) -> tuple[Ints, Ints, Floats, Floats]:
    """Cut intervals at edges of time: the row of each piece, which two edges it lies between, its begin and its end."""
    first = np.searchsorted(edges, begin, side="right") - 1
    last = np.searchsorted(edges, end, side="left") - 1
    first, last = np.maximum(first, 0), np.minimum(last, len(edges) - 2)
    count = np.maximum(last - first + 1, 0)
    row = np.repeat(np.arange(len(begin)), count)
    between = np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count) + first[row]
    begin, end = np.maximum(begin[row], edges[between]), np.minimum(end[row], edges[between + 1])
    lasts = np.flatnonzero(end > begin)
    return row[lasts], between[lasts], begin[lasts], end[lasts]


def seconds_between(begin: Floats, end: Floats, edges: Floats) -> Floats:
    """Return the seconds of all intervals together from each edge of time to the next."""
    _, between, since, until = pieces(begin, end, edges)
    return np.bincount(between, until - since, minlength=len(edges) - 1).astype(np.float64)
