"""Small demands: the plan is the best there is, as trying every way shows; and none is found where there is none."""

import functools
import itertools
import math
import random

import numpy as np
import polars as pl
import pytest

import fleetlab
from fleetlab import Cluster, Workload
from fleetlab.plan import check

LUMPS = ("cpu_milli", "memory_mib", "rdma_milli")


def drawn(seed, *, most=6):
    """A demand of a few instances and a few nodes of two kinds, with shares, whole GPUs, types and limits."""
    rng = np.random.default_rng(seed)
    kinds = int(rng.integers(1, 4))
    counts = rng.integers(1, 3, kinds) if kinds > 1 else rng.integers(2, most, 1)
    asked = pl.DataFrame(
        {
            "submit": 0.0,
            "instances": counts,
            "cpu_milli": rng.integers(0, 7, kinds) * 1000,
            "memory_mib": rng.integers(0, 5, kinds) * 100,
            "rdma_milli": rng.integers(0, 2, kinds) * 250,
            "gpu_milli": rng.choice([0, 300, 500, 600, 1000, 2000], kinds),
            "gpu_memory_mib": rng.integers(0, 3, kinds) * 10,
            "gpu_types": [[["A"], [], ["A", "B"]][int(rng.integers(3))] for _ in range(kinds)],
            "app": rng.choice(["x", "y"], kinds),
            "max_per_node": rng.choice([0, 0, 1, 2], kinds),
        }
    )
    nodes = pl.DataFrame(
        {
            "node": [f"n{j}" for j in range(3)],
            "pool": ["p", "p", "q"],
            "gpu_type": ["A", "A", "B"],
            "gpus": [2, 2, int(rng.integers(1, 3))],
            "gpu_memory_mib": 25,
            "cpu_milli": [8000, 8000, int(rng.integers(6, 13)) * 1000],
            "memory_mib": [500, 500, 800],
            "rdma_milli": 500,
            "disk_mib": 0,
        }
    )
    return Workload.of(asked, source="drawn"), Cluster.of(nodes, source="drawn")


def every_way(asked, nodes):
    """Every right placement, by trying all: each instance on each node and each set of GPUs, rules counted afresh."""
    who = [(row, j) for row in asked.frame.iter_rows(named=True) for j in range(row["instances"])]
    there = list(nodes.frame.iter_rows(named=True))
    ways = [[(n, bits) for n in there for bits in gpu_sets(n, row)] for row, _ in who]
    for way in itertools.product(*ways):
        if all(right(n, [(row, bits) for (row, _), (m, bits) in zip(who, way, strict=True) if m is n]) for n in there):
            yield [(row["job"], j, n["node"], bits) for (row, j), (n, bits) in zip(who, way, strict=True)]


def gpu_sets(node, row):
    milli = row["gpu_milli"]
    if milli == 0:
        return [0]
    if row["gpu_types"] and node["gpu_type"] not in row["gpu_types"]:
        return []
    sets = itertools.combinations(range(node["gpus"]), math.ceil(milli / 1000))
    return [sum(1 << g for g in some) for some in sets]


def right(node, who):
    for name in ("cpu_milli", "memory_mib", "rdma_milli", "disk_mib"):
        if sum(row[name] for row, _ in who) > node[name]:
            return False
    for g in range(node["gpus"]):
        on = [row for row, bits in who if bits >> g & 1]
        if sum(min(row["gpu_milli"], 1000) for row in on) > 1000:
            return False
        if sum(row["gpu_memory_mib"] for row in on) > node["gpu_memory_mib"]:
            return False
    # A limit: in some order each came while fewer of its app, among those with a limit, were there.
    for app in {row["app"] for row, _ in who}:
        limits = sorted(row["max_per_node"] for row, _ in who if row["app"] == app and row["max_per_node"])
        if any(k >= limit for k, limit in enumerate(limits)):
            return False
    return True


@functools.cache
def tried(seed):
    asked, nodes = drawn(seed)
    return asked, nodes, list(every_way(asked, nodes))


