"""The policy of least fragments: what a fragment is, and that the quick way to it says the same to the last bit."""

import os
import subprocess
import sys
from fractions import Fraction

import numba
import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fleetlab
from fleetlab import Cluster
from fleetlab.sim import nodes as on_nodes
from fleetlab.sim import placements
from fleetlab.sim.engine import fragments
from fleetlab.sim.engine import play as quick
from fleetlab.sim.layout import SHAPE, TYPICAL, WHOLE, table
from fleetlab.sim.reference import play as full
from fleetlab.sim.world import node_tables, world

# Every way to ask for GPUs, and CPU alone: CPU, milli, GPUs, types.
ASK = st.tuples(
    st.sampled_from([0, 1000, 2000, 4000]),
    st.sampled_from([(0, 0), (100, 1), (250, 1), (500, 1), (700, 1), (999, 1), (WHOLE, 1), (WHOLE, 2), (WHOLE, 4)]),
    st.sampled_from([1, 2, 3]),
).map(lambda ask: (ask[0], *ask[1], ask[2]))
LEFT = st.sampled_from([0, 50, 100, 250, 300, 500, 749, 750, 900, WHOLE, WHOLE])
NODE = st.tuples(
    st.sampled_from(["A", "B", None]), st.lists(LEFT, max_size=6), st.integers(0, 9).map(lambda k: 500 * k)
)
USUAL = st.lists(st.tuples(ASK, st.integers(1, 1000)), min_size=1, max_size=12)


@numba.njit
def growth_by_lines(shapes, nodes, n, gpus, typical, lines, about, cpus):
    """Called from Python, what is meant for compiled code alone."""
    return fragments.growth_by_lines(shapes[0], nodes[n], gpus, typical, lines, about, cpus)


@numba.njit
def fragmentation_growth(shapes, nodes, n, gpus, typical):
    return placements.fragmentation_growth(shapes[0], nodes[n], gpus, typical)


@numba.njit
def fragmentation(nodes, n, gpus, cpu, typical):
    return placements.fragmentation(nodes[n], gpus, cpu, typical)


@numba.njit
def holds(shapes, nodes, n, gpus, apps):
    return on_nodes.holds(shapes[0], nodes[n], gpus, apps)


@numba.njit
def recount(nodes, n, gpus):
    on_nodes.recount(nodes[n], gpus)


@numba.njit
def plan_lines(nodes, typical, lines, about, cpus):
    fragments.plan_lines(nodes, typical, lines, about, cpus)


def nodes_of(rows):
    """Nodes of which so much is free, on each GPU and of the CPU."""
    rows = [(kind if left else None, left, cpu) for kind, left, cpu in rows]
    frame = pl.DataFrame(
        {
            "node": [f"n{k}" for k in range(len(rows))],
            "gpu_type": pl.Series([kind or ("A" if left else None) for kind, left, _ in rows], dtype=pl.String),
            "gpus": [len(left) for _, left, _ in rows],
            "gpu_memory_mib": [0 for _ in rows],
            "cpu_milli": [cpu for _, _, cpu in rows],
            "memory_mib": [0 for _ in rows],
        }
    )
    of_node = np.array([{"A": 0, "B": 1}.get(kind, 2) for kind in frame["gpu_type"]])
    nodes, gpus = node_tables(Cluster.of(frame, source="some nodes"), of_node)
    for n, (_, left, _) in enumerate(rows):
        gpus.free[nodes[n].first_gpu : nodes[n].end_gpu] = left
        recount(nodes, n, gpus)
    return nodes, gpus


def typical_of(asks):
    cpu, milli, gpus, types = zip(*(ask for ask, _ in asks), strict=True)
    count = np.array([count for _, count in asks], dtype=np.float64)
    return table(len(asks), TYPICAL, cpu=cpu, milli=milli, gpus=gpus, types=types, share=count / count.sum())


def shapes_of(ask):
    cpu, milli, gpus, types = ask
    return table(1, SHAPE, cpu=cpu, milli=milli, gpus=gpus, types=types)


