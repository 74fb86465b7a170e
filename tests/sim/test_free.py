"""What is free on a cluster at one moment, and of no use to the jobs at hand."""

import polars as pl
import pytest

from fleetlab.core import Cluster, Workload
from fleetlab.sim.free import free_gpus

FREE = (0, 0, True)


def cluster(*gpus, gpu_type="A100"):
    rows = [{"node": f"n{k}", "gpu_type": gpu_type, "gpus": n, "cpu_milli": 64_000, "memory_mib": 500_000}
            for k, n in enumerate(gpus)]  # fmt: skip
    return Cluster.of(pl.DataFrame(rows), source="by hand")


def jobs(*gpu_milli):
    frame = pl.DataFrame(
        {"submit": [0.0] * len(gpu_milli), "gpu_milli": gpu_milli, "cpu_milli": [1000] * len(gpu_milli)}
    )
    return Workload.of(frame, source="by hand")


def found(workload, nodes, used):
    row = free_gpus(workload, nodes, used).row(0, named=True)
    return row["up"] - row["allocated"], row["fragmented"]


def test_gpus_that_every_job_can_use_are_not_fragmented():
    assert found(jobs(1000, 2000), cluster(8, 8), {}) == (16, 0)


def test_free_gpus_in_too_small_pieces_are_all_fragmented():
    half = {"n0": (4000, 0, True), "n1": (4000, 0, True)}
    assert found(jobs(8000, 8000), cluster(8, 8), half) == (8, 8)


def test_fragments_are_weighed_by_how_frequent_the_jobs_are_that_cannot_use_them():
    half = {"n0": (4000, 0, True)}  # 4 GPUs are free: of use to three of four jobs
    assert found(jobs(1000, 1000, 1000, 8000), cluster(8), half) == (4, 1)


def test_a_fraction_left_of_a_gpu_is_of_no_use_to_jobs_of_whole_ones():
    assert found(jobs(1000), cluster(2), {"n0": (500, 0, True)}) == (pytest.approx(1.5), pytest.approx(0.5))


def test_gpus_without_free_cpus_beside_them_are_fragmented():
    assert found(jobs(1000), cluster(8), {"n0": (4000, 64_000, True)}) == (4, 4)


def test_a_node_that_is_down_has_nothing_free():
    row = free_gpus(jobs(1000), cluster(8, 8), {"n1": (0, 0, False)}).row(0, named=True)
    assert (row["gpus"], row["up"], row["fragmented"]) == (16, 8, 0)


def test_more_allocated_than_there_is_counts_as_all():
    assert found(jobs(1000), cluster(8), {"n0": (99_000, 0, True)}) == (0, 0)


def test_without_jobs_nothing_is_fragmented():
    assert found(jobs(), cluster(8), {}) == (8, 0)


def test_types_are_counted_apart():
    both = Cluster.of(pl.concat([cluster(8).frame, cluster(4, gpu_type="T4").frame.with_columns(node=pl.lit("t"))]),
                      source="by hand")  # fmt: skip
    assert free_gpus(jobs(1000), both, {}).select("gpu_type", "gpus").rows() == [("A100", 8), ("T4", 4)]
