"""Nodes and what is on them while a scheduler decides; every decision can be taken back.

A scheduler tries: it evicts, promises and binds, looks whether the gang is complete, and keeps all of it or nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from fleetlab.core.kubernetes import SchedulingNode
from fleetlab.sim.gangs.tasks import CHARGED, ON_NODE, OUR_OWN, Job, Status, Task
from fleetlab.sim.kubernetes.filters import resolvable, spread_allows
from fleetlab.sim.kubernetes.state import Bools, Cache, Ints

Listener = Callable[[Task, int], None]
COUNT = "pods"


class Board:
    """What is on the nodes, what leaves them, and what is promised; listeners hear what each queue is charged."""

    def __init__(self, nodes: Sequence[SchedulingNode], jobs: Iterable[Job]) -> None:
        self.jobs = list(jobs)
        self.cache = Cache(nodes)
        self.leaving: dict[str, Ints] = {}
        self.promised: dict[str, Ints] = {}
        self.listeners: list[Listener] = []
        self.kept: list[tuple[Task, Status]] = []  # decisions that were committed, in order
        self._journal: list[tuple[Task, Status, int]] = []
        self._touched: dict[Task, None] = {}
        self._on_node: list[dict[str, Task]] = [{} for _ in self.cache.nodes]
        for task in (task for job in self.jobs for task in job.tasks):
            if task.status in ON_NODE:
                self._appear(task)

    # -- what there is -----------------------------------------------------------------------------------------------

    @property
    def total(self) -> dict[str, float]:
        """What all nodes have together."""
        known = [name for name in self.cache.allocatable if name != COUNT and not name.startswith(OUR_OWN)]
        return {name: float(self.cache.allocatable[name].sum()) for name in known}

    def on(self, node: int) -> list[Task]:
        """The pods on a node, by name."""
        return [self._on_node[node][name] for name in sorted(self._on_node[node])]

    def allowed(self, task: Task) -> Bools:
        """Nodes that a pod's selectors, tolerations and spread constraints allow."""
        found: Bools = resolvable(self.cache, task.pod) & spread_allows(self.cache, task.pod)
        return found

    def fits_now(self, task: Task) -> Bools:
        """Nodes with room now, apart from what is promised to others."""
        found: Bools = self._room(task, {}) & self.fits_later(task)
        return found

    def fits_later(self, task: Task, without: Iterable[Task] = ()) -> Bools:
        """Nodes with room once those that leave have left, and others too."""
        gone: dict[str, Ints] = {}
        for other in without:
            self._count(gone, other, 1)
        names = {*self.leaving, *self.promised, *gone}
        zero = np.zeros(len(self.cache.nodes), np.int64)
        extra = {n: self.leaving.get(n, zero) - self.promised.get(n, zero) + gone.get(n, zero) for n in names}
        return self._room(task, extra)

    def _room(self, task: Task, extra: dict[str, Ints]) -> Bools:
        cache = self.cache
        fits: Bools = np.ones(len(cache.nodes), np.bool_)
        if COUNT in cache.allocatable:
            fits = cache.count + 1 <= cache.allocatable[COUNT] + extra.get(COUNT, 0)
        for name, amount in task.pod.requests.items():
            if amount and name not in cache.allocatable:
                return np.zeros(len(cache.nodes), np.bool_)
            if amount:
                fits = fits & (cache.requested[name] + amount <= cache.allocatable[name] + extra.get(name, 0))
        return fits

    # -- decisions ---------------------------------------------------------------------------------------------------

    def mark(self) -> int:
        """Where the journal stands: what is decided from here can be committed or taken back."""
        return len(self._journal)

    def bind(self, task: Task, node: int) -> None:
        """Give a pod a node."""
        self._decide(task, Status.BOUND, node)

    def promise(self, task: Task, node: int) -> None:
        """Promise a pod a node that others leave."""
        self._decide(task, Status.PIPELINED, node)

    def evict(self, task: Task) -> None:
        """Ask a pod to go."""
        self._decide(task, Status.RELEASING, task.node)

    def stay(self, task: Task) -> None:
        """Let a pod that was asked to go stay after all."""
        self._decide(task, Status.RUNNING, task.node)

    def stand_in(self, task: Task) -> Task:
        """What stands for a pod that leaves, where it is to run next."""
        other = Task(task.pod, task.job, stands_for=task)
        task.job.tasks.append(other)
        task.job.changed()
        return other

    @staticmethod
    def forget(task: Task) -> None:
        """Take back what stands for a pod."""
        task.job.tasks.remove(task)
        task.job.changed()

    def commit(self, mark: int) -> None:
        """Keep what was decided since."""
        self.kept.extend((task, task.status) for task, _, _ in self._journal[mark:])
        del self._journal[mark:]

    def leave_open(self, mark: int) -> None:
        """Hold the room until the end of the cycle, without acting on it."""
        del self._journal[mark:]

    def discard(self, mark: int) -> None:
        """Take back what was decided since."""
        while len(self._journal) > mark:
            task, status, node = self._journal.pop()
            self._move(task, status, node)

    def _decide(self, task: Task, status: Status, node: int) -> None:
        self._journal.append((task, task.status, task.node))
        self._touched[task] = None
        self._move(task, status, node)

    # -- from one cycle to the next ----------------------------------------------------------------------------------

    def settle(self) -> tuple[list[Task], list[Task]]:
        """End a cycle: return the pods that were bound, and those that were asked to go; all else waits again.

        A pod that was promised a node others were evicted from is nominated to it: it comes first there.
        """
        self.listeners.clear()
        kept = dict(self.kept)
        self.kept.clear()
        self._journal.clear()
        bound = [task for task in self._touched if task.status is Status.BOUND and kept.get(task) is Status.BOUND]
        gone = [task for task in self._touched if task.status is Status.RELEASING]
        emptied = {task.node for task in gone}
        for task in self._touched:
            self._settle(task, is_bound=task in bound, is_nominated=task in kept and task.node in emptied)
        self._touched.clear()
        return bound, gone

    def _settle(self, task: Task, *, is_bound: bool, is_nominated: bool) -> None:
        if is_bound:
            task.nominated = -1
            self._move(task, Status.RUNNING, task.node)
        elif task.status in (Status.BOUND, Status.PIPELINED):
            other = task.stands_for or task
            if is_nominated or task.stands_for is not None:
                other.nominated = task.node
            self._move(task, Status.PENDING, -1)
        if task.stands_for is not None and task in task.job.tasks:
            self.forget(task)

    def release(self, task: Task) -> None:
        """Ask a pod to go that no decision of the scheduler did."""
        self._move(task, Status.RELEASING, task.node)

    def clear(self, task: Task) -> None:
        """Take a pod off its node: it has ended, or has gone."""
        self._move(task, Status.ABSENT, -1)

    def _move(self, task: Task, status: Status, node: int) -> None:
        charged = task.status in CHARGED
        self._disappear(task)
        task.status, task.node = status, node
        task.job.changed()
        self._appear(task)
        if change := (status in CHARGED) - charged:
            for listener in self.listeners:
                listener(task, change)

    def _appear(self, task: Task) -> None:
        if task.status in ON_NODE:
            self.cache.add(task.pod, task.node)
            self._on_node[task.node][task.pod.name] = task
        if task.status is Status.RELEASING:
            self._count(self.leaving, task, 1)
        if task.status is Status.PIPELINED:
            self._count(self.promised, task, 1)

    def _disappear(self, task: Task) -> None:
        if task.status in ON_NODE:
            self.cache.remove(task.pod.name)
            del self._on_node[task.node][task.pod.name]
        if task.status is Status.RELEASING:
            self._count(self.leaving, task, -1)
        if task.status is Status.PIPELINED:
            self._count(self.promised, task, -1)

    def _count(self, sums: dict[str, Ints], task: Task, sign: int) -> None:
        for name, amount in (*task.pod.requests.items(), (COUNT, 1)):
            if name not in sums:
                sums[name] = np.zeros(len(self.cache.nodes), np.int64)
            sums[name][task.node] += sign * amount
