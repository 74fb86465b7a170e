"""Topology-aware scheduling on the cases of Kueue's own test.

Of pkg/cache/tas_cache_test.go, TestFindTopologyAssignment (commit 02eb5698; release 0.12), with its nodes, requests and
results; its profiles are given by name.
"""

import pytest

from fleetlab.schedulers.kubernetes.config import Requirement, SchedulingNode, Selector, Taint, Toleration
from fleetlab.schedulers.kueue.config import ResourceFlavor, Topology
from fleetlab.schedulers.kueue.topology import BEST_FIT, LEAST_FREE, MIXED, Forest, Forests, Seats, TopologyNeed
from fleetlab.schedulers.kueue.workload import PodSet, TopologyRequest

BLOCK, RACK, HOST = "cloud.com/topology-block", "cloud.com/topology-rack", "kubernetes.io/hostname"
TWO, THREE = (BLOCK, RACK), (BLOCK, RACK, HOST)
GIB = 2**30


def node(path, cpu, memory=1, pods=10, taints=(), cordoned=False, **labels):
    """A node by its block, rack and name."""
    names = dict(zip(THREE, path.split("-"), strict=True)) if path.count("-") == 2 else {HOST: path}
    has = {"cpu": round(cpu * 1000), "memory": memory * GIB, "pods": pods}
    return SchedulingNode(path, has, {**names, **labels}, tuple(taints), cordoned)


