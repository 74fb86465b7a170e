"""InterPodAffinity: cases of Kubernetes' own unit tests, release 1.20, framework/plugins/interpodaffinity.

Scores are those of scoring_test.go, TestPreferredAffinity and TestPreferredAffinityWithHardPodAffinitySymmetricWeight;
filters those of filtering_test.go, TestRequiredAffinitySingleNode and TestRequiredAffinityMultipleNodes.
"""

from dataclasses import replace

import numpy as np
import pytest

from fleetlab.schedulers.kubernetes.config import (
    KubeScheduler,
    PodTerm,
    Requirement,
    SchedulingNode,
    SchedulingPod,
    Selector,
)
from fleetlab.schedulers.kubernetes.filters import affinity_allows, affinity_refusals, pod_affinity
from fleetlab.schedulers.kubernetes.loop import Site, play
from fleetlab.schedulers.kubernetes.reasons import fit_error
from fleetlab.schedulers.kubernetes.state import Cache

CHINA, INDIA, AZ1, AZ2 = {"region": "China"}, {"region": "India"}, {"az": "az1"}, {"az": "az2"}
CHINA_AZ1 = CHINA | AZ1
S1, S2 = {"security": "S1"}, {"security": "S2"}
SCAN = {"service": "securityscan"}


def term(key, *conditions, namespaces=("default",)):
    return PodTerm(key, Selector(tuple(Requirement(*c) for c in conditions)), namespaces)


def is_in(key, *values):
    return (key, "In", values)


WITH_S1 = {"preferred_affinity": ((5, term("region", is_in("security", "S1"))),)}
WITH_S2 = {"preferred_affinity": ((6, term("region", is_in("security", "S2"))),)}
AWAY_S1 = {"preferred_affinity": ((-5, term("az", is_in("security", "S1"))),)}
AWAY_S2 = {"preferred_affinity": ((-5, term("az", is_in("security", "S2"))),)}
BOTH = {"preferred_affinity": ((8, term("region", is_in("security", "S1"))), (-5, term("az", is_in("security", "S2"))))}
OPERATORS = {
    "preferred_affinity": (
        (8, term("region", ("security", "NotIn", ("S1",)), is_in("security", "S2"))),
        (2, term("region", ("security", "Exists"), ("wrongkey", "DoesNotExist"))),
    )
}
HARD = {
    "affinity": (
        term("region", is_in("security", "S1", "value2")),
        term("region", ("security", "Exists"), ("wrongkey", "DoesNotExist")),
    )
}


def cache_of(nodes, held):
    cache = Cache([SchedulingNode(f"machine{k + 1}", {"pods": 110}, labels) for k, labels in enumerate(nodes)])
    for k, (node, labels, words) in enumerate(held):
        cache.add(SchedulingPod(f"held-{k}", labels=labels, **words), node)
    return cache


def scores(nodes, held, labels, words, profile=None):
    cache = cache_of(nodes, held)
    pod = SchedulingPod("incoming", labels=labels, **words)
    return pod_affinity(cache, pod, np.arange(len(nodes)), profile or KubeScheduler()).tolist()


THREE = [CHINA, INDIA, AZ1]
FIVE = [CHINA, INDIA, CHINA, CHINA, INDIA]
SAME = [CHINA_AZ1, INDIA, CHINA, CHINA, INDIA]


@pytest.mark.parametrize(
    ("nodes", "held", "labels", "words", "expected"),
    [
        (THREE, [], S1, {}, [0, 0, 0]),  # all machines are same priority as Affinity is nil
        (THREE, [(0, S1, {}), (1, S2, {}), (2, S1, {})], S1, WITH_S1, [100, 0, 0]),  # matches topology key and pods
        ([CHINA, CHINA_AZ1, INDIA], [(0, S1, {})], {}, WITH_S1, [100, 100, 0]),  # same topology key and label value
        (FIVE, [(k, S2, {}) for k in (0, 0, 1, 2, 3, 4)], S1, WITH_S2, [100, 50, 100, 100, 50]),  # one region has more
        (THREE, [(0, S1, {}), (1, S2, {}), (2, S1, {})], S1, OPERATORS, [20, 100, 0]),  # different label operators
        (THREE, [(0, S1, WITH_S1), (1, S2, WITH_S2)], S2, {}, [0, 100, 0]),  # affinity symmetry, preferred
        (THREE, [(0, S1, HARD), (1, S2, HARD)], S1, {}, [100, 100, 0]),  # affinity symmetry, required
        ([AZ1, CHINA], [(0, S1, {}), (1, S2, {})], S1, AWAY_S1, [0, 100]),  # does not match existing pods
        ([AZ1, CHINA], [(0, S1, {}), (1, S1, {})], S1, AWAY_S1, [0, 100]),  # does not match topology key
        ([AZ1, INDIA], [(0, S1, {}), (0, S1, {}), (1, S2, {})], S1, AWAY_S1, [0, 100]),  # more matching pods
        ([AZ1, AZ2], [(0, S1, AWAY_S2), (1, S2, AWAY_S1)], S2, {}, [0, 100]),  # anti affinity symmetry
        ([CHINA, AZ1], [(0, S1, {}), (1, S1, {})], S1, BOTH, [100, 0]),  # affinity and anti affinity
        (SAME, [(k, S1, {}) for k in (0, 0, 1, 2, 2, 3, 4)], S1, BOTH, [100, 40, 100, 100, 40]),  # same labels
        ([CHINA, AZ1, INDIA, AZ2], [(0, S1, {}), (1, S2, {}), (2, {}, BOTH), (3, {}, AWAY_S1)], S1, BOTH,
         [100, 0, 100, 0]),  # affinity, anti affinity and symmetry
        ([CHINA, CHINA], [(0, S1, {}), (1, {}, BOTH)], S1, {}, [100, 100]),  # partial nodes without pods with affinity
    ],
)  # fmt: skip
def test_it_scores_as_scoring_test_go_has_it(nodes, held, labels, words, expected):
    assert scores(nodes, held, labels, words) == expected


