"""Scores against hand-worked numbers, intervals against how often they should hold."""

import numpy as np
import pytest

from fleetlab.forecast.backtest import LEVELS, follow, nrmse, pinball, probability_better, ratio, skill, split
from fleetlab.forecast.models.ensemble import by_error, together, weigh
from fleetlab.stats import BlockBootstrap


def blocks(count):
    return BlockBootstrap.of_series(count)


def test_nrmse_is_the_root_mean_square_miss_over_the_mean_of_what_came():
    came, forecasts = np.array([1.0, 3.0, 8.0]), np.array([1.0, 3.0, 5.0])
    assert nrmse(blocks(3), came - forecasts, came)[0] == pytest.approx(np.sqrt(3.0) / 4)


def test_the_nrmse_of_the_mean_is_the_coefficient_of_variation():
    came = np.random.default_rng(0).gamma(0.5, 3.0, 4000)
    assert nrmse(blocks(4000), came - came.mean(), came)[0] == pytest.approx(came.std() / came.mean())


def test_the_interval_of_an_nrmse_holds_the_truth_about_as_often_as_it_says():
    draw = np.random.default_rng(1)
    level = 0
    for _ in range(200):
        came = draw.gamma(4.0, 1.0, 600)
        _, low, high = nrmse(blocks(600), came - 4.0, came)
        level += low <= 0.5 <= high  # spread 2, mean 4
    assert 180 <= level <= 200


def test_a_model_beside_itself_has_no_skill_and_that_is_certain():
    missed = np.random.default_rng(0).normal(size=500)
    assert skill(blocks(500), missed, missed) == (0.0, 0.0, 0.0)
    assert probability_better(blocks(500), missed, missed) == 0.5


def test_half_the_miss_is_half_the_skill():
    missed = np.random.default_rng(0).normal(size=500)
    assert skill(blocks(500), missed / 2, missed)[0] == pytest.approx(0.5)
    assert probability_better(blocks(500), missed / 2, missed) > 0.999999


def test_the_interval_of_a_ratio_holds_the_truth_about_as_often_as_it_says():
    draw = np.random.default_rng(3)
    level = 0
    for _ in range(200):
        came = draw.exponential(2.0, 600)
        _, low, high = ratio(blocks(600), np.abs(came - 2.0), came)
        level += low <= 2 / np.e <= high  # the mean distance of an exponential from its mean is 2/e of it
    assert 180 <= level <= 200


def test_where_nothing_came_there_is_no_nrmse():
    assert np.isnan(nrmse(blocks(50), np.ones(50), np.zeros(50))[0])
    assert np.isnan(ratio(blocks(50), np.ones(50), np.zeros(50))[0])


def test_pinball_of_a_sure_and_right_forecast_is_nothing():
    came = np.arange(5.0)
    assert not pinball(came, came, np.zeros((2, 5))).any()


def test_pinball_by_hand():
    # 10 came, 8 was said, give or take 1 and 4: quantiles 7, 9, 8, 4, 12 at 0.1, 0.9, 0.5, 0.025, 0.975.
    by_hand = np.mean([0.5 * 2, 0.1 * 3, 0.9 * 1, 0.025 * 6, 0.025 * 2])
    assert pinball(np.array([10.0]), np.array([8.0]), np.array([[1.0], [4.0]])) == pytest.approx(by_hand)


def test_split_conformal_takes_the_rank_that_theory_asks_for():
    missed = np.random.default_rng(0).permutation(np.arange(1.0, 100.0)).reshape(99, 1, 1)
    assert split(missed, 0.95).item() == 95.0


@pytest.mark.parametrize("kind", ["steady", "wider later", "narrower later", "mostly zero", "drifting"])
def test_intervals_hold_as_often_as_promised_whatever_the_series_does(kind):
    draw = np.random.default_rng(2)
    missed = np.abs(draw.normal(size=(3500, 3, 2)))
    later = np.arange(3500)[:, None, None] > 2200
    missed *= {
        "steady": 1.0,
        "wider later": np.where(later, 5.0, 1.0),
        "narrower later": np.where(later, 0.2, 1.0),
        "mostly zero": draw.binomial(1, 0.25, missed.shape),
        "drifting": np.exp(np.arange(3500) / 1000)[:, None, None],
    }[kind]
    widths = follow(missed[:1700], missed[1700:], np.ones(2)).each
    level = (missed[1700:] <= widths).mean(axis=1)
    assert np.abs(level - np.array(LEVELS)[:, None, None]).max() < 0.02


def test_a_miss_is_not_used_before_it_is_known():
    missed = np.ones((60, 4, 1))
    other = missed.copy()
    other[30:] = 50.0  # from origin 30 on everything is missed
    one, two = (follow(missed[:20], x, np.ones(1)).each for x in (missed, other))
    for step in range(4):
        changed = np.flatnonzero((one[:, :, step] != two[:, :, step]).any(axis=(0, 2)))
        assert changed[0] == 30 + step + 1


def test_the_ensemble_puts_its_weight_on_what_is_right():
    draw = np.random.default_rng(0)
    came = draw.normal(size=(400, 2, 1))
    members = np.stack((came + draw.normal(0, 0.1, came.shape), came + 5, draw.normal(size=came.shape)))
    weights = weigh(members, came)[:, 0]
    assert weights[0] > 0.95
    assert weights.sum() == pytest.approx(1.0)
    assert (weights >= 0).all()


def test_two_models_that_are_off_on_different_sides_are_better_together():
    draw = np.random.default_rng(0)
    came = draw.normal(size=(3, 300, 1, 1))
    forecasts = {"a": list(came + draw.normal(size=came.shape)), "b": list(came + draw.normal(size=came.shape))}
    found, _ = together(forecasts, list(came), np.ones((2, 1)))
    both, alone = (float(((x[-1] - came[-1]) ** 2).mean()) for x in (found, forecasts["a"]))
    assert both < 0.65 * alone  # half, and luck


def test_the_ensemble_of_a_split_does_not_know_that_split():
    draw = np.random.default_rng(0)
    came = list(draw.normal(size=(2, 50, 1, 1)))
    forecasts = {"a": list(draw.normal(size=(2, 50, 1, 1))), "b": list(draw.normal(size=(2, 50, 1, 1)))}
    other = [came[0], came[1] + 100]
    assert np.array_equal(
        together(forecasts, came, np.ones((2, 1)))[0][1], together(forecasts, other, np.ones((2, 1)))[0][1]
    )


def test_weights_by_error_are_even_where_nothing_is_known():
    assert by_error(np.full((4, 1), np.nan)).ravel().tolist() == [0.25] * 4
    assert by_error(np.array([[1.0], [2.0]])).ravel().tolist() == [0.8, 0.2]
