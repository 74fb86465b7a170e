"""Shares and quantiles of independent values: Wilson's interval, limits from order statistics, rising shares."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

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


def log_share(hits: float, n: float) -> LogShare:
    """Return the log of a share and its variance, with half a hit added so that no hits have a log too.

    Differences of two are logs of ratios of shares (Katz et al., Biometrics 34, 1978).

    >>> [round(x, 3) for x in log_share(90, 100)], [round(x, 3) for x in log_share(0, 100)]
    ([-0.105, 0.001], [-5.303, 1.99])
    """
    top, bottom = hits + 0.5, n + 0.5
    return LogShare(math.log(top / bottom), max(1 / top - 1 / bottom, 1 / (2 * bottom**2)))


class LogShare(NamedTuple):
    """The log of a share, and its variance."""

    value: float
    variance: float


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


def quantile_low_rank(n: int, p: float, *, confidence: float = CONFIDENCE) -> int:
    """Return the rank of the sample that is the lower limit of the quantile `p`, also where `n` has no upper limit.

    The same half of the error is left below it as by `quantile_ranks`; 0 if there is no lower limit either.

    >>> quantile_low_rank(262, 0.99), quantile_ranks(400, 0.99)[0], quantile_low_rank(400, 0.99)
    (256, 392, 392)
    """
    return int(np.searchsorted(_binomial_cdf(n, p), (1 - confidence) / 2, side="right"))


def binomial_tail(k: int, n: int, p: float) -> float:
    """Return the probability that at least `k` of `n` independent trials happen, each with probability `p`.

    >>> binomial_tail(0, 10, 0.05), round(binomial_tail(3, 3, 0.05), 6), round(binomial_tail(1, 59, 0.05), 3)
    (1.0, 0.000125, 0.952)
    """
    return 1.0 if k <= 0 else 1.0 - float(_binomial_cdf(n, p)[k - 1])


def _binomial_cdf(n: int, p: float) -> Floats:
    k = np.arange(n + 1)
    steps = np.log(np.maximum(n - k[:-1], 1)) - np.log(k[1:]) + math.log(p) - math.log1p(-p)
    logs = np.concatenate(([0.0], np.cumsum(steps))) + n * math.log1p(-p)
    return np.asarray(np.minimum(np.cumsum(np.exp(logs)), 1.0))


def isotonic(values: ArrayLike, weights: ArrayLike) -> Floats:
    """Return the rising values that are nearest to some, by weighted least squares (pool adjacent violators).

    Parameters
    ----------
    values
        In the order in which they should rise, such as shares of replicas that meet a goal by number of nodes.
    weights
        How much each counts, such as the number of replicas.

    Returns
    -------
    numpy.ndarray
        As many values: the mean of each run of values that fall.

    Examples
    --------
    >>> isotonic([0.0, 0.6, 0.4, 1.0], [1, 1, 1, 1]).tolist()
    [0.0, 0.5, 0.5, 1.0]
    """
    blocks: list[tuple[float, float, int]] = []  # mean, weight, values
    for mean, weight in np.column_stack([np.asarray(values, float), np.asarray(weights, float)]).tolist():
        block = mean, weight, 1
        while blocks and blocks[-1][0] >= block[0]:
            before = blocks.pop()
            total = before[1] + block[1]
            block = (before[0] * before[1] + block[0] * block[1]) / total, total, before[2] + block[2]
        blocks.append(block)
    return np.repeat([mean for mean, _, _ in blocks], [count for *_, count in blocks])