@pytest.mark.parametrize(("weight", "expected"), [(1, [100, 100, 0]), (0, [0, 0, 0])])
def test_required_terms_of_others_count_by_the_weight_that_is_configured(weight, expected):
    hard = {"affinity": (term("region", is_in("service", "S1")),)}
    held = [(0, {}, hard), (1, {}, hard)]
    assert scores(THREE, held, {"service": "S1"}, {}, KubeScheduler(hard_affinity=weight)) == expected


SINGLE = {"region": "r1", "zone": "z11"}
NEAR = "node(s) didn't match pod affinity rules"
FAR = "node(s) didn't match pod anti-affinity rules"
THEIRS = "node(s) didn't satisfy existing pods anti-affinity rules"


def with_terms(affinity=(), anti=()):
    return {"affinity": affinity, "anti_affinity": anti}


SCANNED = term("region", is_in("service", "securityscan", "value2"))
NO_VIRUS = term("node", is_in("service", "antivirusscan", "value2"))
IN_ZONE = term("zone", is_in("service", "securityscan", "value2"))


@pytest.mark.parametrize(
    ("labels", "words", "held", "reason"),
    [
        ({}, {}, [], ""),  # no required pod affinity, no existing pods
        (S1, with_terms((SCANNED,)), [(SCAN, {})], ""),  # In operator that matches the existing pod
        (S1, with_terms((term("region", ("service", "NotIn", ("securityscan3", "value3"))),)), [(SCAN, {})], ""),
        (S1, with_terms((replace(SCANNED, namespaces=("DiffNameSpace",)),)), [(SCAN, {})], NEAR),  # diff Namespace
        (SCAN, with_terms((term("", is_in("service", "antivirusscan", "value2")),)), [(SCAN, {})], NEAR),
        (S1, with_terms((term("region", ("service", "Exists"), ("wrongkey", "DoesNotExist")),
                         term("region", is_in("service", "securityscan"), ("service", "NotIn", ("WrongValue",))))),
         [(SCAN, {})], ""),  # different label Operators in multiple terms
        (S1, with_terms((term("region", ("service", "Exists"), ("wrongkey", "DoesNotExist")),
                         term("region", is_in("service", "securityscan2"), ("service", "NotIn", ("WrongValue",))))),
         [(SCAN, {})], NEAR),  # requirements are ANDed
        (S1, with_terms((SCANNED,), (NO_VIRUS,)), [(SCAN, {})], ""),  # PodAffinity and PodAntiAffinity
        (S1, with_terms((SCANNED,), (NO_VIRUS,)), [(SCAN, with_terms((), (NO_VIRUS,)))], ""),  # and symmetry
        (S1, with_terms((SCANNED,), (IN_ZONE,)), [(SCAN, {})], FAR),  # doesn't satisfy the PodAntiAffinity
        (SCAN, with_terms((SCANNED,), (NO_VIRUS,)), [(SCAN, with_terms((), (IN_ZONE,)))], THEIRS),
        (SCAN, with_terms((term("region", ("service", "NotIn", ("securityscan", "value2"))),)), [], NEAR),
        (SCAN, {}, [(SCAN, with_terms((), (IN_ZONE,)))], THEIRS),  # existing pod is respected
        (SCAN, {}, [(SCAN, with_terms((), (term("zone", ("service", "NotIn", ("securityscan", "value2"))),)))], ""),
        (SCAN, with_terms((), (term("region", ("service", "Exists")), term("region", ("security", "Exists")))),
         [(S1, with_terms((), (term("zone", ("security", "Exists")),)))], FAR),
        (SCAN, with_terms((), (term("zone", ("service", "Exists")), term("zone", ("security", "Exists")))),
         [(S1, with_terms((), (term("zone", ("security", "Exists")),)))], FAR),  # symmetry check a1
        (S1, with_terms((), (term("zone", ("security", "Exists")),)),
         [(SCAN, with_terms((), (term("zone", ("service", "Exists")), term("zone", ("security", "Exists")))))],
         THEIRS),  # symmetry check a2
    ],
)  # fmt: skip
def test_it_filters_one_node_as_filtering_test_go_has_it(labels, words, held, reason):
    cache = cache_of([SINGLE], [(0, *one) for one in held])
    refusals = affinity_refusals(cache, SchedulingPod("incoming", labels=labels, **words))
    assert next((why for why, nodes in refusals if nodes[0]), "") == reason


