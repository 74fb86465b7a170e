"""Means and paired differences by hand; intervals that hold simultaneously, even after several looks."""

import math

import numpy as np
import pytest

from fleetlab import Study
from fleetlab.stats import student_quantile
from fleetlab.studies.sweep.result import Rounds
from fleetlab.studies.sweep.tables import Pair, difference_table, load_figures, scenario_table

BASE, CASE = ((("order", "fifo"), ("load", 1.0)), (("order", "sjf"), ("load", 1.0)))


def by_seed(values, metric="mean wait"):
    return {seed: {metric: value} for seed, value in enumerate(values)}


def table(case, base, *, metrics=("mean wait",), confidence=0.95):
    found = {BASE: by_seed(base), CASE: by_seed(case)}
    seeds = range(max(len(case), len(base)))
    pairs = [Pair(CASE, BASE)]
    return difference_table(found, pairs, metrics, {"mean wait": "s"}, lambda _: seeds, lambda _: confidence)


def test_a_difference_is_taken_within_each_seed():
    # Differences -1, -2, -3: mean -2, standard error 1/√3; Student's t of 2 degrees is 4.303.
    row = table([9.0, 18.0, 27.0], [10.0, 20.0, 30.0]).row(0, named=True)
    half = 4.302653 / math.sqrt(3)
    assert (row["difference"], row["baseline mean"], row["seeds"]) == (-2.0, 20.0, 3)
    assert (row["low"], row["high"]) == pytest.approx((-2 - half, -2 + half), rel=1e-5)
    assert (row["baseline"], row["verdict"]) == ("order fifo", "not decided")


def test_the_more_is_compared_the_wider_each_interval():
    values = [9.0, 18.5, 27.0], [10.0, 20.0, 30.0]
    one, two = table(*values), table(*values, metrics=("mean wait", "P90 wait"))
    width = [(t["high"] - t["low"])[0] for t in (one, two)]
    assert width[1] / width[0] == pytest.approx(student_quantile(0.9875, 2) / student_quantile(0.975, 2))


@pytest.mark.parametrize(
    ("case", "verdict"),
    [([8.0, 18.1, 27.9], "better"), ([12.0, 22.1, 32.0], "worse"), ([10.0, 20.0, 30.0], "no difference")],
)
def test_a_verdict_needs_the_whole_interval_on_one_side(case, verdict):
    assert table(case, [10.0, 20.0, 30.0])["verdict"][0] == verdict


def test_a_difference_that_is_the_same_in_every_seed_has_no_interval():
    row = table([9.0, 19.0, 29.0], [10.0, 20.0, 30.0]).row(0, named=True)
    assert (row["difference"], row["low"], row["verdict"]) == (-1.0, None, "not decided")


def test_a_seed_that_failed_in_one_case_counts_in_neither():
    found = {BASE: by_seed([1.0, 2.0, 50.0]), CASE: by_seed([0.0, 1.0])}
    rows = difference_table(found, [Pair(CASE, BASE)], ["mean wait"], {}, lambda _: range(3), lambda _: 0.95)
    assert (rows["seeds"][0], rows["difference"][0], rows["baseline mean"][0]) == (2, -1.0, pytest.approx(53 / 3))


@pytest.mark.parametrize("values", [[], [3.0]])
def test_too_few_seeds_have_no_interval(values):
    rows = scenario_table({CASE: by_seed(values)}, ["mean wait"], {}, lambda _: range(5), lambda _: 0.95)
    assert (rows["low"][0], rows["high"][0], rows["seeds"][0]) == (None, None, len(values))


def test_a_metric_that_is_never_negative_has_no_interval_below_zero():
    rows = scenario_table({CASE: by_seed([0.0, 9.0])}, ["mean wait"], {}, lambda _: range(2), lambda _: 0.95)
    assert (rows["low"][0], rows["mean"][0]) == (pytest.approx(0.0, abs=1e-3), 4.5)
    assert rows["low"][0] >= 0