def by_the_paper(node, gpus, typical):
    """F_n(M), equations 1 to 4 of the FGD paper, in exact fractions."""
    left, lost = [int(f) for f in gpus.free[node.first_gpu : node.end_gpu]], Fraction(0)
    for usual in typical:
        able = sum(f >= usual.milli for f in left) >= usual.gpus > 0
        runs = able and node.free_cpu >= usual.cpu and bool(usual.types & node.gpu_type)
        lost += Fraction(float(usual.share)) * sum(f for f in left if not runs or f < usual.milli)
    return lost


@given(st.lists(NODE, min_size=1, max_size=3), USUAL)
@settings(deadline=None, derandomize=True)
def test_a_fragment_is_what_the_paper_says(rows, asks):
    (nodes, gpus), typical = nodes_of(rows), typical_of(asks)
    for n, node in enumerate(nodes):
        exact = float(by_the_paper(node, gpus, typical))
        assert fragmentation(nodes, n, gpus, node.free_cpu, typical) == pytest.approx(exact, abs=1e-6)


@given(NODE, USUAL, st.randoms(use_true_random=False))
@settings(deadline=None, derandomize=True)
def test_the_order_of_the_usual_shapes_and_of_the_gpus_does_not_matter(row, asks, dice):
    nodes, gpus = nodes_of([row])
    one = fragmentation(nodes, 0, gpus, row[2], typical_of(asks))
    nodes, gpus = nodes_of([(row[0], dice.sample(row[1], len(row[1])), row[2])])
    typical = typical_of(asks)
    other = fragmentation(nodes, 0, gpus, row[2], typical[dice.sample(range(len(typical)), len(typical))])
    assert one == other


@pytest.mark.parametrize("lines", [1, 2, 1000])
@settings(deadline=None, derandomize=True)
@given(rows=st.lists(NODE, min_size=1, max_size=5), asks=USUAL, tried=st.lists(ASK, min_size=1, max_size=5))
def test_lines_tell_the_growth_of_fragments_to_the_last_bit_however_few_there_is_room_for(lines, rows, asks, tried):
    (nodes, gpus), typical = nodes_of(rows), typical_of(asks)
    uses = fragments.no_lines(len(typical))
    plan_lines(nodes, typical, *uses)
    few = uses.lines[: 1 + lines * uses.about.width]
    uses.about.count = min(lines, uses.about.count)
    apps = np.zeros((1, 1), dtype=np.int64)
    for shapes in map(shapes_of, tried):
        for n in range(len(nodes)):
            if holds(shapes, nodes, n, gpus, apps):
                growth = growth_by_lines(shapes, nodes, n, gpus, typical, few, uses.about, uses.cpus)
                assert growth == fragmentation_growth(shapes, nodes, n, gpus, typical)


@pytest.mark.parametrize(
    "placement", ["worst_fit", "dot_product", "gpu_clustering", "fgd", "reserve_and_pack", "random"]
)
def test_nodes_are_gone_through_by_type_but_of_equals_the_first_is_taken(placement):
    trace = fleetlab.synthesize("pai2020", jobs=400, seed=7)
    mixed = trace.cluster.frame.sample(fraction=1.0, shuffle=True, seed=1)[::20]
    found = world(trace.workload, Cluster.of(mixed, source="a twentieth, shuffled"))
    rules = {"order": "fifo", "backfill": "greedy", "placement": placement}
    one, two = quick.play(found, **rules), full.play(found, **rules)
    np.testing.assert_array_equal(one.where, two.where)
    np.testing.assert_array_equal(one.got, two.got)
    assert (one.start > found.submit).any()


PLAY = """
import fleetlab
from fleetlab.sim.engine import play as quick
from fleetlab.sim.world import world
trace = fleetlab.synthesize("pai2020", jobs=60, seed=2)
few = fleetlab.Cluster.of(trace.cluster.frame[::60], source="few")
one = quick.play(world(trace.workload, few), order="fifo", backfill="greedy", placement="fgd")
print(one.where.tolist(), one.got.tolist(), one.start.tolist())
"""


def test_compiled_or_plain_least_fragments_are_found_on_the_same_nodes():
    said = []
    for off in ("0", "1"):
        env = os.environ | {"NUMBA_DISABLE_JIT": off}
        said.append(subprocess.run([sys.executable, "-c", PLAY], env=env, capture_output=True, text=True, check=True))
    assert said[0].stdout == said[1].stdout
