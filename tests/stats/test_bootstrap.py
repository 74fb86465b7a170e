"""Intervals hold the truth as often as they promise, on series that are as autocorrelated as waits are."""

import math
import time
from statistics import NormalDist

import numpy as np
import pytest

from fleetlab.stats import (
    POSITIVE,
    SHARE,
    BlockBootstrap,
    batch_means,
    bootstrap_units,
    mean_of_runs,
    paired_difference,
)

from .processes import ar1, coverage, mm1_mean, mm1_quantile, mm1_waits

RUNS, MANY = 200, 400  # the share that is covered is known within 1.5 points, and within 1.1


def evenly(jobs):
    return BlockBootstrap.of_times(np.arange(jobs) + 0.5)


@pytest.mark.parametrize(("phi", "jobs"), [(0.5, 1000), (0.8, 2000), (0.9, 1000), (0.9, 5000)])
def test_means_of_ar1_are_covered(phi, jobs):
    values = ar1(np.random.default_rng(1), phi, jobs, RUNS)
    blocks = evenly(jobs)
    assert 0.90 <= coverage([blocks.mean(x) for x in values], 0.0) <= 0.975
    assert 0.90 <= coverage([batch_means(x) for x in values], 0.0) <= 0.975


def test_an_interval_of_independent_values_would_be_far_too_narrow():
    values = ar1(np.random.default_rng(1), 0.9, 4000, RUNS)
    assert coverage([mean_of_runs(x) for x in values], 0.0) < 0.6


@pytest.mark.parametrize("q", [0.5, 0.9])
def test_quantiles_of_ar1_are_covered(q):
    values = ar1(np.random.default_rng(2), 0.8, 2000, RUNS)
    truth = NormalDist().inv_cdf(q) / math.sqrt(1 - 0.8**2)
    blocks = evenly(2000)
    assert 0.90 <= coverage([blocks.quantile(x, q) for x in values], truth) <= 0.975


@pytest.mark.parametrize(("rho", "jobs"), [(0.5, 2000), (0.7, 5000), (0.8, 8000)])
def test_mean_waits_of_mm1_are_covered(rho, jobs):
    (waits,) = mm1_waits(np.random.default_rng(3), rho, jobs, MANY)
    blocks = evenly(jobs)
    assert 0.90 <= coverage([blocks.mean(x, POSITIVE) for x in waits], mm1_mean(rho)) <= 0.975


def test_p90_waits_and_shares_of_mm1_are_covered():
    rho, jobs = 0.7, 5000
    (waits,) = mm1_waits(np.random.default_rng(4), rho, jobs, RUNS)
    blocks = evenly(jobs)
    assert 0.90 <= coverage([blocks.quantile(x, 0.9, POSITIVE) for x in waits], mm1_quantile(rho, 0.9)) <= 0.975
    assert 0.90 <= coverage([blocks.mean(1.0 * (x > 0), SHARE) for x in waits], rho) <= 0.975


def test_paired_differences_of_the_same_jobs_are_covered():
    rho, jobs, speed = 0.7, 5000, 1.1
    slow, fast = mm1_waits(np.random.default_rng(5), rho, jobs, RUNS, (1.0, speed))
    blocks = evenly(jobs)
    means = [paired_difference(blocks.means(a), blocks.means(b)) for a, b in zip(slow, fast, strict=True)]
    assert 0.90 <= coverage(means, mm1_mean(rho, speed) - mm1_mean(rho)) <= 0.975
    p90 = [
        paired_difference(blocks.quantiles(a, [0.9])[0], blocks.quantiles(b, [0.9])[0])
        for a, b in zip(slow, fast, strict=True)
    ]
    assert 0.90 <= coverage(p90, mm1_quantile(rho, 0.9, speed) - mm1_quantile(rho, 0.9)) <= 0.975
    # Common random numbers: far narrower than two intervals of their own.
    alone = np.median([math.hypot(*(blocks.mean(x).error for x in pair)) for pair in zip(slow, fast, strict=True)])
    assert np.median([m.error for m in means]) < 0.7 * alone


def test_no_change_is_exactly_none():
    waits = np.random.default_rng(6).exponential(size=1000)
    blocks = evenly(1000)
    for replicates in (blocks.means(waits), *blocks.quantiles(waits, [0.5, 0.99])):
        assert paired_difference(replicates, replicates).interval() == (0.0, 0.0, 0.0)


def test_values_that_are_all_the_same_have_an_interval_without_width():
    for replicates in evenly(3000).quantiles(np.zeros(3000), [0.5, 0.99]):
        assert replicates.interval() == (0.0, 0.0, 0.0)


def test_where_no_job_waits_any_more_the_mean_wait_is_lower_unless_waits_were_an_accident():
    blocks, none, block = evenly(2000), np.zeros(2000), np.arange(2000) // 50
    for busy, lower in ((block % 5 == 0, True), (block == 7, False)):
        waits = np.where(busy, 5.0, 0.0)
        found = paired_difference(blocks.means(waits), blocks.means(none))
        assert (found.interval().high < 0) == lower
        assert (found.probability_below(0.0) > 0.975) == lower


