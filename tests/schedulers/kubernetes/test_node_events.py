"""Nodes that fail, are drained and come back under kube-scheduler: small cases by hand."""

import polars as pl
import pytest

from fleetlab import Cluster, Workload, simulate
from fleetlab.core import WorkloadError
from fleetlab.core.events import Drain, Elastic, Outage, Recovery, Spot
from fleetlab.schedulers.kubernetes.loop import REPLACED_AFTER


def run(rows, nodes=2, **words):
    """(submit, runtime, GPUs) on nodes of 8 GPUs."""
    submit, runtime, gpus = zip(*rows, strict=True)
    columns = words.pop("columns", {})
    frame = pl.DataFrame({"submit": submit, "runtime": runtime, "gpu_milli": [1000 * g for g in gpus]} | columns)
    work = Workload.of(frame.cast({"submit": pl.Float64, "runtime": pl.Float64}), source="by hand")
    result = simulate(work, Cluster.uniform(nodes, 8), scheduler="kubernetes", warm_up="none", **words)
    result.timeline()  # nothing runs on a node that is down
    return result, result.jobs.sort("job")


def runs_of(result):
    runs = result.played.runs(result.world.first)
    return list(zip(runs.job.tolist(), runs.begin.tolist(), runs.end.tolist(), runs.where.tolist(), strict=True))


def test_a_pod_of_a_node_that_fails_is_replaced_once_it_is_evicted_and_does_all_its_work_again():
    """One node of two fails at 100 s. Its pod is deleted after 40 s + 300 s and the new one starts at once."""
    result, jobs = run([(0, 500, 8)], events=[Outage(100, 5000, ["node-0"]), Drain(0, 50, ["node-1"])])
    assert runs_of(result) == [(0, 0.0, 100.0, 0), (0, 100.0 + REPLACED_AFTER, 940.0, 1)]
    assert jobs.select("end", "lost", "failures", "preemptions").row(0) == (940.0, 100.0, 1, 0)


def test_where_the_node_is_back_earlier_the_pod_is_replaced_then():
    result, _ = run([(0, 500, 8)], nodes=1, events=[Outage(100, 160, ["node-0"])])
    assert runs_of(result) == [(0, 0.0, 100.0, 0), (0, 160.0, 660.0, 0)]


def test_a_checkpoint_keeps_what_was_done_before_it():
    """Checkpoints after 60 and 120 s of work, of 5 s each: of 100 s, 60 s are saved, and 440 s are left to do."""
    recovery = Recovery(every=60, save=5, restart=20)
    _, jobs = run([(0, 500, 8)], nodes=1, events=[Outage(100, 160, ["node-0"])], recovery=recovery)
    # It restarts for 20 s, works for 440 s and writes seven checkpoints: 160 + 20 + 440 + 7 × 5.
    assert jobs["end"].to_list() == [655.0]
    assert jobs["lost"].to_list() == [40.0 + 20.0 + 35.0]


def test_a_pod_that_is_evicted_saves_its_work_within_its_grace():
    """Evicted at 5 s, it works until 35 s, saves in its grace of 30 s, and has 65 s left: 45 + 10 (save) + 20 + 65."""
    rows, ranks = [(0, 100, 8), (5, 10, 8)], {"priority": [0, 1000]}
    _, jobs = run(rows, nodes=1, columns=ranks, recovery=Recovery(save=10, restart=20))
    begin = jobs["end"][1]
    assert jobs["end"][0] - begin == pytest.approx(10 + 20 + 65, abs=2)  # it backs off in whole seconds
    _, without = run(rows, nodes=1, columns=ranks, recovery=Recovery(save=31, restart=20))
    assert without["end"][0] - begin == pytest.approx(20 + 100, abs=21)


def test_a_drained_node_takes_no_pods_and_those_that_wait_are_tried_when_it_is_back():
    result, jobs = run([(0, 50, 8), (10, 20, 8)], nodes=1, events=[Drain(5, 300, ["node-0"])])
    assert jobs["end"][0] == 50.0
    assert jobs["start"][1] == 300.0
    assert result.ledger.filter(pl.col("job") == 1)["node_down"].sum() > 0


def test_a_node_that_joins_takes_the_pods_that_wait():
    result, _ = run([(0, 500, 8), (10, 20, 8)], events=[Outage(0, 200, ["node-1"])])
    assert runs_of(result) == [(0, 0.0, 500.0, 0), (1, 200.0, 220.0, 1)]


def test_a_pod_that_no_owner_makes_again_is_cut_short_when_its_node_fails():
    _, jobs = run([(0, 500, 8)], columns={"requeue": [False]}, events=[Outage(100, 5000, pool="default")])
    assert jobs.select("status", "end", "failures").row(0) == ("cut short", 100.0, 1)


def test_a_simulation_that_is_stopped_knows_what_waits_for_its_eviction():
    _, jobs = run([(0, 500, 8)], events=[Outage(100, 5000, ["node-0"]), Drain(0, 50, ["node-1"])], until=200)
    assert jobs.select("status", "failures", "lost").row(0) == ("waiting", 1, 100.0)


def test_with_notice_a_pod_is_saved_and_replaced_at_once():
    events = [Spot("default", every=300, away=10, notice=60)]
    _, jobs = run([(0, 1000, 8)], nodes=1, events=events, recovery=Recovery(save=5, restart=10), seed=3)
    failures = jobs["failures"][0]
    assert failures > 0
    assert jobs["lost"][0] == pytest.approx(15 * failures)
    assert jobs["end"][0] == pytest.approx(1000 + (15 + 10) * failures, abs=2 * failures)


def test_elastic_pools_are_refused():
    with pytest.raises(WorkloadError, match="kube-scheduler is simulated without elastic pools"):
        run([(0, 500, 8)], events=[Elastic("default")])
