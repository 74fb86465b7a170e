"""Start-up latency: GPUs are held, the job still waits, and without it nothing changes."""

import numpy as np
import polars as pl
import pytest

import fleetlab
from fleetlab import Cluster, PolicyError, Workload, WorkloadError
from fleetlab.core.catalog import HOLDERS, REASONS

ONE = Cluster.uniform(1, 1)
TWO = Workload.of(
    pl.DataFrame({"submit": [0.0, 1.0], "runtime": [10.0, 5.0], "gpu_milli": [1000, 1000]}), source="two jobs"
)


def test_gpus_are_held_while_a_job_starts_up_and_it_still_waits():
    jobs = fleetlab.simulate(TWO, ONE, latency=4).jobs
    assert jobs["start"].to_list() == [4, 18]  # the second has the GPU at 14, when the first ends
    assert jobs["end"].to_list() == [14, 23]
    assert jobs["wait"].to_list() == [4, 17]
    assert jobs["runtime"].to_list() == [10, 5]


def test_the_ledger_has_it_as_a_reason_of_its_own_that_nobody_holds():
    run = fleetlab.simulate(TWO, ONE, latency=4)
    assert run.ledger["start_up"].to_list() == [4, 4]
    assert run.ledger.select(pl.sum_horizontal(REASONS.names)).to_series().to_list() == run.jobs["wait"].to_list()
    assert run.holders.select(pl.sum_horizontal(HOLDERS.names)).to_series().to_list() == run.jobs["wait"].to_list()
    assert run.holders["nobody"].to_list() == [4, 4]


@pytest.mark.parametrize("words", [{}, {"backfill": "easy", "order": "sjf"}, {"order": "fair"}, {"order": "srpt"}])
def test_without_a_latency_schedules_are_bit_for_bit_the_same(words):
    work = fleetlab.synthesize("pai2020", jobs=300, seed=2)
    runs = [fleetlab.simulate(work, **words, **more).jobs for more in ({}, {"latency": 0}, {"latency": {"gang": 0}})]
    assert runs[0].equals(runs[1])
    assert runs[0].equals(runs[2])


def test_the_law_of_the_gpu_type_comes_before_that_of_the_size_and_that_of_others():
    frame = pl.DataFrame(
        {
            "submit": [0.0] * 4,
            "runtime": [1.0] * 4,
            "gpu_milli": [1000, 1000, 500, 1000],
            "instances": [1, 1, 1, 2],
            "gpu_types": [["GPU"], [], [], []],
        }
    )
    law = {"GPU": 7, "1 GPU": 8, "gang": [9], "other": 3}
    jobs = fleetlab.simulate(Workload.of(frame, source="four jobs"), Cluster.uniform(1, 8), latency=law).jobs
    assert jobs["wait"].to_list() == [7, 8, 3, 9]


def test_values_of_a_law_are_equally_likely_and_the_same_for_the_same_seed():
    frame = pl.DataFrame({"submit": np.arange(3000.0) * 100, "runtime": 1.0, "gpu_milli": 1000})
    work = Workload.of(frame, source="one after the other")
    waits = fleetlab.simulate(work, ONE, latency="10/20/60").jobs["wait"]
    assert dict(waits.value_counts().iter_rows()).keys() == {10, 20, 60}
    assert waits.mean() == pytest.approx(30, rel=0.05)
    assert waits.equals(fleetlab.simulate(work, ONE, latency=[10, 20, 60]).jobs["wait"])
    assert not waits.equals(fleetlab.simulate(work, ONE, latency="10/20/60", seed=1).jobs["wait"])


def test_a_job_that_runs_when_the_log_begins_has_started():
    frame = pl.DataFrame(
        {"submit": [0.0, 0.0], "runtime": [5.0, 5.0], "gpu_milli": [1000, 1000], "initial": [True, False]}
    )
    assert fleetlab.simulate(Workload.of(frame, source="one runs"), ONE, latency=4).jobs["wait"].to_list() == [0, 9]


@pytest.mark.parametrize("value", [-1, "soon", {"1 GPU": -2}, "1 GPU=often"])
def test_a_latency_is_a_number_of_seconds(value):
    with pytest.raises(WorkloadError, match="a latency is a number"):
        fleetlab.simulate(TWO, ONE, latency=value)


def test_an_unknown_class_is_refused_with_the_one_that_was_meant():
    with pytest.raises(PolicyError, match="no class of a latency by that name: `1 GPUs`; did you mean 1 GPU"):
        fleetlab.simulate(TWO, ONE, latency={"1 GPUs": 2})
