"""Logs of supercomputers as lumos publishes them: whole nodes, waits, time limits, and a machine as large as it was."""

from pathlib import Path

import polars as pl
import pytest

import fleetlab

THETA = Path(__file__).parents[3] / "shared" / "data" / "theta"


@pytest.fixture
def good(fixtures):
    return fleetlab.read(fixtures / "lumos" / "good", "lumos")


def test_an_instance_is_a_node(good):
    assert good.workload.frame.select("instances", "cpu_milli", "limit").rows() == [
        (1, 64_000, 60.0), (8, 64_000, 3600.0), (2, 64_000, 600.0)
    ]  # fmt: skip
    assert set(good.cluster.frame["cpu_milli"]) == {64_000}


def test_the_machine_has_as_many_nodes_as_jobs_held_at_once(good):
    assert len(good.cluster) == 11  # the last job starts when the first two run


def test_waits_and_requests_are_those_of_the_log(good):
    waits = good.workload.frame.select(pl.col("start") - pl.col("submit")).to_series().to_list()
    assert waits == [100.0, 71.0, 0.0]
    assert good.series["requested"].collect()["seconds"].to_list() == [60.0, 3600.0, 600.0]
    assert good.names.collect()["name"].to_list() == ["13", "11", "12"]


def test_rows_that_no_job_can_have_are_named(fixtures):
    trace = fleetlab.read(fixtures / "lumos" / "bad", "lumos")
    reasons = {reason.partition(":")[0] for reason in trace.rejects["reason"]}
    assert trace.rejects.height == 9
    assert {"duplicate job", "not a number of nodes", "`cpu_num` is missing"} <= reasons


@pytest.mark.data
def test_theta_has_the_nodes_and_waits_that_are_known_of_it():
    trace = fleetlab.read(THETA, "lumos")
    waits = trace.workload.frame.select((pl.col("start") - pl.col("submit")) / 3600).to_series()
    assert (len(trace.workload), len(trace.cluster), trace.rejects.height) == (14_374, 4_392, 0)
    assert waits.mean() == pytest.approx(8.2, abs=0.05)
