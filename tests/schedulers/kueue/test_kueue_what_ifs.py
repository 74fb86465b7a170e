"""What a diagnosis of a Kueue site tries: other quotas and policies of the ClusterQueue that waits most."""

import polars as pl
import pytest

import fleetlab
from fleetlab import Cluster, Scenario, Workload
from fleetlab.schedulers.kueue.config import Kueue, ResourceGroup, ResourceQuota
from fleetlab.studies.eta.question import _gpu_type

from .cases import GPU, cq

TEAMS = {"a": (40, 0.0), "b": (8, 100.0)}  # jobs, and since when


def gpus(nominal, borrowing=None):
    return ResourceGroup((GPU,), {"h100": {GPU: ResourceQuota(nominal, borrowing)}})


@pytest.fixture(scope="module")
def scenario():
    rows = [
        {"submit": since + 10.0 * k, "runtime": 300.0, "gpu_milli": 4000, "cpu_milli": 0, "memory_mib": 0,
         "queue": team, "start": since + (60.0 if team == "a" else 10.0) * k, "status": "completed"}
        for team, (count, since) in TEAMS.items() for k in range(count)
    ]  # fmt: skip
    site = Kueue.of(cq("a", "lab", gpus(8, 0)), cq("b", "lab", gpus(24)))
    frame = pl.DataFrame(rows).with_columns(end=pl.col("start") + 300.0).sort("submit", maintain_order=True)
    return Scenario.of(Workload.of(frame, source="two teams"), Cluster.uniform(4, 8), scheduler=site)


def test_changes_are_aimed_at_quota_and_at_the_queue_that_waits_most(scenario):
    changes = {one.name: one for one in scenario.scheduler.what_ifs(scenario.workload.frame)}
    assert {reason for one in changes.values() for reason in one.removes} == {"quota"}
    assert changes["nominal"].scheduler.cluster_queues["a"].groups == (gpus(10, 0),)
    assert changes["borrowing"].scheduler.cluster_queues["a"].groups == (gpus(8),)
    assert all(one.scheduler.cluster_queues["b"] == scenario.scheduler.cluster_queues["b"] for one in changes.values())


def test_a_diagnosis_names_a_change_for_quota_and_who_pays(scenario):
    result = fleetlab.diagnose(scenario, changes=["nominal", "borrowing", "lending"], min_coverage=0, replicas=3)
    rows = {row["change"]: row for row in result.to_polars("changes").rows(named=True)}
    assert rows["borrowing"]["mean wait change"] < 0
    assert rows["borrowing"]["longer for"].startswith("b (+")
    assert "lending" not in rows  # nobody has a limit
    assert not any("No simulated change is aimed at `quota`" in each for each in result.findings)


def test_a_request_may_name_a_gpu_by_a_word_of_its_product_label():
    label = "NVIDIA-H100-80GB-HBM3"
    assert _gpu_type("H100", Cluster.uniform(2, 8, gpu_type=label)) == label
