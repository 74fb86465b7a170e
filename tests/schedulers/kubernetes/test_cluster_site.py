"""Where a pod that waits would go, from lists as kubectl prints them."""

import json

import pytest

from fleetlab.core import PolicyError, TraceError
from fleetlab.schedulers.kubernetes.site import KubernetesSite

GPU = "nvidia.com/gpu"


def node(name, gpus, **spec):
    has = {"cpu": "64", "memory": "512Gi", GPU: str(gpus), "pods": "110"}
    return {"kind": "Node", "metadata": {"name": name}, "spec": spec, "status": {"allocatable": has}}


def pod(name, gpus, where=None, priority=0, **more):
    asked = {"cpu": "8", "memory": "64Gi", GPU: str(gpus)}
    spec = {"containers": [{"resources": {"requests": asked}}], "priority": priority} | more
    spec |= {"nodeName": where} if where else {}
    labels = {"app": name.partition("-")[0]}
    phase = "Running" if where else "Pending"
    return {"kind": "Pod", "metadata": {"name": name, "labels": labels}, "spec": spec, "status": {"phase": phase}}


@pytest.fixture
def site(tmp_path):
    def written(*items, scheduler=None):
        path = tmp_path / "cluster.json"
        path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
        return KubernetesSite.read(path, scheduler)

    return written


def test_the_emptier_node_is_best_by_default(site):
    found = site(node("a", 8), node("b", 8), pod("old-1", 2, "a"), pod("new", 1)).scores("new")
    assert found.filter("best")["node"].to_list() == ["b"]


def test_the_fuller_node_is_best_where_the_scheduler_packs(site, tmp_path):
    config = tmp_path / "scheduler.yaml"
    config.write_text("""
apiVersion: kubescheduler.config.k8s.io/v1beta1
kind: KubeSchedulerConfiguration
profiles:
- plugins:
    score:
      disabled: [{name: NodeResourcesLeastAllocated}]
      enabled: [{name: NodeResourcesMostAllocated, weight: 5}]
  pluginConfig:
  - name: NodeResourcesMostAllocated
    args: {resources: [{name: nvidia.com/gpu, weight: 1}]}
""")
    found = site(node("a", 8), node("b", 8), pod("old-1", 2, "a"), pod("new", 1), scheduler=config).scores("new")
    assert found.filter("best")["node"].to_list() == ["a"]
    assert found["NodeResourcesMostAllocated"].to_list() == [5 * 37, 5 * 12]


def test_pods_that_ended_hold_nothing(site):
    ended = pod("old-1", 8, "a") | {"status": {"phase": "Succeeded"}}
    assert site(node("a", 8), ended, pod("new", 8)).scores("new")["node"].to_list() == ["a"]


def test_victims_are_of_the_lowest_priority_that_does(site):
    there = site(node("a", 8), node("b", 8), pod("low-1", 8, "a"), pod("mid-1", 8, "b", 5), pod("new", 4, None, 10))
    assert there.scores("new").is_empty()
    assert there.victims("new").rows() == [("a", "default/low-1", 0, 0)]


def test_a_budget_protects_its_pods(site):
    budget = {"kind": "PodDisruptionBudget", "metadata": {"name": "low", "namespace": "default"},
              "spec": {"selector": {"matchLabels": {"app": "low"}}}, "status": {"disruptionsAllowed": 0}}  # fmt: skip
    items = (node("a", 8), node("b", 8), pod("low-1", 8, "a"), pod("mid-1", 8, "b", 5), pod("new", 4, None, 10))
    assert site(*items, budget).victims("new").rows() == [("b", "default/mid-1", 5, 0)]


def test_a_nominated_pod_keeps_its_room(site):
    first = pod("first", 6, None, 10)
    first["status"]["nominatedNodeName"] = "a"
    assert site(node("a", 8), first, pod("new", 4)).scores("new").is_empty()


def test_a_pod_that_does_not_wait_is_refused_with_a_hint(site):
    with pytest.raises(PolicyError, match="did you mean default/new"):
        site(node("a", 8), pod("new", 1)).scores("nwe")


@pytest.mark.parametrize(
    ("items", "message"),
    [([pod("x", 1)], "contains no nodes"), ([node("a", 8), pod("x", 1, "b")], "a node that is not listed: b")],
)
def test_an_incomplete_list_is_refused(site, items, message):
    with pytest.raises(TraceError, match=message):
        site(*items)
