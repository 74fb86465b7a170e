"""How sure a number about requests is, when neighbours share their fate.

Requests that wait in one queue wait alike, so a thousand of them say less than a thousand independent ones: by
`design_effect`, as many times less as it says.
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
WITHIN = 1.1  # the largest of three over the smallest, at most


def quantile(latency: Floats, p: float) -> Interval:
    """The quantile `p` of latencies in order; refused where there are too few of them.

    Where neighbours hang together the limits are as wide as those of fewer requests, at the widest as those of the
    fewest that carry `p`.
    """
    times = Histogram.of(latency)
    return percentile(times, p, worth=_worth(latency, percentile(times, p)))


def unsure(latency: Floats, p: float) -> bool:
    """Is the quantile told, by requests that hang together so much that its limits promise too much?"""
    n = len(latency)
    return n >= samples_needed(p) > _worth(latency, percentile(Histogram.of(latency), p))


def _worth(latency: Floats, found: Interval) -> int:
    """As many independent requests say as much about a quantile."""
    return math.floor(len(latency) / design_effect(latency > found.value))


def said(latency: Floats, p: float) -> Interval | str:
    """The quantile, or why there is none."""
    try:
        return quantile(latency, p)
    except BenchError as e:
        return str(e)


def share(hits: NDArray[np.bool_]) -> Interval:
    """How many of all, with Wilson's limits for as many as they are worth.

    >>> [round(x, 4) for x in share(np.arange(100) % 10 == 0)]
    [0.1, 0.0552, 0.1744]
    """
    seen, worth = float(hits.mean()) if len(hits) else math.nan, math.floor(len(hits) / design_effect(hits))
    return wilson(round(seen * worth) if worth else 0, worth)._replace(value=seen).clipped(SHARE)


def rate(at: Floats, opens: float, closes: float) -> Interval:
    """Events a second in the window, with limits from ten parts of it."""
    counts, _ = np.histogram(at, np.linspace(opens, closes, 11))
    return mean_of_runs(counts * 10 / (closes - opens), POSITIVE).interval()


def steady(
    due: Floats, done: Floats, latency: Floats, opens: float, closes: float, *, by_timetable: bool
) -> bool | None:
    """Were the last three fifths of the window alike, in rate and in median latency, within a tenth?

    That is the rule of perf_analyzer. By a timetable the rate is that of answers over that of requests, because its own
    ups and downs are not the server's. `latency` is NaN for what was not answered; None if there are too few to tell.
    """
    edges = np.linspace(opens, closes, 6)[2:]
    offered, answered, timed = (np.histogram(at, edges)[0] for at in (due, done, due[np.isfinite(latency)]))
    if min(offered.min(), answered.min(), timed.min()) < 10:
        return None
    parts = [latency[(due >= a) & (due < b)] for a, b in pairwise(edges)]
    medians = np.array([np.nanmedian(part) for part in parts])
    rates = answered / offered if by_timetable else answered
    return bool(rates.max() <= WITHIN * rates.min() and medians.max() <= WITHIN * medians.min())
