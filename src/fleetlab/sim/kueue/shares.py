"""Dominant resource shares: how much of what its cohort can lend a node borrows, by its weight."""

from __future__ import annotations

import math
from dataclasses import dataclass

from fleetlab.sim.kueue.quotas import QuotaNode


@dataclass(frozen=True)
class DominantShare:
    """The largest ratio, in thousandths, of what is borrowed to what can be lent, over resources."""

    ratio: float
    weight: float
    resource: str = ""

    @property
    def key(self) -> tuple[bool, float]:
        """By which shares compare: whoever borrows with weight zero comes last."""
        if self.weight == 0 and self.ratio != 0:
            return (True, self.ratio)
        return (False, self.ratio / self.weight if self.ratio else 0.0)

    @property
    def rounded(self) -> float:
        """As Kueue shows it in a status: whole, rounded up; infinity where the weight is zero."""
        last, share = self.key
        return math.inf if last else math.ceil(share)


def share(node: QuotaNode) -> DominantShare:
    """The share of a ClusterQueue or cohort among its siblings; zero at the root."""
    if node.parent is None:
        return DominantShare(0.0, node.weight)
    borrowed: dict[str, int] = {}
    for at, quota in node.subtree.items():
        if (amount := node.usage[at] - quota) > 0:
            borrowed[at[1]] = borrowed.get(at[1], 0) + amount
    if not borrowed:
        return DominantShare(0.0, node.weight)
    lendable = _lendable(node.parent)
    ratios = [(-amount * 1000.0 / lendable[name], name) for name, amount in borrowed.items() if lendable.get(name)]
    least, name = min(ratios, default=(0.0, ""))  # the largest ratio, then the first name
    return DominantShare(-least, node.weight, name)


def _lendable(node: QuotaNode) -> dict[str, int]:
    """What a cohort could give of each resource, in all flavors."""
    totals: dict[str, int] = {}
    for at in node.root.subtree:
        totals[at[1]] = totals.get(at[1], 0) + node.potential(at)
    return totals
