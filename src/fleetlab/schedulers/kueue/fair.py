"""Preemption under fair sharing: from whoever has the largest share, as long as the shares come closer by it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from fleetlab.schedulers.kueue.candidates import FAIR, IN_QUEUE, RECLAMATION, Need, allowed, order
from fleetlab.schedulers.kueue.config import FINAL_SHARE, NEVER
from fleetlab.schedulers.kueue.state import Admitted, QuotaNode, Snapshot

# -- dominant resource shares: how much of what its cohort can lend a node borrows, by its weight ----------------------


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


Found = list[tuple[Admitted, str]]
Key = tuple[bool, float]


def fair_targets(state: Snapshot, need: Need, fits: Callable[[bool], bool]) -> tuple[Found, bool]:
    """Who is taken out, and whether the workload then fits; they stay out of the state."""
    return Tournament(state, need, fits).run()


@dataclass
class Tournament:
    """One search for workloads to preempt; shares count the workload that preempts as admitted."""

    state: Snapshot
    need: Need
    fits: Callable[[bool], bool]
    found: Found = field(default_factory=list)

    def run(self) -> tuple[Found, bool]:
        """Try the first strategy on all, then the second on whom the first left alone."""
        candidates = sorted(_candidates(self.state, self.need), key=lambda one: order(one, self.need.queue))
        strategies = self.state.site.fair_sharing.strategies
        self.state.use(self.need.queue, self.need.amounts)
        left = self._first(candidates, strategies[0])
        done = left is None or (len(strategies) > 1 and self._second(left))
        self.state.release(self.need.queue, self.need.amounts)
        return self.found, done

    def _take(self, one: Admitted, reason: str) -> bool:
        """Take a workload out; return whether the preemptor fits now."""
        self.state.remove(one)
        self.found.append((one, reason))
        self.state.release(self.need.queue, self.need.amounts)
        done = self.fits(True)  # noqa: FBT003
        self.state.use(self.need.queue, self.need.amounts)
        return done

    def _first(self, candidates: list[Admitted], strategy: str) -> list[Admitted] | None:
        """Return whom the strategy left alone; None once the workload fits."""
        node, left = self.state.nodes[self.need.queue], []
        entitled = self.state.site.fair_sharing.preempt_within_nominal and node.within_nominal(self.need.short)
        ranking = Ranking(node, candidates)
        for target in ranking.next():
            waiting = ranking.waiting[target.name]
            if target is node or entitled:
                if self._take(waiting.pop(0), IN_QUEUE if target is node else RECLAMATION):
                    return None
                continue
            mine, theirs = (share(each).key for each in _branches(node, target))
            while waiting:
                one = waiting.pop(0)
                after = self._share_without(one, target) if strategy == FINAL_SHARE else theirs
                if mine <= after if strategy == FINAL_SHARE else mine < theirs:
                    if self._take(one, FAIR):
                        return None
                    break  # the shares have changed
                left.append(one)
        return left

    def _second(self, candidates: list[Admitted]) -> bool:
        """LessThanInitialShare, at most once in each ClusterQueue."""
        node = self.state.nodes[self.need.queue]
        ranking = Ranking(node, candidates)
        for target in ranking.next():
            mine, theirs = (share(each).key for each in _branches(node, target))
            if mine < theirs and self._take(ranking.waiting[target.name].pop(0), FAIR):
                return True
            ranking.drop(target)
        return False

    def _share_without(self, one: Admitted, target: QuotaNode) -> Key:
        self.state.release(target.name, one.usage)
        key = share(_branches(self.state.nodes[self.need.queue], target)[1]).key
        self.state.use(target.name, one.usage)
        return key


@dataclass
class Ranking:
    """ClusterQueues with candidates: from the root down, always into the branch with the largest share."""

    node: QuotaNode  # of the preemptor
    candidates: list[Admitted]
    waiting: dict[str, list[Admitted]] = field(default_factory=dict)
    done: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        for one in self.candidates:
            self.waiting.setdefault(one.workload.cluster_queue, []).append(one)
        self._path = {id(above) for above in self.node.ancestors()}

    def drop(self, node: QuotaNode) -> None:
        """Look at a ClusterQueue no more."""
        self.done.add(id(node))

    def next(self) -> Iterator[QuotaNode]:
        """The ClusterQueue from which to take; the same again while it stays the first."""
        if self.node.parent is None:
            while self.waiting.get(self.node.name):
                yield self.node
            return
        root = self.node.root
        while id(root) not in self.done:
            target = self._descend(root)
            if target is not None:
                yield target

    def _descend(self, cohort: QuotaNode) -> QuotaNode | None:
        """The ClusterQueue at the end of the branches with the largest shares; None where a branch was given up."""
        best: tuple[Key, QuotaNode] | None = None
        for child in cohort.children:
            if id(child) in self.done:
                continue
            key = share(child).key
            if self._is_over(child, borrows=key != (False, 0.0)):
                self.drop(child)
            elif best is None or key > best[0] or (key == best[0] and self._wins_tie(child, best[1])):
                best = (key, child)
        if best is None:
            self.drop(cohort)
            return None
        return best[1] if best[1].is_queue else self._descend(best[1])

    def _is_over(self, child: QuotaNode, *, borrows: bool) -> bool:
        if child.is_queue:
            return not self.waiting.get(child.name) or (not borrows and child is not self.node)
        return not borrows and id(child) not in self._path

    def _wins_tie(self, child: QuotaNode, best: QuotaNode) -> bool:
        """A cohort wins over a ClusterQueue, of two of these the one whose first candidate would go first."""
        if child.is_queue != best.is_queue:
            return best.is_queue
        if not child.is_queue:
            return child.name > best.name  # Kueue leaves it to chance
        mine, other = (order(self.waiting[each.name][0], self.node.name) for each in (child, best))
        return mine < other


def _candidates(state: Snapshot, need: Need) -> Iterator[Admitted]:
    policies, node = state.queue(need.queue).preemption, state.nodes[need.queue]
    for one in state.admitted[need.queue].values():
        if one.uses(need.short) and allowed(policies.within_cluster_queue, need, one):
            yield one
    if node.parent is None or policies.reclaim_within_cohort == NEVER:
        return
    for queue in node.root.queues():
        if queue is node or queue.within_nominal(need.short):
            continue
        for one in state.admitted[queue.name].values():
            if one.uses(need.short) and allowed(policies.reclaim_within_cohort, need, one):
                yield one


def _branches(mine: QuotaNode, other: QuotaNode) -> tuple[QuotaNode, QuotaNode]:
    """The two nodes just below where two branches meet: theirs are the shares to compare."""
    above = [mine, *mine.ancestors()]
    theirs = [other, *other.ancestors()]
    while len(above) > 1 and len(theirs) > 1 and above[-2] is theirs[-2]:
        above.pop()
        theirs.pop()
    return above[-2], theirs[-2]
