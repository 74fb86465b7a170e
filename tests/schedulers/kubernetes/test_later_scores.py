"""Cases of Kubernetes' unit tests of 1.34 (pkg/scheduler/framework/plugins), named by file: scores since v1beta2."""

from dataclasses import replace

import numpy as np
import pytest

from fleetlab.schedulers.kubernetes.config import (
    ASSUMED,
    HOSTNAME,
    LATER,
    KubeScheduler,
    Requirement,
    SchedulingNode,
    SchedulingPod,
    Selector,
    Shape,
    SpreadConstraint,
)
from fleetlab.schedulers.kubernetes.filters import feasible
from fleetlab.schedulers.kubernetes.scores import PLUGINS
from fleetlab.schedulers.kubernetes.state import Cache

PROFILE = KubeScheduler.of_release(LATER)
NONE, CPU_ONLY, BOTH = (0, 0), (3000, 0), (3000, 5000)
FOO, BAR, GPU, MIB = "intel.com/foo", "intel.com/bar", "nvidia.com/gpu", 2**20


def pod_of(name, amounts):
    """A pod of (CPU, memory), (CPU, memory, {others}), or one that names neither."""
    cpu, memory, *more = amounts
    asked = {"cpu": cpu, "memory": memory} | (more[0] if more else {})
    return SchedulingPod(name, requests=asked, scored={"cpu": cpu, "memory": memory})


def scores(plugin, nodes, held, pod, **words):
    names = ("cpu", "memory")
    sizes = [dict(zip(names, size[:2], strict=True)) | (size[2] if len(size) > 2 else {}) for size in nodes]
    cache = Cache([SchedulingNode(f"node-{k}", size | {"pods": 110}) for k, size in enumerate(sizes)])
    for k, (node, one) in enumerate(held):
        cache.add(replace(one, name=f"held-{k}") if isinstance(one, SchedulingPod) else pod_of(f"held-{k}", one), node)
    asked = pod if isinstance(pod, SchedulingPod) else pod_of("p", pod)
    return PLUGINS[plugin](cache, asked, np.arange(len(nodes)), replace(PROFILE, **words)).tolist()


def weights(**of):
    return {"NodeResourcesFit": of}


TWO = [(0, CPU_ONLY), (1, BOTH)]
FOUR = [(0, CPU_ONLY), (0, CPU_ONLY), (1, CPU_ONLY), (1, BOTH)]
EXTENDED = {"NodeResourcesFit": {"cpu": 1, "memory": 1, FOO: 1}}
DOUBLE = {"NodeResourcesFit": {FOO: 2, "cpu": 1, "memory": 1}}


@pytest.mark.parametrize(
    ("nodes", "held", "asked", "resources", "expected"),
    [
        ([(4000, 10000)] * 2, [], NONE, {}, [100, 100]),
        ([(4000, 10000), (6000, 10000)], [], BOTH, {}, [37, 50]),
        ([(4000, 10000)] * 2, [(0, NONE), (0, NONE), (1, NONE), (1, NONE)], NONE, {}, [100, 100]),
        ([(10000, 20000)] * 2, FOUR, NONE, {}, [70, 57]),
        ([(10000, 20000)] * 2, TWO, BOTH, {}, [57, 45]),
        ([(10000, 20000), (10000, 50000)], TWO, BOTH, {}, [57, 60]),
        ([(4000, 10000)] * 2, TWO, CPU_ONLY, {}, [50, 25]),
        ([(0, 0)] * 2, TWO, NONE, {}, [0, 0]),
        ([(4000, 10000), (6000, 10000)], [], BOTH, weights(memory=2, cpu=1), [41, 50]),
        ([(6000, 10000), (6000, 10000, {FOO: 4})], [], BOTH, EXTENDED, [50, 50]),
        ([(6000, 10000, {FOO: 4}), (6000, 10000, {FOO: 10})], [], (3000, 5000, {FOO: 2}), EXTENDED, [50, 60]),
        ([(6000, 10000), (6000, 10000, {FOO: 4})], [], (3000, 4000), DOUBLE, [55, 55]),
    ],
)
def test_the_emptier_node_scores_as_least_allocated_test_go_has_it(nodes, held, asked, resources, expected):
    assert scores("NodeResourcesFit", nodes, held, asked, resources=resources) == expected


NOTHING = SchedulingPod("p", scored=dict(ASSUMED))