def test_several_loads_make_a_curve():
    found = {(("order", o), ("load", load)): by_seed([load, 2 * load]) for o in ("fifo", "sjf") for load in (1.0, 2.0)}
    rows = scenario_table(found, ["mean wait"], {"mean wait": "s"}, lambda _: range(2), lambda _: 0.95)
    figure = load_figures(rows, ["mean wait"])["mean wait"]
    assert figure.frame["series"].to_list() == ["fifo", "fifo", "sjf", "sjf"]
    assert figure.frame["y"].to_list() == [1.5, 3.0, 1.5, 3.0]


# -- looking again and again -----------------------------------------------------------------------------------------


def rounds(**seeds):
    words = {"trace": "builtin:500", "order": ["fifo", "sjf", "smallest"], "seeds": seeds}
    against = {"against": {"order": "fifo"}, "metrics": ["mean wait"]}
    return Rounds.of(Study.of_words(words | {"compare": against}))


def samples(state, rng, effects):
    """Means that seeds share, with a difference of their own for each case."""
    seeds = state.study.seeds.values
    common = rng.normal(100.0, 30.0, len(seeds))
    found = {}
    for words, effect in zip(state.scenarios, effects, strict=True):
        values = common + effect + rng.normal(0.0, 10.0, len(seeds))
        found[words] = {s: {"mean wait": float(v)} for s, v in zip(seeds, values, strict=True)}
    return found


def settled(state, found, *, spend=True):
    """Look until all is settled; does every interval at its last look hold the truth, and after how many seeds?"""
    for look in range(1, len(state.study.seeds.looks()) + 1):
        state.settle(look, found)
        if not state.open:
            break
    return difference_table(
        found, state.pairs, ["mean wait"], {}, lambda p: state.seeds(state.look_of(p)),
        lambda p: state.confidence_of(p) if spend else 0.95,
    )  # fmt: skip


def test_seeds_are_added_until_the_interval_is_narrow_and_then_no_more():
    state = rounds(least=6, most=500, within=8)
    rows = settled(state, samples(state, np.random.default_rng(1), [0.0, -5.0, 5.0]))
    assert not state.open
    assert ((rows["high"] - rows["low"]) / 2 <= 8).all()
    assert rows["seeds"].max() <= 108  # (4.1 · 14.1 / 8)² seeds are 53, at a look where t is about 4.1


def test_a_percentage_is_of_the_baseline():
    state = rounds(least=6, most=500, within="8%")
    rows = settled(state, samples(state, np.random.default_rng(1), [0.0, -5.0, 5.0]))
    assert ((rows["high"] - rows["low"]) / 2 <= 0.08 * rows["baseline mean"]).all()


def test_what_is_settled_gets_no_more_seeds_while_others_do():
    state = rounds(least=6, most=60, within=2)
    found = samples(state, np.random.default_rng(1), [0.0, 0.0, 0.0])
    base, narrow, _ = state.scenarios
    found[narrow] = {s: {"mean wait": v["mean wait"] + 1} for s, v in found[base].items()}
    state.settle(1, found)
    assert [unit.case for unit in state.open] == [list(state.scenarios)[2]]
    assert {scenario.policy.order for scenario, _ in state.cells(2)} == {"fifo", "smallest"}


def test_the_most_seeds_are_the_end_of_it():
    state = rounds(least=6, most=10, within=1e-6)
    settled(state, samples(state, np.random.default_rng(1), [0.0, 0.0, 0.0]))
    assert len(state.open) == 2
    assert max(len(state.seeds(state.look_of(unit))) for unit in state.open) == 9


def test_intervals_cover_the_truth_though_one_stops_when_they_are_narrow():
    rng, truth = np.random.default_rng(11), {"sjf": -4.0, "smallest": 3.0}
    missed = {True: 0, False: 0}
    for _ in range(400):
        for spend in missed:
            state = rounds(least=6, most=200, within=6)
            rows = settled(state, samples(state, rng, [0.0, *truth.values()]), spend=spend)
            right = [low <= truth[o] <= high for o, low, high in rows.select("order", "low", "high").iter_rows()]
            missed[spend] += not all(right)
    # 5 % of 400 are 20: by chance at most 33 in one of a thousand such tests.
    assert missed[True] <= 33
    assert missed[True] < missed[False]
