"""Models of pairs and rules for several, against theory, hand-worked examples and worlds made by them."""

import math
from itertools import product as every

import numpy as np
import pytest
from benchmarks import profile_models as rules
from benchmarks.profile_models import (
    FairShareModel,
    LogAdditiveModel,
    MeanModel,
    coverage,
    fair_share,
    without_each_pair,
    without_each_work,
)

from fleetlab.gpu.bench.profile import models
from fleetlab.gpu.bench.profile.build import PairPrediction, errors, interval
from fleetlab.gpu.bench.profile.models import SpeedTable, TimeSlicingModel, WaitModel, mva_speed
from fleetlab.gpu.devices.console import BenchError

WORKS = "abcdef"


def world(rng, works=WORKS, *, busy=None, noise=0.0):
    """Pairs as `Waits` has them: 1/speed = 1/alone + s·p."""
    busy = busy or dict.fromkeys(works, 1.0)
    minds = {w: busy[w] * math.exp(rng.normal(0, 0.6)) for w in works}
    presses = {w: busy[w] * math.exp(rng.normal(0, 0.6)) for w in works}
    alone = {w: float(rng.uniform(0.8, 1)) for w in works}
    speed = {
        (a, b): math.exp(rng.normal(0, noise)) / (1 / alone[a] + minds[a] * presses[b]) for a, b in every(works, works)
    }
    return SpeedTable(speed, alone, busy)


# --- pairs -----------------------------------------------------------------------------------------------------------


def test_waits_are_found_again():
    table = world(np.random.default_rng(1))
    model = WaitModel().fit(table)
    for pair, speed in table.speed.items():
        assert model.predict(*pair) == pytest.approx(speed, rel=1e-2)


def test_the_log_additive_model_is_found_again():
    rng = np.random.default_rng(2)
    minds, presses = rng.normal(0, 0.3, 6), rng.normal(0, 0.3, 6)
    speed = {
        (a, b): math.exp(-0.7 + minds[i] + presses[j]) for (i, a), (j, b) in every(enumerate(WORKS), enumerate(WORKS))
    }
    model = LogAdditiveModel().fit(SpeedTable(speed, dict.fromkeys(WORKS, 1.0), dict.fromkeys(WORKS, 1.0)))
    for pair, seen in speed.items():
        assert model.predict(*pair) == pytest.approx(seen, rel=1e-2)


def test_waits_never_say_that_company_helps():
    """Some speeds beside others are above those alone: noise."""
    table = SpeedTable({("a", "a"): 0.99, ("a", "b"): 1.2, ("b", "a"): 0.6, ("b", "b"): 0.5}, {"a": 0.95, "b": 0.9},
                  {"a": 0.5, "b": 1.0})  # fmt: skip
    model = WaitModel().fit(table)
    assert all(model.predict(a, b) <= table.alone[a] for a, b in every("ab", "ab"))


def test_a_stranger_is_known_by_how_busy_it_is():
    """All mind and press by how busy they are and no more: one never seen beside anybody is predicted all the same."""
    busy = {"a": 0.1, "b": 0.3, "c": 0.5, "d": 0.8, "e": 1.0}
    speed = {(x, y): 1 / (1 + 1.2 * busy[x] * busy[y]) for x, y in every(busy, busy)}
    rows = without_each_work(SpeedTable(speed, dict.fromkeys(busy, 1.0), busy), WaitModel)
    assert max(abs(g.predicted - g.measured) for row in rows for g in row) < 0.01


def test_a_stranger_that_met_the_probes_is_known():
    table = world(np.random.default_rng(3), works=(*WORKS, "hbm", "gemm"))
    probed = errors(without_each_work(table, WaitModel, ("hbm", "gemm")), seed=1)
    bare = SpeedTable({k: v for k, v in table.speed.items() if not {"hbm", "gemm"} & set(k)}, table.alone, table.busy)
    assert probed["mae"] < 0.02 < errors(without_each_work(bare, WaitModel), seed=1)["mae"]


