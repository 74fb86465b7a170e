"""Nodes and what is on them while a scheduler decides; every decision can be taken back.

A scheduler tries: it evicts, promises and binds, looks whether the gang is complete, and keeps all of it or nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from fleetlab.schedulers.gangs.pod_groups import Amounts
from fleetlab.schedulers.gangs.tasks import CHARGED, ON_NODE, OUR_OWN, Job, Status, Task
from fleetlab.schedulers.kubernetes.config import SchedulingNode
from fleetlab.schedulers.kubernetes.filters import resolvable, spread_allows
from fleetlab.schedulers.kubernetes.state import UNREACHABLE, Bools, Cache, Ints

Listener = Callable[[Task, int], None]
Parts = Callable[[Job], tuple[Amounts, ...]]
COUNT = "pods"
BOUNDLESS = 1 << 60


class Board:
    """What is on the nodes, what leaves them, and what is promised; listeners hear what each queue is charged."""

    def __init__(self, nodes: Sequence[SchedulingNode], jobs: Iterable[Job]) -> None:
        self.jobs = list(jobs)
        self.cache = Cache(nodes)
        self.coming: dict[str, Ints] = {}  # what those that leave give back, less what is promised to others
        self.moves = 0  # how many decisions and events there were
        self.listeners: list[Listener] = []
        self.committed: list[tuple[Task, Status]] = []  # decisions that were committed, in order
        self._journal: list[tuple[Task, Status, int]] = []
        self._touched: dict[Task, None] = {}
        self._on_node: list[dict[str, Task]] = [{} for _ in self.cache.nodes]
        self._running: dict[str, dict[str, Ints]] = {}  # what pods that run hold on each node, by their queue
        self._shapes: dict[object, int] = {}
        self._allowed: dict[int, Bools] = {}
        self._waiting: dict[Job, None] = {}  # groups of which pods may wait
        self._changed: dict[Job, bool] = {}  # since queues were added up, and whether they are still there
        self._tally: Tally | None = None
        self._total: dict[str, float] = {}
        for job in self.jobs:
            self._note(job)
            for task in job.tasks:
                self._count(task, 1)
                self._appear(task)

    # -- what there is -----------------------------------------------------------------------------------------------

    @property
    def total(self) -> dict[str, float]:
        """What all nodes have together; a resource that no node has is known once a pod asks for it."""
        names = [name for name in self.cache.allocatable if name != COUNT and not name.startswith(OUR_OWN)]
        if len(self._total) < len(names):
            there = [why != UNREACHABLE for why in map(self.cache.closed.get, range(len(self.cache.nodes)))]
            self._total = {name: float(self.cache.allocatable[name][there].sum()) for name in names}
        return self._total

    def free_on_nodes(self, name: str) -> Ints:
        """What each node has free of a resource that nodes have, once those that leave have left."""
        cache = self.cache
        free: Ints = cache.allocatable[name] - (cache.count if name == COUNT else cache.requested[name])
        return free + self.coming[name] if name in self.coming else free

    def free(self, name: str) -> int:
        """The same of all nodes together; one that takes no pods has none, nor one that has promised too much."""
        if name not in self.cache.allocatable:
            return 0
        return int(np.maximum(self.free_on_nodes(name), 0)[self.cache.open].sum())

    def needs(self, task: Task) -> list[tuple[str, int]]:
        """What a pod takes of a node; one of the pods it may have, where nodes count them."""
        counted = [(COUNT, 1)] if COUNT in self.cache.allocatable else []
        return [*counted, *((name, amount) for name, amount in task.pod.requests.items() if amount)]

    def on(self, node: int) -> list[Task]:
        """The pods on a node, by name."""
        return [self._on_node[node][name] for name in sorted(self._on_node[node])]

    def allowed(self, task: Task) -> Bools:
        """Nodes that a pod's selectors, tolerations and spread constraints allow."""
        pod, shape = task.pod, self.shape(task)
        if shape not in self._allowed:
            self._allowed[shape] = resolvable(self.cache, pod)
        if not pod.spread:
            return self._allowed[shape]
        result: Bools = self._allowed[shape] & spread_allows(self.cache, pod)
        return result

    def shape(self, task: Task) -> int:
        """The same number for pods that ask for the same, of the same nodes; spread constraints aside."""
        if task.shape < 0:
            pod = task.pod
            key = (tuple(sorted(pod.requests.items())), pod.selector, pod.required, pod.tolerations)
            task.shape = self._shapes.setdefault(key, len(self._shapes))
        return task.shape

    def room(self, task: Task, freed: Mapping[str, Ints]) -> int:
        """How many pods like one fit on allowed nodes, once those that leave have left and so much more is free."""
        on_node: Ints = np.where(self.allowed(task) & self.cache.open, BOUNDLESS // max(1, len(self.cache.nodes)), 0)
        for name, amount in self.needs(task):
            if name not in self.cache.allocatable:
                return 0
            free = self.free_on_nodes(name)
            on_node = np.minimum(on_node, (free + freed[name] if name in freed else free) // amount)
        return int(np.maximum(on_node, 0).sum())

    def fits_now(self, task: Task, freed: Mapping[str, Ints] | None = None) -> Bools:
        """Nodes on which it fits now, beside what others are pipelined to; what is `freed` by then counts as free."""
        result: Bools = self._fits_beside(task, {}) & self._fits_beside(task, self.coming, freed or {})
        return result

    def fits_later(self, task: Task, without: Iterable[Task] = ()) -> Bools:
        """Nodes on which it fits once those that leave have left, and others too."""
        return self.fits_with(task, self.sum_on_nodes(without))

    def fits_with(self, task: Task, freed: Mapping[str, Ints]) -> Bools:
        """Nodes on which it fits once those that leave have left, and so much more is free."""
        return self._fits_beside(task, self.coming, freed)

    def fits_without(self, task: Task, queues: Iterable[str]) -> Bools:
        """Nodes on which it would fit without any running pod of some queues."""
        return self._fits_beside(task, self.coming, *(self._running.get(queue, {}) for queue in queues))

    def fits_on(self, node: int, task: Task, without: Iterable[Task] = ()) -> bool:
        """Whether it fits on a node once those that leave have left, and others on it too."""
        cache, gone = self.cache, [other for other in without if other.node == node]
        if not cache.open[node]:
            return False
        if COUNT in cache.allocatable:
            free = cache.allocatable[COUNT][node] - cache.count[node] + self._coming_on(COUNT, node) + len(gone)
            if free < 1:
                return False
        for name, amount in task.pod.requests.items():
            if amount and name not in cache.allocatable:
                return False
            if amount:
                free = cache.allocatable[name][node] - cache.requested[name][node] + self._coming_on(name, node)
                if amount > free + sum(other.pod.requests.get(name, 0) for other in gone):
                    return False
        return True

    def _coming_on(self, name: str, node: int) -> int:
        coming = self.coming.get(name)
        return 0 if coming is None else int(coming[node])

    def _fits_beside(self, task: Task, *extras: Mapping[str, Ints]) -> Bools:
        cache = self.cache
        fits: Bools = cache.open.copy()
        for name, amount in self.needs(task):
            if name not in cache.allocatable:
                return np.zeros(len(cache.nodes), np.bool_)
            free = cache.allocatable[name] - (cache.count if name == COUNT else cache.requested[name])
            for extra in extras:
                if name in extra:
                    free += extra[name]
            fits &= free >= amount
        return fits

    def waiting(self) -> list[Job]:
        """Groups with pods that wait."""
        waiting = [job for job in self._waiting if job.pending]
        if len(waiting) < len(self._waiting):
            self._waiting = dict.fromkeys(waiting)
        return waiting

    def sums(self, parts: Parts) -> dict[str, tuple[dict[str, float], ...]]:
        """What the groups of each queue have together, by `parts` of a group; always asked with the same parts."""
        if self._tally is None:
            self._tally = Tally(parts)
        self._tally.update(self._changed)
        self._changed.clear()
        return self._tally.sums

    # -- decisions ---------------------------------------------------------------------------------------------------

    def mark(self) -> int:
        """Where the journal stands: what is decided from here can be committed or taken back."""
        return len(self._journal)

    def bind(self, task: Task, node: int) -> None:
        """Give a pod a node."""
        self._decide(task, Status.BOUND, node)

    def pipeline(self, task: Task, node: int) -> None:
        """Promise a pod a node that others leave."""
        self._decide(task, Status.PIPELINED, node)

    def evict(self, task: Task) -> None:
        """Ask a pod to go."""
        self._decide(task, Status.RELEASING, task.node)

    def stay(self, task: Task) -> None:
        """Let a pod that was asked to go stay after all."""
        self._decide(task, Status.RUNNING, task.node)

    def placeholder(self, task: Task) -> Task:
        """What stands for a pod that leaves, where it is to run next."""
        other = Task(task.pod, task.job, stands_for=task)
        task.job.tasks.append(other)
        self._note(task.job)
        return other

    def forget(self, task: Task) -> None:
        """Take back what stands for a pod."""
        task.job.tasks.remove(task)
        self._note(task.job)

    def commit(self, mark: int) -> None:
        """Keep what was decided since."""
        self.committed.extend((task, task.status) for task, _, _ in self._journal[mark:])
        del self._journal[mark:]

    def leave_open(self, mark: int) -> None:
        """Hold what was decided until the end of the cycle, without acting on it."""
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
        committed = dict(self.committed)
        self.committed.clear()
        self._journal.clear()
        bound = {task: None for task in self._touched if task.status is committed.get(task) is Status.BOUND}
        gone = [task for task in self._touched if task.status is Status.RELEASING]
        emptied = {task.node for task in gone}
        for task in self._touched:
            self._settle(task, is_bound=task in bound, is_nominated=task in committed and task.node in emptied)
        self._touched.clear()
        return list(bound), gone

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

    def set_service(self, node: int, state: int) -> None:
        """Let a node take pods, or not, as it is in service, drained or out."""
        self.cache.set_service(node, state)
        self.moves += 1
        self._allowed.clear()
        self._total = {}

    def arrive(self, job: Job) -> None:
        """Let a group wait."""
        self.jobs.append(job)
        self._note(job)

    def end(self, job: Job) -> None:
        """Take a group away whose pods have left."""
        self.jobs.remove(job)
        self._changed[job] = False
        self._waiting.pop(job, None)

    def requeue(self, job: Job) -> None:
        """Let pods wait that are new in place of those that have gone."""
        for task in job.those(Status.ABSENT):
            task.status = Status.PENDING
        self._note(job)

    def admit(self, job: Job, *, admitted: bool = True) -> None:
        """Admit a group to the queue, or take that back."""
        job.admitted = admitted
        self._note(job)

    def release(self, task: Task) -> None:
        """Ask a pod to go that no decision of the scheduler did."""
        self._move(task, Status.RELEASING, task.node)

    def clear(self, task: Task) -> None:
        """Take a pod off its node: it has ended, or has gone."""
        self._move(task, Status.ABSENT, -1)

    def _move(self, task: Task, status: Status, node: int) -> None:
        charged = task.status in CHARGED
        stays = node == task.node and task.status in ON_NODE and status in ON_NODE
        self.moves += 1
        self._count(task, -1)
        if not stays:
            self._disappear(task)
        task.status, task.node = status, node
        self._note(task.job)
        self._count(task, 1)
        if not stays:
            self._appear(task)
        if change := (status in CHARGED) - charged:
            for listener in self.listeners:
                listener(task, change)

    def _note(self, job: Job) -> None:
        job.changed()
        self._changed[job] = True
        self._waiting[job] = None

    def _appear(self, task: Task) -> None:
        if task.status in ON_NODE:
            self.cache.add(task.pod, task.node)
            self._on_node[task.node][task.pod.name] = task

    def _disappear(self, task: Task) -> None:
        if task.status in ON_NODE:
            self.cache.remove(task.pod.name)
            del self._on_node[task.node][task.pod.name]

    def _count(self, task: Task, sign: int) -> None:
        if task.status is Status.RELEASING:
            self._add(self.coming, task, sign)
        elif task.status is Status.PIPELINED:
            self._add(self.coming, task, -sign)
        elif task.status is Status.RUNNING:
            self._add(self._running.setdefault(task.job.group.queue, {}), task, sign)

    def sum_on_nodes(self, tasks: Iterable[Task]) -> dict[str, Ints]:
        """What pods hold on each node, by resource."""
        result: dict[str, Ints] = {}
        for task in tasks:
            self._add(result, task, 1)
        return result

    def _add(self, sums: dict[str, Ints], task: Task, sign: int) -> None:
        for name, amount in (*task.pod.requests.items(), (COUNT, 1)):
            if name not in sums:
                sums[name] = np.zeros(len(self.cache.nodes), np.int64)
            sums[name][task.node] += sign * amount


class Tally:
    """What the groups of each queue have together, of each part, from one cycle to the next.

    Only groups that have changed are counted anew. Amounts are whole numbers, so that what is added and taken away
    leaves no trace of rounding.
    """

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._counted: dict[Job, tuple[Amounts, ...]] = {}
        self.sums: dict[str, tuple[dict[str, float], ...]] = {}

    def update(self, changes: Mapping[Job, bool]) -> None:
        """Count groups anew that have changed, and no more those that are gone."""
        for job, is_there in changes.items():
            if (before := self._counted.pop(job, None)) is not None:
                self._add(job, before, -1)
            if is_there:
                self._counted[job] = now = self._parts(job)
                self._add(job, now, 1)

    def _add(self, job: Job, parts: tuple[Amounts, ...], sign: int) -> None:
        if job.group.queue not in self.sums:
            self.sums[job.group.queue] = tuple({} for _ in parts)
        for total, part in zip(self.sums[job.group.queue], parts, strict=True):
            for name, amount in part.items():
                total[name] = total.get(name, 0) + sign * amount