@pytest.mark.parametrize(
    ("nodes", "held", "asked", "resources", "expected"),
    [
        ([(4000, 10000)] * 2, [], NONE, {}, [0, 0]),
        ([(4000, 10000), (6000, 10000)], [], BOTH, {}, [62, 50]),
        ([(10000, 20000)] * 2, FOUR, NONE, {}, [30, 42]),
        ([(10000, 20000)] * 2, TWO, BOTH, {}, [42, 55]),
        ([(5000, 10000), (10000, 9000)], [], (5000, 9000), {}, [95, 75]),
        ([(4000, 10000), (6000, 10000)], [], BOTH, weights(memory=2, cpu=1), [58, 50]),
        ([(250, 1000 * MIB)] * 2, [(0, NOTHING), (0, NOTHING)], NOTHING, {}, [80, 30]),
        ([(6000, 10000), (6000, 10000, {FOO: 4})], [], BOTH, EXTENDED, [50, 50]),
        ([(6000, 10000, {FOO: 4}), (6000, 10000, {FOO: 10})], [], (3000, 5000, {FOO: 2}), EXTENDED, [50, 40]),
        ([(6000, 10000), (6000, 10000, {FOO: 4})], [], (3000, 4000), DOUBLE, [45, 45]),
    ],
)
def test_the_fuller_node_scores_as_most_allocated_test_go_has_it(nodes, held, asked, resources, expected):
    assert scores("NodeResourcesFit", nodes, held, asked, resources=resources, strategy="MostAllocated") == expected


def ratio(nodes, held, asked, resources, shape):
    words = {"strategy": "RequestedToCapacityRatio", "resources": {"NodeResourcesFit": resources}, "shape": shape}
    return scores("NodeResourcesFit", nodes, held, asked, **words)


@pytest.mark.parametrize(
    ("nodes", "held", "asked", "expected"),
    [
        ([(4000, 10000)] * 2, [(0, NONE), (0, NONE)], NONE, [100, 100]),
        ([(4000, 10000), (6000, 10000)], [(0, NONE), (0, NONE)], BOTH, [38, 50]),
        ([(4000, 10000), (6000, 10000)], [(0, BOTH), (1, BOTH)], NONE, [38, 50]),
    ],
)
def test_a_falling_shape_scores_as_requested_to_capacity_ratio_test_go_has_it(nodes, held, asked, expected):
    assert ratio(nodes, held, asked, {"cpu": 1, "memory": 1}, Shape(((0, 10), (100, 0)))) == expected


RISING = Shape(((0, 0), (100, 1)))
ONE_KIND = [(4000, 10000 * MIB, {FOO: 8}), (4000, 10000 * MIB, {FOO: 4})]
TWO_KINDS = [(4000, 10000 * MIB, {FOO: 8, BAR: 4}), (4000, 10000 * MIB, {FOO: 4, BAR: 8})]


@pytest.mark.parametrize(
    ("nodes", "held", "asked", "expected"),
    [
        (ONE_KIND, [], {}, [0, 0]),  # TestResourceBinPackingSingleExtended
        (ONE_KIND, [], {FOO: 2}, [2, 5]),
        (ONE_KIND, [(1, (0, 0, {FOO: 2}))], {FOO: 2}, [2, 10]),
        (ONE_KIND, [], {FOO: 4}, [5, 10]),
        (TWO_KINDS, [], {}, [0, 0]),  # TestResourceBinPackingMultipleExtended
        (TWO_KINDS, [], {FOO: 2, BAR: 2}, [4, 3]),
        (TWO_KINDS, [(1, (0, 0, {FOO: 4, BAR: 2}))], {FOO: 2, BAR: 2}, [4, 7]),
        (TWO_KINDS, [], {FOO: 4, BAR: 2}, [5, 5]),
    ],
)
def test_packing_by_extended_resources_scores_as_upstream_has_it(nodes, held, asked, expected):
    of = {FOO: 1} if nodes is ONE_KIND else {FOO: 3, BAR: 5}
    assert ratio(nodes, held, (0, 0, asked), of, RISING) == expected


WITH_GPU = {"NodeResourcesBalancedAllocation": {"cpu": 1, "memory": 1, GPU: 1}}
CARDS = (3500, 40000, {GPU: 8})


@pytest.mark.parametrize(
    ("nodes", "held", "asked", "resources", "expected"),
    [
        ([(4000, 10000)] * 2, [], NONE, {}, [0, 0]),  # nothing requested: it is skipped
        ([(4000, 10000), (6000, 10000)], [], BOTH, {}, [87, 100]),
        ([(10000, 20000)] * 2, TWO, BOTH, {}, [82, 95]),
        ([(10000, 20000), (10000, 50000)], TWO, BOTH, {}, [82, 80]),
        ([(6000, 10000)] * 2, TWO, CPU_ONLY, {}, [50, 75]),
        ([CARDS, CARDS], [(1, BOTH), (0, (3000, 5000, {GPU: 3}))], (0, 0, {GPU: 1}), WITH_GPU, [70, 65]),
        ([CARDS, (3500, 40000)], [], BOTH, WITH_GPU, [63, 63]),
    ],
)
def test_balance_scores_as_balanced_allocation_test_go_has_it(nodes, held, asked, resources, expected):
    assert scores("NodeResourcesBalancedAllocation", nodes, held, asked, resources=resources) == expected


