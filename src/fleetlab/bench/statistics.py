"""What sharing did, in numbers that know how sure they are.

Normalised progress NP is a tenant's rate beside others over its rate alone. System throughput STP and average
normalised turnaround ANTT are a pair (Eyerman and Eeckhout, IEEE Micro 28(3), 2008): the one is what the card does,
the other what a tenant feels, and one without the other misleads. Fairness is after Jain, Chiu and Hawe (1984).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from fleetlab.bench.histogram import Histogram
from fleetlab.devices.errors import BenchError
from fleetlab.stats import Floats, Interval, quantile_ranks, samples_needed


def progress(shared: ArrayLike, alone: ArrayLike) -> Floats:
    """NP of each tenant: its rate beside the others over its rate alone."""
    beside, by_itself = np.asarray(shared, float), np.asarray(alone, float)
    if not (
        np.isfinite(beside).all() and np.isfinite(by_itself).all() and (by_itself > 0).all() and (beside >= 0).all()
    ):
        msg = "rates that cannot be compared: alone must be above 0, shared at least 0"
        raise BenchError(msg)
    ratio: Floats = beside / by_itself
    return ratio


def stp(np_: ArrayLike) -> float:
    """System throughput: how many cards' worth of work one card did.

    >>> stp([0.5, 0.6])
    1.1
    """
    return float(_tenants(np_).sum())


def antt(np_: ArrayLike) -> float:
    """Average normalised turnaround time: how many times as long a tenant's work took; infinite if one stood still.

    >>> antt([0.5, 0.25])
    3.0
    """
    with np.errstate(divide="ignore"):
        return float((1 / _tenants(np_)).mean())


def harmonic(np_: ArrayLike) -> float:
    """Harmonic mean of NP: one tenant that starves cannot be made good by the others."""
    return 1 / antt(np_)


def jain(np_: ArrayLike) -> float:
    """Jain's index: 1 if all make the same progress, 1/n if one makes all.

    >>> jain([0.5, 0.5]), jain([1.0, 0.0])
    (1.0, 0.5)
    """
    x = _tenants(np_)
    return float(x.sum() ** 2 / (x.size * (x**2).sum())) if x.any() else math.nan


def unfairness(np_: ArrayLike) -> float:
    """The largest slowdown over the smallest; infinite if one stood still."""
    x = _tenants(np_)
    return float(x.max() / x.min()) if x.min() > 0 else math.inf


def _tenants(np_: ArrayLike) -> Floats:
    x = np.asarray(np_, float)
    if x.ndim != 1 or not x.size or not np.isfinite(x).all() or (x < 0).any():
        msg = f"not the progress of tenants: {np_!r}"
        raise BenchError(msg, hint="one number of at least 0 for each")
    return x


# --- percentiles -----------------------------------------------------------------------------------------------------


def percentile(times: Histogram, p: float, *, confidence: float = 0.95, worth: float = math.inf) -> Interval:
    """The quantile `p` with limits from order statistics, which ask nothing of the distribution.

    They ask that the times are independent; those of neighbours often are not, and then the limits are too near, unless
    `worth` says as how many independent ones they count. A sample that cannot carry the quantile is refused.
    """
    n = times.n
    if n < (need := samples_needed(p, confidence=confidence)):
        msg = f"n too small for P{100 * p:g}: {n} of {need}"
        raise BenchError(msg, hint="measure longer, or ask for a lower percentile")
    few = n if worth >= n else max(math.floor(worth), need)
    low, high = quantile_ranks(few, p, confidence=confidence)
    value = times.at(min(n, math.floor(p * n) + 1))
    return Interval(value, times.at(1 + (low - 1) * n // few), times.at(math.ceil(high * n / few)))
