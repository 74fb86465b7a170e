"""Pods and their groups while a scheduler decides."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

from fleetlab.core.kubernetes import SchedulingPod
from fleetlab.core.pod_groups import Amounts, PodGroup
from fleetlab.sim.gangs.amounts import add


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

    @property
    def requests(self) -> Amounts:
        """What it asks for."""
        return self.pod.requests

    @property
    def is_best_effort(self) -> bool:
        """Whether it asks for nothing."""
        return not any(self.pod.requests.values())

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

    @property
    def name(self) -> str:
        """The group's name."""
        return self.group.name

    def those(self, *statuses: Status) -> list[Task]:
        """Pods of some statuses."""
        return [task for task in self.tasks if task.status in statuses]

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
    def promised(self) -> int:
        """How many pods have a node, or are promised one."""
        return len(self.those(*CHARGED))

    @property
    def needed(self) -> int:
        """How many pods must have a node at once, other than those that ask for nothing."""
        return self.group.min_member - sum(task.is_best_effort for task in self.pending)

    @property
    def allocated(self) -> dict[str, float]:
        """What its pods that have a node hold."""
        return add(*(task.requests for task in self.those(*HERE)))


def requests_of(tasks: Iterable[Task]) -> dict[str, float]:
    """What pods ask for, together."""
    return add(*(task.requests for task in tasks))
