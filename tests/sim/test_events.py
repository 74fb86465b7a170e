"""What happens to nodes: checked nouns, and one table of strokes drawn by chance or by plan."""

import numpy as np
import polars as pl
import pytest

from fleetlab import Cluster, Drain, Elastic, Faults, Outage, Recovery, Spot, WorkloadError
from fleetlab.sim.events import BACK, DOWN, DRAIN, RECLAIM, growth_of, outages_of

CLUSTER = Cluster.of(
    pl.DataFrame({"node": ["a", "b", "c"], "pool": ["own", "spot", "spot"], "cpu_milli": [1000] * 3}), source="three"
)


def strokes(events, **options):
    found = outages_of(events, CLUSTER, **{"horizon": 1000.0} | options)
    return list(zip(found.time.tolist(), found.node.tolist(), found.what.tolist(), strict=True))


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Recovery(every=-1), "Recovery: `every` is not a number of at least 0: -1"),
        (lambda: Recovery(save=float("nan")), "`save` is not a number"),
        (lambda: Faults(mtbf=0, mttr=1), "Faults: `mtbf` is 0"),
        (lambda: Faults(mtbf=True, mttr=1), "`mtbf` is not a number"),
        (lambda: Drain(9, 3, pool="own"), "Drain: `end` is before `begin`: 3 < 9"),
        (lambda: Drain(3, 9), "give either `nodes` or `pool`"),
        (lambda: Outage(3, 9, nodes=["a"], pool="own"), "Outage: give either `nodes` or `pool`"),
        (lambda: Drain(3, 9, nodes="a"), "`nodes` is a list of names, not: 'a'"),
        (lambda: Spot("spot", every=float("inf"), away=3), "Spot: `every` is not a number"),
        (lambda: Elastic("spot", every=0), "Elastic: `every` is 0"),
    ],
)
def test_what_cannot_happen_is_refused_with_what_is_wrong(make, says):
    with pytest.raises(WorkloadError, match=says):
        make()


@pytest.mark.parametrize(
    ("event", "says"),
    [
        (Faults(9, 1, pool="spto"), "Faults: no pool of that name in the cluster: `spto`"),
        (Drain(0, 9, nodes=["a", "d"]), "Drain: no node of that name in the cluster: `d`"),
        (Faults(1e-9, 0), "more than 5,000,000 outages of one node"),
    ],
)
def test_a_name_that_the_cluster_does_not_have_is_refused(event, says):
    with pytest.raises(WorkloadError, match=says):
        outages_of([event], CLUSTER, horizon=1000.0)


def test_a_pool_has_one_rule():
    with pytest.raises(WorkloadError, match="a pool is named twice: `spot`"):
        growth_of([Elastic("spot"), Elastic("spot")], CLUSTER)


def test_a_planned_outage_strikes_each_node_and_gives_it_back():
    assert strokes([Drain(10, 20, pool="spot")]) == [(10, 1, DRAIN), (10, 2, DRAIN), (20, 1, BACK), (20, 2, BACK)]


def test_outages_that_overlap_are_one_and_the_harder_strikes_within():
    events = [Drain(10, 30, nodes=["a"]), Outage(20, 40, nodes=["a"]), Drain(40, 50, nodes=["a"])]
    assert strokes(events) == [(10, 0, DRAIN), (20, 0, DOWN), (40, 0, DRAIN), (50, 0, BACK)]


def test_an_outage_inside_another_does_not_end_it():
    events = [Drain(10, 50, nodes=["a"]), Drain(20, 30, nodes=["a"])]
    assert strokes(events) == [(10, 0, DRAIN), (20, 0, DRAIN), (50, 0, BACK)]


def test_failures_come_as_often_and_last_as_long_as_said():
    found = outages_of([Faults(mtbf=100, mttr=10)], CLUSTER, horizon=1e6, seed=4)
    down, back = found.time[found.what == DOWN], found.time[found.what == BACK]
    assert len(down) == pytest.approx(3 * 1e6 / 110, rel=0.03)
    assert (back.sum() - down.sum()) / len(down) == pytest.approx(10, rel=0.05)


def test_failures_are_drawn_by_their_seed_alone():
    first, second, other = (strokes([Faults(100, 10)], seed=seed) for seed in (1, 1, 2))
    assert (first == second, first == other) == (True, False)


def test_a_spot_node_is_away_for_as_long_as_said_and_saves_only_with_enough_notice():
    event = Spot("spot", every=50, away=7, notice=30)
    for save, what in ((30, RECLAIM), (31, DOWN)):
        found = outages_of([event], CLUSTER, horizon=1000.0, save=save)
        assert set(found.what) == {what, BACK}
        assert set(found.node) == {1, 2}
        one = found.time[found.node == 1]
        assert np.allclose(one[1::2] - one[::2], 7)


def test_pools_that_grow_know_their_nodes_and_rules():
    growth = growth_of([Elastic("spot", least=1, boot=5, every=2, idle=9)], CLUSTER)
    assert (growth.pool.tolist(), growth.rules.tolist()) == ([-1, 0, 0], [[1, 5, 2, 9]])
