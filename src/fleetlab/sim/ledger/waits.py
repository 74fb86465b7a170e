"""The intervals in which jobs wait: from submission to the first run, and from an interruption to the next run."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fleetlab.core.censoring import Bools
from fleetlab.sim.layout import WAITING, Floats, Ints
from fleetlab.sim.schedule import Played
from fleetlab.sim.world import World


@dataclass(frozen=True, slots=True, eq=False)
class Waits:
    """Intervals that take time, from when a job is eligible, in order of their begin."""

    job: Ints
    begin: Floats
    end: Floats

    def of(self, jobs: Bools) -> Waits:
        """Return those of some jobs."""
        kept = jobs[self.job]
        return Waits(self.job[kept], self.begin[kept], self.end[kept])

    def split(self, at: Floats) -> Waits:
        """Return intervals that end where the scheduler first looks at a job (`at`), and those that begin there."""
        crossed = np.flatnonzero((self.begin < at[self.job]) & (at[self.job] < self.end))
        end = self.end.copy()
        end[crossed] = at[self.job[crossed]]
        job, begin = np.append(self.job, self.job[crossed]), np.append(self.begin, end[crossed])
        end = np.append(end, self.end[crossed])
        order = np.lexsort((job, begin))
        return Waits(job[order], begin[order], end[order])


def waits(world: World, played: Played) -> Waits:
    """Return when jobs wait; a job that waits when the loop stops waits until then."""
    runs = played.runs(world.first)
    order = np.lexsort((runs.begin, runs.job))
    job, begin, end = runs.job[order], world.eligible[runs.job[order]], runs.begin[order]
    again = np.flatnonzero(job[1:] == job[:-1]) + 1
    begin[again] = runs.end[order][again - 1]
    last = np.array(world.eligible)
    last[job] = runs.end[order]  # the last assignment of a job stands
    left = np.flatnonzero((played.status == WAITING) & (last < played.stopped))
    job, begin = np.append(job, left), np.append(begin, last[left])
    end = np.append(end, np.full(len(left), played.stopped))
    waiting = np.flatnonzero(end > begin)
    order = waiting[np.lexsort((job[waiting], begin[waiting]))]
    return Waits(job[order], begin[order], end[order])


def seconds(world: World, played: Played) -> Floats:
    """Return the seconds each job waited."""
    intervals = waits(world, played)
    return np.bincount(intervals.job, intervals.end - intervals.begin, minlength=len(world.submit)).astype(np.float64)