# -- podtopologyspread/scoring_test.go, TestPodTopologySpreadScore -----------------------------------------------------

HAS_FOO, HAS_BAR = (Selector((Requirement(name, "Exists"),)) for name in ("foo", "bar"))
ZONES = ("zone1", "zone1", "zone2", "zone2")


def spread_scores(on_nodes, constraints, candidates, zones=ZONES, **words):
    """Pods on each node as a list of their labels; constraints as (skew, key, selector)."""
    cache = Cache([
        SchedulingNode(f"n{k}", {"pods": 110}, {HOSTNAME: f"n{k}", "zone": zones[k]}) for k in range(len(on_nodes))
    ])  # fmt: skip
    for node, pods in enumerate(on_nodes):
        for k, labels in enumerate(pods):
            cache.add(SchedulingPod(f"{node}-{k}", labels=dict.fromkeys(labels.split(), "")), node)
    spread = tuple(SpreadConstraint(skew, key, False, selector) for skew, key, selector in constraints)
    pod = SchedulingPod("p", labels={"foo": "", "bar": ""}, spread=spread, **words)
    return PLUGINS["PodTopologySpread"](cache, pod, np.array(candidates), PROFILE).tolist()


def foos(*counts):
    return [["foo"] * count for count in counts]


MIXED = [["foo"], ["foo bar"], [], ["foo", "bar"]]
ON_HOST, ON_ZONE = (1, HOSTNAME, HAS_FOO), (1, "zone", HAS_FOO)
BY_BAR = (1, HOSTNAME, HAS_BAR)


@pytest.mark.parametrize(
    ("on_nodes", "constraints", "candidates", "expected"),
    [
        (foos(0, 0), [ON_HOST], [0, 1], [100, 100]),
        (foos(2, 1), [ON_HOST], [0], [100]),
        (foos(1, 1), [ON_HOST], [0, 1], [100, 100]),
        (foos(2, 1, 0, 3), [ON_HOST], [0, 1, 2, 3], [20, 60, 100, 0]),
        (foos(2, 1, 0, 3), [(2, HOSTNAME, HAS_FOO)], [0, 1, 2, 3], [33, 66, 100, 16]),
        (foos(4, 3, 2, 1), [(3, HOSTNAME, HAS_FOO)], [0, 1, 2, 3], [44, 66, 77, 100]),
        (foos(4, 2, 1, 3), [ON_HOST], [0, 1, 2], [33, 83, 100]),
        (foos(4, 2, 1, 3), [ON_ZONE], [0, 1, 2], [75, 75, 100]),
        (foos(2, 1, 2, 4), [ON_ZONE, ON_HOST], [0, 2], [100, 63]),
        (
            [["foo bar", "foo"], ["foo bar"], [], ["foo", "foo bar", "foo"]],
            [ON_ZONE, (1, "zone", HAS_BAR)], [0, 2], [85, 100],
        ),
        (MIXED, [ON_ZONE, BY_BAR], [0, 1, 2, 3], [60, 20, 100, 60]),
        ([[], ["bar"], ["foo"], ["foo bar"]], [ON_ZONE, BY_BAR], [0, 1, 2, 3], [100, 60, 40, 0]),
        (MIXED, [ON_ZONE, BY_BAR], [0, 1, 2], [50, 25, 100]),
    ],
)  # fmt: skip
def test_spreading_scores_as_scoring_test_go_has_it(on_nodes, constraints, candidates, expected):
    assert spread_scores(on_nodes, constraints, candidates) == expected


def test_with_fewer_domains_than_asked_for_the_emptiest_counts_as_empty():
    """As minDomains of a firm constraint is documented: the global minimum is then 0."""
    cache = Cache([SchedulingNode(f"n{k}", {"pods": 110}, {"zone": f"z{k}"}) for k in range(2)])
    for node in range(2):
        cache.add(SchedulingPod(f"held-{node}", labels={"foo": ""}), node)
    constraint = SpreadConstraint(1, "zone", True, HAS_FOO)
    pod = SchedulingPod("p", labels={"foo": ""}, spread=(constraint,))
    assert feasible(cache, pod).tolist() == [True, True]
    more = replace(pod, spread=(replace(constraint, min_domains=3),))
    assert feasible(cache, more).tolist() == [False, False]
