"""Quota arithmetic in trees of cohorts: what is available, what is borrowed, and how far away it is borrowed from.

Every node, a ClusterQueue or a cohort, has quota of its own; its subtree quota adds what its children lend. What a
lending limit keeps back is guaranteed: usage within it does not show in the parent.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from fleetlab.core.kueue import Kueue
from fleetlab.core.kueue_quota import Amounts, FlavorResource, ResourceGroup, ResourceQuota

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
