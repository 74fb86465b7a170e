"""Quota arithmetic on the cases of Kueue's own tests.

Of pkg/cache/resource_test.go, TestAvailable (commit 014d9490), and of pkg/cache/fair_sharing_test.go,
TestDominantResourceShare (commit 476d4e66; release 0.13), whose shares release 0.14 no longer rounds.
"""

import dataclasses
import math

import pytest

from fleetlab.core.errors import PolicyError
from fleetlab.schedulers.kueue.config import Kueue, LocalQueue
from fleetlab.schedulers.kueue.fair import share
from fleetlab.schedulers.kueue.state import reach, trees_of

from .cases import cohort, cq, group

CPU = ("red", "cpu")


def red(amount):
    return group(red={"cpu": amount})


AVAILABLE = {
    # name: objects, usage by ClusterQueue, available, potentially available; in cores
    "base cqs": (
        [cq("cq1", None, red(0)), cq("cq2", None, red(5))],
        {"cq1": 1, "cq2": 2.5}, {"cq1": 0, "cq2": 2.5}, {"cq1": 0, "cq2": 5},
    ),
    "cqs with cohort": (
        [cq("cq1", "c", red(10)), cq("cq2", "c", red((10, None, 9))), cohort("c")],
        {"cq1": 1, "cq2": 0.5}, {"cq1": 28, "cq2": 28.5}, {"cq1": 29, "cq2": 30},
    ),
    "cq borrows from cohort": (
        [cq("cq1", "c", red(10)), cohort("c")], {"cq1": 11}, {"cq1": 9}, {"cq1": 20},
    ),
    "cq oversubscription spills into cohort": (
        [cq("cq1", "c", red(10)), cq("cq2", "c", red((10, 0, 0))), cohort("c")],
        {"cq1": 31}, {"cq1": 0, "cq2": 0}, {"cq1": 20, "cq2": 10},
    ),
    "lending and borrowing limits respected": (
        [cq("cq1", "c", red(10)), cq("cq2", "c", red((10, 2))), cq("cq3", "c", red((10, None, 5))), cohort("c")],
        {"cq1": 20, "cq2": 10, "cq3": 6}, {"cq1": 4, "cq2": 2, "cq3": 4}, {"cq1": 35, "cq2": 12, "cq3": 40},
    ),
    "hierarchical cohort": (
        [cq("cq1", "left", red(10)), cq("cq2", "right", red((10, None, 0))),
         cohort("root"), cohort("left", "root"), cohort("right", "root")],
        {"cq1": 10, "cq2": 5}, {"cq1": 20, "cq2": 25}, {"cq1": 30, "cq2": 40},
    ),
    "hierarchical cohort respects borrowing limit": (
        [cq("left-cq1", "left", red(10)), cq("left-cq2", "left", red((10, 5))), cq("right-cq", "right", red(10)),
         cohort("root"), cohort("left", "root"), cohort("right", "root")],
        {}, {"left-cq1": 35, "left-cq2": 15, "right-cq": 50}, {"left-cq1": 35, "left-cq2": 15, "right-cq": 50},
    ),
    "hierarchical cohort respects lending limit": (
        [cq("left-cq1", "left", red((10, None, 5))), cq("left-cq2", "left", red(10)), cq("right-cq", "right", red(0)),
         cq("root-cq", "root", red(0)), cohort("root"), cohort("left", "root"), cohort("right", "root")],
        {}, {"left-cq1": 20, "left-cq2": 15, "right-cq": 5, "root-cq": 5},
        {"left-cq1": 20, "left-cq2": 15, "right-cq": 5, "root-cq": 5},
    ),
}  # fmt: skip
# The cohorts' own quotas of these cases: in all but the named, each cohort below a root, or the only one, has 10.
OWN = {
    "hierarchical cohort respects borrowing limit": {"left": (10, 5), "right": 10},
    "hierarchical cohort respects lending limit": {"left": (0, None, 5), "right": 0},
    "hierarchical cohort": {"left": 10, "right": 10},
}


def site_of(name):
    own = OWN.get(name, {"c": 10})
    objects = [
        dataclasses.replace(one, groups=(red(own[one.name]),)) if one.name in own else one for one in AVAILABLE[name][0]
    ]
    return trees_of(Kueue.of(*objects))


@pytest.mark.parametrize("name", AVAILABLE)
def test_what_is_available_is_what_kueue_says(name):
    _, usage, available, potential = AVAILABLE[name]
    nodes = site_of(name)
    assert {each: nodes[each].available(CPU) / 1000 for each in nodes} == potential
    for each, amount in usage.items():
        nodes[each].add(CPU, round(amount * 1000))
    assert {each: max(0, nodes[each].available(CPU)) / 1000 for each in nodes} == available
    assert {each: nodes[each].potential(CPU) / 1000 for each in nodes} == potential


@pytest.mark.parametrize("name", AVAILABLE)
def test_usage_that_is_given_back_leaves_nothing(name):
    nodes = site_of(name)
    for each, amount in AVAILABLE[name][1].items():
        nodes[each].add(CPU, round(amount * 1000))
    for each, amount in AVAILABLE[name][1].items():
        nodes[each].remove(CPU, round(amount * 1000))
    assert not any(above.usage[CPU] for node in nodes.values() for above in (node, *node.ancestors()))


