"""Moves that free nodes and GPUs: in order, each where there is room, for what they cost."""

import numpy as np
import polars as pl
import pytest

import fleetlab
from fleetlab import Cluster, Workload, WorkloadError
from fleetlab.plan import check


def demand(**columns):
    return Workload.of(pl.DataFrame({"submit": 0.0, **columns}), source="by hand")


def at(*rows):
    return pl.DataFrame(list(rows), schema=["job", "instance", "node", "gpus"], orient="row")


def steps(found, current):
    """The placement before the first move and after each."""
    table = current
    yield table
    for row in found.moves.iter_rows(named=True):
        moves = (pl.col("job") == row["job"]) & (pl.col("instance") == row["instance"])
        assert table.filter(moves).select("node", "gpus").row(0) == (row["from"], row["from_gpus"])
        table = table.with_columns(
            node=pl.when(moves).then(pl.lit(row["to"])).otherwise("node"),
            gpus=pl.when(moves).then(pl.lit(row["to_gpus"])).otherwise("gpus"),
        )
        yield table


def test_the_one_move_that_frees_a_node_is_found_and_costs_what_it_should():
    # 600, 300 and 300 on three nodes of 1000: the cheaper of the small ones goes to where 600 is.
    asked = demand(cpu_milli=[600, 300, 300], memory_mib=[6000, 6000, 3000])
    current = at((0, 0, "node-0", 0), (1, 0, "node-1", 0), (2, 0, "node-2", 0))
    nodes = Cluster.uniform(3, 0, cpu_milli=1000, memory_mib=10_000)
    found = fleetlab.defragment(asked, nodes, current, most=1, mib_per_second=100, restart=30)
    assert found.moves.select("job", "from", "to", "minutes").rows() == [(2, "node-2", "node-0", 1.0)]
    assert (found.freed, found.before, found.most) == (1, 0, 1)


def test_a_share_leaves_its_gpu_for_another_that_is_held_already():
    asked = demand(gpu_milli=[400, 500, 700], cpu_milli=[1000] * 3)
    current = at((0, 0, "node-0", 1), (1, 0, "node-0", 2), (2, 0, "node-1", 1))
    found = fleetlab.defragment(asked, Cluster.uniform(2, 2, cpu_milli=2000), current, free="gpu")
    # Both are on node 0, so nothing else is short; node 1 has no room for 400 or 500 beside 700.
    assert found.moves.select("job", "to", "to_gpus").rows() == [(0, "node-0", 2)]
    assert (found.freed, found.before, found.most) == (1, 1, 2)


def test_an_idle_gpu_is_never_taken_to_free_another():
    asked = demand(gpu_milli=[600, 600])
    current = at((0, 0, "node-0", 1), (1, 0, "node-1", 1))
    found = fleetlab.defragment(asked, Cluster.uniform(2, 2), current, free="gpu")
    assert (found.freed, found.moves.height) == (0, 0)
    assert "No direct moves free GPUs" in found.findings[0]


@pytest.mark.parametrize("free", ["node", "gpu"])
@pytest.mark.parametrize("seed", range(4))
def test_at_every_step_the_placement_is_right_and_in_the_end_so_much_is_free(free, seed):
    rng = np.random.default_rng(seed)
    asked = demand(
        cpu_milli=rng.integers(100, 900, 40),
        gpu_milli=rng.choice([0, 200, 300, 500, 1000], 40),
        app=rng.choice(["a", "b"], 40),
        max_per_node=rng.choice([0, 3], 40),
    )
    nodes = Cluster.uniform(20, 4, cpu_milli=4000)
    current = fleetlab.plan(asked, nodes, objective="balance", seconds=1).placements
    found = fleetlab.defragment(asked, nodes, current, free=free)
    tables = list(steps(found, current))
    assert all(check(asked, nodes, table) == [] for table in tables)
    assert tables[-1].sort("job").equals(found.placements.sort("job"))
    assert idle(tables[-1], asked, nodes, free) - idle(tables[0], asked, nodes, free) == found.freed > 0
    assert found.before + found.freed <= found.most


def idle(table, asked, nodes, free):
    if free == "node":
        return len(nodes) - table["node"].n_unique()
    held = {(node, g) for node, bits in table.select("node", "gpus").iter_rows() for g in range(4) if bits >> g & 1}
    return nodes.gpus - len(held)


@pytest.mark.parametrize(
    ("current", "options", "words"),
    [
        (at((0, 0, "node-0", 0)), {"free": "rack"}, "node or gpu"),
        (at((0, 0, "node-0", 0)), {"most": 0}, "1 or more"),
        (at((0, 0, "node-0", 0)), {"mib_per_second": 0.0}, "must be positive"),
        (at((0, 0, "gone", 0)), {}, "covers 0 of 1 instances"),
        (at((0, 0, "node-1", 0)), {}, "invalid: node node-1: cpu_milli: 500 allocated, capacity 10"),
    ],
)
def test_what_cannot_be_defragmented_is_refused_in_words(current, options, words):
    nodes = pl.concat([Cluster.uniform(1, 0, cpu_milli=c).frame.with_columns(node=pl.lit(n))
                       for n, c in (("node-0", 1000), ("node-1", 10))])  # fmt: skip
    with pytest.raises(WorkloadError, match=words):
        fleetlab.defragment(demand(cpu_milli=[500]), Cluster.of(nodes, source="two"), current, **options)


def test_a_placement_that_holds_too_much_is_told_before_anything_is_moved():
    current = at((0, 0, "node-0", 0), (0, 1, "node-0", 0))
    with pytest.raises(WorkloadError, match="invalid: node node-0: cpu_milli: 1400 allocated, capacity 1000"):
        fleetlab.defragment(demand(instances=[2], cpu_milli=[700]), Cluster.uniform(3, 0, cpu_milli=1000), current)
