import math

import numpy as np
import pytest

from fleetlab.gpu.bench.histogram import Histogram, antt, jain, known_percentile, percentile, stp, unfairness
from fleetlab.gpu.devices.console import BenchError
from fleetlab.stats import samples_needed


def test_two_tenants_by_hand():
    # Alone 100 and 40 items a second, together 50 and 30: NP 1/2 and 3/4.
    made = [50 / 100, 30 / 40]
    assert stp(made) == 1.25
    assert antt(made) == pytest.approx((2 + 4 / 3) / 2)
    assert jain(made) == pytest.approx(1.25**2 / (2 * (0.25 + 0.5625)))
    assert unfairness(made) == 1.5


def test_a_tenant_that_stands_still_is_seen_by_all_but_throughput():
    made = [1.0, 0.0]
    assert (stp(made), antt(made), jain(made), unfairness(made)) == (1, math.inf, 0.5, math.inf)


def test_n_equal_tenants_by_turns_have_the_throughput_of_one():
    made = [0.25] * 4
    assert (stp(made), antt(made), jain(made)) == (1, 4, 1)


@pytest.mark.parametrize("bad", [[], [math.nan], [-0.1], [[1.0]]])
def test_what_is_no_progress_has_no_throughput(bad):
    with pytest.raises(BenchError):
        stp(bad)


@pytest.mark.parametrize(("p", "n"), [(0.95, 59), (0.99, 299), (0.999, 2995), (0.5, 6)])
def test_the_fewest_samples_that_carry_a_percentile(p, n):
    assert samples_needed(p) == n
    with pytest.raises(BenchError, match="n too small"):
        percentile(Histogram.of(np.ones(n - 1)), p)
    assert known_percentile(Histogram.of(np.ones(n - 1)), p) is None
    assert known_percentile(Histogram.of(np.ones(n)), p) == percentile(Histogram.of(np.ones(n)), p)


@pytest.mark.parametrize(("p", "n"), [(0.5, 40), (0.95, 200), (0.99, 500)])
def test_percentile_intervals_cover_as_often_as_they_say(p, n):
    rng, truth = np.random.default_rng(1), math.exp(math.sqrt(2) * _erfinv(2 * p - 1)) / 100
    found = [percentile(Histogram.of(rng.lognormal(size=n) / 100), p) for _ in range(600)]
    covered = np.mean([one.low <= truth * 1.001 and truth * 0.999 <= one.high for one in found])
    assert 0.95 - 3 * math.sqrt(0.05 * 0.95 / 600) <= covered <= 1


def _erfinv(x):
    from statistics import NormalDist

    return NormalDist().inv_cdf((1 + x) / 2) / math.sqrt(2)
