"""Volcano and KAI read from their own objects, and as schedulers of a scenario."""

import json

import polars as pl
import pytest

from fleetlab import Cluster, Scenario, Workload, simulate
from fleetlab.core import TraceError
from fleetlab.core.catalog.reasons import ABOVE_GANG_QUEUE, NO_GANG_QUEUE
from fleetlab.core.schedulers import read_scheduler, scheduler_of, scheduler_values
from fleetlab.schedulers.kai.config import GPU, Kai, Quota
from fleetlab.schedulers.kubernetes.reader.gang_schedulers import kai_queue as read_queue
from fleetlab.schedulers.volcano.config import Plugin, Volcano
from fleetlab.traces import read

VOLCANO = """
apiVersion: scheduling.volcano.sh/v1beta1
kind: Queue
metadata: {name: research}
spec:
  weight: 3
  reclaimable: false
  capability: {cpu: "8", memory: 16Gi, nvidia.com/gpu: 8}
  guarantee: {resource: {nvidia.com/gpu: 2}}
---
apiVersion: scheduling.volcano.sh/v1beta1
kind: Queue
metadata: {name: default}
spec: {weight: 1}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: volcano-scheduler-configmap}
data:
  volcano-scheduler.conf: |
    actions: "enqueue, allocate, reclaim"
    tiers:
    - plugins:
      - name: gang
        enablePreemptable: false
      - name: proportion
      - name: binpack
        arguments: {binpack.weight: 10}
"""
KAI = """
apiVersion: scheduling.run.ai/v2
kind: Queue
metadata: {name: team}
spec:
  priority: 200
  resources:
    cpu: {quota: -1, limit: -1, overQuotaWeight: 1}
    memory: {quota: 4096, limit: -1, overQuotaWeight: 1}
    gpu: {quota: 2, limit: 6, overQuotaWeight: 3}
---
apiVersion: scheduling.run.ai/v2
kind: Queue
metadata: {name: default}
spec: {parentQueue: "", resources: {cpu: {limit: -1}, memory: {limit: -1}, gpu: {limit: -1}}}
---
apiVersion: kai.scheduler/v1
kind: SchedulingShard
metadata: {name: default}
spec:
  kValue: 0.5
  usageDBConfig: {usageParams: {halfLifePeriod: 10m, windowSize: 1w}}
  args: {reclaimMinRuntime: 1m30s, maxNumberConsolidationPreemptees: 4}
"""


@pytest.fixture
def volcano(tmp_path):
    (tmp_path / "volcano.yaml").write_text(VOLCANO)
    return tmp_path / "volcano.yaml"


@pytest.fixture
def kai(tmp_path):
    (tmp_path / "kai.yaml").write_text(KAI)
    return tmp_path / "kai.yaml"


def test_volcanos_queues_and_configuration_are_read(volcano):
    found = read_scheduler(volcano)
    research = found.queues[0]
    assert isinstance(found, Volcano)
    assert (research.weight, research.reclaimable, research.guarantee) == (3, False, {GPU: 2})
    assert research.capability == {"cpu": 8000, "memory": 2**34, GPU: 8}
    assert found.actions == ("enqueue", "allocate", "reclaim")
    assert found.tiers[0][0] == Plugin("gang", disabled=frozenset({"preemptable"}))
    assert found.tiers[0][2].arguments == {"binpack.weight": 10}


def test_kais_queues_and_settings_are_read(kai):
    found = read_scheduler(kai)
    assert isinstance(found, Kai)
    assert (found.k_value, found.half_life, found.window) == (0.5, 600.0, 604_800.0)


def test_the_least_run_times_of_kai_and_whom_it_moves_are_read(kai):
    found = read_scheduler(kai)
    assert (found.reclaim_min_runtime, found.preempt_min_runtime, found.consolidation_preemptees) == (90.0, 0.0, 4)
    assert found.queues[0].quota(GPU) == Quota(2.0, 6.0, 3.0)
    assert found.queues[0].quota("memory") == Quota(4096e6, -1.0, 1.0)
    assert found.queues[1].quota(GPU) == Quota(0.0, -1.0, 0.0)


@pytest.mark.parametrize("which", ["volcano", "kai"])
def test_a_configuration_survives_its_own_spelling(which, request):
    found = read_scheduler(request.getfixturevalue(which))
    assert scheduler_of(json.loads(json.dumps(scheduler_values(found)))) == found


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("apiVersion: example.com/v1\nkind: Queue\nmetadata: {name: a}\n", "not of Volcano or KAI"),
        ("apiVersion: scheduling.volcano.sh/v1beta1\nkind: Queue\nmetadata: {}\n", "without a name"),
        ("apiVersion: scheduling.volcano.sh/v1beta1\nkind: Queue\nspec: [\n", "while parsing"),
        (VOLCANO + "---" + KAI, "several schedulers"),
    ],
)
def test_objects_that_cannot_be_are_refused(tmp_path, text, message):
    path = tmp_path / "queues.yaml"
    path.write_text(text)
    with pytest.raises(TraceError, match=message):
        read_scheduler(path)


def jobs(**columns):
    return Workload.of(pl.DataFrame(columns), source="by hand")


def starts(result):
    return result.jobs.sort("job")["start"].to_list()


@pytest.mark.parametrize("scheduler", ["volcano", "kai"])
def test_the_instances_of_a_job_start_together(scheduler):
    work = jobs(submit=[0.0, 1.0], runtime=[10.0, 10.0], gpu_milli=[8000, 8000], instances=[1, 2])
    assert starts(simulate(work, Cluster.uniform(2, 8), scheduler=scheduler)) == [0.0, 10.0]


