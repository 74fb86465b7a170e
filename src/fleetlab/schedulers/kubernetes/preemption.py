"""DefaultPreemption: which pods must go so that one of higher priority fits, and on which node.

On each node all pods of lower priority are thought away; if the pod then fits, they come back as long as it still does,
those that a budget protects first, the most important first. Of the nodes, the one is taken whose victims violate the
fewest budgets, whose most important victim is the least important, whose priorities add up to the least, which are
fewest, and of whose most important victims the earliest started the latest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from fleetlab.schedulers.kubernetes.config import DisruptionBudget, SchedulingPod
from fleetlab.schedulers.kubernetes.filters import feasible_on, resolvable
from fleetlab.schedulers.kubernetes.state import Cache

# -- budgets of disruption as their controller keeps them: from the pods that run, and those that there ----------------


class Protected:
    """The pods of each budget."""

    def __init__(self, budgets: Sequence[DisruptionBudget], pods: Sequence[SchedulingPod]) -> None:
        self.budgets = budgets
        self._of = [[k for k, one in enumerate(budgets) if one.covers(pod)] for pod in pods]
        self._there = [0] * len(budgets)

    def came(self, pod: int) -> None:
        """Note that there is a pod, which waits or runs."""
        self._count(pod, 1)

    def left(self, pod: int) -> None:
        """Note that a pod is gone."""
        self._count(pod, -1)

    def _count(self, pod: int, sign: int) -> None:
        for k in self._of[pod]:
            self._there[k] += sign

    def now(self, cache: Cache) -> list[DisruptionBudget]:
        """The budgets as they stand; a pod that was asked to go does not run."""
        return [
            replace(one, allowed=one.allows(int(cache.matching(one.namespace, one.selector).sum()), there))
            for one, there in zip(self.budgets, self._there, strict=True)
        ]


LOWEST = 2**31  # added to priorities, so that more pods never add up to less


@dataclass(frozen=True)
class Candidate:
    """A node and the pods that would have to go, the most important first."""

    node: int
    victims: tuple[SchedulingPod, ...]
    violations: int


def is_eligible(cache: Cache, pod: SchedulingPod) -> bool:
    """Whether a pod may preempt: not where its policy says never, nor while its earlier victims are still going."""
    if not pod.preempts:
        return False
    if pod.name not in cache.nominated:
        return True
    node = cache.nominated[pod.name][1]
    if not resolvable(cache, pod)[node]:
        return True
    return not any(
        other.name in cache.terminating and other.priority < pod.priority for other in cache.pods[node].values()
    )


def best_candidates(
    cache: Cache, pod: SchedulingPod, budgets: Sequence[DisruptionBudget], now: float
) -> list[Candidate]:
    """The candidates of which kube-scheduler takes one; more than one only where all that it compares is equal."""
    if not is_eligible(cache, pod):
        return []
    found = [
        one
        for node in np.flatnonzero(resolvable(cache, pod))
        if (one := candidate(cache, pod, int(node), budgets, now))
    ]
    if not found:
        return []
    ranks = [_rank(cache, one, now) for one in found]
    return [one for one, rank in zip(found, ranks, strict=True) if rank == min(ranks)]


def _rank(cache: Cache, one: Candidate, now: float) -> tuple[float, ...]:
    priorities = [victim.priority for victim in one.victims]
    highest = max(priorities)
    # kube-scheduler looks at the first victim, which is one that a budget protects if there is any.
    first = one.victims[0].priority
    starts = [cache.started.get(v.name, now) for v in one.victims if v.priority == highest]
    return one.violations, first, sum(p + LOWEST for p in priorities), len(priorities), -min(starts)


def candidate(
    cache: Cache, pod: SchedulingPod, node: int, budgets: Sequence[DisruptionBudget], now: float
) -> Candidate | None:
    """Return who must go from a node so that the pod fits; None if that does not help."""
    lower = [other for other in cache.pods[node].values() if other.priority < pod.priority]
    if not lower:
        return None
    lower.sort(key=lambda other: (-other.priority, cache.started.get(other.name, now)))
    protected, others = _by_budget(lower, budgets)
    gone = {other.name for other in lower}
    if not _fits_without(cache, pod, node, gone):
        return None
    victims, violations = [], 0
    for other in (*protected, *others):
        if _fits_without(cache, pod, node, gone - {other.name}):
            gone.discard(other.name)
        else:
            victims.append(other)
            violations += any(other is one for one in protected)
    return Candidate(node, tuple(victims), violations)


def _fits_without(cache: Cache, pod: SchedulingPod, node: int, gone: set[str]) -> bool:
    with cache.without(sorted(gone)):
        return feasible_on(cache, pod, node)


def _by_budget(
    pods: Sequence[SchedulingPod], budgets: Sequence[DisruptionBudget]
) -> tuple[list[SchedulingPod], list[SchedulingPod]]:
    """Those whose eviction a budget does not allow any more, and the others; in order."""
    left = [budget.allowed for budget in budgets]
    protected: list[SchedulingPod] = []
    others: list[SchedulingPod] = []
    for pod in pods:
        violates = False
        for k, budget in enumerate(budgets):
            if budget.covers(pod):
                left[k] -= 1
                violates = violates or left[k] < 0
        (protected if violates else others).append(pod)
    return protected, others
