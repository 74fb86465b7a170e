"""Records of runs: a part of the jobs is measured as the simulator measures all, without simulating again."""

import numpy as np
import polars as pl
import pytest

from fleetlab import Prices, WorkloadError, simulate
from fleetlab.core.scenario import Scenario
from fleetlab.web.runs import RunRecord, save

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
    return {name: RunRecord.load(folder / "all" / name) for name in runs}


@pytest.mark.parametrize("name", RUNS)
def test_all_jobs_are_measured_as_the_simulator_does(runs, records, name):
    measures = records[name].measure(Prices()).measures.estimates()
    simulated = {e.metric: e for e in runs[name].summary()}
    assert len(measures) > 10
    for e in measures:
        np.testing.assert_allclose(e[1:4], simulated[e.metric][1:4], rtol=1e-9, err_msg=e.metric)


def test_facts_per_day_of_all_jobs_are_those_of_the_simulator(runs, records):
    estimates = records["base"].measure(Prices()).estimates
    for e in runs["base"].per_day():
        assert estimates[e.metric].value == pytest.approx(e.value)


def test_the_mean_wait_of_a_time_is_that_of_the_jobs_submitted_in_it(runs, records):
    measured = records["sjf"].measure(Prices(), between=BETWEEN)
    jobs = runs["sjf"].completed.filter(pl.col("submit").is_between(*BETWEEN, closed="left"))
    assert 100 < jobs.height < runs["sjf"].completed.height / 2
    assert measured.estimates["mean wait"].value == pytest.approx(jobs["wait"].mean())
    assert measured.completed == jobs.height


def test_the_reasons_of_a_time_add_up_to_its_mean_wait(records):
    measured = records["base"].measure(Prices(), between=BETWEEN)
    total = sum(measured.reasons.values())
    assert total == pytest.approx(measured.estimates["mean wait"].value)


def test_a_time_means_the_same_jobs_at_another_load(records, small):
    # From one submission to another: they are divided by the load, and multiplied again.
    ends = small.workload.frame["submit"].to_numpy()[[400, 900]]
    measured = [records[name].measure(Prices(), between=tuple(ends.round(3))) for name in ("base", "busier")]
    assert measured[0].rows == measured[1].rows


def test_gpu_allocation_of_a_time_is_that_of_the_cluster_in_it(runs, records):
    measured = records["base"].measure(Prices(), between=BETWEEN)
    there, allocated = runs["base"].usage_over_time(np.array(BETWEEN)).both
    share = 100 * allocated.sum() / there.sum()
    assert measured.estimates["GPU allocation while jobs arrive"].value == pytest.approx(share)


def test_a_time_in_which_no_job_is_submitted_is_refused(records):
    with pytest.raises(WorkloadError, match="no job is submitted"):
        records["base"].measure(Prices(), between=(1e9, 2e9))
