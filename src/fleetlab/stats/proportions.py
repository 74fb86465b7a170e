"""Shares and quantiles of independent values: Wilson's interval, and limits from order statistics."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np

from fleetlab.stats.intervals import CONFIDENCE, Floats, Interval, no_interval


def wilson(hits: float, n: float, *, confidence: float = CONFIDENCE) -> Interval:
    """Return the share of `hits` in `n` independent trials with Wilson's interval (1927); `n` may be an effective size.

    >>> tuple(round(x, 3) for x in wilson(9, 10))
    (0.9, 0.596, 0.982)
    """
    if n < 1:
        return no_interval()
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    share, weight = hits / n, 1 + z * z / n
    middle = (share + z * z / (2 * n)) / weight
    half = z / weight * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return Interval(share, middle - half, middle + half).clipped((0.0, 1.0))


def samples_needed(p: float, *, confidence: float = CONFIDENCE) -> int:
    """Return the smallest number of independent samples for which both limits of the quantile `p` exist.

    >>> samples_needed(0.95), samples_needed(0.99), samples_needed(0.999)
    (59, 299, 2995)
    """
    miss = 1 - confidence
    n = max(1, math.floor(math.log(miss) / math.log(max(p, 1 - p))))
    while p**n + (1 - p) ** n > miss:
        n += 1
    return n


def quantile_ranks(n: int, p: float, *, confidence: float = CONFIDENCE) -> tuple[int, int]:
    """Return the ranks of the samples between which the quantile `p` of `n` independent samples lies.

    With B ~ Binomial(n, p) the true quantile is below the sample of rank l with probability P(B < l), and above that of
    rank u with probability P(B ≥ u). Both tails get half of the error, unless one needs more to have a limit at all.
    """
    miss, above, below = 1 - confidence, p**n, (1 - p) ** n
    over = min(max(miss / 2, above), miss - below)
    tail = _binomial_cdf(n, p)  # tail[k] = P(B <= k)
    low = int(np.searchsorted(tail, miss - over, side="right"))  # the largest l with P(B <= l - 1) <= miss - over
    high = int(np.searchsorted(tail, 1 - over - 1e-12)) + 1  # the smallest u with P(B >= u) <= over
    return max(low, 1), min(high, n)


def _binomial_cdf(n: int, p: float) -> Floats:
    k = np.arange(n + 1)
    steps = np.log(np.maximum(n - k[:-1], 1)) - np.log(k[1:]) + math.log(p) - math.log1p(-p)
    logs = np.concatenate(([0.0], np.cumsum(steps))) + n * math.log1p(-p)
    return np.asarray(np.minimum(np.cumsum(np.exp(logs)), 1.0))
