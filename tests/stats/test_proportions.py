import math

import numpy as np
import pytest

from fleetlab.stats import quantile_ranks, wilson


@pytest.mark.parametrize("hits", [0, 1, 5, 10])
def test_wilsons_interval_holds_its_share_and_stays_inside(hits):
    found = wilson(hits, 10)
    assert 0 <= found.low <= hits / 10 <= found.high <= 1


def test_ranks_hold_the_quantile_as_often_as_promised():
    rng = np.random.default_rng(5)
    low, high = quantile_ranks(500, 0.9)
    ranked = np.sort(rng.random((2000, 500)), axis=1)
    assert 0.945 <= np.mean((ranked[:, low - 1] <= 0.9) & (ranked[:, high - 1] >= 0.9)) <= 0.98


@pytest.mark.parametrize(("n", "p", "low", "high"), [(1000, 0.99, 0.984, 0.996), (5000, 0.99, 0.987, 0.993)])
def test_the_limits_of_p99_are_the_published_sample_quantiles(n, p, low, high):
    ranked = quantile_ranks(n, p)
    assert ranked[0] / n == pytest.approx(low, abs=1.1e-3)
    assert ranked[1] / n == pytest.approx(high, abs=1.1e-3)


@pytest.mark.parametrize(("n", "p"), [(6, 0.5), (59, 0.95), (100, 0.5), (299, 0.99), (400, 0.95), (2000, 0.99)])
def test_ranks_miss_no_more_than_they_may(n, p):
    """Exactly, by adding up the binomial distribution with whole numbers."""
    low, high = quantile_ranks(n, p)
    hundredths = round(100 * p)
    inside = sum(math.comb(n, k) * hundredths**k * (100 - hundredths) ** (n - k) for k in range(low, high))
    assert inside * 100 >= 95 * 100**n
