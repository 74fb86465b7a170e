"""A trace as what is submitted to a real Slurm."""

import polars as pl
import pytest
from realtest.trace import TooLarge, replay_of, site_of

from fleetlab.core import Cluster, Trace, Workload
from fleetlab.schedulers.slurm.config import Partition, Slurm

ROWS = pl.DataFrame(
    {
        "submit": [0.0, 60.0, 120.0, 180.0],
        "runtime": [600.0, 30.0, 1200.0, 60.0],
        "limit": [7200.0, None, 3600.0, 3600.0],
        "instances": [1, 2, 1, 1],
        "gpu_milli": [4000, 8000, 1000, 0],
        "user": ["ann lee", "bob", None, "bob"],
        "group": ["a", "b", "a", "b"],
        "eligible": [0.0, 660.0, 120.0, 180.0],
        "depends_on": [[], [], [0], []],
        "dependency": [[], [], ["afterok"], []],
        "partitions": [[], ["x", "y"], [], []],
    },
    schema_overrides={"depends_on": pl.List(pl.Int64), "dependency": pl.List(pl.String)},
)


@pytest.fixture
def trace():
    return Trace(Workload.of(ROWS, source="test"), None, Cluster.uniform(2, 8))


def test_times_are_divided_and_limits_are_whole_minutes(trace):
    first, second, third = replay_of(trace.workload, 60).jobs
    assert (first.at, first.seconds, first.limit) == (0.0, 10, 2)
    assert (second.at, second.seconds, second.limit) == (1.0, 1, 1)
    assert (third.at, third.seconds, third.limit) == (2.0, 20, 1)


def test_what_a_job_asks_for_becomes_words(trace):
    first, second, third = replay_of(trace.workload, 60).jobs
    assert (second.nodes, second.gpus) == (2, 8)
    assert second.words == ("-px,y", "--begin=now+10")
    assert third.words == ("--dependency=afterok:{k0}",)
    assert first.words == ()


def test_jobs_without_a_gpu_are_left_out_and_the_first_are_taken(trace):
    assert len(replay_of(trace.workload, 60).jobs) == 3
    assert len(replay_of(trace.workload, 60, 2).jobs) == 2


def test_users_get_names_that_a_system_takes(trace):
    _, slurm = site_of(trace)
    users = {queue.user for queue in slurm.queues.values() if queue.user}
    assert {job.user for job in replay_of(trace.workload, 60).jobs} <= users
    assert all(name.isalnum() for name in users)


def test_a_cluster_without_partitions_gets_one(trace):
    cluster, slurm = site_of(trace)
    assert set(cluster.frame["partitions"].explode()) == {"all"}
    assert slurm.partitions == (Partition("all", default=True),)


def test_the_site_runs_its_own_slurm():
    cluster = Cluster.of(Cluster.uniform(2, 8).frame.with_columns(partitions=pl.lit(["gpu"])), source="x")
    own = Slurm(partitions=(Partition("gpu", default=True),), kill_wait=7)
    _, slurm = site_of(Trace(Workload.of(ROWS, source="test"), None, cluster, own))
    assert (slurm.kill_wait, slurm.partitions) == (7, own.partitions)


def test_a_cluster_that_one_host_cannot_play_is_refused(trace):
    with pytest.raises(TooLarge, match="at most 100 nodes"):
        site_of(Trace(trace.workload, None, Cluster.uniform(200, 8)))
