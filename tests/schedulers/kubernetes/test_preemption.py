"""Cases of Kubernetes' TestSelectBestCandidate and TestDryRunPreemption (1.20, default_preemption_test.go)."""

import pytest

from fleetlab.schedulers.kubernetes.config import DisruptionBudget, Requirement, SchedulingNode, SchedulingPod, Selector
from fleetlab.schedulers.kubernetes.preemption import best_candidates
from fleetlab.schedulers.kubernetes.state import Cache

NEG, LOW, MID, HIGH, VERY_HIGH = -100, 0, 100, 1000, 10_000
SMALL, MEDIUM, LARGE, WHOLE = 100, 200, 300, 500


def pod_of(name, size, priority, app=""):
    asked = {"cpu": size, "memory": size}
    return SchedulingPod(name, priority=priority, requests=asked, scored=asked, labels={"app": app} if app else {})


def cache_of(*nodes):
    """Nodes with pods as (size, priority) or (size, priority, start)."""
    cache = Cache([SchedulingNode(f"node{k + 1}", {"cpu": 500, "memory": 500, "pods": 32}) for k in range(len(nodes))])
    for k, pods in enumerate(nodes):
        for j, (size, priority, *start) in enumerate(pods):
            cache.add(pod_of(f"p{k + 1}.{j + 1}", size, priority), k)
            cache.started[f"p{k + 1}.{j + 1}"] = start[0] if start else 0.0
    return cache


CASES = {
    "fits on both nodes when lower priority pods are preempted": (
        (HIGH, LARGE), ([(LARGE, MID)], [(LARGE, MID)]), ["node1", "node2"]),
    "node with min highest priority pod is picked": (
        (HIGH, WHOLE), ([(MEDIUM, MID), (LARGE, MID)], [(MEDIUM, MID), (MEDIUM, LOW)], [(MEDIUM, LOW), (MEDIUM, LOW)]),
        ["node3"]),
    "minimum sum of priorities is picked": (
        (HIGH, WHOLE), ([(MEDIUM, MID), (LARGE, MID)], [(LARGE, MID), (MEDIUM, LOW)], [(MEDIUM, MID), (MEDIUM, MID)]),
        ["node2"]),
    "minimum number of pods is picked": (
        (HIGH, WHOLE), ([(SMALL, MID), (SMALL, NEG), (SMALL, MID), (SMALL, NEG)], [(LARGE, MID), (MEDIUM, NEG)],
                        [(MEDIUM, MID), (SMALL, NEG), (SMALL, LOW)]), ["node2"]),
    "sum of adjusted priorities is considered": (
        (HIGH, WHOLE), ([(SMALL, MID), (SMALL, NEG), (SMALL, NEG)], [(LARGE, MID), (MEDIUM, NEG)],
                        [(MEDIUM, MID), (SMALL, NEG), (SMALL, LOW)]), ["node2"]),
    "non-overlapping lowest high priority, sum priorities, and number of pods": (
        (VERY_HIGH, WHOLE), ([(SMALL, MID), (SMALL, LOW), (SMALL, LOW)], [(LARGE, HIGH)],
                             [(MEDIUM, MID), (SMALL, LOW), (SMALL, LOW), (MEDIUM, LOW)],
                             [(MEDIUM, MID), (SMALL, MID), (SMALL, MID), (SMALL, NEG)]), ["node1"]),
    "different start time for each node's pod": (
        (HIGH, WHOLE), ([(MEDIUM, MID, 2), (MEDIUM, MID, 2)], [(MEDIUM, MID, 3), (MEDIUM, MID, 3)],
                        [(MEDIUM, MID, 1), (MEDIUM, MID, 1)]), ["node2"]),
    "different start time for all pods": (
        (HIGH, WHOLE), ([(MEDIUM, MID, 4), (MEDIUM, MID, 2)], [(MEDIUM, MID, 5), (MEDIUM, MID, 1)],
                        [(MEDIUM, MID, 3), (MEDIUM, MID, 6)]), ["node3"]),
    "different priority, different start time for all pods": (
        (HIGH, WHOLE), ([(MEDIUM, LOW, 4), (MEDIUM, MID, 2)], [(MEDIUM, MID, 6), (MEDIUM, LOW, 1)],
                        [(MEDIUM, LOW, 3), (MEDIUM, MID, 5)]), ["node2"]),
    "other pods running are higher priority, no preemption would happen": (
        (LOW, LARGE), ([(LARGE, MID)], [(LARGE, MID)]), []),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_the_node_is_the_one_of_test_select_best_candidate(case):
    (priority, size), nodes, expected = CASES[case]
    cache = cache_of(*nodes)
    found = best_candidates(cache, pod_of("p", size, priority), [], 10.0)
    assert [cache.nodes[one.node].name for one in found] == expected


def test_a_small_pod_of_lower_priority_stays():
    cache = cache_of([(SMALL, LOW), (LARGE, MID)])
    (one,) = best_candidates(cache, pod_of("p", LARGE, HIGH), [], 10.0)
    assert [victim.name for victim in one.victims] == ["p1.2"]


def test_looking_for_victims_leaves_every_pod_where_it_was():
    cache = cache_of([(SMALL, LOW), (LARGE, MID)])
    cache.terminate("p1.1")
    best_candidates(cache, pod_of("p", LARGE, HIGH), [], 10.0)
    assert (cache.requested["cpu"].tolist(), cache.count.tolist(), cache.terminating) == ([400], [2], {"p1.1"})


def test_a_node_whose_victims_no_budget_protects_is_taken_first():
    budget = DisruptionBudget("default", Selector((Requirement("app", "In", ("foo",)),)), 0)
    cache = Cache([SchedulingNode(name, {"cpu": 500, "memory": 500, "pods": 32}) for name in ("node1", "node2")])
    cache.add(pod_of("protected", LARGE, LOW, "foo"), 0)
    cache.add(pod_of("other", LARGE, MID), 1)
    (one,) = best_candidates(cache, pod_of("p", LARGE, HIGH), [budget], 10.0)
    assert ([victim.name for victim in one.victims], one.violations) == (["other"], 0)


def test_who_has_victims_that_still_terminate_waits_for_them():
    cache = cache_of([(LARGE, MID)])
    pod = pod_of("p", LARGE, HIGH)
    cache.nominated["p"] = (pod, 0)
    cache.terminate("p1.1")
    assert best_candidates(cache, pod, [], 10.0) == []


def test_a_pod_that_never_preempts_does_not():
    pod = SchedulingPod("p", priority=HIGH, requests={"cpu": LARGE}, preempts=False)
    assert best_candidates(cache_of([(LARGE, MID)]), pod, [], 10.0) == []
