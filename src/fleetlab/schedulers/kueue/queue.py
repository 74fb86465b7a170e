"""The queue of a ClusterQueue: which workload is tried next, and which wait until quota is released.

The order is priority, then when a workload was created. Under BestEffortFIFO, a workload that does not fit is set
aside, so that those behind it are tried, until something in its tree of cohorts changes; one that waits for those it
preempts stays first. Under StrictFIFO, nobody behind the first is tried.

Workloads that ask for the same at the same priority are set aside together, as by Kueue's own
SchedulingEquivalenceHashing, its default since release 0.18: what the first of them does not get, none of them would.
"""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass, field

from fleetlab.schedulers.kueue.config import STRICT, ClusterQueue
from fleetlab.schedulers.kueue.cycle import Entry, Head, Status

Rank = tuple[int, float, str]
Key = tuple[str, int, tuple[object, ...]]


def rank(head: Head) -> Rank:
    """A place in the queue."""
    return (-head.workload.priority, head.queued, head.workload.tie)


def key(head: Head) -> Key:
    """What workloads have in common that fare alike."""
    return (head.workload.shape, head.workload.priority, tuple(head.tried.items()))


@dataclass
class Alike:
    """Workloads that fare alike, in their order: to be tried, and set aside."""

    active: list[tuple[Rank, Head]] = field(default_factory=list)
    aside: list[tuple[Rank, Head]] = field(default_factory=list)

    def set_aside(self) -> None:
        """Try none of them for now."""
        self.aside = self.active if not self.aside else _merged(self.aside, self.active)
        self.active = []

    def retry(self) -> None:
        """Try all of them again."""
        self.active = self.aside if not self.active else _merged(self.active, self.aside)
        self.aside = []


def _merged(one: list[tuple[Rank, Head]], other: list[tuple[Rank, Head]]) -> list[tuple[Rank, Head]]:
    return sorted([*one, *other], key=lambda each: each[0])


@dataclass
class PendingQueue:
    """Workloads that wait in one ClusterQueue."""

    queue: ClusterQueue
    groups: dict[Key, Alike] = field(default_factory=dict)
    sticky: Head | None = None

    def push(self, head: Head) -> None:
        """Put a workload into its place."""
        insort(self.groups.setdefault(key(head), Alike()).active, (rank(head), head), key=lambda each: each[0])

    def head(self) -> Head | None:
        """The workload that is next, which stays until the cycle has decided on it."""
        if self.sticky is not None:
            return self.sticky
        first = [group.active[0] for group in self.groups.values() if group.active]
        return min(first, key=lambda each: each[0])[1] if first else None

    def decided(self, entry: Entry) -> None:
        """Do with a head as the cycle decided."""
        head = entry.head
        stays = entry.status == Status.SKIPPED or self.queue.strategy == STRICT or entry.assignment.more_flavors
        if self.sticky is head:
            self.sticky = None
        if entry.status == Status.INADMISSIBLE and not stays and head.tried == {}:
            self.groups[key(head)].set_aside()
            return
        self._take(head)
        if entry.status == Status.ADMITTED:
            return
        # Once preemption is under way, all flavors are tried again; as they are behind the last.
        head.tried = entry.assignment.tried if entry.assignment.more_flavors else {}
        if entry.status == Status.PREEMPTING:
            head.tried = {}
            self.sticky = None if self.queue.strategy == STRICT else head
        self.push(head)
        if entry.status == Status.INADMISSIBLE and not stays:
            self.groups[key(head)].set_aside()

    def _take(self, head: Head) -> None:
        group = self.groups[key(head)]
        group.active = [each for each in group.active if each[1] is not head]
        if not group.active and not group.aside:
            del self.groups[key(head)]

    def retry(self) -> None:
        """Quota was given back: try those again that did not fit."""
        for group in self.groups.values():
            group.retry()

    def forget_flavors(self) -> None:
        """Something ended in this ClusterQueue: try all flavors again, from the first."""
        tried = [name for name in self.groups if name[2]]
        for name in tried:
            group = self.groups.pop(name)
            for _, head in (*group.active, *group.aside):
                head.tried = {}
                self.push(head)

    def __len__(self) -> int:
        return sum(len(group.active) + len(group.aside) for group in self.groups.values())
