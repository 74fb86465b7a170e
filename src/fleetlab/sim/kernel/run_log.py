"""The log of runs, and the schedule that is made of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fleetlab.sim.kernel.cluster import JobAllocation
from fleetlab.sim.kernel.service import NodeService
from fleetlab.sim.kernel.work import Checkpoints, JobWork, columns_of
from fleetlab.sim.layout import DONE, RUNNING, WAITING, Floats, Ints
from fleetlab.sim.schedule import Schedule, Segments
from fleetlab.sim.world import World


@dataclass(frozen=True, slots=True)
class Run:
    """An interval in which a job ran on the same nodes; it ends at infinity while it does."""

    job: int
    begin: float
    end: float
    where: JobAllocation
    stays: Sequence[Stay] = ()  # of its pods, which have no GPUs yet


@dataclass(slots=True)
class Stay:
    """A pod on a node, from its binding until it leaves; it has the first GPUs that are free there."""

    node: int
    count: int  # of GPUs
    begin: float
    end: float = math.inf
    gpus: int = 0  # bits, once they are given
    job: int = -1


class RunLog:
    """Runs in the order in which they began; one of pods has the stay of each, which may begin earlier."""

    def __init__(self) -> None:
        self.runs: list[Run] = []
        self.stays: list[Stay] = []
        self._open: dict[int, int] = {}

    def bind(self, job: int, node: int, count: int, now: float) -> Stay:
        """Note that a pod of a job, with so many GPUs, is on a node from now on."""
        self.stays.append(Stay(node, count, now, job=job))
        return self.stays[-1]

    def begin(self, job: int, now: float, where: JobAllocation | Sequence[Stay]) -> None:
        """Note that a job runs from now on."""
        self._open[job] = len(self.runs)
        if isinstance(where, JobAllocation):
            self.runs.append(Run(job, now, math.inf, where))
        else:
            self.runs.append(Run(job, now, math.inf, JobAllocation(tuple(stay.node for stay in where), ()), where))

    def running(self, job: int) -> bool:
        """Whether a job runs."""
        return job in self._open

    def end(self, job: int, now: float) -> None:
        """Note that its run ends."""
        k = self._open.pop(job)
        run = self.runs[k]
        self.runs[k] = Run(job, run.begin, now, run.where, run.stays)

    def finish(
        self, world: World, work: Sequence[JobWork], rules: Checkpoints, *, end: Floats, until: float | None,
        service: NodeService, **columns: Any,  # noqa: ANN401
    ) -> Schedule:  # fmt: skip
        """Return the schedule of jobs with their work, on nodes that came and went; `until`: it was stopped then."""
        stopped = float(until) if until is not None else max((run.end for run in self.runs), default=0.0)
        for job in self._open:
            work[job].stop(stopped, rules)
        return self.schedule(world, end=end, stopped=stopped, **columns_of(work), **service.columns(stopped), **columns)

    def schedule(self, world: World, *, end: Floats, stopped: float, **columns: Any) -> Schedule:  # noqa: ANN401
        """Return the schedule; `end` has when jobs were done, and `stopped` is when the simulation ended.

        Further `columns` are taken as they are. A run that took no time counts only if its job was done then.
        """
        give_gpus(self.stays, world)
        runs = [_with_gpus(run) for run in self.runs if run.end > run.begin or run.end == end[run.job]]
        runs.sort(key=lambda run: (run.job, run.begin))
        job = np.array([run.job for run in runs], dtype=np.int64)
        begin = np.array([run.begin for run in runs], dtype=np.float64)
        start, first = np.full(len(end), np.nan), np.searchsorted(job, np.unique(job))
        start[job[first]] = begin[first]
        where, got = np.full(int(world.first[-1]), -1, dtype=np.int64), np.zeros(int(world.first[-1]), dtype=np.int64)
        latest = {run.job: run.where for run in runs}
        for k, (nodes, gpus) in latest.items():
            own = slice(int(world.first[k]), int(world.first[k]) + len(nodes))
            where[own], got[own] = nodes, gpus
        status = np.where(np.isnan(end), WAITING, DONE)
        status[list(self._open)] = RUNNING
        refused = columns.get("refused")
        over = (status == DONE) | (False if refused is None else refused > 0)
        whole = len(latest) == len(runs) and all(
            len(run.where.nodes) == world.instances[run.job] and run.end in (end[run.job], math.inf) for run in runs
        )
        return Schedule(
            start=start, end=end, status=status, where=where, got=got,
            until=None if over.all() else stopped,
            segments=None if whole else _segments(runs, job, begin, stopped), held=self._held(stopped), **columns,
        )  # fmt: skip

    def _held(self, stopped: float) -> Segments | None:
        """Return what pods held before their job ran; that of a job that never did until they left."""
        begun = {id(stay): run.begin for run in reversed(self.runs) for stay in run.stays}
        until = [(stay, min(begun.get(id(stay), stay.end), stopped)) for stay in self.stays]
        runs = [Run(stay.job, stay.begin, end, JobAllocation((stay.node,), (stay.gpus,)))
                for stay, end in until if end > stay.begin]  # fmt: skip
        job, begin = (np.array([getattr(run, name) for run in runs]) for name in ("job", "begin"))
        return _segments(runs, job, begin, stopped) if runs else None


def _with_gpus(run: Run) -> Run:
    if not run.stays:
        return run
    return replace(run, where=JobAllocation(run.where.nodes, tuple(stay.gpus for stay in run.stays)))


def give_gpus(stays: Sequence[Stay], world: World) -> None:
    """Give each pod the first GPUs that are free on its node."""
    free = [(1 << gpus) - 1 for gpus in world.nodes.idle_gpus.tolist()]
    # At one moment pods leave before others come; those that take no time keep nothing from others.
    ends = [(stay.end, 0, k) for k, stay in enumerate(stays) if stay.end > stay.begin]
    for _, begins, k in sorted([*ends, *((stay.begin, 1, k) for k, stay in enumerate(stays))]):
        stay = stays[k]
        if not begins:
            free[stay.node] |= stay.gpus
            continue
        mine, idle = 0, free[stay.node]
        for _ in range(stay.count):
            lowest = idle & -idle
            mine, idle = mine | lowest, idle ^ lowest
        stay.gpus = mine
        if stay.end > stay.begin:
            free[stay.node] = idle


def _segments(runs: Sequence[Run], job: Ints, begin: Floats, stopped: float) -> Segments:
    counts = [len(run.where.nodes) for run in runs]
    return Segments(
        job, begin, np.array([min(run.end, stopped) for run in runs], dtype=np.float64),
        np.append(0, np.cumsum(counts)).astype(np.int64),
        np.array([node for run in runs for node in run.where.nodes], dtype=np.int64),
        np.array([gpus for run in runs for gpus in run.where.gpus], dtype=np.int64),
    )  # fmt: skip
