"""Cases of Kubernetes' own unit tests (release 1.20, pkg/scheduler/framework/plugins), named by file and case."""

import numpy as np
import pytest

from fleetlab.schedulers.kubernetes.config import (
    HOSTNAME,
    KubeScheduler,
    Requirement,
    SchedulingNode,
    SchedulingPod,
    Selector,
    Shape,
    SpreadConstraint,
    Taint,
    Toleration,
)
from fleetlab.schedulers.kubernetes.filters import feasible
from fleetlab.schedulers.kubernetes.scores import PLUGINS, decide, piecewise_linear
from fleetlab.schedulers.kubernetes.state import Cache

NONE, CPU_ONLY, BOTH = (0, 0), (3000, 0), (3000, 5000)


def pod_of(name, cpu, memory, **words):
    asked = {"cpu": cpu, "memory": memory}
    return SchedulingPod(name, requests=asked, scored=asked, **words)


def cache_of(sizes, held=()):
    """Nodes of (CPU, memory), and pods on them as (node, CPU, memory)."""
    nodes = [SchedulingNode(f"node-{k}", {"cpu": c, "memory": m, "pods": 110}) for k, (c, m) in enumerate(sizes)]
    cache = Cache(nodes)
    for k, (node, cpu, memory) in enumerate(held):
        cache.add(pod_of(f"held-{k}", cpu, memory), node)
    return cache


def scores(plugin, cache, pod, profile=None):
    everywhere = np.arange(len(cache.nodes))
    return PLUGINS[plugin](cache, pod, everywhere, profile or KubeScheduler()).tolist()


WITH_PODS = [(0, *CPU_ONLY), (0, *CPU_ONLY), (1, *CPU_ONLY), (1, *BOTH)]


@pytest.mark.parametrize(
    ("sizes", "held", "asked", "expected"),
    [
        ([(4000, 10000), (6000, 10000)], [], BOTH, [37, 50]),  # differently sized machines
        ([(10000, 20000), (10000, 20000)], WITH_PODS, NONE, [70, 57]),  # pods scheduled with resources
        ([(10000, 20000), (10000, 20000)], [(0, *CPU_ONLY), (1, *BOTH)], BOTH, [57, 45]),
        ([(10000, 20000), (10000, 50000)], [(0, *CPU_ONLY), (1, *BOTH)], BOTH, [57, 60]),
        ([(4000, 10000), (4000, 10000)], [(0, *CPU_ONLY), (1, *BOTH)], CPU_ONLY, [50, 25]),  # exceed node capacity
        ([(0, 0), (0, 0)], [(0, *CPU_ONLY), (1, *BOTH)], NONE, [0, 0]),  # zero node resources
    ],
)
def test_least_allocated_scores_as_least_allocated_test_go_has_it(sizes, held, asked, expected):
    assert scores("NodeResourcesLeastAllocated", cache_of(sizes, held), pod_of("p", *asked)) == expected


def test_weights_of_resources_count_in_least_allocated():
    profile = KubeScheduler(resources={"NodeResourcesLeastAllocated": {"memory": 2, "cpu": 1}})
    cache = cache_of([(4000, 10000), (6000, 10000)])
    assert scores("NodeResourcesLeastAllocated", cache, pod_of("p", *BOTH), profile) == [41, 50]


@pytest.mark.parametrize(
    ("sizes", "held", "asked", "expected"),
    [
        ([(4000, 10000), (4000, 10000)], [], NONE, [100, 100]),
        ([(4000, 10000), (6000, 10000)], [], BOTH, [75, 100]),
        ([(10000, 20000), (10000, 20000)], WITH_PODS, NONE, [40, 65]),
        ([(10000, 20000), (10000, 20000)], [(0, *CPU_ONLY), (1, *BOTH)], BOTH, [65, 90]),
    ],
)
def test_balanced_allocation_scores_as_balanced_allocation_test_go_has_it(sizes, held, asked, expected):
    assert scores("NodeResourcesBalancedAllocation", cache_of(sizes, held), pod_of("p", *asked)) == expected


@pytest.mark.parametrize(
    ("held", "asked", "expected"),
    [([], NONE, [100, 100]), ([], BOTH, [38, 50]), ([(0, *BOTH), (1, *BOTH)], NONE, [38, 50])],
)
def test_a_falling_shape_scores_as_requested_to_capacity_ratio_test_go_has_it(held, asked, expected):
    profile = KubeScheduler(shape=Shape(((0, 10), (100, 0))))
    cache = cache_of([(4000, 10000), (6000, 10000)], held)
    assert scores("RequestedToCapacityRatio", cache, pod_of("p", *asked), profile) == expected


