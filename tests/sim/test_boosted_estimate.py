"""Estimates by trees: they learn what means do not, from the past alone."""

import numpy as np
import polars as pl
import pytest

import fleetlab
from fleetlab import Cluster, Workload
from fleetlab.sim.boosted_estimate import boosted_estimate

pytest.importorskip("lightgbm")


def workload(jobs=6000, changed_from=None):
    """Jobs that run by their CPUs, whoever submits them: no mean of a user or group tells it."""
    rng = np.random.default_rng(5)
    cpus = rng.integers(1, 9, jobs)
    runtime = 60.0 * 2.0**cpus
    if changed_from is not None:
        runtime[changed_from:] = 1.0
    frame = pl.DataFrame({
        "submit": np.arange(jobs) * 30.0, "runtime": runtime, "cpu_milli": cpus * 1000, "gpu_milli": 1000,
        "user": rng.choice(["ann", "bob"], jobs), "group": "g",
    })  # fmt: skip
    return Workload.of(frame.with_columns(start="submit"), source="by CPUs")


def test_trees_learn_what_no_mean_tells():
    jobs = workload()
    late = slice(3000, None)
    truth, believed = jobs.frame["runtime"].to_numpy()[late], boosted_estimate(jobs).to_numpy()[late]
    assert np.median(np.abs(believed / truth - 1)) < 0.05
    mean = jobs.frame["runtime"].to_numpy()[:3000].mean()
    assert np.median(np.abs(mean / truth - 1)) > 0.5


def test_what_comes_later_changes_nothing():
    first = 4000
    as_it_was, changed = (boosted_estimate(workload(changed_from=k)).to_numpy() for k in (None, first))
    submit = workload().frame["submit"].to_numpy()
    before = submit < submit[first]
    assert (as_it_was[before] == changed[before]).all()
    assert (as_it_was != changed).any()


def test_a_scenario_takes_them_by_name_and_they_help():
    jobs, cluster = workload(2000), Cluster.uniform(1, 8)
    fifo, boosted, oracle = (
        fleetlab.simulate(jobs, cluster, load=8.0, **words).jobs["wait"].mean()
        for words in ({}, {"order": "sjf", "estimate": "boosted"}, {"order": "sjf"})
    )
    assert oracle < boosted < 0.8 * fifo


def test_jobs_before_anything_has_ended_have_an_estimate():
    assert boosted_estimate(workload(50)).to_list()[0] == 0.0
    assert boosted_estimate(workload(50)).is_not_null().all()
