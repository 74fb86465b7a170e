"""Nodes that fail, are drained and come back under Volcano and KAI, checkpoints, and runs that are stopped: by hand."""

import polars as pl
import pytest

from fleetlab import Cluster, Workload, simulate
from fleetlab.core import WorkloadError
from fleetlab.core.events import Drain, Elastic, Outage, Recovery, Spot
from fleetlab.core.schedulers import scheduler_of
from fleetlab.sim.kernel.service import REPLACED_AFTER

BOTH = pytest.mark.parametrize("scheduler", ["volcano", "kai"])
OUTAGE = Outage(100, 160, ["node-0"])


def run(scheduler, rows, nodes=2, **words):
    """(submit, runtime, GPUs of an instance, instances) on nodes of 8 GPUs."""
    submit, runtime, gpus, instances = zip(*rows, strict=True)
    columns = words.pop("columns", {})
    frame = pl.DataFrame(
        {"submit": submit, "runtime": runtime, "gpu_milli": [1000 * g for g in gpus], "instances": instances} | columns
    )
    work = Workload.of(frame.cast({"submit": pl.Float64, "runtime": pl.Float64}), source="by hand")
    result = simulate(work, Cluster.uniform(nodes, 8), scheduler=scheduler, warm_up="none", **words)
    result.timeline()  # nothing runs on a node that is down
    return result, result.jobs.sort("job")


def runs_of(result):
    runs = result.played.runs(result.world.first)
    return sorted(zip(runs.job.tolist(), runs.begin.tolist(), runs.end.tolist(), strict=True))


@BOTH
def test_a_gang_of_which_a_node_fails_begins_anew_once_its_pods_are_replaced(scheduler):
    """Its pods are replaced when the node is back at 160 s, its owner makes new ones 1 s later, and they start."""
    result, jobs = run(scheduler, [(0, 500, 8, 2)], events=[OUTAGE])
    assert runs_of(result) == [(0, 0.0, 100.0), (0, 161.0, 661.0)]
    assert jobs.select("end", "lost", "failures", "preemptions").row(0) == (661.0, 100.0, 1, 0)


@BOTH
def test_where_the_node_stays_away_pods_are_replaced_after_the_time_of_kubernetes(scheduler):
    """Its pods are replaced 340 s after the failure, its owner makes new ones 1 s later, and another node is free."""
    rows = [(0, 500, 8, 2)]
    node = run(scheduler, rows, nodes=3)[0].played.where[0]
    result, _ = run(scheduler, rows, nodes=3, events=[Outage(100, 5000, [f"node-{node}"])])
    assert runs_of(result) == [(0, 0.0, 100.0), (0, 101.0 + REPLACED_AFTER, 601.0 + REPLACED_AFTER)]


@BOTH
def test_a_gang_holds_its_other_nodes_until_it_is_replaced(scheduler):
    """Its pod on node-1 is there until 160 s, when node-0 is back: one that comes at 110 s waits."""
    _, jobs = run(scheduler, [(0, 500, 8, 2), (110, 20, 8, 1)], events=[OUTAGE])
    assert jobs["start"][1] >= 160.0


@BOTH
def test_a_checkpoint_keeps_what_was_done_before_it(scheduler):
    """60 of 100 s are saved. From 161 s it restarts for 20 s, works for 440 s and writes seven checkpoints of 5 s."""
    _, jobs = run(scheduler, [(0, 500, 8, 2)], events=[OUTAGE], recovery=Recovery(every=60, save=5, restart=20))
    assert jobs["end"].to_list() == [161.0 + 20 + 440 + 35]
    assert jobs["lost"].to_list() == [40.0 + 20.0 + 35.0]


@BOTH
def test_a_drained_node_takes_no_pods_until_it_is_back(scheduler):
    _, jobs = run(scheduler, [(0, 50, 8, 1), (10, 20, 8, 1)], nodes=1, events=[Drain(5, 300, ["node-0"])])
    assert jobs["start"].to_list() == [0.0, 300.0]
    assert jobs["end"][0] == 50.0


@BOTH
def test_with_notice_a_gang_is_saved_and_begins_anew(scheduler):
    events = [Spot("default", every=300, away=10, notice=60)]
    _, jobs = run(scheduler, [(0, 1000, 8, 1)], nodes=1, events=events, recovery=Recovery(save=5, restart=10), seed=3)
    failures = jobs["failures"][0]
    assert failures > 0
    assert jobs["lost"][0] == pytest.approx(15 * failures)


def test_an_evicted_gang_saves_its_work_within_its_grace():
    """Reclaimed from, it leaves 30 s later with what it has done until then."""
    deserved = {"a": 0.0, "b": 8.0}
    queues = [{"name": name, "quotas": {"nvidia.com/gpu": {"deserved": n}}} for name, n in deserved.items()]
    site = scheduler_of({"kind": "kai", "queues": queues})
    rows, owners = [(0, 100, 8, 1), (10, 20, 8, 1)], {"queue": ["a", "b"]}
    _, jobs = run(site, rows, nodes=1, columns=owners, recovery=Recovery(save=5, restart=10))
    assert jobs["preemptions"].to_list() == [1, 0]
    assert jobs["lost"][0] == 15.0
    assert jobs["end"][0] - jobs["end"][1] == pytest.approx(15 + 60, abs=2)


@BOTH
@pytest.mark.parametrize("until", [50.0, 130.0, 300.0])
def test_a_simulation_that_is_stopped_is_a_beginning_of_the_whole_one(scheduler, until):
    rows, words = [(0, 500, 8, 2), (10, 20, 8, 1)], {"events": [OUTAGE], "recovery": Recovery(every=60, save=5)}
    whole, part = (run(scheduler, rows, **words, **stop)[0] for stop in ({}, {"until": until}))
    assert [one[:2] for one in runs_of(part)] == [one[:2] for one in runs_of(whole) if one[1] < until]


@BOTH
def test_a_run_that_ends_when_the_simulation_does_has_ended(scheduler):
    _, jobs = run(scheduler, [(0, 50, 8, 1)], until=50.0)
    assert jobs.select("status", "end").row(0) == ("done", 50.0)


@BOTH
def test_elastic_pools_are_refused(scheduler):
    with pytest.raises(WorkloadError, match="without elastic pools"):
        run(scheduler, [(0, 500, 8, 1)], events=[Elastic("default")])
