"""Topologies in a scenario: levels are labels of nodes, requests are annotations of pods."""

import json
from dataclasses import replace

import polars as pl
import pytest

import fleetlab
from fleetlab.core import Cluster, Scenario, Workload
from fleetlab.schedulers.kubernetes.config import SchedulingNode
from fleetlab.schedulers.kueue.config import Kueue, ResourceFlavor, ResourceGroup, ResourceQuota, Topology
from fleetlab.schedulers.kueue.loop import KueueSite, play
from fleetlab.schedulers.kueue.workload import KueueWorkload, PodSet, TopologyRequest
from fleetlab.sim.simulate import simulate

from .cases import GPU, cq
from .test_kueue_scenario import gpus

RACK, HOST = "example.com/rack", "kubernetes.io/hostname"
REQUIRED, PREFERRED = "kueue.x-k8s.io/podset-required-topology", "kueue.x-k8s.io/podset-preferred-topology"
QUEUES = f"""apiVersion: kueue.x-k8s.io/v1beta2
kind: Topology
metadata: {{name: racks}}
spec: {{levels: [{{nodeLabel: {RACK}}}, {{nodeLabel: {HOST}}}]}}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {{name: h100}}
spec: {{topologyName: racks}}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {{name: all}}
spec:
  resourceGroups:
  - coveredResources: [{GPU}]
    flavors: [{{name: h100, resources: [{{name: {GPU}, nominalQuota: 32}}]}}]
"""


def node(name):
    has = {"cpu": "64", "memory": "512Gi", GPU: "8", "pods": "110"}
    labels = {HOST: name, RACK: name[0]}
    return {"kind": "Node", "metadata": {"name": name, "labels": labels}, "status": {"allocatable": has}}


def pod(name, second, runtime, group=None, **annotations):
    """A pod of a whole node that was submitted at a second."""
    labels = {"kueue.x-k8s.io/pod-group-name": group} if group else {}

    def time(at):
        return f"2026-05-01T10:{at // 60:02d}:{at % 60:02d}Z"

    return {
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "cv", "uid": name, "creationTimestamp": time(second),
                     "labels": labels, "annotations": annotations},
        "spec": {"nodeName": "a1", "containers": [{"resources": {"requests": {"cpu": "1", GPU: "8"}}}]},
        "status": {"phase": "Succeeded", "startTime": time(second), "containerStatuses": [
            {"state": {"terminated": {"finishedAt": time(second + runtime)}}}]},
    }  # fmt: skip


@pytest.fixture
def played(tmp_path):
    """The schedule of a job of one node, and a second after it of a gang of two, by nodes and annotations."""

    def play(nodes, **annotations):
        gang = [pod(f"gang-{k}", 1, 10, "gang", **annotations) for k in range(2)]
        items = [*map(node, nodes), pod("one", 0, 100), *gang]
        (tmp_path / "pods.json").write_text(json.dumps({"kind": "List", "items": items}))
        (tmp_path / "queues.yaml").write_text(QUEUES)
        trace = fleetlab.read(tmp_path / "pods.json", "kubernetes")
        saved = trace.save(tmp_path / "trace")
        scenario = Scenario.of(str(saved), scheduler=tmp_path / "queues.yaml", warm_up="none")
        return simulate(scenario, min_coverage=0)

    return play


def gang_nodes(result, names):
    first = result.world.first
    return {names[k] for k in result.played.where[first[1] : first[2]]}


def test_a_gang_that_requires_one_rack_waits_for_it_though_two_nodes_are_free(played):
    assert played(["a1", "a2", "b1"], **{REQUIRED: RACK}).jobs["start"].to_list() == [0.0, 100.0]


def test_a_gang_that_prefers_one_rack_starts_at_once_on_two(played):
    assert played(["a1", "a2", "b1"], **{PREFERRED: RACK}).jobs["start"].to_list() == [0.0, 1.0]


def test_a_gang_that_prefers_one_rack_gets_it_where_there_is_one(played):
    names = ["a1", "a2", "b1", "b2"]
    assert gang_nodes(played(names, **{PREFERRED: RACK}), names) == {"b1", "b2"}


def test_a_gang_that_asks_for_nothing_fills_the_first_free_nodes(played):
    """Unconstrained, as all pods are of a ClusterQueue whose flavors all have a topology: the least room first."""
    names = ["a1", "a2", "b1", "b2"]
    assert gang_nodes(played(names), names) == {"a2", "b1"}


def test_a_gang_that_fits_into_no_rack_is_left_out_and_told_so(played):
    result = played(["a1", "b1", "c1"], **{REQUIRED: RACK})
    assert "as close together as it requires" in result.refused["reason"].to_list()[0]


