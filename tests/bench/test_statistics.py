import math

import numpy as np
import pytest

from fleetlab.bench.histogram import Histogram
from fleetlab.bench.statistics import (
    antt,
    harmonic,
    jain,
    mean_interval,
    min_samples,
    paired_bootstrap,
    percentile,
    progress,
    ranks,
    stp,
    unfairness,
)
from fleetlab.devices.errors import BenchError


def test_two_tenants_by_hand():
    # Alone 100 and 40 items per second, together 50 and 30: NP 1/2 and 3/4.
    made = progress([50, 30], [100, 40])
    assert made.tolist() == [0.5, 0.75]
    assert stp(made) == 1.25
    assert antt(made) == pytest.approx((2 + 4 / 3) / 2)
    assert harmonic(made) == pytest.approx(0.6)
    assert jain(made) == pytest.approx(1.25**2 / (2 * (0.25 + 0.5625)))
    assert unfairness(made) == 1.5


def test_a_tenant_that_stands_still_is_seen_by_all_but_throughput():
    made = progress([10, 0], [10, 10])
    assert (stp(made), antt(made), harmonic(made), jain(made), unfairness(made)) == (1, math.inf, 0, 0.5, math.inf)


def test_n_equal_tenants_by_turns_have_the_throughput_of_one():
    made = progress([25.0] * 4, [100.0] * 4)
    assert (stp(made), antt(made), jain(made)) == (1, 4, 1)


@pytest.mark.parametrize("rates", [([1], [0]), ([-1], [1]), ([math.nan], [1]), ([1], [math.inf])])
def test_rates_that_cannot_be_compared_are_refused(rates):
    with pytest.raises(BenchError):
        progress(*rates)


@pytest.mark.parametrize("bad", [[], [math.nan], [-0.1], [[1.0]]])
def test_what_is_no_progress_has_no_throughput(bad):
    with pytest.raises(BenchError):
        stp(bad)


@pytest.mark.parametrize(("p", "n"), [(0.95, 59), (0.99, 299), (0.999, 2995), (0.5, 6)])
def test_the_fewest_samples_that_carry_a_percentile(p, n):
    assert min_samples(p) == n
    with pytest.raises(BenchError, match="n too small"):
        percentile(Histogram.of(np.ones(n - 1)), p)
    percentile(Histogram.of(np.ones(n)), p)


@pytest.mark.parametrize(("n", "p", "low", "high"), [(1000, 0.99, 0.984, 0.996), (5000, 0.99, 0.987, 0.993)])
def test_the_limits_of_p99_are_the_published_sample_quantiles(n, p, low, high):
    ranked = ranks(n, p)
    assert ranked[0] / n == pytest.approx(low, abs=1.1e-3)
    assert ranked[1] / n == pytest.approx(high, abs=1.1e-3)


@pytest.mark.parametrize(("n", "p"), [(6, 0.5), (59, 0.95), (100, 0.5), (299, 0.99), (400, 0.95), (2000, 0.99)])
def test_ranks_miss_no_more_than_they_may(n, p):
    """Exactly, by adding up the binomial distribution with whole numbers."""
    low, high = ranks(n, p)
    hundredths = round(100 * p)
    inside = sum(math.comb(n, k) * hundredths**k * (100 - hundredths) ** (n - k) for k in range(low, high))
    assert inside * 100 >= 95 * 100**n


@pytest.mark.parametrize(("p", "n"), [(0.5, 40), (0.95, 200), (0.99, 500)])
def test_percentile_intervals_cover_as_often_as_they_say(p, n):
    rng, truth = np.random.default_rng(1), math.exp(math.sqrt(2) * _erfinv(2 * p - 1)) / 100
    found = [percentile(Histogram.of(rng.lognormal(size=n) / 100), p) for _ in range(600)]
    covered = np.mean([one.low <= truth * 1.001 and truth * 0.999 <= one.high for one in found])
    assert 0.95 - 3 * math.sqrt(0.05 * 0.95 / 600) <= covered <= 1


def _erfinv(x):
    from statistics import NormalDist

    return NormalDist().inv_cdf((1 + x) / 2) / math.sqrt(2)


def test_students_interval_covers_from_three_blocks():
    rng = np.random.default_rng(2)
    found = [mean_interval(rng.normal(0.6, 0.05, 3)) for _ in range(2000)]
    assert np.mean([one.low <= 0.6 <= one.high for one in found]) == pytest.approx(0.95, abs=0.015)


def test_the_bootstrap_covers_with_a_dozen_blocks():
    rng = np.random.default_rng(3)
    found = [
        paired_bootstrap(rng.normal([0.5, 0.7], 0.05, (12, 2)), lambda rows: rows.sum(1).mean(), seed=k, draws=300)
        for k in range(300)
    ]
    covered = np.mean([one.low <= 1.2 <= one.high for one in found])
    assert 0.87 <= covered <= 0.98  # short of 0.95 by what a dozen blocks cannot tell


def test_the_bootstrap_keeps_pairs_together():
    """A block that slows both sides alike leaves their ratio sure, however much the blocks differ."""
    slow = np.random.default_rng(4).uniform(0.5, 2, 8)
    rows = np.column_stack((0.6 * slow, slow))
    found = paired_bootstrap(rows, lambda r: float((r[:, 0] / r[:, 1]).mean()), seed=0)
    assert found.high - found.low < 1e-12
    assert found.value == pytest.approx(0.6)


def test_too_few_blocks_give_no_interval():
    with pytest.raises(BenchError, match="at least 2"):
        mean_interval([1.0])
    with pytest.raises(BenchError, match="at least 5"):
        paired_bootstrap([1.0, 2.0], np.mean, seed=0)
