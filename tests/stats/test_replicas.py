"""Intervals and verdicts of replicas."""

import numpy as np
import pytest

from fleetlab.stats import (
    BETTER,
    NO_DIFFERENCE,
    NOT_DECIDED,
    WORSE,
    chances_of_first,
    is_decided,
    mean_of_runs,
    over_replicas,
    verdict,
)

DRAWS = 4000


def share_that_cover(truth, draws):
    return np.mean([low <= truth <= high for _, low, high in (over_replicas(x).interval() for x in draws)])


@pytest.mark.parametrize("count", [3, 5, 20])
def test_intervals_over_replicas_of_normal_values_cover_their_mean_19_times_of_20(count):
    assert 0.94 < share_that_cover(100.0, np.random.default_rng(1).normal(100.0, 30.0, (DRAWS, count))) < 0.975


@pytest.mark.parametrize("count", [5, 10, 20])
def test_intervals_over_skewed_replicas_cover_their_mean_9_times_of_10(count):
    skewed = np.random.default_rng(1).gamma(2.0, 1.0, (DRAWS, count))  # as waits of a queue that grows: skewness 1.4
    assert 0.92 < share_that_cover(2.0, skewed) < 0.98


def test_replicas_drawn_again_from_one_log_cover_the_mean_of_all_logs():
    rng = np.random.default_rng(2)
    logs = rng.normal(100.0, 10.0, DRAWS)  # a log's mean, and draws from that log which vary as logs do
    intervals = [over_replicas(rng.normal(log, 10.0, 10), blocks=20).interval() for log in logs]
    covered = np.mean([low <= 100 <= high for _, low, high in intervals])
    assert 0.92 < covered < 0.99


def test_an_interval_stays_in_the_range_of_possible_values():
    assert over_replicas([1.0, 40.0, 2.0], (0.0, np.inf)).interval().low > 0


def test_one_replica_has_no_interval():
    assert np.isnan(over_replicas([3.0]).interval().low)


def test_replicas_without_a_number_are_left_out():
    assert over_replicas([1.0, np.nan, 3.0]).value == 2.0


def test_a_sign_in_nine_of_ten_replicas_is_needed_beside_an_interval():
    mostly = [-10.0] * 17 + [1.0] * 3
    assert over_replicas(mostly).interval().high < 0
    assert verdict(mostly, 20.0) == NOT_DECIDED
    assert verdict([-10.0] * 18 + [1.0] * 2, 20.0) == BETTER


def test_a_higher_value_is_worse_where_lower_ones_are_better():
    assert verdict([9.0, 10.0, 11.0], 20.0) == WORSE
    assert verdict([9.0, 10.0, 11.0], 20.0, lower_is_better=False) == BETTER


def test_nothing_differs_where_the_interval_is_within_the_margin():
    differences = [0.5, -0.5, 0.2, -0.2, 0.1]
    assert verdict(differences, 100.0) == NO_DIFFERENCE
    assert verdict([2.0, 2.1, 1.9, 2.0, 2.05], 100.0) == NO_DIFFERENCE  # a sure difference, and a small one
    assert verdict(differences, 2.0) == NOT_DECIDED


def test_two_replicas_of_no_change_differ_in_nothing():
    assert verdict([0.0, 0.0], 0.0) == NO_DIFFERENCE


def test_many_verdicts_need_more_to_be_decided():
    differences = [-9.0, -11.0, -4.0, -14.0, -6.0]
    assert is_decided(differences, 20.0)
    assert not is_decided(differences, 20.0, comparisons=20)


def test_a_verdict_of_no_effect_is_wrong_in_less_than_one_of_forty():
    values = np.random.default_rng(3).normal(0.0, 30.0, (DRAWS, 10))
    wrong = np.mean([verdict(x, 100.0) in {BETTER, WORSE} for x in values])
    assert wrong < 0.05  # of both sides
    assert np.mean([is_decided(x, 0.0) for x in values]) < 0.015


def test_the_chance_of_being_first_is_shared_by_those_that_are_alike():
    assert chances_of_first({"a": [1.0, 2.0], "b": [1.0, 2.0]}) == {"a": 0.5, "b": 0.5}


def test_what_is_sometimes_first_has_a_chance_between():
    rng = np.random.default_rng(4)
    chances = chances_of_first({"a": rng.normal(10, 3, 10), "b": rng.normal(11, 3, 10), "c": rng.normal(90, 3, 10)})
    assert 0.5 < chances["a"] < 1
    assert chances["c"] == 0


def test_of_two_the_chance_of_being_first_is_that_of_a_paired_test():
    rng = np.random.default_rng(5)
    one, other = rng.normal(10, 3, 6), rng.normal(11, 3, 6)
    chance = chances_of_first({"a": one, "b": other})["a"]
    assert chance == pytest.approx(mean_of_runs(one - other).probability_below(0), abs=0.02)
