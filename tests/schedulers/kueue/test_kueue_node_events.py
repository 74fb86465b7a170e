"""Nodes that fail, are drained and come back under Kueue: small cases by hand."""

import polars as pl
import pytest

from fleetlab import Cluster, Workload, simulate
from fleetlab.core.events import Drain, Outage, Recovery
from fleetlab.schedulers.kubernetes.loop import REPLACED_AFTER
from fleetlab.schedulers.kueue.config import Kueue, ResourceFlavor, ResourceGroup, ResourceQuota, Topology

from .cases import GPU, LOWER, cq

QUOTA = ResourceGroup((GPU,), {"any": {GPU: ResourceQuota(16)}})
SITE = Kueue.of(cq("all", None, QUOTA, within=LOWER))


def run(rows, nodes=2, site=SITE, **words):
    """(submit, runtime, GPUs of a pod, pods) on nodes of 8 GPUs, and a quota of 16."""
    submit, runtime, gpus, pods = zip(*rows, strict=True)
    columns = {"instances": pods, "gpu_milli": [1000 * g for g in gpus]} | words.pop("columns", {})
    frame = pl.DataFrame({"submit": submit, "runtime": runtime} | columns)
    work = Workload.of(frame.cast({"submit": pl.Float64, "runtime": pl.Float64}), source="by hand")
    result = simulate(work, Cluster.uniform(nodes, 8), scheduler=site, warm_up="none", **words)
    result.timeline()  # nothing runs on a node that is down
    return result, result.jobs.sort("job")


def runs_of(result, count=1):
    runs = result.played.runs(result.world.first)
    where = runs.where.reshape(-1, count).tolist()
    return list(zip(runs.job.tolist(), runs.begin.tolist(), runs.end.tolist(), where, strict=True))


def test_a_gang_of_which_a_node_fails_runs_again_once_its_pods_are_replaced():
    """Two pods on two of three nodes, of which one fails at 100 s: at 440 s both are made anew."""
    events = [Drain(0, 50, ["node-2"]), Outage(100, 5000, ["node-0"])]
    result, jobs = run([(0, 500, 8, 2)], nodes=3, events=events)
    (_, *first, nodes), (_, *second, again) = runs_of(result, 2)
    assert (first, second) == ([0.0, 100.0], [100.0 + REPLACED_AFTER, 940.0])
    assert sorted(nodes) == [0, 1]
    assert sorted(again) == [1, 2]
    assert jobs.select("lost", "failures", "preemptions").row(0) == (100.0, 1, 0)


def test_a_workload_of_which_a_node_fails_keeps_its_quota():
    """Its 16 GPUs of quota stay its own: the second has to wait, though a node is free, until the first has ended."""
    rows = [(0, 500, 8, 2), (150, 50, 8, 1)]
    _, jobs = run(rows, events=[Outage(100, 300, ["node-0"])])
    assert jobs["end"].to_list() == [800.0, 850.0]


def test_its_checkpoints_are_kept():
    _, jobs = run(
        [(0, 500, 8, 2)], events=[Outage(100, 160, ["node-0"])], recovery=Recovery(every=60, save=5, restart=20)
    )
    assert jobs["end"].to_list() == [160.0 + 20 + 440 + 7 * 5]  # as of one pod: 60 s of 100 s are saved


def test_a_preempted_workload_saves_its_work_within_its_grace():
    rows = [(0, 100, 8, 2), (5, 10, 8, 2)]
    _, jobs = run(rows, columns={"priority": [0, 9]}, recovery=Recovery(save=10, restart=20))
    assert jobs["end"].to_list() == [35.0 + 10 + 10 + 20 + 65, 45.0]  # it worked until 35 s
    _, jobs = run(rows, columns={"priority": [0, 9]}, recovery=Recovery(save=31, restart=20))
    assert jobs["end"].to_list() == [45.0 + 100, 45.0]  # its grace is too short: nothing is saved, nothing loaded


def test_a_workload_that_was_leaving_is_gone_with_its_node():
    """The first is asked to go at 5 s and would leave at 35 s; its node fails at 20 s, and the second starts then."""
    rows = [(0, 100, 8, 2), (5, 10, 8, 1)]
    _, jobs = run(rows, columns={"priority": [0, 9]}, events=[Outage(20, 60, ["node-0"])])
    assert jobs["start"][1] == 20.0
    assert jobs["end"].to_list() == [160.0, 30.0]  # both nodes are there again at 60 s


def test_pods_wait_with_their_quota_for_a_drained_node_and_for_one_that_joins():
    _, jobs = run([(0, 500, 8, 1), (10, 20, 8, 1)], events=[Drain(0, 200, ["node-1"])])
    assert jobs["start"].to_list() == [0.0, 200.0]
    _, jobs = run([(0, 500, 8, 1), (10, 20, 8, 1)], events=[Outage(0, 200, ["node-1"])])
    assert jobs["start"].to_list() == [0.0, 200.0]


def test_a_workload_placed_by_topology_is_evicted_and_placed_on_nodes_that_are_there():
    level = "kubernetes.io/hostname"
    site = Kueue.of(
        cq("all", None, QUOTA), ResourceFlavor("any", topology="t"), Topology("t", (level,)),
    )  # fmt: skip
    result, jobs = run([(0, 500, 8, 1)], site=site, events=[Outage(100, 5000, ["node-0"])])
    assert runs_of(result) == [(0, 0.0, 100.0, [0]), (0, 440.0, 940.0, [1])]
    assert jobs.select("failures", "preemptions").row(0) == (1, 0)
    _, jobs = run([(0, 50, 8, 1), (1, 50, 8, 2)], site=site, events=[Drain(10, 300, ["node-1"])])
    assert jobs["start"].to_list() == [0.0, 300.0]


@pytest.mark.parametrize("until", [50.0, 200.0, 600.0])
def test_a_simulation_that_is_stopped_is_a_beginning_of_the_whole_one(until):
    words = {"events": [Outage(100, 160, ["node-0"])], "recovery": Recovery(every=60, save=5, restart=20)}
    whole, _ = run([(0, 500, 8, 2), (10, 20, 8, 1)], **words)
    part, _ = run([(0, 500, 8, 2), (10, 20, 8, 1)], until=until, **words)
    assert [one[:2] for one in starts(part)] == [one[:2] for one in starts(whole) if one[1] < until]


def starts(result):
    runs = result.played.runs(result.world.first)
    return sorted(zip(runs.job.tolist(), runs.begin.tolist(), strict=True))
