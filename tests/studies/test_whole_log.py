"""The 2025 trace, of which half the instances are older than the log or outlive it: they hold what they held."""

import numpy as np
import polars as pl
import pytest
from benchmarks import real_logs as logs
from benchmarks.real_logs import running

import fleetlab

HOUR = 3600.0


@pytest.fixture
def log(data):
    return fleetlab.read(data / logs.DLRM_FOLDER / logs.DLRM_FILE, "dlrm2025")


@pytest.fixture
def alive(log):
    frame = log.workload.frame
    return logs._alive(frame, float(frame["end"].max()))


@pytest.mark.data
def test_as_many_instances_run_in_every_hour_as_in_the_log(log, alive):
    result = fleetlab.simulate(log, logs._peak_cluster(alive))
    hours = np.arange(HOUR, float(alive["stop"].max()), HOUR)
    recorded = running(alive.select(start="begin", end="stop"), hours)
    simulated = running(result.jobs.select("start", "end"), hours)
    assert recorded.min() > 7_000
    assert np.abs(simulated / recorded - 1).max() < 0.01
    assert result.coverage.share == 1.0
    assert (result.coverage.initial.jobs, result.coverage.held.jobs) == (7_280, 8_878)


@pytest.mark.data
def test_the_capacity_that_it_needs_is_what_the_log_held(log, alive):
    # Nodes with plenty of all but GPUs, so that GPUs alone decide.
    nodes = pl.DataFrame({"node": [f"n{k}" for k in range(200)], "gpu_type": "A", "gpus": 8, "cpu_milli": 10**7,
                          "memory_mib": 10**8, "rdma_milli": 10**7, "disk_mib": 10**9})  # fmt: skip
    found = fleetlab.capacity(log, fleetlab.Cluster.of(nodes, source="made"), slo="p90 wait < 60", workers=0)
    gpus = next(e.value for e in found.estimates if e.metric == "GPUs with these nodes")
    peak = logs._peak(alive, "gpu_milli") / 1000
    assert 3_300 < peak < 3_500
    assert 0.95 * peak <= gpus <= 1.05 * peak  # a tenth of the jobs may wait longer
    assert found.coverage.held.jobs == 8_878
