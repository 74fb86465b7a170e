"""Budgets of disruption as their controller keeps them: from the pods that run, and those that there are to be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fleetlab.core.kubernetes import DisruptionBudget, SchedulingPod
from fleetlab.sim.kubernetes.state import Cache


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
