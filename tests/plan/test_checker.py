"""The checker finds every rule that is broken, one planted at a time."""

import polars as pl
import pytest

from fleetlab import Cluster, Workload
from fleetlab.plan import check


def demand(**columns):
    """A demand by columns; all at once."""
    return Workload.of(pl.DataFrame({"submit": 0.0, **columns}), source="by hand")


ASKED = demand(
    instances=[2, 1, 1],
    cpu_milli=[400, 100, 0],
    memory_mib=[0, 900, 0],
    rdma_milli=[0, 0, 600],
    disk_mib=[0, 0, 70],
    gpu_milli=[600, 1000, 0],
    gpu_memory_mib=[10, 0, 0],
    gpu_types=[["A"], [], []],
    app=["x", None, "x"],
    max_per_node=[2, 0, 1],
)
NODES = Cluster.of(
    pl.DataFrame({
        "node": ["a", "b", "c"], "gpu_type": ["A", "A", "B"], "gpus": [2, 3, 2], "gpu_memory_mib": [16, 16, 16],
        "cpu_milli": [1000, 700, 1000], "memory_mib": [900, 900, 900], "rdma_milli": [600, 500, 600],
        "disk_mib": [70, 70, 60],
    }),
    source="by hand",
)  # fmt: skip
GOOD = [(0, 0, "a", 0b01), (0, 1, "a", 0b10), (1, 0, "b", 0b100), (2, 0, "a", 0)]


def wrong(*rows, whole=True):
    table = pl.DataFrame(list(rows), schema=["job", "instance", "node", "gpus"], orient="row")
    return check(ASKED, NODES, table, whole=whole)


def test_a_right_placement_has_nothing_wrong_but_its_limit():
    # Whoever comes last of three finds two of its app, and its limit is 2 or less.
    assert wrong(*GOOD) == ["node a: app 'x': 3 instances, one of them with a limit of 2"]
    assert wrong(*GOOD[:3], whole=False) == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ([(0, 0, "b", 0b01), (0, 1, "b", 0b10)], "cpu_milli: 800 allocated, capacity 700"),
        ([(0, 0, "a", 0b01), (0, 1, "a", 0b01)], "GPU 0: 1200 milli allocated"),
        ([(0, 0, "a", 0b01), (1, 0, "a", 0b01)], "GPU 0: 1600 milli allocated"),
        ([(0, 0, "a", 0b01), (0, 1, "a", 0b01)], "GPU 0: 20 MiB allocated, capacity 16"),
        ([(2, 0, "b", 0)], "rdma_milli: 600 allocated, capacity 500"),
        ([(2, 0, "c", 0)], "disk_mib: 70 allocated, capacity 60"),
        ([(0, 0, "c", 0b01)], "may not run on B"),
        ([(0, 0, "a", 0b11)], "requested 1"),
        ([(0, 0, "a", 0)], "requested 1"),
        ([(1, 0, "a", 0b100)], "GPUs 100 of 2"),
        ([(2, 0, "a", 0b1)], "requested 0"),
        ([(0, 0, "a", 0b01), (0, 0, "b", 0b01)], "placed twice"),
        ([(0, 2, "a", 0b01)], "not in the demand"),
        ([(7, 0, "a", 0b01)], "not in the demand"),
        ([(0, 0, "z", 0b01)], "unknown node: z"),
    ],
)
def test_a_broken_rule_is_told(change, words):
    assert any(words in told for told in wrong(*change, whole=False))


def test_someone_without_a_place_is_missed():
    assert wrong(*GOOD[:2]) == ["2 instances are not placed"]
