"""A tree of queues: who shares what with whom, and the limits of each; accounts in Slurm, cohorts in Kueue.

A queue stands for everything submitted to it and to the queues below it. A queue of one user in an account is a leaf
named `account/user`. Resources are named `gpu`, `gpu:TYPE`, `cpu`, `memory` (MiB), `node` and `billing`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from fleetlab.core.errors import PolicyError
from fleetlab.core.records import from_values, to_values

DAY = 86_400.0  # s
Amounts = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Limits:
    """What jobs may have together; None, or a resource that is not named: no limit."""

    jobs: int | None = None  # running at once
    submitted: int | None = None  # pending or running at once
    resources: Amounts = field(default_factory=dict)  # held at once
    minutes: Amounts = field(default_factory=dict)  # resource-minutes used, decayed where usage decays
    running_minutes: Amounts = field(default_factory=dict)  # of running jobs, to their time limits
    wall_minutes: float | None = None  # of all jobs together


@dataclass(frozen=True, slots=True)
class JobLimits:
    """What one job may have."""

    resources: Amounts = field(default_factory=dict)
    at_least: Amounts = field(default_factory=dict)
    per_node: Amounts = field(default_factory=dict)
    minutes: Amounts = field(default_factory=dict)  # resource-minutes to its time limit
    wall: float | None = None  # s


@dataclass(frozen=True, slots=True)
class Qos:
    """A class of service: a priority, limits, and whom it may preempt."""

    name: str
    priority: int = 0
    preempts: tuple[str, ...] = ()
    preempt_mode: str | None = None
    within: bool = False  # jobs of higher priority preempt others of the same class
    grace: float = 0.0
    exempt: float | None = None  # PreemptExemptTime
    flags: tuple[str, ...] = ()
    usage_factor: float = 1.0
    limits: Limits = field(default_factory=Limits)  # of all its jobs
    per_user: Limits = field(default_factory=Limits)
    per_account: Limits = field(default_factory=Limits)
    job: JobLimits = field(default_factory=JobLimits)


@dataclass(frozen=True, slots=True)
class Queue:
    """A node of the tree; amounts that it does not state are its parent's to give."""

    name: str
    parent: str | None = None
    user: str | None = None  # a leaf for one user
    shares: float | None = 1.0  # relative to its siblings; None: no level of its own (Slurm: parent)
    usage: float = 0.0  # decayed resource-seconds when the log begins
    limits: Limits = field(default_factory=Limits)  # of the queue with all below it
    per_user: Limits = field(default_factory=Limits)
    job: JobLimits = field(default_factory=JobLimits)
    priority: int = 0
    qos: tuple[str, ...] = ()  # that its jobs may use; empty: any
    default_qos: str | None = None


class QueueTree(Mapping[str, Queue]):
    """Queues by name, parents before children; checked once."""

    def __init__(self, queues: Iterable[Queue] = ()) -> None:
        by_name = {queue.name: queue for queue in queues}
        self._queues: dict[str, Queue] = {}
        for name in by_name:
            self._add(name, by_name, ())
        self.children: dict[str | None, list[str]] = {}
        for name, queue in self._queues.items():
            self.children.setdefault(queue.parent, []).append(name)

    def _add(self, name: str, by_name: Mapping[str, Queue], below: tuple[str, ...]) -> None:
        if name in self._queues:
            return
        queue = by_name.get(name)
        if queue is None or name in below:
            what = f"no queue `{name}`, the parent of `{below[-1]}`" if queue is None else f"`{name}` is above itself"
            raise PolicyError(f"not a tree of queues: {what}", hint="every queue but the root names its parent")
        if queue.parent is not None:
            self._add(queue.parent, by_name, (*below, name))
        self._queues[name] = queue

    def __getitem__(self, name: str) -> Queue:
        return self._queues[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._queues)

    def __len__(self) -> int:
        return len(self._queues)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, QueueTree) and self._queues == other._queues

    def __hash__(self) -> int:
        return hash(tuple(self._queues))

    def path(self, name: str) -> list[Queue]:
        """Return a queue and those above it, the root last."""
        path: list[Queue] = []
        at: str | None = name
        while at is not None:
            path.append(self._queues[at])
            at = path[-1].parent
        return path

    def of(self, account: str | None, user: str | None) -> Queue | None:
        """Return the queue of a user's jobs in an account: the user's own, else the account's."""
        return self._queues.get(f"{account}/{user}") or self._queues.get(str(account))

    @classmethod
    def from_values(cls, values: Iterable[Mapping[str, Any]]) -> QueueTree:
        """Build one from plain tables, as `to_values` gives them."""
        return cls(from_values(Queue, entry, "queue") for entry in values)

    def to_values(self) -> list[dict[str, Any]]:
        """Return plain tables of what differs from the defaults."""
        return [to_values(queue) for queue in self._queues.values()]
