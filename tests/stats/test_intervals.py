import math

import numpy as np
import pytest

from fleetlab.core import Estimate
from fleetlab.stats import ANY, POSITIVE, SHARE, Interval, Statistic, student_cdf, student_quantile


@pytest.mark.parametrize("df", [1, 2, 3.5, 7, 19, 39, 120, 299.5, 1000, 5000, 1e9])
def test_students_t_is_that_of_scipy(df):
    scipy = pytest.importorskip("scipy.stats")
    for p in (0.6, 0.9, 0.975, 0.9995):
        assert student_quantile(p, df) == pytest.approx(scipy.t.ppf(p, df), rel=1e-5)
    for t in (-30.0, -1.0, 0.0, 0.3, 2.5):
        assert student_cdf(t, df) == pytest.approx(scipy.t.cdf(t, df), abs=1e-7)


@pytest.mark.parametrize(
    ("df", "confidence", "t"),
    [(1, 0.95, 12.706), (5, 0.99, 4.032), (9, 0.95, 2.262), (30, 0.999, 3.646), (10**6, 0.95, 1.96)],
)
def test_students_t_is_as_in_the_tables(df, confidence, t):
    assert student_quantile((1 + confidence) / 2, df) == pytest.approx(t, abs=1e-3)


def test_an_interval_lies_within_the_possible_range_and_holds_its_value():
    assert 0 < Statistic.symmetric(1.0, 2.0, 10, POSITIVE).interval().low < 0.02
    share = Statistic.symmetric(0.99, 0.02, 10, SHARE).interval()
    assert 0.99 < share.high < 1.0
    assert share.low < 0.99
    assert Statistic(0.0, 0.0, 1.0, 10, POSITIVE).interval().low == 0.0


def test_far_from_the_bound_the_range_changes_nothing():
    free, bounded = (Statistic.symmetric(100.0, 1.0, 10, w).interval() for w in (ANY, POSITIVE))
    assert bounded.low == pytest.approx(free.low, abs=0.03)
    assert bounded.high == free.high


def test_no_degrees_of_freedom_give_no_interval():
    assert np.isnan(Statistic.symmetric(1.0, math.nan, 0).interval()[1:]).all()


@pytest.mark.parametrize("confidence", [0.8, 0.95, 0.999])
def test_interval_probability_and_verdict_never_disagree(confidence):
    rng = np.random.default_rng(3)
    for value, below, above, df in zip(
        rng.normal(0, 2, 400), rng.exponential(1, 400), rng.exponential(1, 400), rng.uniform(1, 60, 400), strict=True
    ):
        found = Statistic(value, below, above, df, (-9.0, math.inf))
        limit = (1 + confidence) / 2
        _, low, high = found.interval(confidence)
        assert (high < 0) == (found.probability_below(0.0) > limit)
        assert (low > 0) == (found.probability_below(0.0) < 1 - limit)


def test_what_is_the_same_everywhere_is_the_same():
    same = Statistic.symmetric(0.0, 0.0, 39)
    assert same.interval() == (0.0, 0.0, 0.0)
    assert same.probability_below() == 0.5


def test_an_interval_becomes_an_estimate():
    assert Estimate("share", *Interval(0.5, 0.25, 0.75).scaled(100), "%") == Estimate("share", 50, 25, 75, "%")


def test_a_negative_factor_swaps_the_sides():
    turned = Statistic(1.0, 0.1, 0.4, 10, POSITIVE).scaled(-2)
    assert (turned.value, turned.below, turned.above, turned.within) == (-2.0, 0.8, 0.2, (-math.inf, 0.0))
