"""Score plugins: how good each node that fits is for a pod, in whole numbers from 0 to 100, as kube-scheduler adds up.

Each takes the cache, the pod, the numbers of the nodes to score and the profile. Divisions drop the rest, as Go's do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from fleetlab.core.kubernetes import (
    ASSUMED,
    CPU,
    HOSTNAME,
    LATER,
    MEMORY,
    RESOURCES,
    KubeScheduler,
    SchedulingPod,
)
from fleetlab.sim.kubernetes.affinity import pod_affinity
from fleetlab.sim.kubernetes.bent import BEST, bent
from fleetlab.sim.kubernetes.filters import domain_counts, looked_at
from fleetlab.sim.kubernetes.later_scores import balanced_by_deviation, fit_score
from fleetlab.sim.kubernetes.state import Cache, Ints

Plugin = Callable[[Cache, SchedulingPod, Ints, KubeScheduler], Ints]


def least_allocated(cache: Cache, pod: SchedulingPod, nodes: Ints, profile: KubeScheduler) -> Ints:
    """The larger the free share of each resource, the better."""
    weights = profile.resources.get("NodeResourcesLeastAllocated", RESOURCES)
    return _mean(cache, pod, nodes, weights, lambda used, all_: (all_ - used) * BEST // np.maximum(all_, 1))


def most_allocated(cache: Cache, pod: SchedulingPod, nodes: Ints, profile: KubeScheduler) -> Ints:
    """The larger the used share of each resource, the better."""
    weights = profile.resources.get("NodeResourcesMostAllocated", RESOURCES)
    return _mean(cache, pod, nodes, weights, lambda used, all_: used * BEST // np.maximum(all_, 1))


def _mean(
    cache: Cache, pod: SchedulingPod, nodes: Ints, weights: Mapping[str, int], rate: Callable[[Ints, Ints], Ints]
) -> Ints:
    total = np.zeros(len(nodes), np.int64)
    for name, weight in weights.items():
        used, all_ = _use(cache, pod, nodes, name)
        total += weight * np.where((all_ == 0) | (used > all_), 0, rate(used, all_))
    return total // sum(weights.values())


def _use(cache: Cache, pod: SchedulingPod, nodes: Ints, name: str) -> tuple[Ints, Ints]:
    """How much of a resource would be requested of each node with the pod on it, and how much there is."""
    nothing = np.zeros(len(cache.nodes), np.int64)
    held, own = (cache.scored, pod.scored) if name in ASSUMED else (cache.requested, pod.requests)
    return held.get(name, nothing)[nodes] + own.get(name, 0), cache.allocatable.get(name, nothing)[nodes]


def requested_to_capacity(cache: Cache, pod: SchedulingPod, nodes: Ints, profile: KubeScheduler) -> Ints:
    """By a bent line over the used share; resources that score nothing do not count in the mean."""
    total, weight_sum = np.zeros(len(nodes), np.int64), np.zeros(len(nodes), np.int64)
    for name, weight in profile.resources.get("RequestedToCapacityRatio", RESOURCES).items():
        used, all_ = _use(cache, pod, nodes, name)
        share = np.where((all_ == 0) | (used > all_), 100, 100 - (all_ - used) * 100 // np.maximum(all_, 1))
        score = bent(profile.shape, share)
        total += np.where(score > 0, score * weight, 0)
        weight_sum += np.where(score > 0, weight, 0)
    mean = total / np.maximum(weight_sum, 1)
    return np.floor(mean + 0.5).astype(np.int64)  # it rounds half up


def balanced_allocation(cache: Cache, pod: SchedulingPod, nodes: Ints, profile: KubeScheduler) -> Ints:
    """The nearer the used shares of CPU and memory would be to each other, the better."""
    if profile.release == LATER:
        return balanced_by_deviation(cache, pod, nodes, profile)
    shares = []
    for name in (CPU, MEMORY):
        used, all_ = _use(cache, pod, nodes, name)
        shares.append(np.where(all_ == 0, 1.0, used / np.maximum(all_, 1)))
    cpu, memory = shares
    score = ((1 - np.abs(cpu - memory)) * float(BEST)).astype(np.int64)
    return np.where((cpu >= 1) | (memory >= 1), 0, score)


def node_affinity(cache: Cache, pod: SchedulingPod, nodes: Ints, profile: KubeScheduler) -> Ints:
    """The weights of the preferred terms that a node matches, as a share of the most."""
    total = np.zeros(len(nodes), np.int64)
    for weight, term in pod.preferred:
        total += weight * cache.preferred(term)[nodes]
    most = int(total.max())
    return BEST * total // most if most else total


def taint_toleration(cache: Cache, pod: SchedulingPod, nodes: Ints, profile: KubeScheduler) -> Ints:
    """The fewer taints that only advise against a pod and are not tolerated, the better."""
    mine = tuple(one for one in pod.tolerations if one.effect in ("", "PreferNoSchedule"))
    counts = cache.untolerated(mine, ("PreferNoSchedule",))[nodes]
    most = int(counts.max())
    return BEST - BEST * counts // most if most else np.full(len(nodes), BEST, np.int64)


def topology_spread(cache: Cache, pod: SchedulingPod, nodes: Ints, profile: KubeScheduler) -> Ints:
    """The fewer pods of its selectors in the domains of a node, the better; by the preferred constraints."""
    soft = [one for one in pod.spread if not one.firm]
    if not soft:
        return np.full(len(nodes), BEST, np.int64)
    complete = np.ones(len(cache.nodes), np.bool_)
    for one in soft:
        complete &= (cache.values(one.key)[0] >= 0) | one.anywhere
    scored, sums = complete[nodes], np.zeros(len(nodes))
    if not scored.any():
        return np.zeros(len(nodes), np.int64)
    for one in soft:
        values, names = cache.values(one.key)
        mine = values[nodes]
        counts = cache.matching(pod.namespace, one.selector)
        if one.key == HOSTNAME:
            found, size = counts[nodes], int(scored.sum())
        else:
            counted = np.where(complete & looked_at(cache, pod, one), counts, 0)
            found, size = domain_counts(values, counted, len(names) + 1)[mine], len(np.unique(mine[scored]))
        sums += np.where(mine >= 0, found * np.log(size + 2.0) + (one.max_skew - 1), 0.0)
    raw = np.floor(sums + 0.5).astype(np.int64) if profile.release == LATER else sums.astype(np.int64)
    least, most = int(raw[scored].min()), int(raw[scored].max())
    even = BEST * (most + least - raw) // most if most else np.full(len(nodes), BEST, np.int64)
    return np.where(scored, even, 0)


PLUGINS: dict[str, Plugin] = {
    "InterPodAffinity": pod_affinity,
    "NodeResourcesBalancedAllocation": balanced_allocation,
    "NodeResourcesLeastAllocated": least_allocated,
    "NodeResourcesFit": fit_score,
    "NodeResourcesMostAllocated": most_allocated,
    "RequestedToCapacityRatio": requested_to_capacity,
    "NodeAffinity": node_affinity,
    "PodTopologySpread": topology_spread,
    "TaintToleration": taint_toleration,
}
