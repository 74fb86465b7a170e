"""What a scheduling cycle sees: the trees with their usage, who is admitted where, and what simulations take back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from fleetlab.core.kueue import ClusterQueue, Kueue
from fleetlab.core.kueue_quota import Amounts, FlavorResource
from fleetlab.core.kueue_workload import KueueWorkload
from fleetlab.sim.kueue.domains import Placement
from fleetlab.sim.kueue.quotas import QuotaNode, trees_of
from fleetlab.sim.kueue.topology import Forests


@dataclass(eq=False)
class Admitted:
    """A workload with quota."""

    workload: KueueWorkload
    usage: Amounts
    since: float  # when it got quota
    queued: float  # when it was created: preemption does not change its place in the order
    evicted: bool = False
    placement: Placement = ()

    @property
    def name(self) -> str:
        """The name of the workload."""
        return self.workload.name

    @property
    def priority(self) -> int:
        """The priority of the workload."""
        return self.workload.priority

    def uses(self, needed: Iterable[FlavorResource]) -> bool:
        """Whether it holds any of what is needed."""
        return any(at in self.usage for at in needed)


@dataclass
class Snapshot:
    """The state of a site; what is simulated on it is taken back by whoever simulates."""

    site: Kueue
    nodes: dict[str, QuotaNode]
    admitted: dict[str, dict[str, Admitted]] = field(default_factory=dict)  # by ClusterQueue, by name
    forests: Forests = field(default_factory=Forests)

    @classmethod
    def of(cls, site: Kueue, admitted: Iterable[Admitted] = (), forests: Forests | None = None) -> Snapshot:
        """Build the state with workloads that have quota."""
        made = cls(site, trees_of(site), {name: {} for name in site.cluster_queues}, forests or Forests())
        for one in admitted:
            made.add(one)
        return made

    def queue(self, name: str) -> ClusterQueue:
        """The ClusterQueue of a name."""
        return self.site.cluster_queues[name]

    def add(self, one: Admitted) -> None:
        """Give a workload its quota."""
        self.admitted[one.workload.cluster_queue][one.name] = one
        self.use(one.workload.cluster_queue, one.usage)
        self.forests.use(one.placement)

    def remove(self, one: Admitted) -> None:
        """Take a workload's quota back."""
        del self.admitted[one.workload.cluster_queue][one.name]
        self.release(one.workload.cluster_queue, one.usage)
        self.forests.release(one.placement)

    def use(self, queue: str, amounts: Amounts) -> None:
        """Use amounts in a ClusterQueue."""
        for at, amount in amounts.items():
            self.nodes[queue].add(at, amount)

    def release(self, queue: str, amounts: Amounts) -> None:
        """Give amounts back."""
        for at, amount in amounts.items():
            self.nodes[queue].remove(at, amount)

    @contextmanager
    def without(self, gone: Iterable[Admitted]) -> Iterator[None]:
        """Suppose that some who are admitted are gone."""
        removed = [one for one in gone if one.name in self.admitted[one.workload.cluster_queue]]
        for one in removed:
            self.remove(one)
        try:
            yield
        finally:
            for one in removed:
                self.add(one)

    def fits(self, queue: str, amounts: Amounts) -> bool:
        """Whether amounts are available."""
        return all(amount <= self.available(queue, at) for at, amount in amounts.items())

    def available(self, queue: str, at: FlavorResource) -> int:
        """What a ClusterQueue can still use; never below zero."""
        return max(0, self.nodes[queue].available(at))


def merged(parts: Iterable[Mapping[FlavorResource, int]]) -> dict[FlavorResource, int]:
    """Amounts added up."""
    total: dict[FlavorResource, int] = {}
    for part in parts:
        for at, amount in part.items():
            total[at] = total.get(at, 0) + amount
    return total
