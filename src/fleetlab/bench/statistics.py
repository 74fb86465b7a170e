"""Metrics of sharing, with confidence intervals.

Normalized progress NP is a tenant's rate beside others over its rate alone. System throughput STP and average
normalized turnaround ANTT are a pair (Eyerman and Eeckhout, IEEE Micro 28(3), 2008): one is the view of the GPU, the
other that of a tenant; use both. Fairness is after Jain, Chiu and Hawe (1984).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fleetlab._student import student
from fleetlab.bench.histogram import Histogram
from fleetlab.devices.errors import BenchError

Floats = NDArray[np.float64]


class Interval(NamedTuple):
    """A value and its confidence interval."""

    value: float
    low: float
    high: float


def progress(shared: ArrayLike, alone: ArrayLike) -> Floats:
    """NP of each tenant: its rate beside others over its rate alone."""
    beside, by_itself = np.asarray(shared, float), np.asarray(alone, float)
    if not (
        np.isfinite(beside).all() and np.isfinite(by_itself).all() and (by_itself > 0).all() and (beside >= 0).all()
    ):
        msg = "rates that cannot be compared: alone must be above 0, shared at least 0"
        raise BenchError(msg)
    ratio: Floats = beside / by_itself
    return ratio


def stp(np_: ArrayLike) -> float:
    """System throughput: the work of one shared GPU, in units of what a GPU does for tenants alone.

    >>> stp([0.5, 0.6])
    1.1
    """
    return float(_tenants(np_).sum())


def antt(np_: ArrayLike) -> float:
    """Average normalized turnaround time: mean slowdown of the tenants; infinite if one makes no progress.

    >>> antt([0.5, 0.25])
    3.0
    """
    with np.errstate(divide="ignore"):
        return float((1 / _tenants(np_)).mean())


def harmonic(np_: ArrayLike) -> float:
    """Harmonic mean of NP, which is dominated by the slowest tenant."""
    return 1 / antt(np_)


def jain(np_: ArrayLike) -> float:
    """Jain's index: 1 if all make the same progress, 1/n if only one does.

    >>> jain([0.5, 0.5]), jain([1.0, 0.0])
    (1.0, 0.5)
    """
    x = _tenants(np_)
    return float(x.sum() ** 2 / (x.size * (x**2).sum())) if x.any() else math.nan


def unfairness(np_: ArrayLike) -> float:
    """The largest slowdown over the smallest; infinite if one makes no progress."""
    x = _tenants(np_)
    return float(x.max() / x.min()) if x.min() > 0 else math.inf


def _tenants(np_: ArrayLike) -> Floats:
    x = np.asarray(np_, float)
    if x.ndim != 1 or not x.size or not np.isfinite(x).all() or (x < 0).any():
        msg = f"not the progress of tenants: {np_!r}"
        raise BenchError(msg, hint="one number of at least 0 per tenant")
    return x


# --- percentiles -----------------------------------------------------------------------------------------------------


def min_samples(p: float, *, confidence: float = 0.95) -> int:
    """Minimum number of independent samples for which quantile `p` has both confidence bounds.

    >>> min_samples(0.95), min_samples(0.99), min_samples(0.999)
    (59, 299, 2995)
    """
    miss = 1 - confidence
    n = max(1, math.floor(math.log(miss) / math.log(max(p, 1 - p))))
    while p**n + (1 - p) ** n > miss:
        n += 1
    return n


def percentile(times: Histogram, p: float, *, confidence: float = 0.95, effective_n: float = math.inf) -> Interval:
    """Quantile `p` with a distribution-free interval from order statistics.

    The interval assumes independent times; for autocorrelated ones pass the effective sample size. A sample that does
    not support the quantile raises an error.
    """
    n = times.n
    if n < (need := min_samples(p, confidence=confidence)):
        msg = f"n too small for P{100 * p:g}: {n} of {need}"
        raise BenchError(msg, hint="measure longer, or use a lower percentile")
    few = n if effective_n >= n else max(math.floor(effective_n), need)
    low, high = ranks(few, p, confidence=confidence)
    value = times.at(min(n, math.floor(p * n) + 1))
    return Interval(value, times.at(1 + (low - 1) * n // few), times.at(math.ceil(high * n / few)))


PARTS = 20


def design_effect(hits: NDArray[np.bool_]) -> float:
    """Design effect of autocorrelated indicators: sample size over effective sample size, at least 1.

    Requests in one queue wait alike. The variance of proportions in consecutive parts of the run, over that of
    independent indicators, is the design effect (batch means).

    >>> design_effect(np.arange(1000) % 2 == 0), round(design_effect(np.arange(1000) < 500))
    (1.0, 53)
    """
    size, share = len(hits) // PARTS, float(hits.mean()) if len(hits) else 0.0
    if size < 2 or share in (0.0, 1.0):
        return 1.0
    parts = hits[: size * PARTS].reshape(PARTS, size).mean(1)
    return max(1.0, float(parts.var(ddof=1)) * size / (share * (1 - share)))


def ranks(n: int, p: float, *, confidence: float = 0.95) -> tuple[int, int]:
    """Ranks that enclose quantile `p` of `n` samples.

    With B ~ Binomial(n, p) the true quantile is below the sample of rank l with probability P(B < l), and above that of
    rank u with P(B >= u). The error probability is split evenly unless one side needs more to have a bound at all.
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
    total: Floats = np.minimum(np.cumsum(np.exp(logs)), 1.0)
    return total


