"""Metrics of sharing, with confidence intervals.

Normalized progress NP is a tenant's rate beside others over its rate alone. System throughput STP and average
normalized turnaround ANTT are a pair (Eyerman and Eeckhout, IEEE Micro 28(3), 2008): one is the view of the GPU, the
other that of a tenant; use both. Fairness is after Jain, Chiu and Hawe (1984).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from fleetlab.bench.histogram import Histogram
from fleetlab.devices.errors import BenchError
from fleetlab.stats import Floats, Interval, no_interval, quantile_low_rank, quantile_ranks, samples_needed


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


def percentile(times: Histogram, p: float, *, confidence: float = 0.95, effective_n: float = math.inf) -> Interval:
    """Quantile `p` with a distribution-free interval from order statistics.

    The interval assumes independent times; for autocorrelated ones pass the effective sample size. A sample that does
    not support the quantile raises an error.
    """
    n = times.n
    if n < (need := samples_needed(p, confidence=confidence)):
        msg = f"n too small for P{100 * p:g}: {n} of {need}"
        raise BenchError(msg, hint="measure longer, or use a lower percentile")
    few = n if effective_n >= n else max(math.floor(effective_n), need)
    low, high = quantile_ranks(few, p, confidence=confidence)
    value = times.at(min(n, math.floor(p * n) + 1))
    return Interval(value, times.at(1 + (low - 1) * n // few), times.at(math.ceil(high * n / few)))


def tail(times: Histogram, p: float, effective_n: float | None) -> Interval | None:
    """Quantile `p` of autocorrelated times; None if the sample does not support it.

    Its limits are NaN where the effective sample size is not known; where that is too small, the upper is infinite.
    """
    if times.n < (need := samples_needed(p)):
        return None
    if effective_n is None:
        return no_interval(percentile(times, p).value)
    if effective_n >= need:
        return percentile(times, p, effective_n=effective_n)
    few = max(math.floor(effective_n), 1)
    low = times.at(max(1 + (quantile_low_rank(few, p) - 1) * times.n // few, 1))
    return Interval(percentile(times, p).value, low, math.inf)


def known_percentile(times: Histogram, p: float) -> Interval | None:
    """The same, or None if the sample does not support it."""
    return percentile(times, p) if times.n >= samples_needed(p) else None