def test_a_job_waits_in_the_queue_that_its_columns_name(kai):
    work = jobs(submit=[0.0, 0.0], runtime=[10.0, 10.0], gpu_milli=[8000, 8000], user=["team", "other"])
    result = simulate(work, Cluster.uniform(2, 8), scheduler=kai)
    assert result.jobs["status"].to_list() == ["done"]
    assert result.refused["reason"].to_list() == [ABOVE_GANG_QUEUE]  # team may have 6 GPUs at most


def test_jobs_that_name_no_queue_are_left_out_and_others_are_simulated(tmp_path):
    path = tmp_path / "queues.json"
    queue = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "spec": {}}
    path.write_text(json.dumps({"items": [queue | {"metadata": {"name": name}} for name in "ab"]}))
    work = jobs(submit=[0.0, 0.0], runtime=[10.0, 10.0], gpu_milli=[8000, 8000], user=["a", "elsewhere"])
    result = simulate(work, Cluster.uniform(2, 8), scheduler=path)
    assert (result.jobs["status"].to_list(), result.refused["reason"].to_list()) == (["done"], [NO_GANG_QUEUE])


@pytest.mark.parametrize(
    ("conf", "note"),
    [
        ("", "`deserved` of a is without effect"),
        ("actions: allocate\ntiers: [{plugins: [{name: gang}, {name: pdb}]}]", "names it: pdb"),
        ("actions: allocate\ntiers: [{plugins: [{name: capacity}]}]", "deserved adds up to 40 GPUs"),
        ("", "no job comes to 1 Queue: b"),
    ],
)  # fmt: skip
def test_a_note_says_what_of_the_queues_does_not_hold(tmp_path, conf, note):
    path = tmp_path / "queues.json"
    queue = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue"}
    queues = [
        queue | {"metadata": {"name": name}, "spec": {"deserved": {GPU: gpus}} if gpus else {}}
        for name, gpus in (("a", 40), ("b", 0))
    ]
    settings = {"kind": "ConfigMap", "data": {"volcano-scheduler.conf": conf}}
    path.write_text(json.dumps({"items": [*queues, *([settings] if conf else [])]}))
    work = jobs(submit=[0.0], runtime=[10.0], gpu_milli=[8000], user=["a"])
    assert any(note in one for one in simulate(work, Cluster.uniform(2, 8), scheduler=path).notes)


def test_a_job_that_is_reclaimed_from_begins_anew(tmp_path):
    path = tmp_path / "queues.yaml"
    gpu = "resources: {cpu: {limit: -1}, memory: {limit: -1}, gpu: {quota: %d, limit: -1, overQuotaWeight: 1}}"
    path.write_text(
        "\n---\n".join(
            f"apiVersion: scheduling.run.ai/v2\nkind: Queue\nmetadata: {{name: {name}}}\nspec: {{{gpu % quota}}}"
            for name, quota in (("low", 0), ("high", 8))
        )
    )
    work = jobs(submit=[0.0, 10.0], runtime=[100.0, 20.0], gpu_milli=[8000] * 2, user=["low", "high"])
    result = simulate(work, Cluster.uniform(1, 8), scheduler=path)
    rows = result.jobs.sort("job")
    assert (rows["preemptions"].to_list(), rows["start"][1]) == ([1, 0], 40.0)  # 30 s of grace
    result.timeline()  # which audits the schedule


@pytest.mark.parametrize("scheduler", ["volcano", "kai"])
def test_the_reasons_of_a_wait_add_up_to_it(scheduler):
    work = jobs(
        submit=[float(k) for k in range(12)], runtime=[20.0] * 12, gpu_milli=[4000] * 12, instances=[1, 2, 3] * 4
    )
    result = simulate(work, Cluster.uniform(2, 8), scheduler=scheduler)
    by_reason = result.ledger.drop("job").sum_horizontal()
    assert (by_reason - result.jobs["wait"]).abs().max() < 1e-6


def test_a_scenario_with_a_file_survives_its_address(volcano):
    scenario = Scenario.of("builtin:100", scheduler=volcano)
    assert Scenario.from_query(scenario.to_query()).policy == scenario.policy


def test_read_kubernetes_takes_queues_and_pod_groups_beside_pods(tmp_path):
    pod = {
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "team", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"containers": [{"name": "c", "resources": {"requests": {"nvidia.com/gpu": "1"}}}]},
        "status": {"phase": "Pending"},
    }
    group = {
        "apiVersion": "scheduling.run.ai/v2alpha2",
        "kind": "PodGroup",
        "metadata": {"name": "g", "namespace": "team"},
    }
    queue = {
        "apiVersion": "scheduling.run.ai/v2",
        "kind": "Queue",
        "metadata": {"name": "team"},
        "spec": {"resources": {"gpu": {"quota": 2, "limit": 4, "overQuotaWeight": 1}}},
    }
    (tmp_path / "site.json").write_text(json.dumps({"kind": "List", "items": [pod, group, queue]}))
    trace = read(tmp_path / "site.json", "kubernetes")
    assert trace.scheduler == Kai((read_queue(queue),))
    assert trace.counts["rejected"].sum() == 0


def test_an_error_names_the_queue_that_it_is_about(tmp_path):
    path = tmp_path / "queues.yaml"
    path.write_text(VOLCANO.replace("weight: 3", "weight: many"))
    with pytest.raises(TraceError, match=r"Queue research: `spec\.weight`"):
        read_scheduler(path)
