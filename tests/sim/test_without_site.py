"""What becomes of a site's rules where other verbs or other rules play its jobs."""

from dataclasses import replace

import polars as pl
import pytest

import fleetlab
from fleetlab import Cluster, PolicyError, Scenario, Trace, Workload
from fleetlab.core import Provenance
from fleetlab.core.queues import Qos
from fleetlab.schedulers.slurm.config import BackfillLoop, MainLoop, Partition, Slurm
from fleetlab.sim.simulate import simulate

SITE = Slurm(
    partitions=(Partition("gpu"),), main=MainLoop(delay=0.0), backfill=BackfillLoop(interval=1.0, resolution=1.0),
    qos=(Qos("low", preempt_mode="cancel"), Qos("high", priority=10, preempts=("low",))), preempt="qos",
    preempt_mode="requeue",
)  # fmt: skip


@pytest.fixture(scope="module")
def trace():
    """Five jobs on a node of four GPUs: the third depends on the first, the fifth preempts the fourth for good."""
    frame = pl.DataFrame({
        "submit": [0.0, 0.0, 1.0, 200.0, 220.0], "runtime": [50.0, 20.0, 10.0, 100.0, 10.0],
        "gpu_milli": [1000, 1000, 1000, 4000, 4000], "cpu_milli": 1000, "limit": 600.0,
        "qos": ["low", "low", "low", "low", "high"], "depends_on": [[], [], [0], [], []],
        "dependency": [[], [], ["afterany"], [], []], "partitions": [["gpu"]] * 5,
    }, schema_overrides={"depends_on": pl.List(pl.Int64), "dependency": pl.List(pl.String)})  # fmt: skip
    cluster = Cluster.uniform(1, 4)
    nodes = replace(cluster, frame=cluster.frame.with_columns(partitions=pl.lit(["gpu"])))
    logged = pl.DataFrame({"job": [2], "eligible": [70.0]})
    jobs = Workload.of(frame, source="by hand")
    return Trace(jobs, Provenance("read", "by hand"), nodes, SITE, series={"eligible_logged": logged.lazy()})


def test_without_the_sites_slurm_dependencies_are_met_when_the_log_saw_it(trace):
    by_site, by_event = (simulate(trace, scheduler=scheduler) for scheduler in ("site", "event"))
    assert 50 <= by_site.jobs["start"][2] <= 53
    assert by_event.jobs["start"][2] == pytest.approx(70.0)
    assert any("the site's Slurm is not simulated" in note for note in by_event.notes)
    assert not any("not simulated" in note for note in by_site.notes)


def test_a_job_that_was_preempted_for_good_has_not_completed(trace):
    result = simulate(trace)
    assert result.jobs["status"].to_list() == ["done", "done", "done", "cut short", "done"]
    assert result.completed.height == 4
    assert (result.completed["slowdown"] >= 1).all()
    assert any(note.startswith("1 job ended before the time") for note in result.notes)
    wasted = next(estimate.value for estimate in result.summary() if estimate.metric == "wasted GPU time")
    assert wasted == pytest.approx(4 * 21 / 3600, abs=4 * 2 / 3600)


def test_the_settings_of_a_run_name_who_scheduled(trace):
    assert simulate(trace).provenance.settings["scheduler"] == "site"
    assert "order" not in simulate(trace).provenance.settings
    assert simulate(trace, scheduler="event").provenance.settings["order"] == "fifo"


def test_the_sites_slurm_takes_no_other_words_of_a_policy(trace):
    with pytest.raises(PolicyError, match="takes no other words of a policy: order"):
        simulate(trace, scheduler="site", order="sjf")


def test_a_sweep_simulates_the_sites_slurm(trace, tmp_path):
    both = Scenario.of(trace).vary(scheduler=["site", "event"])
    found = fleetlab.sweep(both, seeds=1, resample="none", store=tmp_path, workers=1)
    rows = found.tables()["scenarios"].filter(pl.col("metric") == "mean wait")
    waits = {name: simulate(trace, scheduler=name).completed["wait"].mean() for name in ("site", "event")}
    assert rows["mean"].to_list() == pytest.approx(list(waits.values()))


def test_a_configuration_whose_partitions_no_node_is_in_says_so(trace):
    other = replace(SITE, partitions=(Partition("gpu"), Partition("big")))
    assert any("partitions of the configuration: big;" in note for note in simulate(trace, scheduler=other).notes)
    assert not any("of the configuration" in note for note in simulate(trace).notes)


def test_the_recorded_wait_of_the_same_jobs_stands_beside_the_simulated_one(trace):
    # The log tells three starts: jobs 0 to 2 waited 4, 5 and 60 s; job 3 is not among those that complete.
    starts = pl.Series([4.0, 5.0, 61.0, 200.0, None])
    logged = replace(trace, workload=replace(trace.workload, frame=trace.workload.frame.with_columns(start=starts)))
    result = simulate(logged)
    assert result.recorded["recorded"].to_list() == [4.0, 5.0, 60.0]
    assert result.recorded["simulated"].to_list() == result.jobs["wait"][:3].to_list()
    assert result.findings[0].startswith("Recorded mean wait 23 s, simulated ")
    assert len(simulate(logged, load=2.0).findings) == 1  # at another load there is no such wait
    assert len(simulate(trace).findings) == 1
