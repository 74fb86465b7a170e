"""kube-scheduler as the scheduler of a scenario, beside Slurm's and the rules of a policy."""

import json

import polars as pl
import pytest

from fleetlab import Cluster, Scenario, Trace, Workload, compare, simulate
from fleetlab.core import PolicyError, TraceError
from fleetlab.core.result import Provenance
from fleetlab.core.schedulers import scheduler_of, scheduler_values, schedulers
from fleetlab.schedulers.kubernetes.config import KubeScheduler

PACKING = {
    "apiVersion": "kubescheduler.config.k8s.io/v1beta1",
    "kind": "KubeSchedulerConfiguration",
    "profiles": [
        {
            "plugins": {
                "score": {
                    "disabled": [{"name": "NodeResourcesLeastAllocated"}, {"name": "NodeResourcesBalancedAllocation"}],
                    "enabled": [{"name": "NodeResourcesMostAllocated", "weight": 5}],
                }
            },
            "pluginConfig": [
                {"name": "NodeResourcesMostAllocated", "args": {"resources": [{"name": "nvidia.com/gpu", "weight": 1}]}}
            ],
        }
    ],
}


def jobs(**columns):
    return Workload.of(pl.DataFrame(columns), source="by hand")


@pytest.fixture
def packing(tmp_path):
    path = tmp_path / "packing.json"
    path.write_text(json.dumps(PACKING))
    return path


def starts(result):
    return result.jobs.sort("job")["start"].to_list()


@pytest.mark.parametrize("name", schedulers())
def test_a_scheduler_is_read_as_it_is_written(name):
    scheduler = schedulers()[name]()
    assert scheduler_of(json.loads(json.dumps(scheduler_values(scheduler)))) == scheduler


def test_a_configuration_survives_its_own_spelling(packing):
    scenario = Scenario.of("builtin:100", scheduler=packing)
    assert Scenario.from_query(scenario.to_query()).policy == scenario.policy


def test_the_third_pod_waits_for_its_backoff_as_the_queues_of_kube_scheduler_have_it():
    # One node of 8 GPUs: the first ends at 10 s; the third failed twice at 9.4 s and at 12 s, and backs off until 16 s.
    work = jobs(submit=[0.0, 1.0, 9.4], runtime=[10.0, 5.0, 5.0], gpu_milli=[8000] * 3)
    assert starts(simulate(work, Cluster.uniform(1, 8), scheduler="kubernetes")) == [0.0, 10.0, 16.0]


def test_the_default_profile_spreads_and_the_given_one_packs(packing):
    work = jobs(submit=[0.0, 1.0], runtime=[100.0, 100.0], gpu_milli=[1000, 1000], cpu_milli=[8000, 8000])
    cluster = Cluster.uniform(2, 8)
    spread, packed = (simulate(work, cluster, scheduler=one) for one in ("kubernetes", packing))
    assert spread.placements["node"].n_unique() == 2
    assert packed.placements["node"].n_unique() == 1


def test_instances_are_pods_that_start_on_their_own_and_a_note_says_so():
    work = jobs(submit=[0.0, 1.0], runtime=[10.0, 10.0], gpu_milli=[6000, 4000], instances=[1, 2])
    result = simulate(work, Cluster.uniform(2, 8), scheduler="kubernetes")
    assert starts(result) == [0.0, 1.0, 1.0]  # of the second job both fit beside each other on the free node
    assert any("knows no gangs" in note for note in result.notes)


def test_a_pod_of_a_job_starts_where_the_gang_would_have_to_wait():
    work = jobs(submit=[0.0, 1.0], runtime=[10.0, 10.0], gpu_milli=[8000, 8000], instances=[1, 2])
    cluster = Cluster.uniform(2, 8)
    assert starts(simulate(work, cluster)) == [0.0, 10.0]
    assert starts(simulate(work, cluster, scheduler="kubernetes"))[:2] == [0.0, 1.0]


def test_a_fraction_of_a_gpu_is_a_whole_one_and_a_note_says_so():
    work = jobs(submit=[0.0, 0.0], runtime=[10.0, 10.0], gpu_milli=[500, 500])
    result = simulate(work, Cluster.uniform(1, 1), scheduler="kubernetes")
    assert starts(result)[1] >= 10.0
    assert any("whole GPUs" in note for note in result.notes)


