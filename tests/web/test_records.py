"""Records of runs: a part of the jobs is measured as the simulator measures all, without simulating again."""

import numpy as np
import polars as pl
import pytest

from fleetlab import Prices, WorkloadError, simulate
from fleetlab.core.scenario import Scenario
from fleetlab.stats import BlockBootstrap, paired_difference
from fleetlab.web.records import Part, RunRecord, save
from fleetlab.web.runs import decode, unpack

BETWEEN = (2000.0, 5000.0)
RUNS = {"base": {}, "sjf": {"order": "sjf"}, "busier": {"load": 1.3}}


@pytest.fixture(scope="module")
def runs(small):
    return {name: simulate(Scenario.of(small, **words)) for name, words in RUNS.items()}


@pytest.fixture(scope="module")
def records(runs, tmp_path_factory):
    folder = tmp_path_factory.mktemp("records")
    for name, run in runs.items():
        save(run, folder / "all" / name)
    return {name: RunRecord.load_from(folder / "all" / name) for name in runs}


def summary(measured):
    return {e["metric"]: e for e in measured["summary"]}


@pytest.mark.parametrize("name", RUNS)
def test_all_jobs_are_measured_as_the_simulator_does(runs, records, name):
    found = summary(records[name].measure(Part(), Prices()))
    told = {e.metric: e for e in runs[name].summary()}
    assert len(found) > 10
    for metric, e in found.items():
        limits = [np.nan if e[k] is None else e[k] for k in ("value", "low", "high")]
        np.testing.assert_allclose(limits, told[metric][1:4], rtol=1e-9, err_msg=metric)


def test_facts_per_day_of_all_jobs_are_those_of_the_simulator(runs, records):
    exact = {e["metric"]: e["value"] for e in records["base"].measure(Part(), Prices())["exact"]}
    for e in runs["base"].per_day():
        assert exact[e.metric] == pytest.approx(e.value)


def test_the_mean_wait_of_a_time_is_that_of_the_jobs_submitted_in_it(runs, records):
    measured = records["sjf"].measure(Part(between=BETWEEN), Prices())
    jobs = runs["sjf"].completed.filter(pl.col("submit").is_between(*BETWEEN, closed="left"))
    assert 100 < jobs.height < runs["sjf"].completed.height / 2
    assert summary(measured)["mean wait"]["value"] == pytest.approx(jobs["wait"].mean())
    assert unpack(measured["completed"], measured["jobs"]).sum() == jobs.height


def test_the_reasons_of_a_time_add_up_to_its_mean_wait(records):
    measured = records["base"].measure(Part(between=BETWEEN), Prices())
    total = sum(decode(reason).values[0] for reason in measured["reasons"].values())
    assert total == pytest.approx(summary(measured)["mean wait"]["value"])


def test_the_interval_of_a_difference_is_that_of_stats_with_blocks_of_the_time(runs, records):
    before, after = (records[name].measure(Part(between=BETWEEN), Prices()) for name in ("base", "sjf"))
    ours = paired_difference(*(decode(m["replicates"]["mean wait"]) for m in (before, after))).interval()
    inside = pl.col("submit").is_between(*BETWEEN, closed="left")
    jobs = [runs[name].completed.filter(inside) for name in ("base", "sjf")]
    blocks = BlockBootstrap.of_times(jobs[0]["submit"].to_numpy() - BETWEEN[0], BETWEEN[1] - BETWEEN[0])
    theirs = paired_difference(*(blocks.means(part["wait"].to_numpy()) for part in jobs)).interval()
    assert tuple(ours) == pytest.approx(tuple(theirs))


def test_a_time_means_the_same_jobs_at_another_load(records, small):
    # From one submission to another: they are divided by the load, and multiplied again.
    ends = small.workload.frame["submit"].to_numpy()[[400, 900]]
    measured = [records[name].measure(Part(between=tuple(ends.round(3))), Prices()) for name in ("base", "busier")]
    assert measured[0]["rows"] == measured[1]["rows"]


def test_gpu_allocation_of_a_time_is_that_of_the_cluster_in_it(runs, records):
    measured = records["base"].measure(Part(between=BETWEEN), Prices())
    there, allocated = runs["base"].usage_over_time(np.array(BETWEEN)).both
    share = 100 * allocated.sum() / there.sum()
    assert summary(measured)["GPU allocation while jobs arrive"]["value"] == pytest.approx(share)


def test_a_time_in_which_no_job_is_submitted_is_refused(records):
    with pytest.raises(WorkloadError, match="no job is submitted"):
        records["base"].measure(Part(between=(1e9, 2e9)), Prices())
