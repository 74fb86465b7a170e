"""Simulate pod groups in time: they come, are placed all or nothing, end, and are evicted and come again.

The scheduler decides once a period, after something has changed. A group's run begins when `min_member` of its pods
have a node, and ends its time later, whatever joins it meanwhile. One that loses so many pods that fewer are left has
to begin anew: its other pods go too, and all of it waits again.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from fleetlab.core.catalog.reasons import MOST_EVICTIONS
from fleetlab.core.kubernetes import SchedulingNode
from fleetlab.core.pod_groups import PodGroup
from fleetlab.core.progress import Progress, silent
from fleetlab.sim.gangs.board import Board
from fleetlab.sim.gangs.tasks import ON_NODE, Job, Status, Task

END, LEFT, BACK, ARRIVE, WAKE = range(5)  # at one moment pods leave before others come
REPORT = 500  # cycles between two reports of progress

Decide = Callable[[Board, float], None]
Wake = Callable[[Board, float], float]


@dataclass(frozen=True)
class Timing:
    """Seconds between two decisions, that an evicted pod takes to leave, and its owner to make a new one."""

    period: float = 1.0
    grace: float = 30.0
    comes_again: float = 1.0


@dataclass(frozen=True)
class Stay:
    """A pod on a node; `end` is infinity while it is there."""

    group: int
    pod: int
    node: int
    begin: float
    end: float = math.inf


@dataclass
class Placed:
    """What became of each group: infinity where it never started or ended; `stays` in the order in which they began."""

    start: list[float]  # of its first run
    end: list[float]
    begin: list[float]  # of its last run
    evictions: list[int]  # how often it had to begin anew
    lost: list[float]  # seconds of runs that were not finished
    withdrawn: set[int] = field(default_factory=set)  # groups that others evict without end
    stays: list[Stay] = field(default_factory=list)


class Loop:
    """The state of a simulation; `wake` says when a decision may change though nothing has happened."""

    def __init__(
        self, nodes: Sequence[SchedulingNode], timing: Timing, decide: Decide, wake: Wake | None = None
    ) -> None:
        self.timing, self._decide, self._wake = timing, decide, wake
        self.board = Board(nodes, ())
        self.events: list[tuple[float, int, int, int]] = []
        self.now, self._serial = 0.0, 0
        self.groups: Sequence[PodGroup] = ()
        self.run: Sequence[float] = ()
        self.jobs: dict[int, Job] = {}
        self._number: dict[Job, int] = {}
        self._index: dict[str, int] = {}
        self._stay: dict[str, int] = {}
        self._version: list[int] = []
        self.placed = Placed([], [], [], [], [])

    def play(
        self, groups: Sequence[PodGroup], submit: Sequence[float], run: Sequence[float],
        until: float = math.inf, progress: Progress = silent,
    ) -> Placed:  # fmt: skip
        """Run until nothing can change any more, or until a time."""
        count = len(groups)
        self.groups = [replace(one, created=at) for one, at in zip(groups, submit, strict=True)]
        self.run, self._version = run, [0] * count
        self._index = {pod.name: k for group in groups for k, pod in enumerate(group.pods)}
        never = [math.inf] * count
        self.placed = Placed(never.copy(), never.copy(), never.copy(), [0] * count, [0.0] * count)
        self.events = [(at, ARRIVE, k, 0) for k, at in enumerate(submit)]
        heapq.heapify(self.events)
        cycles = 0
        while self.events and self.events[0][0] < until:
            self.now = self.events[0][0]
            self._happen()
            at = self._next_cycle()
            if self.events and self.events[0][0] <= at:
                continue
            if at >= until:
                break
            self.now = at
            self._cycle()
            cycles += 1
            if cycles % REPORT == 0:
                done = sum(not math.isinf(end) for end in self.placed.end)
                progress("scheduling groups", done, done / count)
        return self.placed

    def _next_cycle(self) -> float:
        period = self.timing.period
        return math.ceil(self.now / period - 1e-9) * period if period else self.now

    # -- what happens ------------------------------------------------------------------------------------------------

    def _happen(self) -> None:
        while self.events and self.events[0][0] <= self.now:
            _, kind, number, version = heapq.heappop(self.events)
            if kind == ARRIVE:
                job = Job(self.groups[number], admitted=False)
                self.jobs[number], self._number[job] = job, number
                self.board.arrive(job)
            elif kind == END and version == self._version[number]:
                self._end(number)
            elif kind == LEFT and number in self.jobs:
                self._left(number, self.jobs[number])
            elif kind == BACK and number in self.jobs:
                self.board.come_back(self.jobs[number])

    def _end(self, number: int) -> None:
        job = self.jobs.pop(number)
        self.placed.end[number] = self.now
        for task in job.tasks:
            if task.status in ON_NODE:
                self._leave(task)
        del self._number[job]
        self.board.end(job)

    def _left(self, number: int, job: Job) -> None:
        due = [task for task in job.those(Status.RELEASING) if self._leaves_at(task) <= self.now]
        for task in due:
            self._leave(task)
        if number in self.placed.withdrawn:
            if not job.those(Status.RELEASING):
                del self.jobs[number], self._number[job]
                self.board.end(job)
        elif due:
            admitted = job.admitted and bool(job.those(Status.RUNNING, Status.RELEASING))
            self.board.admit(job, admitted=admitted)
            self._at(self.now + self.timing.comes_again, BACK, number)

    def _leaves_at(self, task: Task) -> float:
        return self.placed.stays[self._stay[task.pod.name]].end

    def _leave(self, task: Task) -> None:
        k = self._stay.pop(task.pod.name)
        self.placed.stays[k] = replace(self.placed.stays[k], end=self.now)
        self.board.clear(task)

    # -- a cycle -----------------------------------------------------------------------------------------------------

    def _cycle(self) -> None:
        if self.board.waiting():
            self._decide(self.board, self.now)
            bound, gone = self.board.settle()
            for task in gone:
                self._evicted(task)
            for task in bound:
                self._bound(task)
            for job in dict.fromkeys(task.job for task in gone):
                self._check(job)
            if bound or gone:
                self._at(self.now + self.timing.period, WAKE, 0)
        if self._wake is not None and (next_ := self._wake(self.board, self.now)) > self.now and not math.isinf(next_):
            self._at(next_, WAKE, 0)

    def _at(self, time: float, kind: int, number: int, version: int = 0) -> None:
        heapq.heappush(self.events, (time, kind, number, version))

    def _bound(self, task: Task) -> None:
        job = task.job
        number = self._number[job]
        self._stay[task.pod.name] = len(self.placed.stays)
        self.placed.stays.append(Stay(number, self._index[task.pod.name], task.node, self.now))
        least = max(1, job.group.min_member)
        if len(job.those(Status.RUNNING)) >= least and math.isinf(self.placed.begin[number]):
            placed = self.placed
            placed.start[number], placed.begin[number] = min(placed.start[number], self.now), self.now
            job.started = self.now
            self._at(self.now + self.run[number], END, number, self._version[number])

    def _grace(self, job: Job) -> float:
        return self.timing.grace if job.group.grace is None else job.group.grace

    def _evicted(self, task: Task) -> None:
        k, leaves = self._stay[task.pod.name], self.now + self._grace(task.job)
        self.placed.stays[k] = replace(self.placed.stays[k], end=leaves)
        self._at(leaves, LEFT, self._number[task.job])

    def _check(self, job: Job) -> None:
        """A group that lost too many pods begins anew, unless it ends before they have left."""
        number, placed = self._number[job], self.placed
        begin = placed.begin[number]
        if len(job.those(Status.RUNNING)) >= max(1, job.group.min_member) or math.isinf(begin):
            return
        leaves = self.now + self._grace(job)
        if begin + self.run[number] <= leaves:
            return
        self._version[number] += 1
        placed.begin[number] = math.inf
        placed.evictions[number] += 1
        placed.lost[number] += leaves - begin  # it holds its nodes while it leaves
        for task in job.those(Status.RUNNING):
            self.board.release(task)
            self._evicted(task)
        if placed.evictions[number] >= MOST_EVICTIONS:
            placed.withdrawn.add(number)
            for task in job.pending:
                self.board.clear(task)
