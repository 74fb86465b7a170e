"""Distribution functions and how sure they are."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetlab.describe.curves import ecdf, share, table
from fleetlab.describe.sections.machines import Occupancy
from fleetlab.describe.sections.users import gini, top_share
from fleetlab.stats import BlockBootstrap, effective_size, weighted_mean

numbers = st.lists(st.integers(0, 30), min_size=1, max_size=60)


@given(numbers)
def test_a_curve_says_which_share_is_at_or_below(values):
    x = np.array(values, dtype=float)
    found = ecdf("x", x)
    assert [found.level(v) for v in range(-1, 31)] == pytest.approx([(x <= v).mean() for v in range(-1, 31)])
    assert found.under.tolist() == pytest.approx([(x < v).mean() for v in found.x])


@given(numbers)
def test_a_weight_of_two_is_a_value_twice(values):
    x = np.array(values, dtype=float)
    weights = 1.0 + np.arange(len(x)) % 2
    weighed, twice = ecdf("x", x, weights=weights), ecdf("x", np.repeat(x, weights.astype(int)))
    assert weighed.upto.tolist() == pytest.approx(twice.upto.tolist())
    assert {p: v[0] for p, v in weighed.quantiles.items()} == pytest.approx(
        {p: v[0] for p, v in twice.quantiles.items()}
    )
    assert weighed.mean[0] == pytest.approx(twice.mean[0])


def test_quantiles_are_interpolated_as_everywhere_else():
    x = np.random.default_rng(1).exponential(size=137)
    found = ecdf("x", x)
    assert {p: v[0] for p, v in found.quantiles.items()} == pytest.approx(
        {p: float(np.quantile(x, p / 100)) for p in (5, 10, 25, 50, 75, 90, 95, 98, 99)}
    )


def test_a_table_has_limits_behind_the_number_that_they_belong_to():
    columns = table([ecdf("a", np.arange(10.0))], "of").columns
    for name in ("mean", "P50", "P90"):
        at = columns.index(name)
        assert columns[at + 1 : at + 3] == [f"{name} low", f"{name} high"]


def test_what_is_not_there_and_what_is_not_asked_for_is_left_out():
    x = np.array([np.nan, 1.0, 2.0, 3.0])
    assert ecdf("x", x, where=np.array([True, True, True, False])).count == 2
    assert ecdf("x", np.array([np.nan])) is None
    assert ecdf("x", np.zeros(0)) is None


def test_without_times_the_band_is_that_of_dvoretzky_kiefer_and_wolfowitz():
    found = ecdf("x", np.arange(100.0))
    assert found.high[50] - found.upto[50] == pytest.approx(0.1358, abs=1e-4)  # Massart: sqrt(ln(2/0.05)/200)


def test_the_band_of_independent_values_in_blocks_is_the_binomial_one():
    rng = np.random.default_rng(0)
    x = rng.random(60_000)
    found = ecdf("x", x, blocks=BlockBootstrap.of_times(rng.random(60_000), 1.0))
    half = found.high[400] - found.upto[400]
    assert half == pytest.approx(2.0 * 0.5 / 60_000**0.5, rel=0.35)  # its own spread is a tenth


def test_values_that_hang_together_in_a_block_make_the_band_wider():
    rng = np.random.default_rng(0)
    blocks = BlockBootstrap.of_times(np.repeat(np.arange(40), 100) + 0.5, 40.0)
    found = ecdf("x", np.repeat(rng.random(40), 100), blocks=blocks)
    middle = int(np.searchsorted(found.upto, 0.5))
    assert found.high[middle] - found.upto[middle] == pytest.approx(2.0 * 0.5 / 40**0.5, rel=0.2)


def test_intervals_of_medians_and_means_hold_the_truth_as_often_as_they_say():
    rng = np.random.default_rng(2)
    held = np.zeros(2)
    for _ in range(100):
        at = rng.integers(0, 30, 600)
        x = np.exp(rng.normal(0, 1, 30) * 0.5)[at] * rng.exponential(1.0, 600)  # a day is busy as a whole
        found = ecdf("x", x, blocks=BlockBootstrap.of_times(at + 0.5, 30.0))
        held += [low <= truth <= high for (_, low, high), truth in
                 ((found.mean, np.exp(0.125)), (found.quantiles[50], 0.6645))]  # fmt: skip
    # Medians by a law of ten million values. Of 100 intervals of 95 %, fewer come once in some thousand times.
    assert (held >= 86).all(), held


def test_a_figure_has_few_points_and_steep_steps_stand_upright():
    x = np.concatenate((np.zeros(500), np.geomspace(1, 1e6, 100_000)))
    points = ecdf("x", x).points()
    assert points.height <= 300
    assert ecdf("x", np.array([1.0, 1.0, 2.0])).points()["y"].to_list() == pytest.approx([0, 200 / 3, 200 / 3, 100])


def test_a_table_has_a_row_a_curve():
    rows = table([ecdf("a", np.arange(10.0)), ecdf("b", np.ones(3))], "of")
    assert rows.select("of", "count", "mean", "P50", "largest").rows() == [("a", 10, 4.5, 4.5, 9), ("b", 3, 1, 1, 1)]


def test_a_share_of_few_is_wilson_s():
    told = share(np.array([True] * 5 + [False] * 5), None, BlockBootstrap.of_times(np.zeros(10)))
    assert told == pytest.approx((50, 23.66, 76.34), abs=0.01)  # Wilson (1927), 5 of 10


def test_kish_counts_equal_weights_in_full_and_one_large_one_as_one():
    assert effective_size(np.ones(7)) == 7
    assert effective_size(np.array([1e9, 1.0, 1.0])) == pytest.approx(1)
    assert weighted_mean(np.array([4.0]), np.ones(1))[0] == 4


# -- what is held, and who has how much --------------------------------------------------------------------------------


@settings(max_examples=50)
@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 30), st.integers(0, 9)), min_size=1, max_size=20))
def test_what_is_held_adds_up_to_amount_times_time(boxes):
    start, lasts, amount = (np.array(x, dtype=float) for x in zip(*boxes, strict=True))
    edges = np.arange(0.0, 91.0, 7.5)
    held = Occupancy.of(start, start + lasts, edges).mean(amount)
    assert float(held.sum() * 7.5) == pytest.approx(float(lasts @ amount))


def test_gini_and_the_top_share_are_those_of_known_laws():
    even = np.sort(np.random.default_rng(0).exponential(1.0, 200_000))[::-1]
    assert gini(even) == pytest.approx(0.5, abs=0.005)  # of every exponential law
    assert top_share(even) == pytest.approx(0.05 * (1 - np.log(0.05)), abs=0.005)  # q(1 - ln q)
    assert gini(np.ones(9)) == pytest.approx(0)
