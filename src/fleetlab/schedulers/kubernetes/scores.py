"""Score plugins: how good each node that fits is for a pod, in whole numbers from 0 to 100, as kube-scheduler adds up.

Each takes the cache, the pod, the numbers of the nodes to score and the profile. Divisions drop the rest, as Go's do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from fleetlab.schedulers.kubernetes.config import (
    ASSUMED,
    CPU,
    HOSTNAME,
    LATER,
    LEAST,
    MEMORY,
    MOST,
    RATIO,
    RESOURCES,
    KubeScheduler,
    SchedulingPod,
    Shape,
)
from fleetlab.schedulers.kubernetes.filters import domain_counts, feasible, looked_at, pod_affinity
from fleetlab.schedulers.kubernetes.state import Cache, Ints

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
    """By a piecewise linear function over the used share; resources that score nothing do not count in the mean."""
    total, weight_sum = np.zeros(len(nodes), np.int64), np.zeros(len(nodes), np.int64)
    for name, weight in profile.resources.get("RequestedToCapacityRatio", RESOURCES).items():
        used, all_ = _use(cache, pod, nodes, name)
        share = np.where((all_ == 0) | (used > all_), 100, 100 - (all_ - used) * 100 // np.maximum(all_, 1))
        score = piecewise_linear(profile.shape, share)
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


# -- score plugins as releases since 1.23 have them, after 1.34: strategies of NodeResourcesFit, and -------------------
# A resource that a node does not have, or that is no CPU, memory or storage and that the pod does not request, does not
# count. In balance, a pod counts as what it requests, even if that is nothing; in NodeResourcesFit, a container that
# requests no CPU or memory counts as a tenth of a core and 200 MiB.

BEST = 100  # the highest score of a plugin

FIT, BALANCED = "NodeResourcesFit", "NodeResourcesBalancedAllocation"
PLAIN = (*ASSUMED, "ephemeral-storage")  # these count though a pod does not request them
Scorer = Callable[[Ints, Ints], Ints]


def fit_score(cache: Cache, pod: SchedulingPod, nodes: Ints, profile: KubeScheduler) -> Ints:
    """By the strategy of the profile: the emptier or fuller, or a piecewise linear function over the used share."""
    rate: Scorer = {
        LEAST: _least,
        MOST: _most,
        RATIO: lambda used, all_: piecewise_linear(profile.shape, _most(used, all_)),
    }[profile.strategy]
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


def piecewise_linear(shape: Shape, share: Ints) -> Ints:
    """Return a piecewise linear function of each share; constant before its first point and after its last."""
    points = [(at, score * (BEST // 10)) for at, score in shape.points]
    found = np.full(len(share), points[-1][1], np.int64)
    for (left, low), (right, high) in reversed(list(pairwise(points))):
        rise = (high - low) * (share - left)
        on_line = low + np.sign(rise) * (np.abs(rise) // (right - left))  # toward zero, also where it falls
        found = np.where(share <= right, on_line, found)
    return np.where(share <= points[0][0], points[0][1], found)


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


# -- one cycle of kube-scheduler: the nodes that fit a pod, their scores, and the set of best ones it ------------------


@dataclass(frozen=True)
class Decision:
    """Nodes that fit, by number, and what each plugin gives them, times its weight."""

    nodes: Ints
    scores: dict[str, Ints]

    @property
    def total(self) -> Ints:
        """The sum of all scores of each node."""
        return sum(self.scores.values(), np.zeros(len(self.nodes), np.int64))

    @property
    def best(self) -> Ints:
        """The nodes with the highest sum: where there are several, kube-scheduler draws one."""
        return self.nodes[self.total == self.total.max()] if len(self.nodes) else self.nodes


def decide(cache: Cache, pod: SchedulingPod, profile: KubeScheduler, among: Ints | None = None) -> Decision:
    """Filter and score; `among` are the nodes that it looked at, where it did not look at all."""
    nodes = np.flatnonzero(feasible(cache, pod))
    if among is not None:
        nodes = np.intersect1d(nodes, among)
    if len(nodes) < 2:  # a single node is taken as it is
        return Decision(nodes, {})
    weights = {name: weight for name, weight in profile.weights.items() if name in PLUGINS}
    return Decision(nodes, {name: w * PLUGINS[name](cache, pod, nodes, profile) for name, w in weights.items()})
