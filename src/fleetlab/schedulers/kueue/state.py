"""What a scheduling cycle sees: the trees with their usage, who is admitted where, and what simulations take back."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from fleetlab.schedulers.kueue.config import Amounts, ClusterQueue, FlavorResource, Kueue, ResourceGroup, ResourceQuota
from fleetlab.schedulers.kueue.topology import Forests, Placement
from fleetlab.schedulers.kueue.workload import KueueWorkload

# -- quota arithmetic in trees of cohorts: what is available, what is borrowed, and how far away it is -----------------
# Every node, a ClusterQueue or a cohort, has quota of its own; its subtree quota adds what its children lend. What a
# lending limit keeps back is guaranteed: usage within it does not show in the parent.

NONE = ResourceQuota()


@dataclass(eq=False)
class QuotaNode:
    """A ClusterQueue or a cohort with its usage."""

    name: str
    quotas: Mapping[FlavorResource, ResourceQuota]
    weight: float
    parent: QuotaNode | None = None
    is_queue: bool = False
    children: list[QuotaNode] = field(default_factory=list)
    subtree: dict[FlavorResource, int] = field(default_factory=dict)
    usage: defaultdict[FlavorResource, int] = field(default_factory=lambda: defaultdict(int))

    def quota(self, at: FlavorResource) -> ResourceQuota:
        """The node's own quota."""
        return self.quotas.get(at, NONE)

    def guaranteed(self, at: FlavorResource) -> int:
        """What is never lent."""
        limit = self.quota(at).lending_limit
        return 0 if limit is None else max(0, self.subtree.get(at, 0) - limit)

    def local(self, at: FlavorResource) -> int:
        """What is guaranteed and not used."""
        return max(0, self.guaranteed(at) - self.usage[at])

    def available(self, at: FlavorResource) -> int:
        """What can still be used; below zero where more was admitted than there is now."""
        if self.parent is None:
            return self.subtree.get(at, 0) - self.usage[at]
        above = self.parent.available(at)
        limit = self.quota(at).borrowing_limit
        if limit is not None:
            kept = self.guaranteed(at)
            stored, used = self.subtree.get(at, 0) - kept, max(0, self.usage[at] - kept)
            above = min(above, stored - used + limit)
        return self.local(at) + above

    def potential(self, at: FlavorResource) -> int:
        """What could be used if nobody used anything."""
        if self.parent is None:
            return self.subtree.get(at, 0)
        most = self.guaranteed(at) + self.parent.potential(at)
        limit = self.quota(at).borrowing_limit
        return most if limit is None else min(most, self.subtree.get(at, 0) + limit)

    def add(self, at: FlavorResource, amount: int) -> None:
        """Use an amount, here and, beyond what is guaranteed, above."""
        beyond = amount - self.local(at)
        self.usage[at] += amount
        if self.parent is not None and beyond > 0:
            self.parent.add(at, beyond)

    def remove(self, at: FlavorResource, amount: int) -> None:
        """Give an amount back."""
        above = self.usage[at] - self.guaranteed(at)
        self.usage[at] -= amount
        if self.parent is not None and above > 0:
            self.parent.remove(at, min(amount, above))

    def borrows(self, at: FlavorResource, more: int = 0) -> bool:
        """Whether usage, with an amount more, is beyond the quota of the subtree."""
        return self.usage[at] + more > self.subtree.get(at, 0)

    def within_nominal(self, needed: Iterable[FlavorResource]) -> bool:
        """Whether nothing of what is needed is borrowed."""
        return not any(self.borrows(at) for at in needed)

    def takes_in(self, requests: Amounts) -> tuple[bool, dict[FlavorResource, int]]:
        """Whether requests are within the quota of the subtree, and what of them is left to the parent."""
        fits = not any(self.borrows(at, amount) for at, amount in requests.items())
        return fits, {at: max(0, amount - self.local(at)) for at, amount in requests.items()}

    def ancestors(self) -> Iterator[QuotaNode]:
        """The cohorts above, the nearest first."""
        above = self.parent
        while above is not None:
            yield above
            above = above.parent

    @property
    def root(self) -> QuotaNode:
        """The last of the cohorts above, or the node itself."""
        return self if self.parent is None else self.parent.root

    def queues(self) -> Iterator[QuotaNode]:
        """The ClusterQueues of the subtree."""
        for child in self.children:
            if child.is_queue:
                yield child
            else:
                yield from child.queues()

    @property
    def height(self) -> int:
        """How far the furthest leaf is."""
        return max((1 + child.height for child in self.children), default=0)

    def accumulate(self) -> None:
        """Add up what the subtree has."""
        totals = {at: quota.nominal for at, quota in self.quotas.items()}
        for child in self.children:
            child.accumulate()
            for at, amount in child.subtree.items():
                totals[at] = totals.get(at, 0) + amount - child.guaranteed(at)
        self.subtree = totals


def trees_of(site: Kueue) -> dict[str, QuotaNode]:
    """Build the trees; return the ClusterQueues by name."""
    cohorts: dict[str, QuotaNode] = {}

    def cohort(name: str) -> QuotaNode:
        if name not in cohorts:
            known = site.cohorts.get(name)
            made = QuotaNode(name, _quotas(known.groups if known else ()), known.weight if known else 1.0)
            cohorts[name] = made
            if (above := site.parent_of(name)) is not None:
                made.parent = cohort(above)
                made.parent.children.append(made)
        return cohorts[name]

    for name in site.cohorts:
        cohort(name)
    queues = {}
    for queue in site.cluster_queues.values():
        node = QuotaNode(queue.name, _quotas(queue.groups), queue.weight, is_queue=True)
        if queue.cohort is not None:
            node.parent = cohort(queue.cohort)
            node.parent.children.append(node)
        queues[queue.name] = node
    for root in {id(node.root): node.root for node in (*queues.values(), *cohorts.values())}.values():
        root.accumulate()
    return queues


def _quotas(groups: Iterable[ResourceGroup]) -> dict[FlavorResource, ResourceQuota]:
    return {at: quota for group in groups for at, quota in group.quotas()}


def reach(node: QuotaNode, at: FlavorResource, amount: int) -> tuple[int, bool]:
    """How high the lowest subtree is that has an amount more, and whether it is less than the whole tree.

    0 is the ClusterQueue itself; where no subtree has it, the height of the whole tree.
    """
    if node.parent is None or not node.borrows(at, amount):
        return 0, node.parent is not None
    left = amount - node.local(at)
    above = node.parent
    for above in node.ancestors():
        if not above.borrows(at, left):
            break
        left -= above.local(at)
    return above.height, above.parent is not None


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
