"""Simulate pod groups in time: they come, are placed all or nothing, end, and are evicted and come again.

The scheduler decides once a period, after something has changed. A group's run begins when `min_member` of its pods
have a node, whatever joins it meanwhile. One that loses so many pods that fewer are left has to begin anew: its other
pods go too, and all of it waits again. So does one of which a node fails, once the pods there are replaced.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from fleetlab.core.catalog.reasons import MOST_EVICTIONS
from fleetlab.core.progress import Progress, silent
from fleetlab.schedulers.gangs.board import Board
from fleetlab.schedulers.gangs.pod_groups import PodGroup
from fleetlab.schedulers.gangs.tasks import ON_NODE, Job, Status, Task
from fleetlab.schedulers.kubernetes.config import GPU, SchedulingNode
from fleetlab.sim.events import BACK, DRAIN, RECLAIM
from fleetlab.sim.kernel.events import EventQueue
from fleetlab.sim.kernel.run_log import Run, RunLog, Stay
from fleetlab.sim.kernel.service import REPLACED_AFTER, NodeService
from fleetlab.sim.kernel.work import Checkpoints, JobWork

NODE, END, LEFT, REPLACED, MADE, ARRIVE, WAKE = range(7)  # at one moment pods leave before others come
REPORT = 500  # cycles between two reports of progress

Decide = Callable[[Board, float], None]
Wake = Callable[[Board, float], float]


@dataclass(frozen=True)
class Timing:
    """Seconds between two decisions, that an evicted pod takes to leave, and its owner to make a new one."""

    period: float = 1.0
    grace: float = 30.0
    requeue_after: float = 1.0


@dataclass
class Placed:
    """What became of each group: infinity where it never started or ended; runs in the order in which they began."""

    start: list[float]  # of its first run
    end: list[float]
    work: list[JobWork]
    runs: list[Run]
    withdrawn: set[int]  # groups that others evict without end

    @property
    def evictions(self) -> list[int]:
        """How often each had to begin anew."""
        return [one.preemptions for one in self.work]

    @property
    def lost(self) -> list[float]:
        """Seconds of runs that were not finished."""
        return [one.lost for one in self.work]


class Loop:
    """The state of a simulation; `wake` says when a decision may change though nothing has happened."""

    def __init__(
        self, nodes: Sequence[SchedulingNode], timing: Timing, decide: Decide, wake: Wake | None = None
    ) -> None:
        self.timing, self._decide, self._wake = timing, decide, wake
        self.board, self.events, self.log = Board(nodes, ()), EventQueue(), RunLog()
        self.service: NodeService | None = None
        self.rules = Checkpoints()
        self.now, self._open = 0.0, 0  # groups that have not ended
        self.groups: Sequence[PodGroup] = ()
        self.jobs: dict[int, Job] = {}
        self.placed = Placed([], [], [], self.log.runs, set())
        self.bound: Mapping[int, Sequence[int]] = {}  # the nodes of groups that run when they come
        self._number: dict[Job, int] = {}
        self._stays: dict[str, Stay] = {}  # of each pod that is on a node
        self._tags: list[int] = []  # how often its run was cut short; the event of an end has that of its run
        self._ends: list[float] = []  # when its run ends, if nothing cuts it short
        self._leaves: list[float] = []  # when a run ends that is cut short
        self._lost: dict[int, tuple[int, dict[Task, Stay]]] = {}  # by failure: the node, and the pods that were on it
        self._failed: set[int] = set()  # groups that a failure ended, and that are to begin anew

    def play(
        self, groups: Sequence[PodGroup], submit: Sequence[float], run: Sequence[float],
        until: float = math.inf, progress: Progress = silent,
    ) -> Placed:  # fmt: skip
        """Run until nothing can change any more, or until a time."""
        count = len(groups)
        self.groups = [replace(one, created=at) for one, at in zip(groups, submit, strict=True)]
        never = [math.inf] * count
        self.placed = Placed(never.copy(), never.copy(), [JobWork(one) for one in run], self.log.runs, set())
        self._tags, self._ends, self._leaves = [0] * count, never.copy(), never.copy()
        struck = [] if self.service is None else self.service.events(NODE)
        self.events = EventQueue([*((at, ARRIVE, k, 0) for k, at in enumerate(submit)), *struck])
        self._open = sum(at < math.inf for at in submit)
        cycles = 0
        while self._open and self.events and self.events.next_time <= until:
            self.now = self.events.next_time
            self._happen()
            at = self._next_cycle()
            if self.events.next_time <= at:
                continue
            if at >= until:
                break
            self.now = at
            self._cycle()
            cycles += 1
            if cycles % REPORT == 0:
                progress("scheduling groups", count - self._open, 1 - self._open / count)
        return self.placed

    def _next_cycle(self) -> float:
        period = self.timing.period
        return math.ceil(self.now / period - 1e-9) * period if period else self.now

    # -- what happens ------------------------------------------------------------------------------------------------

    def _happen(self) -> None:
        for kind, number, tag in self.events.pop_until(self.now):
            if kind == ARRIVE:
                job = Job(self.groups[number], admitted=False)
                self.jobs[number], self._number[job] = job, number
                self.board.arrive(job)
                if number in self.bound:
                    self._start_bound(job, self.bound[number])
            elif kind == END and tag == self._tags[number]:
                self._end(number)
            elif kind == LEFT and number in self.jobs:
                self._left(number, self.jobs[number])
            elif kind == MADE and number in self.jobs:
                self.board.requeue(self.jobs[number])
            elif kind == NODE:
                self._strike(number)
            elif kind == REPLACED:
                self._replace(number)

    def _start_bound(self, job: Job, nodes: Sequence[int]) -> None:
        """Start a group where it is, if all of it fits there."""
        mark = self.board.mark()
        for task, node in zip(job.tasks, nodes, strict=True):
            if not self.board.fits_on(node, task):
                self.board.discard(mark)
                return
            self.board.bind(task, node)
        self.board.admit(job)
        self.board.commit(mark)
        self._settle()

    def _end(self, number: int) -> None:
        job = self.jobs[number]
        self.placed.end[number] = self.now
        self.placed.work[number].finish(self.rules)
        self.log.end(number, self.now)
        for task in job.tasks:
            if task.status in ON_NODE:
                self._leave(task)
        self._take_out(number, job)

    def _take_out(self, number: int, job: Job) -> None:
        del self.jobs[number], self._number[job]
        self.board.end(job)
        self._open -= 1

    def _left(self, number: int, job: Job) -> None:
        """Take pods away that were asked to go long enough ago."""
        if self._leaves[number] <= self.now and self.log.running(number):
            saved = self.rules.on_signal and self._grace(job) >= self.rules.save
            self._interrupt(number, saved=saved)
        due = [task for task in job.those(Status.RELEASING) if self._stays[task.pod.name].end <= self.now]
        for task in due:
            self._leave(task)
        if number in self.placed.withdrawn:
            if not job.those(Status.RELEASING):
                self._take_out(number, job)
        elif due:
            self._make_anew(number, job)

    def _make_anew(self, number: int, job: Job) -> None:
        """Let the owner of pods that have gone make new ones."""
        admitted = job.admitted and bool(job.those(Status.RUNNING, Status.RELEASING))
        self.board.admit(job, admitted=admitted)
        self.events.push(self.now + self.timing.requeue_after, MADE, number)

    def _leave(self, task: Task) -> None:
        stay = self._stays.pop(task.pod.name)
        stay.end = min(stay.end, self.now)
        self.board.clear(task)

    # -- a cycle -----------------------------------------------------------------------------------------------------

    def _cycle(self) -> None:
        if self.board.waiting():
            self._decide(self.board, self.now)
            if self._settle():
                self.events.push(self.now + self.timing.period, WAKE, 0)
        if self._wake is not None and (next_ := self._wake(self.board, self.now)) > self.now and not math.isinf(next_):
            self.events.push(next_, WAKE, 0)

    def _settle(self) -> bool:
        """Do what was decided; return whether that was anything."""
        bound, gone = self.board.settle()
        for task in gone:
            self._evicted(task)
        for task in bound:
            gpus = task.pod.requests.get(GPU, 0)
            self._stays[task.pod.name] = self.log.bind(self._number[task.job], task.node, gpus, self.now)
        for job in dict.fromkeys(task.job for task in bound):
            self._bound(job)
        for job in dict.fromkeys(task.job for task in gone):
            self._check(job)
        return bool(bound or gone)

    def _bound(self, job: Job) -> None:
        number, running = self._number[job], job.those(Status.RUNNING)
        goes_on = not math.isinf(self._ends[number]) or number in self._failed
        if goes_on or len(running) < max(1, job.group.min_member):
            return
        if self.log.running(number):  # others of its pods are still leaving
            self._interrupt(number, saved=False)
        self._begin(number, running, self.now)

    def _begin(self, number: int, running: Iterable[Task], since: float) -> None:
        """Begin a run of a group whose pods have nodes."""
        self.placed.start[number] = min(self.placed.start[number], since)
        self.jobs[number].started = since
        self.log.begin(number, since, [self._stays[task.pod.name] for task in running])
        self._ends[number] = since + self.placed.work[number].begin(since, self.rules)
        self.events.push(self._ends[number], END, number, self._tags[number])

    def _grace(self, job: Job) -> float:
        return self.timing.grace if job.group.grace is None else job.group.grace

    def _evicted(self, task: Task) -> None:
        leaves = self.now + self._grace(task.job)
        self._stays[task.pod.name].end = leaves
        self.events.push(leaves, LEFT, self._number[task.job])

    def _check(self, job: Job) -> None:
        """A group that lost too many pods begins anew, unless it ends before they have left."""
        number, work, leaves = self._number[job], self.placed.work, self.now + self._grace(job)
        if number not in self._failed:
            enough = len(job.those(Status.RUNNING)) >= max(1, job.group.min_member)
            if enough or math.isinf(self._ends[number]) or self._ends[number] <= leaves:
                return
            work[number].preemptions += 1
            self._leaves[number] = leaves
            self._cut(number)
        self._failed.discard(number)
        for task in job.those(Status.RUNNING):
            self.board.release(task)
            self._evicted(task)
        if work[number].preemptions >= MOST_EVICTIONS:
            self.placed.withdrawn.add(number)
            for task in job.pending:
                self.board.clear(task)

    def _cut(self, number: int) -> None:
        self._tags[number] += 1
        self._ends[number] = math.inf

    def _interrupt(self, number: int, *, saved: bool) -> None:
        self.placed.work[number].interrupt(self.now, self.rules, saved=saved)
        self.log.end(number, self.now)
        self._leaves[number] = math.inf

    # -- nodes -------------------------------------------------------------------------------------------------------

    def _strike(self, number: int) -> None:
        """Let a node fail, be reclaimed or drained, or come back."""
        assert self.service is not None  # which the event is of
        node, what = self.service.apply_event(number, self.now)
        if what == BACK:
            for failure in [failure for failure, (where, _) in self._lost.items() if where == node]:
                self._replace(failure)
        elif what != DRAIN:
            self._fail(number, node, saved=what == RECLAIM)
        self.board.set_service(node, self.service.state[node])

    def _fail(self, failure: int, node: int, *, saved: bool) -> None:
        """End the runs of groups of which too few pods are on other nodes."""
        tasks = self.board.on(node)
        for task in tasks:
            self._stays[task.pod.name].end = min(self._stays[task.pod.name].end, self.now)
        for job in dict.fromkeys(task.job for task in tasks):
            number = self._number[job]
            others = [task for task in job.those(Status.RUNNING) if task.node != node]
            if self.log.running(number) and len(others) < max(1, job.group.min_member):
                if not math.isinf(self._ends[number]):  # else it was leaving
                    self._failed.add(number)
                    self._cut(number)
                self._interrupt(number, saved=saved)
                self.placed.work[number].failures += 1
        self._lost[failure] = node, {t: self._stays[t.pod.name] for t in tasks if t.status is Status.RUNNING}
        self.events.push(self.now if saved else self.now + REPLACED_AFTER, REPLACED, failure)

    def _replace(self, failure: int) -> None:
        """Let pods that a failure ended be made anew, with all of a group that does not go on without them."""
        stays = self._lost.pop(failure, (-1, {}))[1]
        gone = [task for task, stay in stays.items() if self._stays.get(task.pod.name) is stay]
        for job in dict.fromkeys(task.job for task in gone):
            number = self._number[job]
            every = job.those(Status.RUNNING) if number in self._failed else [task for task in gone if task.job is job]
            self._failed.discard(number)
            for task in every:
                self._leave(task)
            self._make_anew(number, job)