DEFAULT = [
    *(node(path, 1) for path in ("b1-r1-x1", "b1-r2-x2", "b1-r2-x3", "b1-r2-x4", "b2-r1-x5")),
    node("b2-r2-x6", 2, 4, 40),
]
SCATTERED = [node("b1-r1-x1", 4), node("b1-r1-x2", 1), node("b1-r1-x3", 1), node("b2-r1-x4", 2), node("b2-r1-x5", 1)]
BINARY = [node(f"b{1 + k // 4}-r{1 + k // 2 % 2}-x{k + 1}", 1) for k in range(8)]
RACKS = [
    node("b1-r1-x1", 2), node("b1-r2-x2", 2, pods=20), *(node(f"b1-r3-x{k}", 1) for k in (3, 4, 5, 6)),
]  # fmt: skip
ONE_RACK = [node("b1-r1-x1", 2), node("b1-r1-x2", 1), node("b1-r1-x3", 1)]
REQUIRED = {name: TopologyRequest(required=name) for name in THREE}
PREFERRED = {name: TopologyRequest(preferred=name) for name in THREE}
ANYWHERE = TopologyRequest(unconstrained=True)
CASES = {
    # name: nodes, levels, request, profile, pods, of each what, where they go or why not
    "minimize the number of used racks before optimizing the number of nodes; BestFit": (
        RACKS, THREE, REQUIRED[BLOCK], BEST_FIT, 4, {"x3": 1, "x4": 1, "x5": 1, "x6": 1},
    ),
    "minimize resource fragmentation; LeastFreeCapacityFit": (
        ONE_RACK, THREE, REQUIRED[BLOCK], LEAST_FREE, 2, {"x2": 1, "x3": 1},
    ),
    "choose the node that can accommodate all Pods": (ONE_RACK, THREE, REQUIRED[BLOCK], BEST_FIT, 2, {"x1": 2}),
    "unconstrained; 2 pods fit into hosts scattered across the whole datacenter even they could fit into single "
    "rack; LeastFreeCapacity": (SCATTERED, THREE, ANYWHERE, LEAST_FREE, 2, {"x4": 2}),  # since 0.13; 0.12: x2 and x3
    "no annotation; implied default to unconstrained; 6 pods fit into hosts scattered across the whole datacenter "
    "even they could fit into single rack; BestFit": (SCATTERED, THREE, None, BEST_FIT, 6, {"x1": 4, "x4": 2}),
    "unconstrained; 6 pods fit into hosts scattered across the whole datacenter even they could fit into single "
    "rack; BestFit": (SCATTERED, THREE, ANYWHERE, BEST_FIT, 6, {"x1": 4, "x4": 2}),
    "unconstrained; a single pod fits into each host; BestFit": (DEFAULT, THREE, ANYWHERE, BEST_FIT, 1, {"x1": 1}),
    "unconstrained; a single pod fits into each host; LeastFreeCapacity; TASProfileLeastFreeCapacity": (
        DEFAULT, THREE, ANYWHERE, LEAST_FREE, 1, {"x1": 1},
    ),
    "unconstrained; a single pod fits into each host; LeastFreeCapacity; TASProfileMixed": (
        DEFAULT, THREE, ANYWHERE, MIXED, 1, {"x1": 1},
    ),
    "block required; 4 pods fit into one host each; BestFit": (
        BINARY, THREE, REQUIRED[BLOCK], BEST_FIT, 4, {"x1": 1, "x2": 1, "x3": 1, "x4": 1},
    ),
    "host required; single Pod fits in the host; LeastFreeCapacityFit": (
        DEFAULT, THREE, REQUIRED[HOST], LEAST_FREE, 1, {"x1": 1},
    ),
    "host required; single Pod fits in the host; BestFit": (DEFAULT, THREE, REQUIRED[HOST], BEST_FIT, 1, {"x1": 1}),
    "host required; single Pod fits in the host; BestFit; TASProfileMixed": (
        DEFAULT, THREE, REQUIRED[HOST], MIXED, 1, {"x1": 1},
    ),
    "rack required; single Pod fits in a rack; BestFit": (DEFAULT, TWO, REQUIRED[RACK], BEST_FIT, 1, {"b1-r1": 1}),
    "rack required; single Pod fits in a rack; LeastFreeCapacityFit": (
        DEFAULT, THREE, REQUIRED[RACK], LEAST_FREE, 1, {"x1": 1},
    ),
    "rack required; multiple Pods fit in a rack; BestFit": (DEFAULT, TWO, REQUIRED[RACK], BEST_FIT, 3, {"b1-r2": 3}),
    "rack required; multiple Pods fit in some racks; BestFit": (
        DEFAULT, TWO, REQUIRED[RACK], BEST_FIT, 2, {"b2-r2": 2},
    ),
    "rack required; too many pods to fit in any rack; BestFit": (
        DEFAULT, TWO, REQUIRED[RACK], BEST_FIT, 4, 'topology "default" allows to fit only 3 out of 4 pod(s)',
    ),
    "block required; single Pod fits in a block; LeastFreeCapacityFit": (
        DEFAULT, THREE, REQUIRED[BLOCK], LEAST_FREE, 1, {"x5": 1},
    ),
    "block required; two Pods fits in a block; LeastFreeCapacityFit": (
        DEFAULT, THREE, REQUIRED[BLOCK], LEAST_FREE, 2, {"x5": 1, "x6": 1},
    ),
    "block required; single Pod fits in a block and a single rack; BestFit": (
        DEFAULT, TWO, REQUIRED[BLOCK], BEST_FIT, 1, {"b2-r1": 1},
    ),
    "block required; Pods fit in a block spread across two racks; BestFit": (
        DEFAULT, TWO, REQUIRED[BLOCK], BEST_FIT, 4, {"b1-r2": 3, "b1-r1": 1},
    ),
    "block required; too many Pods to fit requested; BestFit": (
        DEFAULT, TWO, REQUIRED[BLOCK], BEST_FIT, 5, 'topology "default" allows to fit only 4 out of 5 pod(s)',
    ),
    "rack preferred; but only block can accommodate the workload; BestFit": (
        DEFAULT, TWO, PREFERRED[RACK], BEST_FIT, 4, {"b1-r2": 3, "b1-r1": 1},
    ),
    "rack preferred; but only multiple blocks can accommodate the workload; BestFit": (
        DEFAULT, TWO, PREFERRED[RACK], BEST_FIT, 6, {"b1-r2": 3, "b2-r2": 2, "b1-r1": 1},
    ),
    "block preferred; but only multiple blocks can accommodate the workload; BestFit": (
        DEFAULT, TWO, PREFERRED[BLOCK], BEST_FIT, 6, {"b1-r2": 3, "b2-r2": 2, "b1-r1": 1},
    ),
    "block preferred; but the workload cannot be accommodate in entire topology; BestFit": (
        DEFAULT, TWO, PREFERRED[BLOCK], BEST_FIT, 10, 'topology "default" allows to fit only 7 out of 10 pod(s)',
    ),
}  # fmt: skip


def place(nodes, levels, profile, count, pods, flavor=None):
    flavor = flavor or ResourceFlavor("default")
    forest = Forest.of(Topology("default", levels), flavor, nodes)
    found = Forests({"default": forest}, profile).place([TopologyNeed("default", pods, count)])
    if found.placement is None:
        return found.reason
    return {
        (seats.domain[-1] if levels[-1] == HOST else "-".join(seats.domain)): seats.count for seats in found.placement
    }


@pytest.mark.parametrize("name", CASES)
def test_pods_go_where_kueue_puts_them(name):
    nodes, levels, request, profile, count, wanted = CASES[name]
    pods = PodSet(requests={"cpu": 1000}, topology=request)
    assert place(nodes, levels, profile, count, pods) == wanted


def test_pods_that_fit_no_block_are_refused():
    """Case `block required; single Pod which cannot be split; BestFit`."""
    pods = PodSet(requests={"cpu": 4000}, topology=REQUIRED[BLOCK])
    assert place(DEFAULT, TWO, BEST_FIT, 1, pods) == 'topology "default" doesn\'t allow to fit any of 1 pod(s)'


def test_memory_counts_too():
    """Case `rack required; single Pod requiring memory; BestFit`."""
    pods = PodSet(requests={"memory": 1024}, topology=REQUIRED[RACK])
    assert place(DEFAULT, TWO, BEST_FIT, 4, pods) == {"b1-r1": 4}


