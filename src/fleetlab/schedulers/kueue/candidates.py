"""Whom a workload may preempt, and in which order they are looked at, without fair sharing.

Candidates in the cohort are of two kinds. Over those of a subtree in whose quota the workload fits it has a
hierarchical advantage: it takes back what is its own, whatever their priority. Over the others its policies decide,
and `borrowWithinCohort` says whether it may borrow at the same time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fleetlab.schedulers.kueue.config import ANY, LOWER, LOWER_OR_NEWER, NEVER, Amounts, FlavorResource
from fleetlab.schedulers.kueue.state import Admitted, QuotaNode, Snapshot
from fleetlab.schedulers.kueue.workload import KueueWorkload

IN_QUEUE = "InClusterQueue"
RECLAMATION = "InCohortReclamation"
WHILE_BORROWING = "InCohortReclaimWhileBorrowing"
FAIR = "InCohortFairSharing"


@dataclass(frozen=True)
class Need:
    """What a workload that preempts asks for: its amounts, those of them that are short, and where it stands."""

    workload: KueueWorkload
    amounts: Amounts
    short: frozenset[FlavorResource]
    queued: float  # its place in the order

    @property
    def queue(self) -> str:
        """Its ClusterQueue."""
        return self.workload.cluster_queue


@dataclass(frozen=True)
class Candidate:
    """A workload that may be preempted, and for which reason; `lowest` is where its branch and the preemptor's meet."""

    one: Admitted
    reason: str
    without_borrowing: bool = False  # only if the preemptor does not borrow then
    lowest: QuotaNode | None = None


def order(one: Admitted, queue: str) -> tuple[bool, bool, int, float, str]:
    """Who goes first: those already evicted, of other ClusterQueues, of lower priority, admitted last."""
    return (not one.evicted, one.workload.cluster_queue == queue, one.priority, -one.since, one.workload.tie)


def allowed(policy: str, need: Need, one: Admitted) -> bool:
    """Whether a policy lets a workload preempt another."""
    mine, other = need.workload.priority, one.priority
    if policy in (NEVER, ANY):
        return policy == ANY
    newer = policy == LOWER_OR_NEWER and mine == other and need.queued < one.queued
    return policy in (LOWER, LOWER_OR_NEWER) and (mine > other or newer)


@dataclass
class Candidates:
    """All candidates in their order, and of which kinds there are."""

    state: Snapshot
    need: Need
    listed: list[Candidate]
    any_in_cohort: bool
    any_by_hierarchy: bool

    @classmethod
    def of(cls, state: Snapshot, need: Need) -> Candidates:
        """Find them."""
        own = list(_of_queue(state, need, need.queue, None, advantage=False))
        hierarchy, priority = _in_cohort(state, need)
        groups = [sorted(group, key=lambda c: order(c.one, need.queue)) for group in (hierarchy, priority, own)]
        listed = [c for evicted in (True, False) for group in groups for c in group if c.one.evicted == evicted]
        return cls(state, need, listed, bool(hierarchy or priority), bool(hierarchy))

    def valid(self, *, borrowing: bool) -> Iterator[Candidate]:
        """Those that may go, one after the other: preempting one may save others."""
        return (candidate for candidate in self.listed if self._is_valid(candidate, borrowing=borrowing))

    def _is_valid(self, candidate: Candidate, *, borrowing: bool) -> bool:
        queue = candidate.one.workload.cluster_queue
        if queue == self.need.queue:
            return True
        if borrowing and candidate.without_borrowing:
            return False
        node = self.state.nodes[queue]
        if node.within_nominal(self.need.short):
            return False
        for above in node.ancestors():
            if above is candidate.lowest:
                break
            if above.within_nominal(self.need.short):
                return False
        return True


def _in_cohort(state: Snapshot, need: Need) -> tuple[list[Candidate], list[Candidate]]:
    hierarchy: list[Candidate] = []
    priority: list[Candidate] = []
    node = state.nodes[need.queue]
    if state.queue(need.queue).preemption.reclaim_within_cohort == NEVER:
        return hierarchy, priority
    advantage, left = node.takes_in(need.amounts)
    below: QuotaNode | None = None
    for above in node.ancestors():
        found = hierarchy if advantage else priority
        for queue in _borrowing(above, need, skip=below):
            if queue is not node:
                found += _of_queue(state, need, queue.name, above, advantage=advantage)
        fits, left = above.takes_in(left)
        advantage, below = advantage or fits, above
    return hierarchy, priority


def _borrowing(cohort: QuotaNode, need: Need, skip: QuotaNode | None) -> Iterator[QuotaNode]:
    """The ClusterQueues that borrow, in branches that borrow too."""
    for child in cohort.children:
        if child is skip or child.within_nominal(need.short):
            continue
        if child.is_queue:
            yield child
        else:
            yield from _borrowing(child, need, skip)


def _of_queue(
    state: Snapshot, need: Need, queue: str, lowest: QuotaNode | None, *, advantage: bool
) -> Iterator[Candidate]:
    policies = state.queue(need.queue).preemption
    own = queue == need.queue
    policy = policies.within_cluster_queue if own else policies.reclaim_within_cohort
    for one in state.admitted[queue].values():
        if not one.uses(need.short) or not allowed(policy, need, one):
            continue
        if own or advantage:
            yield Candidate(one, IN_QUEUE if own else RECLAMATION, lowest=lowest)
        elif _may_borrow(state, need, one):
            yield Candidate(one, WHILE_BORROWING, lowest=lowest)
        else:
            yield Candidate(one, RECLAMATION, without_borrowing=True, lowest=lowest)


def _may_borrow(state: Snapshot, need: Need, one: Admitted) -> bool:
    """Whether a workload may be preempted while the preemptor's ClusterQueue borrows."""
    rule = state.queue(need.queue).preemption.borrow_within_cohort
    if rule.policy == NEVER or one.priority >= need.workload.priority:
        return False
    return rule.max_priority_threshold is None or one.priority <= rule.max_priority_threshold
