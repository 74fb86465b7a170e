"""Attempts whose outcome is known: a pod that asks for the same fitted nowhere, and nobody has left since."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from fleetlab.core.kubernetes import SchedulingPod
from fleetlab.sim.kubernetes.reasons import fit_error
from fleetlab.sim.kubernetes.state import Cache


class Hopeless:
    """Pods that need no new search: one like it fitted nowhere, and nobody has left since.

    Those that ask for the same are alike; none is like a pod that looks at where others are.
    """

    def __init__(self, pods: Sequence[SchedulingPod]) -> None:
        kinds: dict[object, int] = {}
        told_apart = any(pod.anti_affinity for pod in pods)  # by their labels, by pods that are there already
        self._kind = [
            -1 if pod.looks_at_others else kinds.setdefault(_asks(pod, labels=told_apart), len(kinds)) for pod in pods
        ]
        self._freed, self._version = 0, 0
        self._failed = [-1] * len(kinds)
        self._no_victims = [-1] * len(kinds)
        self._why: list[tuple[int, str]] = [(-1, "")] * len(kinds)
        self._running: Counter[int] = Counter()  # pods by priority

    def change(self) -> None:
        """Note that room may have become free, or is kept for others."""
        self._freed += 1
        self._version += 1

    def left(self, pod: SchedulingPod) -> None:
        """Note that a pod left its node."""
        self._running[pod.priority] -= 1
        if not self._running[pod.priority]:
            del self._running[pod.priority]
        self.change()

    def started(self, pod: SchedulingPod) -> None:
        """Note that a pod is on a node."""
        self._running[pod.priority] += 1
        self._version += 1

    def failed(self, number: int, cache: Cache, pod: SchedulingPod) -> str:
        """Note that a pod fits nowhere, and return why."""
        kind = self._kind[number]
        if kind < 0 or pod.name in cache.nominated:
            return fit_error(cache, pod)
        self._failed[kind] = self._freed
        if self._why[kind][0] != self._version:
            self._why[kind] = (self._version, fit_error(cache, pod))
        return self._why[kind][1]

    def found_no_victims(self, number: int) -> None:
        """Note that nobody can be evicted for a pod."""
        if self._kind[number] >= 0:
            self._no_victims[self._kind[number]] = self._version

    def fits_nowhere(self, number: int, *, nominated: bool) -> bool:
        """Return whether a pod certainly fits on no node; a pod with a nominated node is searched for again."""
        kind = self._kind[number]
        return kind >= 0 and not nominated and self._failed[kind] == self._freed

    def preempts_nobody(self, number: int, pod: SchedulingPod) -> bool:
        """Return whether certainly no pod can be evicted for this one."""
        kind = self._kind[number]
        if not pod.preempts or min(self._running, default=pod.priority) >= pod.priority:
            return True
        return kind >= 0 and self._no_victims[kind] == self._version


def _asks(pod: SchedulingPod, *, labels: bool) -> object:
    requests = tuple(sorted(pod.requests.items()))
    own = (pod.namespace, tuple(sorted(pod.labels.items()))) if labels else ()
    return own, requests, pod.priority, pod.required, pod.selector, pod.tolerations, pod.preempts