@pytest.mark.parametrize("level", ["example.com/block", HOST])
def test_a_gang_is_left_out_that_requires_a_level_that_is_not_there_or_holds_less(played, level):
    assert played(["a1", "a2"], **{REQUIRED: level}).refused.height == 1


# -- by features of the cluster ----------------------------------------------------------------------------------------


def run(flavors, features, rows=((0.0, 10.0, 8000, "q"), (1.0, 10.0, 8000, "q")), quota=16):
    """Jobs of the nodes of a cluster that tells racks as features."""
    nodes = pl.DataFrame({"node": ["n1", "n2"], "gpus": [8, 8], "gpu_type": ["H100"] * 2, "features": features,
                          "cpu_milli": [64_000] * 2, "memory_mib": [524_288] * 2})  # fmt: skip
    frame = pl.DataFrame(rows, schema=["submit", "runtime", "gpu_milli", "group"], orient="row").with_columns(
        instances=1
    )
    site = Kueue.of(cq("q", None, gpus(quota, flavor="tas")), *flavors)
    cluster = Cluster.of(nodes, source="t")
    return simulate(Scenario.of(Workload.of(frame, source="t"), cluster, scheduler=site, warm_up="none"))


RACKS = Topology("racks", ("rack", HOST))


def test_nodes_without_the_labels_of_a_topology_are_not_used():
    result = run([ResourceFlavor("tas", topology="racks"), RACKS], [["rack=a"], []])
    assert result.jobs["start"].to_list() == [0.0, 10.0]


@pytest.mark.parametrize(
    ("objects", "said"),
    [([RACKS], "no node has all labels of Topology racks"), ([], "Topology racks of flavor tas is not there")],
)
def test_a_topology_that_is_nowhere_is_passed_over_and_told(objects, said):
    result = run([ResourceFlavor("tas", topology="racks"), *objects], [[], []])
    assert result.jobs["start"].to_list() == [0.0, 1.0]
    assert any(said in note for note in result.notes)


def test_room_that_is_given_back_is_told_to_queues_of_other_trees():
    """Two ClusterQueues without a cohort have the same flavor: both wait for its nodes."""
    nodes = pl.DataFrame({"node": ["n1"], "gpus": [8], "gpu_type": ["H100"], "features": [["rack=a"]],
                          "cpu_milli": [64_000], "memory_mib": [524_288]})  # fmt: skip
    rows = [(0.0, 10.0, 8000, "q"), (1.0, 10.0, 8000, "r")]
    frame = pl.DataFrame(rows, schema=["submit", "runtime", "gpu_milli", "group"], orient="row").with_columns(
        instances=1
    )
    queues = [cq(name, None, gpus(8, flavor="tas")) for name in "qr"]
    site = Kueue.of(*queues, ResourceFlavor("tas", topology="racks"), RACKS)
    cluster = Cluster.of(nodes, source="t")
    result = simulate(Scenario.of(Workload.of(frame, source="t"), cluster, scheduler=site, warm_up="none"))
    assert result.jobs["start"].to_list() == [0.0, 10.0]


# -- which flavors -----------------------------------------------------------------------------------------------------


def test_beside_other_flavors_pods_without_a_request_do_not_use_one_with_a_topology():
    """By checkPodSetAndFlavorMatchForTAS: only a ClusterQueue all of whose flavors have one implies a request."""
    both = ResourceGroup((GPU,), {name: {GPU: ResourceQuota(8)} for name in ("tas", "plain")})
    site = Kueue.of(cq("q", None, both), ResourceFlavor("tas", topology="racks"), ResourceFlavor("plain"), RACKS)
    one = KueueWorkload("one", "q", (PodSet("main", 1, {GPU: 8}),))
    asking = replace(one, pod_sets=(replace(one.pod_sets[0], topology=TopologyRequest(required=HOST)),))
    nodes = [SchedulingNode("n1", {GPU: 8, "pods": 110}, {HOST: "n1", "rack": "a"})]
    used = [list(play(KueueSite(site, nodes), [each], [0], [1], 1).runs[0].usage) for each in (one, asking)]
    assert used == [[("plain", GPU)], [("tas", GPU)]]


def test_annotations_are_read_as_kueue_names_them():
    given = {"kueue.x-k8s.io/podset-slice-required-topology": RACK, "kueue.x-k8s.io/podset-slice-size": "4"}
    assert TopologyRequest.of_annotations(given) == TopologyRequest(slice_required=RACK, slice_size=4)
    assert TopologyRequest.of_annotations({"kueue.x-k8s.io/podset-unconstrained-topology": "true"}).unconstrained
    assert TopologyRequest.of_annotations({}) is None
