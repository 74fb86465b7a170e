"""Pods and their groups while a scheduler decides."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from hashlib import blake2b

import numpy as np

from fleetlab.schedulers.gangs.pod_groups import Amounts, PodGroup, add
from fleetlab.schedulers.kubernetes.config import SchedulingPod
from fleetlab.sim.layout import Ints

OUR_OWN = "fleetlab/"  # resources that stand for rules of nodes, and that no queue knows


class Status(Enum):
    """Where a pod stands."""

    __hash__ = object.__hash__  # there is one object of each, and Enum's own is slow

    PENDING = "pending"
    RUNNING = "running"
    BOUND = "bound"  # given a node in this cycle
    PIPELINED = "pipelined"  # promised a node, once others have left it
    RELEASING = "releasing"  # asked to go, and still there
    ABSENT = "absent"  # gone; its owner has not made a new one yet


HERE = (Status.RUNNING, Status.BOUND)
CHARGED = (*HERE, Status.PIPELINED)  # what counts against its queue
ON_NODE = (*HERE, Status.RELEASING)


@dataclass(eq=False)
class Task:
    """A pod."""

    pod: SchedulingPod
    job: Job
    status: Status = Status.PENDING
    node: int = -1
    nominated: int = -1  # a node that others were evicted from for it
    stands_for: Task | None = None  # the pod of which this is the next run, on another node
    requests: Amounts = field(init=False)  # what counts in its queue
    shape: int = field(init=False, default=-1)  # the board's number of what it asks for, and of which nodes
    is_best_effort: bool = field(init=False)  # it asks for nothing
    may_be_evicted: bool = field(init=False)  # its own group allows it

    def __post_init__(self) -> None:
        self.requests = {n: a for n, a in self.pod.requests.items() if not n.startswith(OUR_OWN)}
        self.is_best_effort = not any(self.requests.values())
        self.may_be_evicted = self.pod.name not in self.job.group.kept
        self.shape = -1 if self.stands_for is None else self.stands_for.shape


@dataclass(eq=False)
class Job:
    """A group of pods; what follows from the statuses of its pods is worked out once, until one of them changes."""

    group: PodGroup
    admitted: bool = True  # Volcano: not Pending any more
    started: float = 0.0
    tasks: list[Task] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.tasks = [Task(pod, self) for pod in self.group.pods]
        kinds = {(tuple(sorted(t.pod.requests.items())), t.pod.selector, t.pod.tolerations) for t in self.tasks}
        self.is_uniform = len(kinds) == 1 and not any(t.pod.spread or t.pod.required for t in self.tasks)
        self.kind: object = (self.group.queue, self.group.priority, *kinds) if self.is_uniform else self

    def changed(self) -> None:
        """Forget what was worked out of the statuses of its pods."""
        state = self.__dict__
        for name in _WORKED_OUT:
            state.pop(name, None)

    @property
    def name(self) -> str:
        """The group's name."""
        return self.group.name

    @cached_property
    def _by_status(self) -> dict[Status, list[Task]]:
        by_status: dict[Status, list[Task]] = {}
        for task in self.tasks:
            by_status.setdefault(task.status, []).append(task)
        return by_status

    def those(self, *statuses: Status) -> list[Task]:
        """Pods of some statuses."""
        if len(statuses) == 1:
            return self._by_status.get(statuses[0], [])
        return [task for task in self.tasks if task.status in statuses]

    @cached_property
    def pending(self) -> list[Task]:
        """Pods that wait."""
        return self.those(Status.PENDING)

    @cached_property
    def present(self) -> int:
        """How many pods there are."""
        return len(self.tasks) - len(self.those(Status.ABSENT))

    @cached_property
    def ready(self) -> int:
        """How many pods have a node."""
        return len(self.those(*HERE))

    @cached_property
    def is_waiting(self) -> bool:
        """Whether none of its pods has a node, is promised one, or is gone."""
        return len(self.pending) == len(self.tasks)

    @cached_property
    def placed(self) -> int:
        """How many pods have a node, or are promised one."""
        return len(self.those(*CHARGED))

    @cached_property
    def needed(self) -> int:
        """How many pods must have a node at once, other than those that ask for nothing."""
        return self.group.min_member - sum(one.is_best_effort for one in self.pending)

    @cached_property
    def next_tasks(self) -> list[Task]:
        """The pods that are placed at once: what a gang lacks, or one more of a group that already runs."""
        waiting = sorted(self.pending, key=lambda task: (-task.pod.priority, task.pod.name))
        return waiting[: max(1, self.group.min_member - self.placed)]

    @cached_property
    def next_requests(self) -> dict[str, float]:
        """What those ask for."""
        return requests_of(self.next_tasks)

    @cached_property
    def allocated(self) -> dict[str, float]:
        """What its pods that have a node hold."""
        return requests_of(self.those(*HERE))

    @cached_property
    def charged(self) -> dict[str, float]:
        """What counts against its queue."""
        return requests_of(self.those(*CHARGED))

    @cached_property
    def asks(self) -> dict[str, float]:
        """What its pods hold, are promised and wait for."""
        return requests_of(self.those(*CHARGED, Status.PENDING))


_WORKED_OUT = [name for name, value in vars(Job).items() if isinstance(value, cached_property)]


def requests_of(tasks: Iterable[Task]) -> dict[str, float]:
    """What pods ask for, together."""
    return add(*[task.requests for task in tasks])


class UnschedulableCache:
    """Groups that need no search: one like it, with no more pods to place, found no place in this cycle."""

    def __init__(self) -> None:
        self._least: dict[object, int] = {}

    def __contains__(self, job: Job) -> bool:
        return len(job.pending) >= self._least.get(job.kind, 1 << 60)

    def add(self, job: Job) -> None:
        """Note that a group found no place; one that has nothing to place says nothing about others."""
        if not job.pending:
            return
        self._least[job.kind] = min(len(job.pending), self._least.get(job.kind, 1 << 60))


class Ties:
    """Which of equally good nodes a pod gets in a cycle: the same one, however often it or another was tried."""

    def __init__(self, draw: np.random.Generator) -> None:
        self._key = draw.bytes(8)

    def pick(self, task: Task, nodes: Ints) -> int:
        """One of the nodes, each as likely as the others."""
        if len(nodes) == 1:
            return int(nodes[0])
        drawn = blake2b(task.pod.name.encode(), key=self._key, digest_size=8).digest()
        return int(nodes[int.from_bytes(drawn, "little") % len(nodes)])