@pytest.fixture(params=range(24))
def small(request):
    """Some draws; 400 were tried once."""
    return tried(request.param)[:2]


def used(way):
    return {node for _, _, node, _ in way}


def highest(way, asked, nodes):
    jobs = {row["job"]: row for row in asked.frame.iter_rows(named=True)}
    there = {row["node"]: row for row in nodes.frame.iter_rows(named=True)}
    loads = [0.0]
    for name in used(way):
        mine = [jobs[job] for job, _, node, _ in way if node == name]
        loads += [sum(row[lump] for row in mine) / there[name][lump] for lump in LUMPS]
        loads += [sum(row["gpu_milli"] for row in mine) / 1000 / there[name]["gpus"]]
    return max(loads)


@pytest.fixture
def ways(small, request):
    return tried(request.node.callspec.params["small"])[2]


def test_nobody_is_left_out_where_there_is_a_way_and_where_there_is_none_this_is_proved(small, ways):
    found = fleetlab.plan(*small, seconds=10)
    assert found.feasible == bool(ways)
    assert found.feasible or (found.unplaced.height and found.unplaced["proved"].all())


def test_no_way_uses_fewer_nodes(small, ways):
    if ways:
        found = fleetlab.plan(*small, seconds=10)
        assert found.value == found.bound == min(len(used(way)) for way in ways)


def test_no_way_uses_nodes_with_fewer_gpus(small, ways):
    if ways:
        gpus = dict(small[1].frame.select("node", "gpus").iter_rows())
        found = fleetlab.plan(*small, objective="stranded", seconds=10)
        assert found.value == found.bound == min(sum(gpus[n] for n in used(way)) for way in ways)


def test_no_way_is_cheaper(small, ways):
    if ways:
        price = {"n0": 3.5, "n1": 3.5, "n2": 5.25}
        found = fleetlab.plan(*small, objective="cost", prices={"p": 3.5, "q": 5.25}, seconds=10)
        best = min(sum(price[n] for n in used(way)) for way in ways)
        assert found.value == pytest.approx(best)
        assert found.bound == pytest.approx(best)


def test_no_way_has_a_lower_highest_load(small, ways):
    if ways:
        found = fleetlab.plan(*small, objective="balance", seconds=10)
        best = min(highest(way, *small) for way in ways)
        assert found.value == pytest.approx(best, abs=2e-5)
        assert found.bound <= found.value


def test_no_way_moves_fewer(small, ways):
    if not ways:
        return
    draw = random.Random(len(ways))
    now = [(job, j, draw.choice(["n0", "n1", "n2", "gone"]), bits) for job, j, _, bits in draw.choice(ways)]
    current = pl.DataFrame(now, schema=["job", "instance", "node", "gpus"], orient="row")
    found = fleetlab.plan(*small, objective="moves", current=current, seconds=10)
    fewest = min(sum(a != b for a, b in zip(way, now, strict=True)) for way in ways)
    assert found.value == found.bound == fewest
    stayed = found.placements.join(current, on=["job", "instance", "node", "gpus"], how="semi").height
    assert len(now) - stayed == fewest


def test_the_checker_and_the_trial_of_every_way_agree(small, ways):
    """Of ways drawn by chance too, most of them wrong: right to the checker are those that the trial found."""
    (asked, nodes), draw = small, random.Random(1)
    who = [(job, j) for job, count in asked.frame.select("job", "instances").iter_rows() for j in range(count)]
    places = [
        (node, bits) for node, gpus in nodes.frame.select("node", "gpus").iter_rows() for bits in range(1 << gpus)
    ]
    lots = [tuple((*one, *draw.choice(places)) for one in who) for _ in range(60)]
    right = {tuple(way) for way in ways}
    for way in [*map(tuple, ways[:60]), *lots]:
        table = pl.DataFrame(list(way), schema=["job", "instance", "node", "gpus"], orient="row")
        assert (check(asked, nodes, table) == []) == (way in right)
