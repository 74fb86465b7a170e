"""Pods and their groups while a scheduler decides."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, TypeVar

from fleetlab.core.kubernetes import SchedulingPod
from fleetlab.core.pod_groups import Amounts, PodGroup
from fleetlab.sim.gangs.amounts import add

T = TypeVar("T")
OUR_OWN = "fleetlab/"  # resources that stand for rules of nodes, and that no queue knows


class Status(Enum):
    """Where a pod stands."""

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

    def __post_init__(self) -> None:
        self.requests = {n: a for n, a in self.pod.requests.items() if not n.startswith(OUR_OWN)}

    @property
    def is_best_effort(self) -> bool:
        """Whether it asks for nothing."""
        return not any(self.requests.values())

    @property
    def may_be_evicted(self) -> bool:
        """Whether its own group allows that it is evicted."""
        return self.pod.name not in self.job.group.kept


@dataclass(eq=False)
class Job:
    """A group of pods."""

    group: PodGroup
    admitted: bool = True  # Volcano: not Pending any more
    started: float = 0.0
    tasks: list[Task] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.tasks = [Task(pod, self) for pod in self.group.pods]
        kinds = {(tuple(sorted(t.pod.requests.items())), t.pod.selector, t.pod.tolerations) for t in self.tasks}
        plain = len(kinds) == 1 and not any(t.pod.spread or t.pod.required for t in self.tasks)
        self.kind: object = (self.group.queue, self.group.priority, *kinds) if plain else self
        self._known: dict[object, Any] = {}

    def changed(self) -> None:
        """Forget what was worked out of the statuses of its pods."""
        self._known.clear()

    def _once(self, what: object, work_out: Callable[[], T]) -> T:
        if what not in self._known:
            self._known[what] = work_out()
        found: T = self._known[what]
        return found

    @property
    def name(self) -> str:
        """The group's name."""
        return self.group.name

    def those(self, *statuses: Status) -> list[Task]:
        """Pods of some statuses."""
        return list(self._once(statuses, lambda: [task for task in self.tasks if task.status in statuses]))

    @property
    def pending(self) -> list[Task]:
        """Pods that wait."""
        return self.those(Status.PENDING)

    @property
    def present(self) -> int:
        """How many pods there are."""
        return len(self.tasks) - len(self.those(Status.ABSENT))

    @property
    def ready(self) -> int:
        """How many pods have a node."""
        return len(self.those(*HERE))

    @property
    def is_waiting(self) -> bool:
        """Whether none of its pods has a node, is promised one, or is gone."""
        return self._once("waiting", lambda: all(task.status is Status.PENDING for task in self.tasks))

    @property
    def promised(self) -> int:
        """How many pods have a node, or are promised one."""
        return len(self.those(*CHARGED))

    @property
    def needed(self) -> int:
        """How many pods must have a node at once, other than those that ask for nothing."""
        return self._once("needed", lambda: self.group.min_member - sum(one.is_best_effort for one in self.pending))

    @property
    def allocated(self) -> dict[str, float]:
        """What its pods that have a node hold."""
        return self._once("allocated", lambda: requests_of(self.those(*HERE)))

    @property
    def charged(self) -> dict[str, float]:
        """What counts against its queue."""
        return self._once("charged", lambda: requests_of(self.those(*CHARGED)))

    @property
    def asks(self) -> dict[str, float]:
        """What its pods hold, are promised and wait for."""
        return self._once("asks", lambda: requests_of(self.those(*CHARGED, Status.PENDING)))


def requests_of(tasks: Iterable[Task]) -> dict[str, float]:
    """What pods ask for, together."""
    return add(*(task.requests for task in tasks))


class Hopeless:
    """Groups that need no search: one like it, with no more pods to place, found no place in this cycle."""

    def __init__(self) -> None:
        self._least: dict[object, int] = {}

    def __contains__(self, job: Job) -> bool:
        return len(job.pending) >= self._least.get(job.kind, 1 << 60)

    def add(self, job: Job) -> None:
        """Note that a group found no place."""
        self._least[job.kind] = min(len(job.pending), self._least.get(job.kind, 1 << 60))