def test_an_evicted_pod_comes_again_and_loses_what_it_had_done():
    work = jobs(submit=[0.0, 5.0], runtime=[100.0, 10.0], gpu_milli=[8000, 8000], priority=[0, 1000])
    result = simulate(work, Cluster.uniform(1, 8), scheduler="kubernetes")
    low = result.jobs.sort("job").row(0, named=True)
    assert (low["preemptions"], low["status"]) == (1, "done")
    assert low["lost"] == 35.0  # it ran for 5 s, and had 30 s of grace
    assert low["end"] - low["submit"] >= 35.0 + 10.0 + 100.0


def test_a_pod_that_may_not_run_again_is_cut_short():
    work = jobs(
        submit=[0.0, 5.0], runtime=[100.0, 10.0], gpu_milli=[8000] * 2, priority=[0, 1000], requeue=[False, False]
    )
    result = simulate(work, Cluster.uniform(1, 8), scheduler="kubernetes")
    assert result.jobs.sort("job")["status"].to_list() == ["cut short", "done"]


def test_the_reasons_of_a_wait_add_up_to_it():
    result = simulate("builtin:300", scheduler="kubernetes", load=3.0)
    by_reason = result.ledger.drop("job").sum_horizontal()
    assert (by_reason - result.jobs["wait"]).abs().max() < 1e-6
    result.timeline()  # which audits the schedule: nothing is allocated twice
    assert result.ledger["scheduler"].sum() > 0 or result.jobs["wait"].sum() == 0


def test_gpu_types_partitions_and_limits_per_node_hold():
    cluster = Cluster.of(
        pl.DataFrame(
            {"node": ["a", "b"], "gpu_type": ["A100", "H100"], "gpus": [8, 8], "partitions": [["x"], ["x", "y"]]}
        ),
        source="by hand",
    )
    work = jobs(
        submit=[0.0] * 4, runtime=[10.0] * 4, gpu_milli=[1000] * 4, gpu_types=[["A100"], ["H100"], [], []],
        partitions=[[], [], ["y"], ["y"]], app=["", "", "db", "db"], max_per_node=[0, 0, 1, 1],
    )  # fmt: skip
    result = simulate(work, cluster, scheduler="kubernetes")
    assert result.placements.sort("job")["node"].to_list() == ["a", "b", "b", "b"]
    assert starts(result)[3] >= 10.0


def test_a_run_that_is_stopped_has_pods_that_run_and_pods_that_wait():
    work = jobs(submit=[0.0, 1.0], runtime=[100.0, 100.0], gpu_milli=[8000, 8000])
    result = simulate(work, Cluster.uniform(1, 8), scheduler="kubernetes", until=50.0)
    assert result.jobs.sort("job")["status"].to_list() == ["running", "waiting"]


def test_a_saved_trace_keeps_its_scheduler_which_then_is_the_default(tmp_path, packing):
    work = jobs(submit=[0.0], runtime=[10.0], gpu_milli=[1000])
    site = Scenario.of(work, Cluster.uniform(1, 8), scheduler=packing).scheduler
    Trace(work, Provenance("by hand", "x"), Cluster.uniform(1, 8), site).save(tmp_path / "t")
    scenario = Scenario.of(str(tmp_path / "t"))
    assert scenario.scheduler == site
    assert scenario.title == "kubernetes"
    assert isinstance(scenario.replace(order="sjf").scheduler, KubeScheduler) is False


def test_a_file_that_configures_no_scheduler_is_refused(tmp_path):
    path = tmp_path / "service.yaml"
    path.write_text("apiVersion: v1\nkind: Service\n")
    with pytest.raises(TraceError, match=r"service\.yaml: configures no scheduler"):
        Scenario.of("builtin:10", scheduler=path)


def test_it_is_compared_with_gangs_only_where_there_are_none():
    work = jobs(submit=[0.0, 1.0], runtime=[10.0, 10.0], gpu_milli=[1000, 1000], instances=[1, 2])
    scenario = Scenario.of(work, Cluster.uniform(2, 8))
    with pytest.raises(PolicyError, match="split the instances of a job"):
        compare(scenario, policies=["fifo", "scheduler=kubernetes"])


def test_a_policy_may_name_the_path_of_a_configuration(packing):
    work = jobs(submit=[0.0, 1.0], runtime=[10.0, 10.0], gpu_milli=[1000, 1000])
    found = compare(Scenario.of(work, Cluster.uniform(2, 8)), policies=["scheduler=kubernetes", f"scheduler={packing}"])
    assert len(found.tables()["policies"]) == 2
