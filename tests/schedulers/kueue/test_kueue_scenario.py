"""Kueue as the scheduler of a scenario."""

import json

import numpy as np
import polars as pl
import pytest

import fleetlab
from fleetlab.core import Cluster, PolicyError, Scenario, Workload
from fleetlab.core.schedulers import scheduler_of, scheduler_values
from fleetlab.schedulers.kueue.config import Kueue, LocalQueue, ResourceFlavor, ResourceGroup, ResourceQuota
from fleetlab.schedulers.kueue.submissions import queue_of
from fleetlab.sim.simulate import simulate

from .cases import ANY, GPU, LOWER, cohort, cq


def gpus(amount, limit=None, flavor="any"):
    return ResourceGroup((GPU,), {flavor: {GPU: ResourceQuota(amount, limit)}})


SITE = Kueue.of(
    cq("vision", "lab", gpus(8), reclaim=ANY, within=LOWER),
    cq("speech", "lab", gpus(8, 4)),
    LocalQueue("cv", "main", "vision"),
    LocalQueue("cv", "night", "speech"),
    LocalQueue("asr", "default", "speech"),
    LocalQueue("asr", "other", "vision"),
)


@pytest.mark.parametrize(
    ("queue", "owners", "wanted"),
    [
        ("cv/main", (), "vision"),
        ("main", ("cv", None), "vision"),
        ("night", (None, None), "speech"),
        ("vision", ("asr", None), "vision"),
        (None, ("asr", None), "speech"),
        (None, (None, "speech"), "speech"),
        (None, ("nobody", "knows"), None),
        ("unknown", (), None),
    ],
)
def test_a_job_comes_through_the_queue_that_the_rule_says(queue, owners, wanted):
    assert queue_of(SITE, queue, owners) == wanted


def test_a_single_queue_is_everybodys():
    assert queue_of(Kueue.of(cq("all", None, gpus(8))), "unknown", ("who", None)) == "all"


def workload(rows, **columns):
    frame = pl.DataFrame(rows, schema=["submit", "runtime", "gpu_milli", "group"], orient="row")
    return Workload.of(frame.with_columns(**({"instances": 1} | columns)), source="test")


def run(rows, site=SITE, nodes=2, **columns):
    return simulate(Scenario.of(workload(rows, **columns), Cluster.uniform(nodes, 8), scheduler=site, warm_up="none"))


def test_a_job_within_its_quota_starts_at_once_and_takes_back_what_was_lent():
    rows = [(0.0, 1000.0, 8000, "speech"), (1.0, 1000.0, 4000, "speech"), (2.0, 100.0, 8000, "vision")]
    result = run(rows)
    assert result.jobs["start"].to_list() == [0.0, 1.0, 32.0]  # the second borrowed, and leaves after 30 s
    assert result.jobs["preemptions"].to_list() == [0, 1, 0]


def test_quota_keeps_a_job_waiting_though_gpus_are_free():
    result = run([(0.0, 100.0, 8000, "speech"), (1.0, 10.0, 8000, "speech")])
    assert result.jobs["start"].to_list() == [0.0, 100.0]
    assert result.tables()["waiting"]["reason"].to_list() == ["quota"]


def test_pods_that_find_no_node_wait_with_their_quota():
    rows = [(0.0, 50.0, 5000, "vision"), (1.0, 50.0, 5000, "speech")]
    assert run(rows, nodes=1).jobs["start"].to_list() == [0.0, 50.0]


@pytest.mark.parametrize("pods", [1, 2])
def test_a_job_that_is_preempted_while_it_waits_for_nodes_does_not_begin_on_those_that_become_free(pods):
    """Quota for two nodes, of which one is there, or for four, of which three are: a gang of two has one of them."""
    site = Kueue.of(cq("all", None, gpus(16 * pods), within=LOWER))
    rows = [(0.0, 100.0, 8000, "x"), (1.0, 60.0, 8000, "x"), (90.0, 50.0, 8000, "x")]
    played = run(rows, site, 2 * pods - 1, priority=pl.Series([10, 0, 5]), instances=pl.Series([pods] * 3))
    assert played.jobs["start"].to_list() == [0.0, 150.0, 100.0]


def test_a_gang_begins_with_its_last_pod():
    rows = [(0.0, 60.0, 6000, "speech"), (1.0, 10.0, 4000, "vision")]
    result = simulate(
        Scenario.of(
            Workload.of(workload(rows).frame.with_columns(instances=pl.Series([1, 2], dtype=pl.Int32)), source="test"),
            Cluster.uniform(2, 6), scheduler=SITE, warm_up="none",
        )
    )  # fmt: skip
    assert result.jobs["start"].to_list() == [0.0, 60.0]


