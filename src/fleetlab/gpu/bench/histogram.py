"""Histograms of times with their quantiles, and metrics of sharing.

Buckets grow by 0.2 %, so that any time is kept to three digits.
Histograms can be summed without loss; percentiles cannot.

Normalized progress NP is a tenant's rate beside others over its rate alone. System throughput STP and average
normalized turnaround ANTT are a pair (Eyerman and Eeckhout, IEEE Micro 28(3), 2008): one is the view of the GPU, the
other that of a tenant; use both. Fairness is after Jain, Chiu and Hawe (1984).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fleetlab.gpu.devices.console import BenchError
from fleetlab.stats import Floats, Interval, no_interval, quantile_low_rank, quantile_ranks, samples_needed

LOWEST = 1e-6  # s
GROWTH = 1.002
LAST = int(np.ceil(np.log(3600 / LOWEST) / np.log(GROWTH)))  # an hour and beyond


@dataclass(frozen=True, slots=True)
class Histogram:
    """Bucket indexes in ascending order, and their counts."""

    buckets: NDArray[np.int64]
    counts: NDArray[np.int64]

    @classmethod
    def of(cls, seconds: Iterable[float]) -> Histogram:
        """Count times.

        >>> Histogram.of([0.010, 0.010, 0.5]).n
        3
        """
        times = np.asarray(list(seconds), dtype=float)
        if times.size and not (np.isfinite(times).all() and times.min() >= 0):
            raise ValueError("a time that is negative or not a number")
        at = np.log(np.maximum(times, LOWEST) / LOWEST) / np.log(GROWTH)
        buckets, counts = np.unique(np.minimum(np.floor(at), LAST).astype(np.int64), return_counts=True)
        return cls(buckets, counts.astype(np.int64))

    @classmethod
    def sum(cls, many: Iterable[Histogram]) -> Histogram:
        """Sum histograms."""
        total = np.zeros(LAST + 1, np.int64)
        for one in many:
            total[one.buckets] += one.counts
        buckets = np.flatnonzero(total)
        return cls(buckets, total[buckets])

    @property
    def n(self) -> int:
        """Number of times."""
        return int(self.counts.sum())

    def at(self, rank: int) -> float:
        """The `rank`-th shortest time, from 1, to within 0.1 %."""
        if not 1 <= rank <= self.n:
            raise IndexError(f"rank {rank} of {self.n}")
        bucket = self.buckets[np.searchsorted(np.cumsum(self.counts), rank)]
        return float(LOWEST * GROWTH ** (float(bucket) + 0.5))

    def to_json(self) -> dict[str, Any]:
        """Differences of bucket indexes, and counts."""
        return {"gaps": np.diff(self.buckets, prepend=0).tolist(), "counts": self.counts.tolist()}

    @classmethod
    def from_json(cls, about: dict[str, Any]) -> Histogram:
        """Read `to_json`."""
        return cls(np.cumsum(np.asarray(about["gaps"], np.int64)), np.asarray(about["counts"], np.int64))


# --- metrics of sharing, with confidence intervals -------------------------------------------------------------------


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
        raise BenchError(f"not the progress of tenants: {np_!r}", hint="one number of at least 0 per tenant")
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


# --- P50, P95 and P99 with intervals as table columns, as far as the sample supports them ----------------------------


QUANTILES = (("p50", 0.5), ("p95", 0.95), ("p99", 0.99))
ENDINGS = ("_ms", "_low", "_high")
COLUMNS = [name + ending for name, _ in QUANTILES for ending in ENDINGS]


def quantiles(
    times: Histogram, effective_n: Mapping[str, float | None] | None = None
) -> tuple[dict[str, float | None], list[str]]:
    """Quantiles in milliseconds; what the sample does not support is None, and the list says why.

    `effective_n` is the effective sample size by quantile, for autocorrelated times; None if it is not known.
    """
    row: dict[str, float | None] = dict.fromkeys(COLUMNS)
    why: list[str] = []
    for name, p in QUANTILES:
        try:
            plain = percentile(times, p)  # as if independent
        except BenchError as e:
            why.append(str(e))
            continue
        interval = plain if effective_n is None else tail(times, p, effective_n.get(name)) or plain
        row |= {name + ending: 1000 * x for ending, x in zip(ENDINGS, interval, strict=True) if math.isfinite(x)}
        if effective_n is not None and row[f"{name}_high"] is None:
            why.append(no_limits(p, effective_n.get(name)))
    return row, why


def interval_columns(name: str, value: Interval | None) -> dict[str, float | None]:
    """A value and its interval as three columns."""
    limits = value or (None, None, None)
    return dict(zip((name, f"{name}_low", f"{name}_high"), limits, strict=True))


def no_limits(p: float, effective_n: float | None) -> str:
    """Why a quantile has no interval, or no upper limit."""
    if effective_n is None:
        return f"P{100 * p:g} has no interval: how far they depend on each other is not known"
    return f"P{100 * p:g} has no upper limit: they are worth only {effective_n:.0f} independent ones"
