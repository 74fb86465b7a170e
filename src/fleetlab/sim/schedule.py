"""What a loop hands back: who ran when and where, and why they waited."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from fleetlab.sim.layout import RUNNING, Floats, Ints
from fleetlab.sim.ledger.rules import Looks, SiteRules
from fleetlab.sim.quota import Quotas


@dataclass(frozen=True, slots=True, eq=False)
class Segments:
    """The intervals in which jobs ran without a break; those of one job in order of time.

    Those still running when the loop stopped end at that moment. The instances of segment `k` are the entries of
    `where` and `got` from `first[k]` on: as many as its job has, or fewer where Kueue admitted part of it.
    """

    job: Ints  # [segments]
    begin: Floats  # [segments], on the tick
    end: Floats  # [segments], on the tick
    first: Ints  # [segments], or one more: the total
    where: Ints  # node of each instance
    got: Ints  # its GPUs there: bits counted from the node's first

    def instances(self, of_job: Ints) -> Ints:
        """How many instances each had; `of_job` has how many its job asks for."""
        return np.diff(self.first) if len(self.first) > len(self.job) else of_job[self.job]


@dataclass(frozen=True, slots=True, eq=False)
class Up:
    """The intervals in which nodes were there and switched on, draining ones too; a node without one never was.

    A node that was up when the loop stopped may end at infinity.
    """

    node: Ints
    begin: Floats
    end: Floats


@dataclass(frozen=True, slots=True, eq=False)
class Schedule:
    """One entry a job of the world, in the same order."""

    start: Floats  # [jobs]: of its first run; nan: never
    end: Floats  # [jobs]: when it was done; nan: not yet
    status: Ints  # [jobs]: WAITING, RUNNING or DONE when the loop stopped
    where: Ints  # [instances]: the node, of its last run; -1: never ran
    got: Ints  # [instances]: the GPUs there, as bits counted from the node's first
    preemptions: Ints  # [jobs]: times the scheduler put it off its nodes
    failures: Ints  # [jobs]: times it lost its nodes
    lost: Floats  # [jobs]: seconds lost to failures, or spent on checkpoints and restarts
    segments: Segments | None = None  # None: every job ran at most once, from `start` to `end`
    held: Segments | None = None  # nodes of pods before all of their job had one, or of a job that never had all
    up: Up | None = None  # None: all nodes, all the time
    draining: Up | None = None  # when nodes took no more jobs, though they were up
    backfill: str = "greedy"
    quotas: Quotas | None = None  # before anything runs
    member: Ints | None = None  # [jobs]: of the quotas
    admitted: Floats | None = None  # [jobs]: since when it counts as submitted; inf: never
    keys: Floats | None = None  # [jobs]: ranks in the queue, the lowest first; None: they change with time
    eligible: Floats | None = None  # [jobs]: since when it could start, where that depends on other jobs; inf: never
    refused: Ints | None = None  # [jobs]: at submission: 0 no, else a place in REFUSALS
    timed_out: Ints | None = None  # [jobs]: 1: its time limit ended it; None: as the world says
    cut: Ints | None = None  # [jobs]: 1: a preemption, a node or a limit ended it before its time, for good
    until: float | None = None  # when the loop stopped; None: with the last completion
    rules: SiteRules | None = None  # of a site's Slurm, before anything runs
    looks: Looks | None = None  # of its loops

    @property
    def stopped(self) -> float:
        """When nothing more happened."""
        if self.until is not None:
            return self.until
        ends = self.end[~np.isnan(self.end)]
        return float(ends.max(initial=0.0))

    def runs(self, first: Ints) -> Segments:
        """The intervals in which jobs ran, where there is one a job too; what still runs ends at infinity.

        `first` has each job's first instance.
        """
        if self.segments is None:
            job = np.flatnonzero(~np.isnan(self.start))
            end = np.where(np.isnan(self.end), np.inf, self.end)[job]
            return Segments(job, self.start[job], end, first[job], self.where, self.got)
        runs = self.segments
        still = np.flatnonzero((self.status[runs.job] == RUNNING) & (runs.end >= self.stopped))
        latest = dict(zip(runs.job[still].tolist(), still.tolist(), strict=True))
        end = runs.end.copy()
        end[list(latest.values())] = np.inf
        return replace(runs, end=end)

    def occupied(self, first: Ints, instances: Ints) -> Segments:
        """The intervals in which jobs had nodes: as `runs`, with what pods held of them before.

        `instances` has how many each job has.
        """
        runs, held = self.runs(first), self.held
        if held is None:
            return runs
        count = runs.instances(instances)
        before = np.cumsum(count) - count
        place = np.arange(count.sum()) + np.repeat(runs.first[: len(runs.job)] - before, count)
        counts = np.append(count, np.diff(held.first))
        return Segments(
            np.append(runs.job, held.job), np.append(runs.begin, held.begin), np.append(runs.end, held.end),
            np.append(0, np.cumsum(counts)), np.append(runs.where[place], held.where),
            np.append(runs.got[place], held.got),
        )  # fmt: skip