# --- intervals over blocks -------------------------------------------------------------------------------------------


def mean_interval(values: ArrayLike, *, confidence: float = 0.95) -> Interval:
    """Mean over blocks with Student's interval; for few blocks, where a bootstrap is too narrow."""
    x = np.asarray(values, float)
    if x.ndim != 1 or x.size < 2:
        msg = f"an interval over blocks needs at least 2 of them: {x.size}"
        raise BenchError(msg, hint="measure more blocks")
    half = student(x.size - 1, confidence) * float(x.std(ddof=1)) / math.sqrt(x.size)
    return Interval(float(x.mean()), float(x.mean()) - half, float(x.mean()) + half)


def paired_bootstrap(
    blocks: Sequence[ArrayLike],
    statistic: Callable[[Floats], float],
    *,
    seed: int,
    draws: int = 2000,
    confidence: float = 0.95,
) -> Interval:
    """Bootstrap interval of a statistic of per-block values; whole blocks are resampled.

    `blocks` has one row per block, such as the NP of every tenant in it; `statistic` takes any selection of rows. The
    interval is bias-corrected and accelerated (Efron, 1987). It needs at least five blocks.
    """
    rows = np.asarray(blocks, float)
    rows = rows[:, None] if rows.ndim == 1 else rows
    if len(rows) < 5:
        msg = f"a bootstrap over blocks needs at least 5 of them: {len(rows)}"
        raise BenchError(msg, hint="measure more blocks, or use Student's interval")
    rng = np.random.default_rng(seed)
    value = statistic(rows)
    drawn = np.sort([statistic(rows[rng.integers(len(rows), size=len(rows))]) for _ in range(draws)])
    low, high = _bca_limits(value, drawn, rows, statistic, confidence)
    return Interval(value, low, high)


def _bca_limits(
    value: float, drawn: Floats, rows: Floats, statistic: Callable[[Floats], float], confidence: float
) -> tuple[float, float]:
    below = (drawn < value).mean() + 0.5 * (drawn == value).mean()
    if not 0 < below < 1:
        return float(min(drawn[0], value)), float(max(drawn[-1], value))
    bias = _probit(float(below))
    without = np.array([statistic(np.delete(rows, k, axis=0)) for k in range(len(rows))])
    lean = without.mean() - without
    spread = float((lean**2).sum() ** 1.5)
    bend = float((lean**3).sum()) / (6 * spread) if spread else 0.0
    ends = [bias + _probit(q) for q in ((1 - confidence) / 2, (1 + confidence) / 2)]
    low, high = (_normal_cdf(bias + z / (1 - bend * z)) for z in ends)
    return float(np.quantile(drawn, low)), float(np.quantile(drawn, high))


def _normal_cdf(z: float) -> float:
    return 0.5 * math.erfc(-z / math.sqrt(2))


def _probit(q: float) -> float:
    from statistics import NormalDist

    return NormalDist().inv_cdf(q)


def pooled_intervals(groups: Sequence[ArrayLike], *, confidence: float = 0.95) -> list[Interval]:
    """Geometric mean of each group of positive values, with intervals from the pooled noise of all groups.

    Two blocks say little about their own noise, twenty cells of two blocks a lot, if the relative noise is the same in
    each, which is assumed. If no group has two values the noise is unknown and the interval is NaN.
    """
    logs = [np.log(np.asarray(group, float)) for group in groups]
    freedom = sum(x.size - 1 for x in logs)
    if not freedom:
        return [Interval(float(np.exp(x.mean())), math.nan, math.nan) for x in logs]
    noise = math.sqrt(sum(float(((x - x.mean()) ** 2).sum()) for x in logs) / freedom)
    reach = student(freedom, confidence) * noise
    intervals = []
    for x in logs:
        middle, half = float(x.mean()), reach / math.sqrt(x.size)
        intervals.append(Interval(math.exp(middle), math.exp(middle - half), math.exp(middle + half)))
    return intervals


def wilson(hits: int, of: int, *, confidence: float = 0.95) -> Interval:
    """Wilson's interval (1927): it stays within 0 to 1, and is informative even if all or none hit.

    >>> tuple(round(x, 3) for x in wilson(9, 10))
    (0.9, 0.596, 0.982)
    """
    if of < 1:
        return Interval(math.nan, math.nan, math.nan)
    z = _probit((1 + confidence) / 2)
    share, weight = hits / of, 1 + z * z / of
    middle = (share + z * z / (2 * of)) / weight
    half = z / weight * math.sqrt(share * (1 - share) / of + z * z / (4 * of * of))
    # Rounding may put a bound on the wrong side of the value.
    return Interval(share, min(max(middle - half, 0.0), share), max(min(middle + half, 1.0), share))
