"""InterPodAffinity: pods that want to be, or must not be, where others are; as filter and as score.

Terms count pods by the value of a label of their nodes, such as a zone or a rack. Pods that were asked to go count too.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from fleetlab.core.kubernetes import KubeScheduler, PodTerm, SchedulingPod
from fleetlab.sim.kubernetes.state import Bools, Cache, Ints

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
