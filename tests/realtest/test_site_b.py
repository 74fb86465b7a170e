"""A real site of another design: limits of its backfill loop, whole nodes, reservations that were made meanwhile."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

import fleetlab
from fleetlab.studies.diagnose.changes import what_if

pytestmark = pytest.mark.data
SITES = Path(__file__).parents[3] / "shared" / "data" / "slurm-22.05"


@pytest.fixture(scope="module")
def site():
    return fleetlab.read(SITES / "site-B1", "slurm")


@pytest.fixture(scope="module")
def run(site):
    return fleetlab.simulate(site)


def test_whole_nodes_are_asked_for_and_not_those_that_were_got(site):
    jobs = site.workload.frame.filter("exclusive")
    assert jobs.height == 14
    assert set(jobs["cpu_milli"]) == {1000}
    assert set(jobs["gpu_milli"]) == {0}
    assert set(jobs["gpu_types"].list.len()) == {0}


def test_jobs_that_ask_for_whole_nodes_wait_about_as_long_as_they_did(site, run):
    jobs = run.jobs.join(site.workload.frame.select("job", "exclusive", began="start"), on="job").filter("exclusive")
    assert 0.8 < jobs["wait"].mean() / (jobs["began"] - jobs["submit"]).mean() < 1.25


def test_a_reservation_is_there_since_no_job_starts_into_it(site):
    made = {kept.name: kept.known for kept in site.scheduler.reservations}
    assert made["course"] is not None
    assert made["course"] < 50  # when it was made


def test_bf_max_job_user_is_a_reason_of_its_own_and_the_first(run):
    seconds = run.ledger.drop("job").sum().to_dicts()[0]
    assert max(seconds, key=seconds.get) == "bf_max_job_user"
    assert sum(seconds.values()) == pytest.approx(run.jobs["wait"].sum())


def test_raising_it_helps_as_it_did_when_it_was_raised_for_real(site, run):
    real = [fleetlab.read(SITES / name, "slurm").workload.frame for name in ("site-B1", "site-B2", "site-Buser")]
    before, again, after = (float((f["start"] - f["submit"]).mean()) for f in real)
    raised = site.scheduler.compare_config("bf_max_job_user=30", site.cluster).scheduler
    predicted = float(fleetlab.simulate(site, scheduler=raised).jobs["wait"].mean()) - float(run.jobs["wait"].mean())
    change = after - (before + again) / 2
    assert change < 0
    assert 0.5 < predicted / change < 2.0


def test_a_partition_whose_max_time_is_shorter_is_no_advice(site):
    job = {"partitions": ["inter"], "limit": 600.0}
    assert site.scheduler.refuses(job) == "its time limit of 10 min is above MaxTime of inter, 5 min"
    assert site.scheduler.refuses(job | {"partitions": ["inter", "batch"]}) == ""


def test_explain_says_what_ranks_jobs(site, run):
    late = run.jobs.sort("wait", descending=True)["job"][0]
    told = fleetlab.explain(site, job=f"#{late}", what_if=False)
    assert any("ranked by job size (weight 4,000), fair share (weight 2,000)" in text for text in told.findings)


def test_a_diagnosis_has_the_parameter_that_binds_among_its_changes(site):
    change = what_if("bf_max_job_user", fleetlab.Scenario.of(site))
    assert change.removes == ("bf_max_job_user",)
    assert "which is 2" in change.action


def test_a_node_more_is_in_one_partition_and_helps_that_one(site, run):
    means = {}
    for name in ("batch", "large"):
        change = what_if(f"nodes:{name}", fleetlab.Scenario.of(site))
        assert change.action.endswith(f"1 more node of partition {name}, in partition {name}")
        more = change.apply(fleetlab.Scenario.of(site))
        new = more.cluster.frame.filter(~pl.col("node").is_in(site.cluster.frame["node"].implode()))
        assert new["partitions"].to_list() == [[name]]
        means[name] = fleetlab.simulate(more).jobs["wait"].mean()
    assert means["batch"] < run.jobs["wait"].mean()
    assert means["batch"] != pytest.approx(means["large"], rel=0.01)


def test_waits_are_in_the_order_of_the_real_ones(site, run):
    jobs = run.jobs.join(site.workload.frame.select("job", began="start"), on="job").drop_nulls(["start", "began"])
    real = (jobs["began"] - jobs["submit"]).to_numpy()
    assert np.corrcoef(real, jobs["wait"].to_numpy())[0, 1] > 0.8
    assert 0.8 < jobs["wait"].mean() / real.mean() < 1.2


def test_explain_names_the_limit(site):
    jobs = fleetlab.simulate(site).ledger.sort("bf_max_job_user", descending=True)
    told = fleetlab.explain(site, job=f"#{jobs['job'][0]}", what_if=False)
    assert any("bf_max_job_user" in sentence for sentence in told.findings)
    assert pl.Series(told.frames["by reason"]["reason"]).is_in(["bf_max_job_user"]).any()
