"""Why a pod fits nowhere, in kube-scheduler's words: `0/40 nodes are available: 3 Insufficient cpu, …`.

Filters look in an order, and the first that rules a node out says why; what a node lacks is said of each resource.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from fleetlab.core.kubernetes import SchedulingPod
from fleetlab.sim.kubernetes.affinity import affinity_refusals
from fleetlab.sim.kubernetes.filters import nominated_beside, within_skew
from fleetlab.sim.kubernetes.state import Bools, Cache

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
