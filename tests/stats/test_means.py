import math

import numpy as np
import pytest

from fleetlab.stats import (
    Statistic,
    allowed_misses,
    batch_means,
    bonferroni,
    control_variates,
    effective_size,
    geometric_means,
    mean_of_runs,
    pool,
    spent_at_look,
    weighted_mean,
)


def test_the_mean_of_runs_has_students_interval():
    found = mean_of_runs([1.0, 2.0, 3.0, 4.0]).interval()
    half = 3.182446 * math.sqrt(5 / 3) / 2
    assert found == pytest.approx((2.5, 2.5 - half, 2.5 + half), rel=1e-6)
    assert np.isnan(mean_of_runs([1.0]).interval()[1:]).all()


def test_few_values_of_a_series_have_no_interval():
    assert math.isnan(batch_means(np.arange(199.0)).interval().low)
    assert not math.isnan(batch_means(np.arange(200.0)).interval().low)


def test_values_that_come_in_runs_make_an_interval_wider():
    steps = np.repeat(np.random.default_rng(5).normal(size=200), 50)
    assert batch_means(steps).error > 4 * steps.std() / len(steps) ** 0.5


def test_how_many_may_miss_is_binomial():
    chances = [math.comb(48, k) * 0.05**k * 0.95 ** (48 - k) for k in range(10)]
    assert sum(chances[: allowed_misses(48) + 1]) >= 0.999 > sum(chances[: allowed_misses(48)])


def test_controls_take_off_the_variance_that_they_explain():
    rng = np.random.default_rng(0)
    control = rng.normal(size=(50, 1))
    values = 3.0 + 2.0 * control[:, 0] + 0.01 * rng.normal(size=50)
    found = control_variates(values, control)
    assert found.value == pytest.approx(3.0, abs=0.01)
    assert found.error < mean_of_runs(values).error / 50
    assert found.df == 48


def test_pooling_adds_the_variance_between_runs_to_that_within():
    runs = [Statistic.symmetric(v, 1.0, 39) for v in (9.0, 10.0, 11.0)]
    found = pool(runs)
    assert found.value == 10.0
    assert found.error == pytest.approx(math.sqrt(1 + 4 / 3))
    assert 2 < found.df < 39
    assert pool(runs[:1]) is runs[0]
    alike = pool([Statistic.symmetric(2.0, 1.0, 39)] * 3)
    assert (alike.error, alike.df) == (1.0, 39)


def test_pooled_runs_cover_the_truth():
    rng = np.random.default_rng(1)
    hits = 0
    for truth in rng.normal(size=400):
        runs = rng.normal(truth, 1.0, 3) + rng.normal(0, 0.5, 3)
        found = pool([Statistic.symmetric(v, 0.5, 39) for v in runs]).interval()
        hits += found.low <= truth <= found.high
    assert hits / 400 > 0.93


def test_a_run_without_an_interval_leaves_the_pool_without_one():
    both = [Statistic.symmetric(1.0, 0.1, 39), Statistic.symmetric(1.0, math.nan, 0)]
    assert math.isnan(pool(both).interval().low)


def test_groups_share_their_noise():
    first, second = geometric_means([[1.0, 1.0], [8.0, 2.0]])
    assert (first.value, second.value) == pytest.approx((1.0, 4.0))
    assert first.high / first.value == pytest.approx(second.high / second.value)
    assert math.isnan(geometric_means([[2.0]])[0].low)


def test_equal_weights_weigh_nothing():
    values = np.arange(10.0)
    assert weighted_mean(values, np.full(10, 7.0)) == pytest.approx(mean_of_runs(values).interval())
    assert effective_size(np.array([1.0, 1.0, 0.0])) == 2.0


def test_many_comparisons_share_one_error():
    assert bonferroni(1) == 0.95
    assert bonferroni(10) == pytest.approx(0.995)
    assert sum(spent_at_look(k, 0.05) for k in range(1, 10_000)) < 0.05
    assert allowed_misses(1000) == pytest.approx(50 + 3.1 * math.sqrt(47.5), abs=2)


def test_students_interval_covers_from_three_blocks():
    rng = np.random.default_rng(2)
    found = [mean_of_runs(rng.normal(0.6, 0.05, 3)).interval() for _ in range(2000)]
    assert np.mean([one.low <= 0.6 <= one.high for one in found]) == pytest.approx(0.95, abs=0.015)