G = "example.com/gpu"


def both(cpu, gpu):
    return group(default={"cpu": cpu, G: gpu})


SHARES = {
    # name: objects, usage of cq by flavor and resource, shares by name
    "no cohort": ([cq("cq", None, both(2000, 5))], {("default", "cpu"): 1, ("default", G): 2}, {"cq": 0}),
    "usage below nominal": (
        [cq("cq", "c", both(2, 5)), cq("lending", "c", both(8, 5))],
        {("default", "cpu"): 1, ("default", G): 2}, {"cq": 0, "lending": 0, "c": 0},
    ),
    "usage above nominal": (
        [cq("cq", "c", both(2, 5)), cq("lending", "c", both(8, 5))],
        {("default", "cpu"): 3, ("default", G): 7}, {"cq": 200, "lending": 0, "c": 0},
    ),
    "one resource above nominal": (
        [cq("cq", "c", both(2, 5)), cq("lending", "c", both(8, 5))],
        {("default", "cpu"): 3, ("default", G): 3}, {"cq": 100, "lending": 0, "c": 0},
    ),
    "usage with workload above nominal": (
        [cq("cq", "c", both(2, 5)), cq("lending", "c", both(8, 5))],
        {("default", "cpu"): 1 + 4, ("default", G): 2 + 4}, {"cq": 300, "lending": 0, "c": 0},
    ),
    "A resource with zero lendable": (
        [cq("cq", "c", both(2, (2, None, 0))), cq("lending", "c", both(8, (64, None, 0)))],
        {("default", "cpu"): 1 + 4, ("default", G): 1 + 4}, {"cq": 300, "lending": 0, "c": 0},
    ),
    "multiple flavors": (
        [cq("cq", "c", group(on__demand={"cpu": 20}, spot={"cpu": 80})), cq("lending", "c", cpu=100)],
        {("on-demand", "cpu"): 15 + 10, ("spot", "cpu"): 5}, {"cq": 25, "lending": 0, "c": 0},
    ),
    "above nominal with integer weight": (
        [cq("cq", "c", group(default={G: 5}), weight=2), cq("lending", "c", group(default={G: 5}))],
        {("default", G): 7}, {"cq": 100, "lending": 0, "c": 0},
    ),
    "above nominal with decimal weight": (
        [cq("cq", "c", group(default={G: 5}), weight=0.5), cq("lending", "c", group(default={G: 5}))],
        {("default", G): 7}, {"cq": 400, "lending": 0, "c": 0},
    ),
    "above nominal with zero weight": (
        [cq("cq", "c", group(default={G: 5}), weight=0), cq("lending", "c", group(default={G: 10}))],
        {("default", G): 7}, {"cq": math.inf, "lending": 0, "c": 0},
    ),
    "cohort has resource share": (
        [cq("cq", "child", cpu=5), cohort("child", "root", weight=2), cohort("root", cpu=45)],
        {("default", "cpu"): 10}, {"cq": 100, "child": 50, "root": 0},
    ),
    "resource share defined for resources only available at the root cohort": (
        [cq("cq", "child", cpu=0), cohort("child", "root", weight=2), cohort("root", cpu=50)],
        {("default", "cpu"): 10}, {"cq": 200, "child": 100, "root": 0},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SHARES)
def test_dominant_resource_shares_are_those_of_kueue(name):
    objects, usage, wanted = SHARES[name]
    nodes = trees_of(Kueue.of(*objects))
    for at, amount in usage.items():
        nodes["cq"].add(at, amount * 1000)
    everyone = {each.name: each for node in nodes.values() for each in (node, *node.ancestors())}
    assert {each: share(node).rounded for each, node in everyone.items()} == wanted


def test_the_dominant_resource_is_the_first_by_name_of_equal_ones():
    nodes = trees_of(Kueue.of(cq("cq", "c", both(1, 1)), cq("other", "c", both(1, 1))))
    nodes["cq"].add(("default", "cpu"), 2000)
    nodes["cq"].add(("default", G), 2000)
    assert share(nodes["cq"]).resource == "cpu"


@pytest.mark.parametrize(("amount", "height"), [(1, 0), (2, 1), (3, 2), (9, 2)])
def test_quota_is_borrowed_from_as_near_as_possible(amount, height):
    nodes = trees_of(Kueue.of(cq("q", "c", cpu=1), cohort("c", "r", cpu=1), cohort("r", cpu=1)))
    assert reach(nodes["q"], ("default", "cpu"), amount * 1000)[0] == height


def test_cohorts_in_a_circle_are_refused():
    with pytest.raises(PolicyError, match="circle"):
        Kueue.of(cohort("a", "b"), cohort("b", "a"))


def test_a_queue_that_leads_nowhere_is_refused():
    with pytest.raises(PolicyError, match="no such ClusterQueue: team-b"):
        Kueue.of(cq("team-a"), LocalQueue("default", "main", "team-b"))