def test_what_is_held_out_is_not_seen():
    """Were the pair itself used, its speed, unlike all others, would be predicted better than as the others have it."""
    speed = dict.fromkeys(every("abc", "abc"), 0.5) | {("a", "b"): 0.1, ("b", "a"): 0.1}
    rows = without_each_pair(SpeedTable(speed, dict.fromkeys("abc", 1.0), dict.fromkeys("abc", 1.0)), MeanModel)
    told = {g.pair: g.predicted for row in rows for g in row}
    assert told["a", "b"] == pytest.approx(0.5)
    assert told["a", "c"] == pytest.approx((5 * 0.5 + 2 * 0.1) / 7)


def test_errors_by_hand():
    rows = [
        [PairPrediction(("a", "b"), 0.6, 0.5), PairPrediction(("b", "a"), 0.7, 0.8)],
        [PairPrediction(("a", "a"), 0.4, 0.4)],
    ]
    found = errors(rows, seed=1)
    # Seen 0.5, 0.8, 0.4: mean 1.7 / 3, squares around it 0.08667; missed 0.1, 0.1, 0.
    assert (found["speeds"], found["mae"], found["r2"]) == pytest.approx((3, 0.2 / 3, 1 - 0.02 / (1.05 - 1.7**2 / 3)))
    assert math.isnan(found["mae_low"])  # two rows are too few to draw from


def test_intervals_of_predictions_hold_nine_in_ten():
    rng, inside, total = np.random.default_rng(4), 0, 0
    for _ in range(20):
        got, of = coverage(world(rng, "abcde", noise=0.05), WaitModel)
        inside, total = inside + got, total + of
    assert 0.85 < inside / total <= 1


def test_an_interval_does_not_look_at_what_it_is_for():
    table = world(np.random.default_rng(5), "abcd", noise=0.02)
    twisted = SpeedTable(table.speed | {("a", "b"): 1e-3, ("b", "a"): 1e-3}, table.alone, table.busy)
    assert interval(table, WaitModel, ("a", "b")) == interval(twisted, WaitModel, ("a", "b"))


def test_a_single_pair_says_nothing_about_others():
    table = SpeedTable({("a", "a"): 0.5}, {"a": 1.0, "b": 1.0}, {"a": 1.0, "b": 1.0})
    with pytest.raises(BenchError, match="a single pair"):
        interval(table.without([]), WaitModel, ("a", "a"))


# --- turns -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("crowd", [1, 2, 5, 16])
@pytest.mark.parametrize("busy", [0.05, 0.4, 0.9])
def test_turns_of_many_alike_are_the_machine_repair_model(busy, crowd):
    """One repairman and so many machines (Palm, 1947): the GPU is idle with chance 1 / sum of n!/(n-k)! a^k."""
    load = busy / (1 - busy)
    idle = 1 / sum(math.perm(crowd, k) * load**k for k in range(crowd + 1))
    assert mva_speed([busy] * crowd, 0.0) == pytest.approx((1 - idle) / (crowd * busy))


def test_turns_of_two_unlike_are_the_markov_chain():
    """Two that rest and share, each by itself with exponential times: solved state by state."""
    need = (0.2, 0.7)
    states = [(0, 0), (0, 1), (1, 0), (1, 1)]  # who is at the GPU
    rates = np.zeros((4, 4))
    for s, there in enumerate(states):
        for k in range(2):
            to = states.index(tuple(1 - x if i == k else x for i, x in enumerate(there)))
            rates[s, to] = 1 / need[k] / sum(there) if there[k] else 1 / (1 - need[k])
    rates -= np.diag(rates.sum(axis=1))
    share = np.linalg.lstsq(np.vstack([rates.T, np.ones(4)]), [0, 0, 0, 0, 1])[0]
    for k in range(2):
        done = sum(p / need[k] / sum(there) for p, there in zip(share, states, strict=True) if there[k])
        assert mva_speed((need[k], need[1 - k]), 0.0) == pytest.approx(done)


def test_turns_of_many_that_never_rest_are_even_and_switching_costs_its_part():
    assert [mva_speed([1.0] * n, 0.1) for n in (2, 4, 16)] == pytest.approx([0.9 / n for n in (2, 4, 16)])


