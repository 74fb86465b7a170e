"""Filter plugins: which nodes could take a pod.

NodeUnschedulable, TaintToleration, NodeAffinity, NodeResourcesFit, PodTopologySpread and InterPodAffinity; a pod that
was nominated to a node, and is at least as important, counts as if it were there.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from fleetlab.schedulers.kubernetes.config import KubeScheduler, PodTerm, SchedulingPod, SpreadConstraint
from fleetlab.schedulers.kubernetes.state import FIRM, Bools, Cache, Ints

# -- interPodAffinity: pods that want to be, or must not be, where others are; as filter and as score ------------------
# Terms count pods by the value of a label of their nodes, such as a zone or a rack. Pods that were asked to go count
# too.

BEST = 100
AFFINITY, ANTI, LIKES = "affinity", "anti_affinity", "preferred_affinity"  # whose terms: those of pods on nodes


def affinity_refusals(cache: Cache, pod: SchedulingPod) -> list[tuple[str, Bools]]:
    """Which nodes the terms of the pod, and of the pods that are there, rule out, by the first reason that does."""
    found = []
    if pod.affinity:
        found.append(("node(s) didn't match pod affinity rules", ~_near(cache, pod)))
    if pod.anti_affinity:
        found.append(("node(s) didn't match pod anti-affinity rules", _in_domain(cache, _own(cache, pod))))
    others = [(term, count) for kind, _, term, count in cache.terms(pod) if kind == ANTI]
    if others:
        found.append(("node(s) didn't satisfy existing pods anti-affinity rules", _in_domain(cache, others)))
    return found


def affinity_allows(cache: Cache, pod: SchedulingPod) -> Bools:
    """Which nodes no term rules out."""
    allowed = np.ones(len(cache.nodes), np.bool_)
    for _, refused in affinity_refusals(cache, pod):
        allowed &= ~refused
    return allowed


def _near(cache: Cache, pod: SchedulingPod) -> Bools:
    """Which nodes have pods near that match all terms; any node if there are none yet and it matches them itself."""
    matching = cache.matched(pod.affinity)
    labeled, near, anywhere = (np.ones(len(cache.nodes), np.bool_) for _ in range(3))
    some = False
    for term in pod.affinity:
        sums, present = _sums(cache, term.key, matching)
        labeled &= present
        near &= sums > 0
        some = some or bool((sums > 0).any())
    first = not some and all(term.matches(pod) for term in pod.affinity)
    return labeled & (anywhere if first else near)


def _own(cache: Cache, pod: SchedulingPod) -> list[tuple[PodTerm, Ints]]:
    return [(term, cache.matched((term,))) for term in pod.anti_affinity]


def _in_domain(cache: Cache, terms: Iterable[tuple[PodTerm, Ints]]) -> Bools:
    inside = np.zeros(len(cache.nodes), np.bool_)
    for term, counts in terms:
        inside |= _sums(cache, term.key, counts)[0] > 0
    return inside


def _sums(cache: Cache, key: str, counts: Ints) -> tuple[Ints, Bools]:
    """Add counts up over nodes with the same value of a label; 0 where a node has none, and which have one."""
    values, names = cache.values(key)
    present = values >= 0
    totals = np.bincount(values[present], weights=counts[present], minlength=len(names) + 1).astype(np.int64)
    return np.where(present, totals[values], 0), present


def pod_affinity(cache: Cache, pod: SchedulingPod, nodes: Ints, profile: KubeScheduler) -> Ints:
    """The more weight of preferred terms, its own and those of others, speaks for a node, the better."""
    total = np.zeros(len(cache.nodes), np.int64)
    if profile.ignore_preferred and not pod.preferred_affinity:
        return total[nodes]
    for weight, term in pod.preferred_affinity:
        total += weight * _sums(cache, term.key, cache.matched((term,)))[0]
    for kind, weight, term, counts in cache.terms(pod):
        if kind != ANTI:
            given = profile.hard_affinity if kind == AFFINITY else weight
            total += given * _sums(cache, term.key, counts)[0]
    mine = total[nodes]
    most, least = max(0, int(mine.max())), min(0, int(mine.min()))
    if most == least:
        return np.zeros(len(nodes), np.int64)
    return (float(BEST) * ((mine - least) / float(most - least))).astype(np.int64)


def feasible(cache: Cache, pod: SchedulingPod) -> Bools:
    """Which nodes pass all filters."""
    allowed = resolvable(cache, pod)
    fits = allowed & _fits_beside(cache, pod)
    for node, others in nominated_beside(cache, pod).items():
        if fits[node]:
            with cache.with_pods(others, node):
                fits[node] = bool(_fits_beside(cache, pod)[node])
    return fits


def _fits_beside(cache: Cache, pod: SchedulingPod) -> Bools:
    """Which nodes have room, and where other pods do not stand against it."""
    fits: Bools = fitting(cache, pod) & spread_allows(cache, pod) & affinity_allows(cache, pod)
    return fits


def feasible_on(cache: Cache, pod: SchedulingPod, node: int) -> bool:
    """Whether one node passes all filters; on its own, without looking at the others' nominations."""
    others = nominated_beside(cache, pod).get(node, [])
    if others:
        with cache.with_pods(others, node):
            if not _fits_beside(cache, pod)[node]:
                return False
    return bool(resolvable(cache, pod)[node] and _fits_beside(cache, pod)[node])


