"""Two one-sided tests: by hand, and by how often they are right where the truth is known."""

import math

import numpy as np
import pytest

from fleetlab.stats import Difference

MARGIN = math.log(1.05)


def difference(value, sd, n, freedom=None, fixed=0.0):
    return Difference(value, (sd**2, sd**2), (n, n), 2 * (n - 1) if freedom is None else freedom, fixed)


def test_the_interval_of_two_one_sided_tests_is_that_of_ninety_percent():
    """With 10 degrees of freedom t is 1.812: a standard error of 0.02 reaches 0.0362."""
    of = Difference(0.01, (0.02**2 / 2 * 6, 0.02**2 / 2 * 6), (6, 6), 10)
    assert of.half(0.9) == pytest.approx(0.0362, abs=1e-4)
    assert of.decide(0.047) == "equivalent"
    assert of.decide(0.046) == "undecided"


def test_a_small_difference_that_is_sure_is_still_equivalent():
    assert difference(0.01, 0.001, 10).decide(MARGIN) == "equivalent"


def test_a_wide_interval_around_nothing_shows_nothing():
    assert difference(0.0, 0.2, 2).decide(MARGIN) == "undecided"


def test_without_noise_known_nothing_is_decided():
    assert difference(3.0, 0.0, 1, freedom=0).decide(MARGIN) == "undecided"
    assert difference(3.0, 0.0, 1, freedom=0).samples_to_decide(MARGIN) is None


@pytest.mark.parametrize(("truth", "wrong"), [(0.0, "differ"), (MARGIN, "equivalent"), (-MARGIN, "equivalent")])
def test_a_wrong_decision_is_made_in_at_most_one_of_twenty_cases(truth, wrong):
    """Differences of means of 6 with unit noise of 3 %; 4,000 draws, so 5 % is known to 0.7 %."""
    rng = np.random.default_rng(1)
    a, b = rng.normal(truth, 0.03, (4000, 6)), rng.normal(0.0, 0.03, (4000, 6))
    made = [
        Difference(x.mean() - y.mean(), (x.var(ddof=1), y.var(ddof=1)), (6, 6), 10).decide(MARGIN)
        for x, y in zip(a, b, strict=True)
    ]
    assert made.count(wrong) / len(made) < 0.06


@pytest.mark.parametrize("truth", [0.0, 0.02, 0.09])
def test_as_many_more_samples_as_are_told_mostly_decide(truth):
    before = difference(truth, 0.08, 3)
    assert before.decide(MARGIN) == "undecided"
    n = 3 + before.samples_to_decide(MARGIN)
    rng = np.random.default_rng(2)
    a, b = rng.normal(truth, 0.08, (2000, n)), rng.normal(0.0, 0.08, (2000, n))
    decided = [
        Difference(x.mean() - y.mean(), (x.var(ddof=1), y.var(ddof=1)), (n, n), 2 * n - 2).decide(MARGIN) != "undecided"
        for x, y in zip(a, b, strict=True)
    ]
    assert np.mean(decided) > 0.6


def test_the_number_of_samples_is_that_of_the_textbook():
    """n = 2 (1.96 + 0.84)² σ² / d², 12.4 for σ = 0.08 and d = 0.09; Student's quantiles add one or two."""
    assert 3 + difference(0.09, 0.08, 3).samples_to_decide(MARGIN) in (13, 14, 15)


def test_a_variance_between_runs_is_not_waited_out_but_avoided():
    """Measured in one run, the new samples count alone."""
    assert difference(0.1, 0.01, 50, fixed=0.2**2).decide(MARGIN) == "undecided"
    assert difference(0.1, 0.01, 50, fixed=0.2**2).samples_to_decide(MARGIN) <= 2
