"""Files that configure a scheduler: what is not understood is refused, and never simulated as something else."""

import json

import polars as pl
import pytest

import fleetlab
from fleetlab import Cluster, Workload
from fleetlab.core import TraceError
from fleetlab.core.schedulers import read_scheduler

PACKING = """apiVersion: kubescheduler.config.k8s.io/{version}
kind: KubeSchedulerConfiguration
profiles:
- pluginConfig:
  - name: NodeResourcesFit
    args: {{scoringStrategy: {{type: MostAllocated}}}}
"""
PLUGIN = """apiVersion: kubescheduler.config.k8s.io/v1beta1
kind: KubeSchedulerConfiguration
profiles:
- plugins: {score: {enabled: [{name: NodeResourcesMostAlocated}]}}
"""
KAI = """apiVersion: scheduling.run.ai/v2
kind: Queue
metadata: {{name: q}}
spec:
  resources:
    {resource}: {{quota: {quota}, limit: 8, overQuotaWeight: 1}}
"""
VOLCANO = """apiVersion: scheduling.volcano.sh/v1beta1
kind: Queue
metadata: {{name: q}}
spec: {{weight: {weight}, capability: {{nvidia.com/gpu: 8}}}}
"""
KUEUE = """apiVersion: kueue.x-k8s.io/v1beta1
kind: ClusterQueue
metadata: {name: q}
spec:
  resourceGroups:
  - coveredResources: [nvidia.com/gpu]
    flavors: [{name: any, resources: [{name: nvidia.com/gpu, nominalQuotas: 8}]}]
"""


def written(folder, text, name="scheduler.yaml"):
    (folder / name).write_text(text)
    return folder / name


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (PACKING.format(version="v2"), "apiVersion kubescheduler.config.k8s.io/v2 is not modeled"),
        (PACKING.format(version="v1beta1"), "scoringStrategy of NodeResourcesFit is of v1beta2 and later"),
        (PLUGIN, "did you mean NodeResourcesMostAllocated"),
        ("", "configures no scheduler"),
        ("a: [b", "configures no scheduler"),
        ("- 1\n- 2\n", "configures no scheduler"),
        (KAI.format(resource="gpus", quota=8), "Queue q: `spec.resources` has no gpus"),
        (KAI.format(resource="gpu", quota=-8), "`quota` is below 0: -8"),
        (VOLCANO.format(weight=0), "`spec.weight` is below 1: 0"),
        (KUEUE, "unknown field `nominalQuotas` of ClusterQueue; did you mean nominalQuota?"),
    ],
)
def test_what_is_not_understood_is_refused(tmp_path, text, what):
    with pytest.raises(TraceError, match=what):
        read_scheduler(written(tmp_path, text))


def test_a_missing_file_is_told_as_such(tmp_path):
    with pytest.raises(TraceError, match="no such file") as refused:
        read_scheduler(tmp_path / "none.yaml")
    assert "kubernetes, volcano, kai" in refused.value.hint


def test_pods_are_read_where_the_configuration_of_the_scheduler_is_of_a_later_version(tmp_path):
    written(tmp_path, PACKING.format(version="v2"))
    pod = {
        "kind": "Pod",
        "metadata": {"name": "a", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {},
        "status": {"phase": "Pending"},
    }
    written(tmp_path, json.dumps({"kind": "List", "items": [pod]}), "pods.json")
    trace = fleetlab.read(tmp_path, "kubernetes")
    assert trace.scheduler is None
    assert any("the configuration of kube-scheduler is left out" in note for note in trace.notes)


def test_workloads_that_wait_without_pods_are_named(tmp_path):
    """As those of suspended jobs are."""
    pod = {
        "kind": "Pod",
        "metadata": {"name": "a", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {},
        "status": {"phase": "Pending"},
    }
    waiting = {
        "apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "Workload", "spec": {"queueName": "q"},
        "metadata": {"name": "job-waits", "ownerReferences": [{"uid": "u-1"}]},
    }  # fmt: skip
    admitted = waiting | {
        "metadata": {"name": "job-runs", "ownerReferences": [{"uid": "u-2"}]},
        "status": {"conditions": [{"type": "QuotaReserved", "status": "True"}]},
    }
    written(tmp_path, json.dumps({"kind": "List", "items": [pod, waiting, admitted]}), "pods.json")
    notes = fleetlab.read(tmp_path, "kubernetes").notes
    assert any("do not say for which pods are not in the trace: 1 (default/job-waits)" in note for note in notes)


@pytest.mark.parametrize("text", [KAI.format(resource="gpu", quota=8), VOLCANO.format(weight=1)])
def test_a_wait_at_the_limit_of_a_queue_is_a_wait_for_quota(tmp_path, text):
    """Two jobs of 8 GPUs on 16, in a queue that may hold 8."""
    jobs = pl.DataFrame(
        {"submit": [0.0, 10.0], "runtime": [1000.0, 100.0], "gpu_milli": [8000] * 2, "queue": ["q"] * 2}
    )
    nodes = pl.DataFrame({"node": ["a", "b"], "gpus": [8, 8], "gpu_type": ["H100"] * 2})
    cluster = Cluster.of(nodes, source="by hand")
    scheduler = str(written(tmp_path, text))
    run = fleetlab.simulate(Workload.of(jobs, source="by hand"), cluster, scheduler=scheduler)
    reasons = run.tables()["waiting"]
    assert reasons["reason"].to_list() == ["quota"]
    assert reasons["total wait"].item() == pytest.approx(990, abs=1)