@pytest.mark.parametrize(
    ("nodes", "labels", "words", "held", "expected"),
    [
        # all nodes with the same topology key and value as one that has a matching pod
        ([CHINA, CHINA_AZ1, INDIA], {}, with_terms((term("region", is_in("foo", "bar")),)), [(0, {"foo": "bar"}, {})],
         [True, True, False]),
        # the first pod of the collection may go anywhere
        ([{"zone": "az1", "hostname": "h1"}, {"zone": "az2", "hostname": "h2"}], {"foo": "bar", "service": "x"},
         with_terms((term("zone", is_in("foo", "bar")), term("zone", is_in("service", "x")))), [], [True, True]),
        # but only on nodes labelled with the requested topology keys
        ([{"zoneLabel": "az1"}, {"zoneLabel": "az2"}], {"foo": "bar"}, with_terms((term("zone", is_in("foo", "bar")),)),
         [], [False, False]),
        # nodeA and nodeB have the same topologyKey and label value
        ([CHINA, CHINA_AZ1], {"foo": "abc"}, with_terms((), (term("region", is_in("foo", "abc")),)),
         [(0, {"foo": "abc"}, {})], [False, False]),
        # nodeC has the pod in a different namespace
        ([CHINA, CHINA_AZ1, INDIA], {"foo": "123"}, with_terms((), (term("region", is_in("foo", "bar")),)),
         [(0, {"foo": "bar"}, {}), (2, {"foo": "bar"}, {"namespace": "NS2"})], [False, False, True]),
        # all terms must be matched by the same pod
        ([{"region": "r1", "zone": "z1", "hostname": "a"}, {"region": "r1", "zone": "z2", "hostname": "b"}], {},
         with_terms((term("region", ("foo", "Exists")), term("zone", ("bar", "Exists")))),
         [(0, {"foo": ""}, {}), (1, {"bar": ""}, {})], [False, False]),
    ],
)  # fmt: skip
def test_it_filters_several_nodes_as_filtering_test_go_has_it(nodes, labels, words, held, expected):
    pod = SchedulingPod("incoming", labels=labels, **words)
    assert affinity_allows(cache_of(nodes, held), pod).tolist() == expected


def test_the_reasons_are_counted_as_kube_scheduler_writes_them():
    cache = cache_of([SINGLE, SINGLE], [(0, SCAN, with_terms((), (IN_ZONE,)))])
    assert fit_error(cache, SchedulingPod("incoming", labels=SCAN)) == (
        "0/2 nodes are available: 2 node(s) didn't match pod affinity/anti-affinity, "
        "2 node(s) didn't satisfy existing pods anti-affinity rules."
    )


def test_a_pod_that_waits_for_company_is_tried_when_it_comes():
    nodes = [SchedulingNode("a", {"cpu": 4000, "pods": 110}, {"zone": "z"})]
    friend = SchedulingPod("friend", labels={"app": "db"})
    shy = SchedulingPod("shy", affinity=(term("zone", is_in("app", "db")),))
    placed = play(Site(nodes), [shy, friend], [0.0, 7.5], [5.0, 5.0], seed=1)
    assert placed.start == [7.5, 7.5]


def test_pods_with_other_labels_are_not_held_back_by_those_that_must_stay_apart():
    nodes = [SchedulingNode("a", {"cpu": 4000, "pods": 110}, {"zone": "z"})]
    alone = SchedulingPod("alone", labels={"app": "db"}, anti_affinity=(term("zone", is_in("app", "db")),))
    pods = [alone, SchedulingPod("same", labels={"app": "db"}), SchedulingPod("other", labels={"app": "web"})]
    placed = play(Site(nodes), pods, [0.0, 1.0, 2.0], [20.0, 5.0, 5.0], seed=1)
    assert placed.start[2] == 2.0
    assert placed.start[1] >= 20.0
