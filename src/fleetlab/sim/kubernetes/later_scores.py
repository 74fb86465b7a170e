"""Score plugins as releases since 1.23 have them, after 1.34: strategies of NodeResourcesFit, and balance by deviation.

A resource that a node does not have, or that is no CPU, memory or storage and that the pod does not request, does not
count. In balance, a pod counts as what it requests, even if that is nothing; in NodeResourcesFit, a container that
requests no CPU or memory counts as a tenth of a core and 200 MiB.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from fleetlab.core.kubernetes import ASSUMED, LEAST, MOST, RATIO, RESOURCES, KubeScheduler, SchedulingPod
from fleetlab.sim.kubernetes.bent import BEST, bent
from fleetlab.sim.kubernetes.state import Cache, Ints

FIT, BALANCED = "NodeResourcesFit", "NodeResourcesBalancedAllocation"
PLAIN = (*ASSUMED, "ephemeral-storage")  # these count though a pod does not request them
Scorer = Callable[[Ints, Ints], Ints]


def fit_score(cache: Cache, pod: SchedulingPod, nodes: Ints, profile: KubeScheduler) -> Ints:
    """By the strategy of the profile: the emptier or fuller, or a bent line over the used share."""
    rate: Scorer = {LEAST: _least, MOST: _most, RATIO: lambda used, all_: bent(profile.shape, _most(used, all_))}[
        profile.strategy
    ]
    total, weights = np.zeros(len(nodes), np.int64), np.zeros(len(nodes), np.int64)
    for weight, used, all_ in _amounts(cache, pod, nodes, profile, FIT):
        score = rate(used, np.maximum(all_, 1))
        counts = (all_ > 0) & ((score > 0) | (profile.strategy != RATIO))
        total += np.where(counts, score * weight, 0)
        weights += np.where(counts, weight, 0)
    if profile.strategy == RATIO:
        return np.floor(total / np.maximum(weights, 1) + 0.5).astype(np.int64)  # it rounds half up
    return total // np.maximum(weights, 1)


def _least(used: Ints, all_: Ints) -> Ints:
    return np.where(used > all_, 0, (all_ - used) * BEST // all_)


def _most(used: Ints, all_: Ints) -> Ints:
    return np.minimum(used, all_) * BEST // all_


def _amounts(
    cache: Cache, pod: SchedulingPod, nodes: Ints, profile: KubeScheduler, plugin: str
) -> Iterator[tuple[int, Ints, Ints]]:
    """Each resource that counts: its weight, what would be used of it on each node, and what there is."""
    nothing = np.zeros(len(cache.nodes), np.int64)
    for name, weight in profile.resources.get(plugin, RESOURCES).items():
        as_scored = plugin == FIT and name in ASSUMED
        held, own = (cache.scored, pod.scored) if as_scored else (cache.requested, pod.requests)
        if own.get(name, 0) or name in PLAIN:
            used = held.get(name, nothing)[nodes] + own.get(name, 0)
            yield weight, used, cache.allocatable.get(name, nothing)[nodes]


def balanced_by_deviation(cache: Cache, pod: SchedulingPod, nodes: Ints, profile: KubeScheduler) -> Ints:
    """The less the used shares of the resources would deviate from their mean, the better; 0 for who requests none."""
    if not any(pod.requests.get(name) for name in profile.resources.get(BALANCED, RESOURCES)):
        return np.zeros(len(nodes), np.int64)
    shares, there = [np.zeros(len(nodes))], [np.zeros(len(nodes), np.bool_)]
    for _, used, all_ in _amounts(cache, pod, nodes, profile, BALANCED):
        shares.append(np.minimum(1.0, used / np.maximum(all_, 1)))
        there.append(all_ > 0)
    part, counts = np.array(shares), np.array(there)
    size = np.maximum(counts.sum(axis=0), 1)
    mean = np.where(counts, part, 0.0).sum(axis=0) / size
    deviation = np.sqrt(np.where(counts, (part - mean) ** 2, 0.0).sum(axis=0) / size)
    if counts.shape[0] == 3:  # of two it is half of the difference, without the rounding of a root
        deviation = np.where(counts[1:].all(axis=0), np.abs(part[1] - part[2]) / 2, deviation)
    score: Ints = ((1.0 - deviation) * float(BEST)).astype(np.int64)
    return score