def test_pods_that_fit_two_blocks_leave_the_larger_one_whole():
    """Case `block preferred; Pods fit in 2 blocks; BestFit`."""
    nodes = [
        SchedulingNode(name, {"cpu": cpu, "pods": 40}, {BLOCK: name})
        for name, cpu in (("b1", 2000), ("b2", 1000), ("b3", 4000))
    ]
    pods = PodSet(requests={"cpu": 1000}, topology=PREFERRED[BLOCK])
    assert place(nodes, (BLOCK,), BEST_FIT, 5, pods) == {"b2": 1, "b3": 4}


NO_DOMAIN = f"no topology domains at level: {HOST}"
NO_ROOM = 'topology "default" doesn\'t allow to fit any of 1 pod(s)'
TAINT = Taint("example.com/gpu", "present", "NoSchedule")
ZONE = ResourceFlavor("default", {"zone": "zone-a"})
LABELLED = Selector((Requirement("custom-label-1", "In", ("custom-value-1",)),))


@pytest.mark.parametrize(
    ("one", "words", "wanted"),
    [
        pytest.param(
            node("x1", 1, zone="zone-b"), {}, NO_DOMAIN, id="only nodes with matching labels; no matching node"
        ),
        pytest.param(node("x1", 1, zone="zone-a"), {}, {"x1": 1}, id="only nodes with matching labels; matching node"),
        pytest.param(node("x1", 1, cordoned=True, zone="zone-a"), {}, NO_DOMAIN, id="node is unschedulable"),
        pytest.param(
            node("x1", 1, taints=[TAINT], zone="zone-a"), {}, NO_ROOM, id="skip node which has untolerated taint"
        ),
        pytest.param(
            node("x1", 1, taints=[TAINT], zone="zone-a"),
            {"tolerations": (Toleration("example.com/gpu", "present", ""),)},
            {"x1": 1},
            id="allow to schedule on node with tolerated taint",
        ),
        pytest.param(node("x1", 1, zone="zone-a"), {"selector": LABELLED}, NO_ROOM, id="node selector, missing label"),
        pytest.param(
            node("x1", 1, zone="zone-a", **{"custom-label-1": "value-1"}),
            {"selector": LABELLED},
            NO_ROOM,
            id="node selector, value doesn't match",
        ),
    ],
)
def test_nodes_are_left_out_where_kueue_leaves_them_out(one, words, wanted):
    pods = PodSet(requests={"cpu": 1000}, topology=REQUIRED[HOST], **words)
    assert place([one], (HOST,), BEST_FIT, 1, pods, ZONE) == wanted


def test_required_node_affinity_is_respected():
    """As the changelog of release 0.15 says of topology-aware scheduling."""
    nodes = [node("x1", 1, disk="hdd"), node("x2", 1, disk="ssd")]
    wants = (Selector((Requirement("disk", "In", ("ssd",)),)),)
    pods = PodSet(requests={"cpu": 1000}, topology=REQUIRED[HOST], required=wants)
    assert place(nodes, (HOST,), BEST_FIT, 1, pods) == {"x2": 1}


def test_a_node_without_the_label_of_a_level_is_in_no_domain():
    """Case `only nodes with matching levels are considered; no host label on node; BestFit`."""
    bare = SchedulingNode("b1-r1-x1", {"cpu": 1000, "pods": 10}, {BLOCK: "b1", RACK: "r1"})
    pods = PodSet(requests={"cpu": 1000}, topology=REQUIRED[RACK])
    assert place([bare], THREE, BEST_FIT, 1, pods) == f"no topology domains at level: {RACK}"


def test_pods_that_run_take_room_until_they_are_gone():
    forests = Forests({"default": Forest.of(Topology("default", (HOST,)), ResourceFlavor("default"), [node("x1", 1)])})
    pods = PodSet(requests={"cpu": 600}, topology=REQUIRED[HOST])
    running = (Seats("default", ("x1",), {"cpu": 600}, 1),)
    forests.use(running)
    assert forests.place([TopologyNeed("default", pods, 1)]).placement is None
    forests.release(running)
    assert forests.place([TopologyNeed("default", pods, 1)]).placement == running


def test_slices_each_lie_within_one_rack():
    """Six pods in slices of three: two racks of three each, though a block has seven places."""
    nodes = [node(f"b1-r{rack}-x{rack}{k}", 1) for rack, size in ((1, 3), (2, 3), (3, 1)) for k in range(size)]
    pods = PodSet(requests={"cpu": 1000}, topology=TopologyRequest(required=BLOCK, slice_required=RACK, slice_size=3))
    found = place(nodes, THREE, BEST_FIT, 6, pods)
    assert sorted(found) == ["x10", "x11", "x12", "x20", "x21", "x22"]
