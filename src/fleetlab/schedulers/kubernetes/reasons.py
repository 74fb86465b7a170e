"""Why a pod fits nowhere, in kube-scheduler's words: `0/40 nodes are available: 3 Insufficient cpu, …`.

Filters look in an order, and the first that rules a node out says why; what a node lacks is said of each resource.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from fleetlab.schedulers.kubernetes.config import SchedulingPod
from fleetlab.schedulers.kubernetes.filters import affinity_refusals, nominated_beside, within_skew
from fleetlab.schedulers.kubernetes.state import Bools, Cache

SELECTED = "node(s) didn't match Pod's node affinity"
SPREAD = "node(s) didn't match pod topology spread constraints"
AFFINITY = "node(s) didn't match pod affinity/anti-affinity"
UNLABELED = f"{SPREAD} (missing required label)"


def fit_error(cache: Cache, pod: SchedulingPod) -> str:
    """Return what kube-scheduler writes of a pod that fits nowhere."""
    counts = reasons(cache, pod)
    parts = ", ".join(sorted(f"{count} {reason}" for reason, count in counts.items()))
    return f"0/{len(cache.nodes)} nodes are available: {parts}."


def reasons(cache: Cache, pod: SchedulingPod) -> Counter[str]:
    """Return how many nodes are ruled out by which reason; a node may have several."""
    counts: Counter[str] = Counter()
    beside = nominated_beside(cache, pod)
    special = np.zeros(len(cache.nodes), np.bool_)
    for node, others in beside.items():
        with cache.with_pods(others, node):
            found = [reason for reason, refused in _refusals(cache, pod) if refused[node]]
        special[node] = bool(found)  # else the second look, without them, says why
        counts.update(found)
    for reason, refused in _refusals(cache, pod):
        if number := int((refused & ~special).sum()):
            counts[reason] += number
    return counts


def _refusals(cache: Cache, pod: SchedulingPod) -> Iterator[tuple[str, Bools]]:
    left = np.ones(len(cache.nodes), np.bool_)
    for stage in (_taints(cache, pod), [(SELECTED, ~cache.selected(pod))], _resources(cache, pod), _spread(cache, pod)):
        refused = np.zeros(len(cache.nodes), np.bool_)
        for reason, mask in stage:
            yield reason, left & mask
            refused |= mask
        left &= ~refused
    for reason, mask in affinity_refusals(cache, pod):
        yield reason, left & mask
        yield AFFINITY, left & mask
        left &= ~mask


def _taints(cache: Cache, pod: SchedulingPod) -> list[tuple[str, Bools]]:
    """The first taint of each node that is not tolerated; a cordon comes before all."""
    found: dict[str, list[int]] = {}
    for k, taint in enumerate(cache.first_untolerated(pod.tolerations)):
        if taint is not None:
            found.setdefault(taint, []).append(k)
    masks = []
    for reason, nodes in found.items():
        mask = np.zeros(len(cache.nodes), np.bool_)
        mask[nodes] = True
        masks.append((reason, mask))
    return masks


def _resources(cache: Cache, pod: SchedulingPod) -> list[tuple[str, Bools]]:
    found = [("Too many pods", cache.count + 1 > cache.allocatable.get("pods", cache.count + 1))]
    if not any(pod.requests.values()):
        return found
    nothing = np.zeros(len(cache.nodes), np.int64)
    for name in {"cpu": 0, "memory": 0, "ephemeral-storage": 0} | dict(pod.requests):
        has, used = cache.allocatable.get(name, nothing), cache.requested.get(name, nothing)
        found.append((f"Insufficient {name}", has < used + pod.requests.get(name, 0)))
    return found


def _spread(cache: Cache, pod: SchedulingPod) -> list[tuple[str, Bools]]:
    left, found = np.ones(len(cache.nodes), np.bool_), []
    for one, within in within_skew(cache, pod):
        labeled = cache.values(one.key)[0] >= 0
        found += [(UNLABELED, left & ~labeled), (SPREAD, left & labeled & ~within)]
        left = left & within
    return found


# -- attempts whose outcome is known: a pod that asks for the same fitted nowhere, and nobody has left -----------------


class UnschedulableCache:
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