def test_a_bent_line_is_constant_outside_its_points_and_drops_the_rest_between():
    found = piecewise_linear(Shape(((10, 1), (90, 9))), np.array([-10, 0, 10, 15, 20, 90, 100]))
    assert found.tolist() == [10, 10, 10, 15, 20, 90, 90]


def test_a_container_that_asks_for_nothing_is_scored_as_a_tenth_of_a_core():
    cache = cache_of([(1000, 400 * 2**20)])
    assert scores("NodeResourcesLeastAllocated", cache, SchedulingPod("p")) == [70]


FOO = Selector((Requirement("foo", "Exists"),))


def spread_cache(per_node, labels=None):
    nodes = [
        SchedulingNode(f"node-{k}", {"pods": 110}, {HOSTNAME: f"node-{k}"} | (labels[k] if labels else {}))
        for k in range(len(per_node))
    ]
    cache = Cache(nodes)
    for node, count in enumerate(per_node):
        for k in range(count):
            cache.add(SchedulingPod(f"p-{node}-{k}", labels={"foo": ""}), node)
    return cache


@pytest.mark.parametrize(("skew", "expected"), [(1, [40, 80, 100, 0]), (2, [50, 83, 100, 16])])
def test_spreading_over_hosts_scores_as_scoring_test_go_has_it(skew, expected):
    pod = SchedulingPod("p", labels={"foo": ""}, spread=(SpreadConstraint(skew, HOSTNAME, False, FOO),))
    assert scores("PodTopologySpread", spread_cache([2, 1, 0, 3]), pod) == expected


def test_pods_that_terminate_do_not_count_in_spreading():
    cache = spread_cache([1, 1])
    cache.terminate("p-0-0")
    pod = SchedulingPod("p", labels={"foo": ""}, spread=(SpreadConstraint(1, HOSTNAME, False, FOO),))
    assert scores("PodTopologySpread", cache, pod) == [100, 0]


def test_a_firm_constraint_keeps_pods_off_the_fuller_zone():
    cache = spread_cache([1, 1, 0], [{"zone": "a"}, {"zone": "a"}, {"zone": "b"}])
    pod = SchedulingPod("p", labels={"foo": ""}, spread=(SpreadConstraint(1, "zone", True, FOO),))
    assert feasible(cache, pod).tolist() == [False, False, True]


def test_a_taint_keeps_off_who_does_not_tolerate_it_and_advice_only_lowers_the_score():
    taints = (Taint("a", "", "NoSchedule"),), (Taint("b", "", "PreferNoSchedule"),), ()
    cache = Cache([SchedulingNode(f"n{k}", {"pods": 1}, taints=t) for k, t in enumerate(taints)])
    plain, tolerant = SchedulingPod("p"), SchedulingPod("q", tolerations=(Toleration("", None, ""),))
    assert feasible(cache, plain).tolist() == [False, True, True]
    assert feasible(cache, tolerant).tolist() == [True, True, True]
    assert scores("TaintToleration", cache, plain) == [100, 0, 100]


def test_preferred_terms_score_as_a_share_of_the_most():
    labels = {"foo": "1"}, {"foo": "1", "bar": "2"}, {}
    cache = Cache([SchedulingNode(f"n{k}", {"pods": 9}, each) for k, each in enumerate(labels)])
    foo, bar = (Selector((Requirement(key, "Exists"),)) for key in ("foo", "bar"))
    pod = SchedulingPod("p", preferred=((2, foo), (5, bar)))
    assert scores("NodeAffinity", cache, pod) == [28, 100, 0]


def test_a_nominated_pod_of_higher_priority_holds_its_room():
    cache = cache_of([(4000, 10000)])
    cache.nominated["first"] = (pod_of("first", 3000, 0, priority=10), 0)
    assert feasible(cache, pod_of("p", 2000, 0)).tolist() == [False]
    assert feasible(cache, pod_of("p", 2000, 0, priority=11)).tolist() == [True]


def test_a_single_node_that_fits_is_taken_without_scores():
    decision = decide(cache_of([(4000, 10000), (1000, 10000)]), pod_of("p", 2000, 0), KubeScheduler())
    assert (decision.best.tolist(), decision.scores) == ([0], {})


@pytest.mark.parametrize(
    ("nodes", "percentage", "expected"),
    [(99, 0, 99), (160, 0, 100), (1000, 0, 420), (5000, 0, 500), (1000, 30, 300), (1000, 100, 1000), (10_000, 0, 500)],
)
def test_how_many_nodes_are_looked_for_is_as_generic_scheduler_test_go_has_it(nodes, percentage, expected):
    assert KubeScheduler(percentage=percentage).nodes_to_find(nodes) == expected