def nominated_beside(cache: Cache, pod: SchedulingPod) -> dict[int, list[SchedulingPod]]:
    """Pods that count as if they were on a node, by node: nominated to it, and at least as important."""
    found: dict[int, list[SchedulingPod]] = {}
    for other, node in cache.nominated.values():
        if other.priority >= pod.priority and other.name != pod.name:
            found.setdefault(node, []).append(other)
    return found


def resolvable(cache: Cache, pod: SchedulingPod) -> Bools:
    """Which nodes are not ruled out for good: neither by cordon, nor by taint, nor by what the pod selects."""
    allowed: Bools = cache.open & cache.selected(pod) & (cache.untolerated(pod.tolerations, FIRM) == 0)
    return allowed


def fitting(cache: Cache, pod: SchedulingPod) -> Bools:
    """Which nodes have room for one more pod, and for all that this one asks for."""
    fits: Bools = cache.count + 1 <= cache.allocatable.get("pods", cache.count)
    for name, amount in pod.requests.items():
        if amount and name not in cache.allocatable:
            return np.zeros(len(cache.nodes), np.bool_)
        if name in cache.allocatable:
            fits = fits & (cache.requested[name] + amount <= cache.allocatable[name])
    return fits


def spread_allows(cache: Cache, pod: SchedulingPod) -> Bools:
    """On which nodes one more pod keeps within the skew of each firm constraint."""
    allowed = np.ones(len(cache.nodes), np.bool_)
    for _, within in within_skew(cache, pod):
        allowed &= within
    return allowed


def within_skew(cache: Cache, pod: SchedulingPod) -> list[tuple[SpreadConstraint, Bools]]:
    """The same for each firm constraint."""
    firm = [one for one in pod.spread if one.firm]
    if not firm:
        return []
    labeled = np.ones(len(cache.nodes), np.bool_)
    for one in firm:
        labeled &= cache.values(one.key)[0] >= 0
    return [(one, _within_skew(cache, pod, one, labeled & looked_at(cache, pod, one))) for one in firm]


def looked_at(cache: Cache, pod: SchedulingPod, one: SpreadConstraint) -> Bools:
    """Which nodes a constraint is about: unless it says otherwise, those that its pod selects, tainted or not."""
    nodes = cache.selected(pod) if one.honors_affinity else np.ones(len(cache.nodes), np.bool_)
    return nodes & (cache.untolerated(pod.tolerations, FIRM) == 0) if one.honors_taints else nodes


def _within_skew(cache: Cache, pod: SchedulingPod, one: SpreadConstraint, counted: Bools) -> Bools:
    values, names = cache.values(one.key)
    if not names:
        return np.zeros(len(cache.nodes), np.bool_)
    there = np.zeros(len(names), np.bool_)
    there[values[counted]] = True
    counts = cache.matching(pod.namespace, one.selector)
    # In 1.20, pods on all nodes with the value count, once one node with it is looked at.
    matches = domain_counts(values, np.where(counted, counts, 0) if one.own_nodes else counts, len(names))
    least = int(matches[there].min()) if there.any() else 2**31 - 1
    if int(there.sum()) < one.min_domains:
        least = 0
    own = int(one.selector.matches(pod.labels))
    present = values >= 0
    mine = np.where(present & there[values], matches[values], 0)
    within: Bools = present & (mine + own - least <= one.max_skew)
    return within


def domain_counts(values: Ints, counts: Ints, size: int) -> Ints:
    """Add counts of nodes up by the value of their label."""
    present = values >= 0
    return np.bincount(values[present], weights=counts[present], minlength=size).astype(np.int64)
