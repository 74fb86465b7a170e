"""Intervals for autocorrelated requests.

Requests in one queue wait alike, so they carry less information than independent ones; `design_effect` estimates
how much less.
"""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from fleetlab.bench.histogram import Histogram
from fleetlab.bench.statistics import percentile
from fleetlab.devices.errors import BenchError
from fleetlab.stats import POSITIVE, SHARE, Interval, design_effect, mean_of_runs, samples_needed, wilson

Floats = NDArray[np.float64]
WITHIN = 1.1  # maximum ratio of the largest to the smallest of three values


def quantile(latency: Floats, p: float) -> Interval:
    """Quantile `p` of latencies in scheduled order; an error if there are too few.

    For autocorrelated latencies the interval is that of a smaller sample, but not smaller than the minimum that
    supports `p`.
    """
    times = Histogram.of(latency)
    return percentile(times, p, effective_n=_effective_n(latency, percentile(times, p)))


def is_autocorrelated(latency: Floats, p: float) -> bool:
    """Whether the effective sample is smaller than `p` needs, so that its interval is too narrow."""
    n = len(latency)
    return n >= samples_needed(p) > _effective_n(latency, percentile(Histogram.of(latency), p))


def _effective_n(latency: Floats, found: Interval) -> int:
    """Effective sample size for a quantile."""
    return math.floor(len(latency) / design_effect(latency > found.value))


def quantile_or_reason(latency: Floats, p: float) -> Interval | str:
    """The quantile, or the reason why there is none."""
    try:
        return quantile(latency, p)
    except BenchError as e:
        return str(e)


def share(hits: NDArray[np.bool_]) -> Interval:
    """A proportion with Wilson's interval for the effective sample size.

    >>> [round(x, 4) for x in share(np.arange(100) % 10 == 0)]
    [0.1, 0.0552, 0.1744]
    """
    value, effective_n = float(hits.mean()) if len(hits) else math.nan, math.floor(len(hits) / design_effect(hits))
    return wilson(round(value * effective_n) if effective_n else 0, effective_n)._replace(value=value).clipped(SHARE)


def rate(at: Floats, opens: float, closes: float) -> Interval:
    """Rate of events in the window, with an interval from ten parts of it."""
    counts, _ = np.histogram(at, np.linspace(opens, closes, 11))
    return mean_of_runs(counts * 10 / (closes - opens), POSITIVE).interval()


def steady(
    due: Floats, done: Floats, latency: Floats, opens: float, closes: float, *, by_timetable: bool
) -> bool | None:
    """Whether rate and median latency of the last three fifths of the window agree within 10 %.

    This is perf_analyzer's rule. In an open loop the rate is that of answers over that of requests, because the offered
    rate itself varies. `latency` is NaN for requests without an answer; returns None if there are too few.
    """
    edges = np.linspace(opens, closes, 6)[2:]
    offered, answered, timed = (np.histogram(at, edges)[0] for at in (due, done, due[np.isfinite(latency)]))
    if min(offered.min(), answered.min(), timed.min()) < 10:
        return None
    parts = [latency[(due >= a) & (due < b)] for a, b in pairwise(edges)]
    medians = np.array([np.nanmedian(part) for part in parts])
    rates = answered / offered if by_timetable else answered
    return bool(rates.max() <= WITHIN * rates.min() and medians.max() <= WITHIN * medians.min())