def test_a_quantile_beyond_which_few_independent_values_lie_has_no_interval():
    (waits,) = mm1_waits(np.random.default_rng(7), 0.8, 3000, 1)
    p50, p99 = evenly(3000).quantiles(waits[0], [0.5, 0.99])
    assert math.isfinite(p50.interval().high)
    assert math.isnan(p99.interval().high)
    assert p99.interval().value == pytest.approx(np.quantile(waits[0], 0.99))


def test_few_jobs_have_a_value_and_no_interval():
    found = evenly(199).mean(np.ones(199)).interval()
    assert found.value == 1.0
    assert math.isnan(found.low)


def test_a_quantile_of_many_is_that_of_numpy_and_lies_in_its_interval():
    values = np.random.default_rng(2).exponential(1.0, 50_000)
    value, low, high = evenly(50_000).quantile(values, 0.9).interval()
    assert value == pytest.approx(np.quantile(values, 0.9), rel=1e-12)
    assert low < np.log(10) < high
    assert high - low < 0.1


def test_the_interval_of_a_share_ends_at_none_and_at_all():
    blocks = evenly(2000)
    part, whole = blocks.sums(1.0 * (np.arange(2000) != 7)), blocks.sums(np.ones(2000))
    assert blocks.ratio(part, whole).interval().high > 1  # without a range it goes beyond
    assert blocks.ratio(part, whole, SHARE).interval().high == 1
    assert blocks.ratio(whole - part, whole, SHARE).interval().low == 0


def test_load_does_not_change_the_blocks():
    times = np.sort(np.random.default_rng(8).random(500) * 1e6)
    assert (BlockBootstrap.of_times(times).index == BlockBootstrap.of_times(times / 3).index).all()


def test_part_of_the_jobs_keep_their_blocks():
    blocks, values = evenly(1000), np.arange(1000.0)
    some = values % 2 == 0
    assert blocks.part(some).mean(values[some]).value == values[some].mean()
    assert blocks.part(some).means(values[some]).values[1:].mean() == pytest.approx(values[some].mean(), rel=0.01)


def test_values_that_are_mostly_zero_have_a_median_of_zero():
    waits = np.where(np.arange(5000) % 10 == 0, 7.0, 0.0)
    assert evenly(5000).quantile(waits, 0.5, POSITIVE).interval() == (0.0, 0.0, 0.0)


def test_infinite_replicates_leave_an_open_interval():
    blocks = BlockBootstrap.of_series(400)
    values = np.linspace(1.0, 2.0, len(blocks.weights))
    values[0] = values[900:] = np.inf
    found = blocks.replicates(values).interval()
    assert 1 < found.low < 2
    assert found.high == np.inf


def test_ratios_without_anything_below_are_not_numbers():
    blocks = evenly(400)
    assert math.isnan(blocks.ratio(np.ones(40), np.zeros(40)).value)


def test_users_are_resampled_one_by_one():
    rng = np.random.default_rng(9)
    hits = 0
    for _ in range(100):
        found = bootstrap_units(rng.exponential(size=60), lambda x: float(x.mean()), resamples=200)
        hits += found.low <= 1.0 <= found.high
    assert 88 <= hits <= 98
    assert math.isnan(bootstrap_units([1.0, 2.0], lambda x: float(x.mean())).low)


def test_intervals_of_a_hundred_thousand_jobs_take_no_time():
    rng = np.random.default_rng(10)
    times, waits = np.sort(rng.random(100_000)), rng.exponential(size=100_000)
    began = time.process_time()
    blocks = BlockBootstrap.of_times(times)
    blocks.mean(waits, POSITIVE)
    blocks.quantiles(waits, [0.5, 0.9, 0.99])
    assert time.process_time() - began < 0.2


def test_the_bootstrap_covers_with_a_dozen_blocks():
    rng = np.random.default_rng(3)
    found = [
        bootstrap_units(rng.normal([0.5, 0.7], 0.05, (12, 2)), lambda rows: rows.sum(1).mean(), seed=k, resamples=300)
        for k in range(300)
    ]
    covered = np.mean([one.low <= 1.2 <= one.high for one in found])
    assert 0.87 <= covered <= 0.98  # short of 0.95 by what a dozen blocks cannot tell


def test_the_bootstrap_keeps_pairs_together():
    """A block that slows both sides alike leaves their ratio sure, however much the blocks differ."""
    slow = np.random.default_rng(4).uniform(0.5, 2, 8)
    rows = np.column_stack((0.6 * slow, slow))
    found = bootstrap_units(rows, lambda r: float((r[:, 0] / r[:, 1]).mean()), seed=0)
    assert found.high - found.low < 1e-12
    assert found.value == pytest.approx(0.6)