def test_fair_shares_use_the_card_and_no_more():
    rng = np.random.default_rng(6)
    for _ in range(50):
        busy = rng.uniform(0.05, 1, rng.integers(2, 6))
        got = [b * fair_share((b, *np.delete(busy, k)), 0.1) for k, b in enumerate(busy)]
        assert sum(got) == pytest.approx(min(0.9, busy.sum()))
        hungry = [g for g, b in zip(got, busy, strict=True) if g < b - 1e-9]
        assert not hungry or min(hungry) == pytest.approx(max(hungry)) == pytest.approx(max(got))


@pytest.mark.parametrize(("model", "speed"), [(FairShareModel, fair_share), (TimeSlicingModel, mva_speed)])
def test_the_cost_of_switching_is_found_again(model, speed):
    busy = {"a": 0.2, "b": 0.6, "c": 1.0, "d": 0.9}
    table = SpeedTable(
        {(x, y): speed((busy[x], busy[y]), 0.12) for x, y in every(busy, busy)}, dict.fromkeys(busy, 1.0), busy
    )
    assert model().fit(table).cost_ == pytest.approx(0.12, abs=1e-3)


# --- several ---------------------------------------------------------------------------------------------------------


TWO = SpeedTable(
    {("a", "b"): 0.4, ("a", "c"): 0.5, ("a", "a"): 0.5}, {"a": 0.8, "b": 1.0, "c": 1.0}, dict.fromkeys("abc", 1.0)
)


def test_rules_for_several_by_hand():
    among = ("b", "c")
    assert rules.product(TWO)("a", among) == pytest.approx(0.8 * 0.5 * 0.625)
    assert rules.fair_product(TWO)("a", among) == pytest.approx(0.8 / 3)
    assert rules.added_waits(TWO)("a", among) == pytest.approx(1 / (1.25 + 1.25 + 0.75))


def test_the_rule_by_which_a_world_was_made_is_found():
    table = world(np.random.default_rng(7))
    measured = {
        (a, (b, c, d)): rules.added_waits(table)(a, (b, c, d)) for a, b, c, d in ("abcd", "bcde", "cdef", "dabf")
    }
    rows = {row["rule"]: row for row in rules.rule_errors("mps", table, measured, seed=1)}
    assert rows["added waits"]["error"] == pytest.approx(0, abs=1e-12)
    assert rows["product"]["error"] > 0.01


@pytest.mark.parametrize("others", ["bc", "bcd", "bbbb"])
def test_waits_that_grow_are_turns_where_turns_are_exact(others):
    """One processor that all share, at no cost: pairs by mean value analysis, and groups from those pairs alone."""
    busy = {"a": 0.3, "b": 0.6, "c": 0.9, "d": 0.1}
    speed = {(x, y): mva_speed((busy[x], busy[y]), 0.0) for x, y in every(busy, busy)}
    found = models.growing_waits(SpeedTable(speed, dict.fromkeys(busy, 1.0), busy))("a", tuple(others))
    assert found == pytest.approx(mva_speed([busy[w] for w in ("a", *others)], 0.0))


def test_waits_of_works_that_never_rest_do_not_grow():
    table = world(np.random.default_rng(8))
    for group in (("a", ("b", "c")), ("d", ("a", "a", "e"))):
        assert models.growing_waits(table)(*group) == pytest.approx(rules.added_waits(table)(*group))


def test_groups_with_a_pair_that_nobody_measured_are_not_judged():
    table = SpeedTable(dict.fromkeys(every("abc", "abc"), 0.5) | {("a", "d"): 0.5}, dict.fromkeys("abcd", 1.0), {})
    measured = {("a", ("b", "c")): 0.3, ("a", ("b", "d")): 0.3, ("b", ("a", "a")): 0.3}
    assert set(models.groups_of(table, measured)) == {("a", ("b", "c")), ("b", ("a", "a"))}


# --- probes ----------------------------------------------------------------------------------------------------------


def test_a_probe_that_stops_everybody_is_not_asked():
    speed = {("a", "hbm"): 0.03, ("hbm", "a"): 0.97, ("a", "l2"): 0.5, ("l2", "a"): 0.6, ("a", "a"): 0.01}
    table = SpeedTable(speed, {}, {}).gentle({"hbm", "l2"})
    assert set(table.speed) == {("a", "l2"), ("l2", "a"), ("a", "a")}
    assert set(table.but({"l2"}).speed) == {("a", "a")}
