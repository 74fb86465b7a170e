"""The traces that come with the package: a recorded run, the same jobs after a change, and a synthetic one."""

from pathlib import Path

import polars as pl
import pytest

import fleetlab
from fleetlab.core.addresses import names_local
from fleetlab.core.data import open_trace
from fleetlab.traces import shipped

MEASURED = Path(__file__).parents[2] / "measurements" / "slurm"
ARCHIVES = Path(shipped.__file__).parent / "sample"


def mean_wait(trace):
    return trace.workload.frame.select((pl.col("start") - pl.col("submit")).mean()).item()


@pytest.mark.parametrize(("name", "run"), [("sample", "defaults-1"), ("changed", "plain-1")])
def test_the_sample_is_a_recorded_run_byte_for_byte(name, run):
    assert (ARCHIVES / f"{name}.tar.gz").read_bytes() == (MEASURED / f"{run}.tar.gz").read_bytes()


def test_the_sample_has_a_queue_the_cluster_that_it_ran_on_and_its_scheduler():
    trace = open_trace("sample")
    assert (len(trace.workload), trace.cluster.gpus, trace.scheduler.name) == (1000, 160, "slurm")
    assert trace.workload.source == "sample"
    assert mean_wait(trace) > 60


def test_the_real_slurm_with_one_other_line_ran_the_same_jobs_with_half_the_wait():
    before, after = open_trace("sample"), open_trace("sample:changed")
    columns = ["user", "instances", "gpu_milli", "limit"]
    assert before.workload.frame[columns].equals(after.workload.frame[columns])
    assert mean_wait(after) < mean_wait(before) / 2


def test_the_simulated_wait_of_the_sample_is_close_to_the_recorded_one():
    trace = open_trace("sample")
    wait = next(e for e in fleetlab.simulate(trace).summary() if e.metric == "mean wait").value
    assert wait == pytest.approx(mean_wait(trace), rel=0.1)


def test_pai_is_another_name_of_the_built_in_trace():
    assert open_trace("pai:300:7").workload.frame.equals(open_trace("builtin:300:7").workload.frame)


def test_pai_without_a_number_is_a_part_of_it_that_has_a_queue():
    trace = open_trace("pai")
    assert trace.workload.synthetic
    assert len(trace.workload) == pytest.approx(10_000, rel=0.01)
    waits = fleetlab.simulate(trace).completed["wait"]
    assert waits.mean() > 300
    assert waits.quantile(0.9) > 60


@pytest.mark.parametrize("name", ["sample", "sample:changed", "pai", "pai:2000", "builtin"])
def test_the_name_of_a_shipped_trace_is_no_file_of_this_machine(name):
    assert not names_local("trace", name)


def test_a_misspelt_sample_is_refused_with_what_there_is():
    with pytest.raises(fleetlab.TraceError, match="sample:changed"):
        open_trace("sample:change")
