"""Two loops, written apart, one meaning: where both know the rules, they give the same schedule, bit for bit."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fleetlab
from fleetlab import Cluster, Workload
from fleetlab.core.catalog import PLACEMENTS
from fleetlab.sim.engine import play as quick
from fleetlab.sim.ledger import waits
from fleetlab.sim.orders import TIMED
from fleetlab.sim.reference import play as full
from fleetlab.sim.world import world

JOB = st.fixed_dictionaries(
    {
        "submit": st.integers(0, 12).map(float),
        "runtime": st.integers(0, 9).map(float),
        "instances": st.sampled_from([1, 1, 1, 2, 3, 5]),
        "cpu_milli": st.sampled_from([0, 500, 2000]),
        "memory_mib": st.sampled_from([0, 40]),
        "gpu_milli": st.sampled_from([0, 250, 500, 700, 1000, 2000]),
        "gpu_memory_mib": st.sampled_from([0, 0, 6]),
        "gpu_types": st.sampled_from([[], ["A"], ["B"], ["A", "B"]]),
        "max_per_node": st.sampled_from([0, 0, 1]),
        "app": st.sampled_from(["x", "y"]),
        "priority": st.integers(0, 2),
        "user": st.sampled_from(["u", "v"]),
    }
)
CLUSTER = Cluster.of(
    pl.DataFrame(
        {
            "node": ["n0", "n1", "n2", "n3"],
            "gpu_type": ["A", "B", None, "A"],
            "gpus": [2, 3, 0, 1],
            "gpu_memory_mib": [10, 10, 0, 20],
            "cpu_milli": [4000, 4000, 2000, 9000],
            "memory_mib": [100, 100, 100, 90],
        }
    ),
    source="four nodes",
)


def small(rows):
    zero = min(row["submit"] for row in rows)
    return Workload.of(pl.DataFrame([row | {"submit": row["submit"] - zero} for row in rows]), source="small")


def same(one, two):
    np.testing.assert_array_equal(one.start, two.start)
    np.testing.assert_array_equal(one.end, two.end)
    np.testing.assert_array_equal(one.where, two.where)
    np.testing.assert_array_equal(one.got, two.got)
    np.testing.assert_array_equal(one.status, two.status)
    assert one.backfill == two.backfill


@fleetlab.order
def square(s, job, now):
    """Return a key that passes those of others, and back."""
    waited = now - s.submit[job]
    return waited * waited - 3.0 * s.estimate[job] * waited * s.instances[job]


@pytest.mark.parametrize("backfill", quick.BACKFILLS)
@pytest.mark.parametrize("order", [*quick.STATIC, *TIMED, square], ids=str)
@settings(max_examples=20, deadline=None, derandomize=True)
@given(
    placement=st.sampled_from(PLACEMENTS.names),
    workload=st.lists(JOB, min_size=1, max_size=24).map(small),
    estimate=st.sampled_from(["oracle", "user"]),
    until=st.sampled_from([None, None, 7.0]),
)
def test_the_quick_loop_plays_what_the_full_one_plays(order, placement, backfill, workload, estimate, until):
    if backfill == "easy" and placement == "random":
        placement = "best_fit"  # the quick loop has no random places beside a reservation
    found = world(workload, CLUSTER, estimate=estimate)
    rules = {"order": order, "backfill": backfill, "placement": placement, "seed": 3, "until": until}
    one, two = quick.play(found, **rules), full.play(found, **rules)
    same(one, two)


@fleetlab.order
def divided(s, job, now):
    return 1.0 / (now - s.submit[job] - 4.0)


def test_an_order_that_changes_with_time_and_gives_no_number_stops_the_quick_loop():
    work = small([{"submit": float(k), "runtime": 5.0, "gpu_milli": 1000} for k in range(3)])
    with pytest.raises(fleetlab.PolicyError, match=r"`divided` divides by 0, asked for job 1 at 5.0 s"):
        quick.play(world(work, Cluster.uniform(1, 1)), order=divided, backfill="greedy", placement="best_fit")


def test_an_order_by_time_goes_to_the_quick_loop_and_one_by_the_columns_of_others_does_not():
    def others(s, job, now):
        return s.usage[s.user[job]] + now

    assert (square.timed, fleetlab.order(others).timed) == (True, False)


@pytest.mark.parametrize(
    ("backfill", "placement"), [("none", "best_fit"), ("greedy", "best_fit"), ("greedy", "fgd"), ("easy", "best_fit")]
)
def test_both_loops_play_the_built_in_trace_alike(backfill, placement):
    trace = fleetlab.synthesize("pai2020", jobs=1000, seed=5)
    tight = Cluster.of(trace.cluster.frame[::25], source="a few of each")
    found = world(trace.workload, tight, estimate="group")
    rules = {"order": "sjf", "backfill": backfill, "placement": placement}
    one, two = quick.play(found, **rules), full.play(found, **rules)
    same(one, two)
    assert waits.seconds(found, one).sum() > 0


@pytest.mark.parametrize("order", ["fifo", "smallest"])
@pytest.mark.parametrize("estimate", ["oracle", "group"])
def test_both_loops_backfill_alike_beside_heads_that_may_use_some_gpu_types_only(order, estimate):
    trace = fleetlab.synthesize("pai2020", jobs=1000, seed=6)
    tight = Cluster.of(trace.cluster.frame[::20], source="a few of each")
    found = world(trace.workload, tight, estimate=estimate)
    rules = {"order": order, "backfill": "easy", "placement": "best_fit"}
    one, two = quick.play(found, **rules), full.play(found, **rules)
    same(one, two)
    assert len(np.unique(found.shapes.types[found.shape[waits.waits(found, one).job]])) > 1
