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
from fleetlab.sim import _fragments, full, quick
from fleetlab.sim._nodes import FIRST, FREE, LAST, SHAPE_FIELDS, TYPE, WHOLE, holds, survey
from fleetlab.sim._places import USUAL_CPU, USUAL_GPUS, USUAL_MILLI, USUAL_TYPES, fragment, growth
from fleetlab.sim._tables import _nodes, world

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
def grown(S, s, N, n, G, U, share, lines, marks):
    """Called from Python, what is meant for compiled code alone."""
    return _fragments.grown(S, s, N, n, G, U, share, lines, marks)


@numba.njit
def lay_out(N, U, share, lines, marks):
    _fragments.lay_out(N, U, share, lines, marks)


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
    N, G = _nodes(Cluster.of(frame, source="some nodes"), {"A": 1, "B": 2})
    for n, (_, left, _) in enumerate(rows):
        G[N[n, FIRST] : N[n, LAST], FREE] = left
        survey(N, n, G)
    return N, G


def usual_of(asks):
    U = np.zeros((len(asks), 4), dtype=np.int64)
    for m, ((cpu, milli, gpus, types), _) in enumerate(asks):
        U[m, USUAL_CPU], U[m, USUAL_MILLI], U[m, USUAL_GPUS], U[m, USUAL_TYPES] = cpu, milli, gpus, types
    count = np.array([count for _, count in asks], dtype=np.float64)
    return U, count / count.sum()


def shape_of(ask):
    S = np.zeros((1, SHAPE_FIELDS), dtype=np.int64)
    S[0, 0], S[0, 4], S[0, 5], S[0, 7] = ask
    return S


def by_the_paper(N, n, G, U, share):
    """F_n(M), equations 1 to 4 of the FGD paper, in exact fractions."""
    left, lost = [int(f) for f in G[N[n, FIRST] : N[n, LAST], FREE]], Fraction(0)
    for m in range(len(share)):
        need, gpus = int(U[m, USUAL_MILLI]), int(U[m, USUAL_GPUS])
        able = sum(f >= need for f in left) >= gpus > 0
        runs = able and N[n, 0] >= U[m, USUAL_CPU] and bool(U[m, USUAL_TYPES] & N[n, TYPE])
        lost += Fraction(float(share[m])) * sum(f for f in left if not runs or f < need)
    return lost


@given(st.lists(NODE, min_size=1, max_size=3), USUAL)
@settings(deadline=None, derandomize=True)
def test_a_fragment_is_what_the_paper_says(rows, asks):
    (N, G), (U, share) = nodes_of(rows), usual_of(asks)
    for n in range(len(N)):
        assert fragment(N, n, G, N[n, 0], U, share) == pytest.approx(float(by_the_paper(N, n, G, U, share)), abs=1e-6)


@given(NODE, USUAL, st.randoms(use_true_random=False))
@settings(deadline=None, derandomize=True)
def test_the_order_of_the_usual_shapes_and_of_the_gpus_does_not_matter(row, asks, dice):
    one = fragment(*_first(nodes_of([row])), row[2], *usual_of(asks))
    cards = dice.sample(row[1], len(row[1]))
    other = fragment(*_first(nodes_of([(row[0], cards, row[2])])), row[2], *_shuffled(usual_of(asks), dice))
    assert one == other


def _first(land):
    return land[0], 0, land[1]


def _shuffled(usual, dice):
    order = dice.sample(range(len(usual[1])), len(usual[1]))
    return np.ascontiguousarray(usual[0][order]), usual[1][order]


@pytest.mark.parametrize("lines", [1, 2, 1000])
@settings(deadline=None, derandomize=True)
@given(rows=st.lists(NODE, min_size=1, max_size=5), asks=USUAL, tried=st.lists(ASK, min_size=1, max_size=5))
def test_lines_tell_the_growth_of_fragments_to_the_last_bit_however_few_there_is_room_for(lines, rows, asks, tried):
    (N, G), (U, share) = nodes_of(rows), usual_of(asks)
    uses = _fragments.uses_of(len(U))
    lay_out(N, U, share, *uses)
    few = uses.lines[: 1 + lines * uses.marks[_fragments.WIDTH]]
    uses.marks[_fragments.LINES] = min(lines, uses.marks[_fragments.LINES])
    apps = np.zeros((1, 1), dtype=np.int64)
    for S in map(shape_of, tried):
        for n in range(len(N)):
            if holds(S, 0, N, n, G, apps):
                found = grown(S, 0, N, n, G, U, share, few, uses.marks)
                assert found == growth(S, 0, N, n, G, U, share)


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
    assert one.ledger.sum() > 0


PLAY = """
import fleetlab
from fleetlab.sim import quick
from fleetlab.sim._tables import world
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
