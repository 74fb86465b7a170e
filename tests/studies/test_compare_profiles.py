"""Two configurations of kube-scheduler on the same pods: who gains, who loses, paired."""

import json

import polars as pl
import pytest

from fleetlab import Cluster, Scenario, Workload, compare
from fleetlab.core import PolicyError


@pytest.fixture
def packing(tmp_path):
    score = {
        "disabled": [{"name": "NodeResourcesLeastAllocated"}, {"name": "NodeResourcesBalancedAllocation"}],
        "enabled": [{"name": "NodeResourcesMostAllocated", "weight": 5}],
    }
    resources = {"resources": [{"name": "nvidia.com/gpu", "weight": 1}]}
    profile = {"plugins": {"score": score}, "pluginConfig": [{"name": "NodeResourcesMostAllocated", "args": resources}]}
    path = tmp_path / "packing.json"
    path.write_text(json.dumps({"kind": "KubeSchedulerConfiguration", "profiles": [profile]}))
    return path


@pytest.fixture
def scenario():
    """Every minute eight pods of one GPU come, and then one of a whole node: spreading leaves it no node."""
    rows = [(60.0 * k + j, 50.0, 1000, "small") for k in range(150) for j in range(8)]
    rows += [(60.0 * k + 9, 40.0, 8000, "large") for k in range(150)]
    columns = dict(zip(("submit", "runtime", "gpu_milli", "queue"), zip(*rows, strict=True), strict=True))
    work = Workload.of(pl.DataFrame({name: list(v) for name, v in columns.items()}), source="by hand")
    return Scenario.of(work, Cluster.uniform(2, 8), scheduler="kubernetes")


def test_whole_nodes_gain_by_packing_and_small_pods_do_not_lose(scenario, packing):
    by_team = compare(scenario, conf=[packing]).tables()["by team"]
    change = dict(by_team.select("team", "mean wait change").rows())
    assert change["large"] < -1.0
    assert change["small"] <= 0.0


def test_the_settings_that_differ_are_listed(scenario, packing):
    changes = compare(scenario, conf=[packing]).tables()["changes"]
    assert "weights.NodeResourcesMostAllocated" in changes["setting"].to_list()


def test_a_configuration_of_another_scheduler_is_refused(scenario, tmp_path):
    path = tmp_path / "slurm.conf"
    path.write_text("ClusterName=x\nPartitionName=gpu Nodes=ALL\n")
    with pytest.raises(PolicyError, match="configures Slurm, but the scenario has kube-scheduler"):
        compare(scenario, conf=[path])