def test_pods_of_a_gang_that_is_not_complete_keep_their_nodes_from_others():
    """The third job fits on the node that the gang's first pod has: it lacks GPUs, and the scheduler is not late."""
    rows = [(0.0, 100.0, 8000, "vision"), (1.0, 50.0, 8000, "vision"), (10.0, 20.0, 8000, "vision")]
    result = run(rows, Kueue.of(cq("vision", None, gpus(64))), instances=pl.Series([1, 2, 1]))
    assert result.jobs["start"].to_list() == [0.0, 100.0, 150.0]
    assert result.ledger["scheduler"].sum() == 0.0
    assert result.ledger["gpu"].to_list() == [0.0, 99.0, 140.0]


SMALL = Kueue.of(cq("vision", None, gpus(8)), cq("small", None, gpus(4)))


def test_who_no_queue_is_for_is_left_out_and_told_so():
    result = run([(0.0, 10.0, 1000, "vision"), (1.0, 10.0, 1000, "nobody"), (2.0, 10.0, 8000, "small")], SMALL)
    assert sorted(result.refused["reason"].str.slice(0, 30).to_list()) == [
        "refused: it names no LocalQueu",
        "refused: its ClusterQueue coul",
    ]


def test_flavors_are_tried_in_order_on_the_nodes_that_have_them():
    nodes = pl.DataFrame({
        "node": ["a", "b"], "gpus": [8, 8], "gpu_type": ["A100", "H100"], "gpu_memory_mib": [40_960, 81_920],
        "cpu_milli": [64_000] * 2, "memory_mib": [524_288] * 2,
    })  # fmt: skip
    group = ResourceGroup((GPU,), {"h100": {GPU: ResourceQuota(8)}, "a100": {GPU: ResourceQuota(8)}})
    flavors = [
        ResourceFlavor(name.lower(), {"nvidia.com/gpu.product": f"NVIDIA-{name}-SXM"}) for name in ("H100", "A100")
    ]
    site = Kueue.of(cq("vision", None, group), *flavors)
    rows = [(0.0, 10.0, 8000, "vision"), (1.0, 10.0, 8000, "vision")]
    scenario = Scenario.of(workload(rows), Cluster.of(nodes, source="t"), scheduler=site, warm_up="none")
    played = simulate(scenario).played
    assert played.where.tolist() == [1, 0]


def test_a_site_is_written_down_and_read_again():
    site = Kueue.of(
        *SITE.cluster_queues.values(), *SITE.local_queues.values(), cohort("lab", cpu=3), ResourceFlavor("any")
    )
    again = scheduler_of(json.loads(json.dumps(scheduler_values(site))))
    assert again == site


def test_no_node_holds_more_gpus_than_it_has():
    draw = np.random.default_rng(5)
    rows = [
        (
            float(k),
            float(draw.integers(5, 60)),
            int(draw.choice([1, 2, 4, 8])) * 1000,
            str(draw.choice(["vision", "speech"])),
        )
        for k in range(150)
    ]
    result = run(rows)
    runs = result.played.runs(result.world.first)
    for moment in np.unique(runs.begin):
        mine = np.flatnonzero((runs.begin <= moment) & (moment < runs.end))
        for node in (0, 1):
            bits = [int(runs.got[runs.first[k]]) for k in mine if runs.where[runs.first[k]] == node]
            assert sum(one.bit_count() for one in bits) == np.bitwise_or.reduce(bits or [0]).bit_count() <= 8


def test_two_files_are_compared_by_team(tmp_path):
    lines = """apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {{name: {name}}}
spec:
  cohortName: lab
  resourceGroups:
  - coveredResources: [nvidia.com/gpu]
    flavors: [{{name: any, resources: [{{name: nvidia.com/gpu, nominalQuota: 8, borrowingLimit: {limit}}}]}}]
---
"""
    for file, limit in (("old.yaml", 0), ("new.yaml", 8)):
        text = "".join(lines.format(name=name, limit=limit) for name in ("vision", "speech"))
        (tmp_path / file).write_text(text)
    rows = [(60.0 * k, 400.0, 4000, "vision" if k % 4 else "speech") for k in range(40)]
    scenario = Scenario.of(workload(rows), Cluster.uniform(2, 8), scheduler=tmp_path / "old.yaml", warm_up="none")
    found = fleetlab.compare(scenario, conf=[tmp_path / "new.yaml"], workers=0)
    assert found.tables()["changes"]["setting"].to_list() == [
        f"ClusterQueue {name}: borrowingLimit of nvidia.com/gpu in any" for name in ("vision", "speech")
    ]
    assert found.tables()["by team"]["team"].to_list() == ["vision", "speech"]


def test_a_configuration_without_a_cluster_queue_is_refused():
    with pytest.raises(PolicyError, match="without a ClusterQueue"):
        fleetlab.simulate("builtin:200", scheduler=Kueue())
