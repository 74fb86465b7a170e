"""How jobs arrive: the rate, its daily pattern, and how much more it varies than Poisson's law says."""

from __future__ import annotations

import math
from datetime import datetime
from typing import NamedTuple
from zoneinfo import ZoneInfo

import numpy as np
from numpy.typing import NDArray

from fleetlab.core import Workload
from fleetlab.queueing.distributions import Floats
from fleetlab.stats import BLOCKS, POSITIVE, BlockBootstrap, Interval, Replicates

HOUR, DAY = 3600.0, 86_400.0
WINDOWS = (60.0, 600.0, HOUR, 6 * HOUR, DAY)
FEWEST = 20  # windows, to tell how counts vary
RESAMPLES = 199  # of blocks of time: the model is solved for each
LEAST = 2 * DAY  # of a log, to tell a daily pattern


class Dispersion(NamedTuple):
    """Variance of counts by their mean, in windows of so many seconds; 1 for Poisson's law."""

    window: float
    value: float
    low: float
    high: float
    around: Floats  # the same about the daily pattern: replicates, first of the whole log


def blocks_of(times: Floats, span: float) -> BlockBootstrap:
    """Return the blocks of time; every pool has the same, so that their replicates can be added up."""
    return BlockBootstrap.of_times(times, span, resamples=RESAMPLES, least=0)


def interval(replicates: Floats) -> Interval:
    """Return the 95 % interval of a number, from its replicates over blocks of time."""
    return Replicates(replicates, BLOCKS).interval(POSITIVE)


def pattern(submit: Floats, span: float, begins: float) -> Floats | None:
    """Jobs a second by hour of the day; none where the log is too short to tell."""
    if span < LEAST or not len(submit):
        return None
    counts = np.bincount(_hour(submit, begins), minlength=24).astype(np.float64)
    return np.asarray(counts / _seconds(span, begins))


def midnight(workload: Workload) -> float:
    """Seconds of the day at which the log begins, by the clock of its people, where it tells."""
    if workload.epoch is None:
        return 0.0
    # Clocks that are changed in summer are taken as they were at the beginning.
    at = datetime.fromtimestamp(workload.epoch, ZoneInfo(workload.zone or "UTC"))
    return at.hour * HOUR + at.minute * 60.0 + at.second


def dispersions(submit: Floats, span: float, begins: float) -> list[Dispersion]:
    """Over windows from a minute to a day, as far as the log has twenty of them."""
    found = []
    for window in WINDOWS:
        n = int(span // window)
        if n < FEWEST or not len(submit):
            continue
        counts = np.bincount((submit // window).astype(np.int64), minlength=n)[:n].astype(np.float64)
        blocks = blocks_of(np.arange(0.5, n, dtype=np.float64), n)

        def summed(values: Floats, blocks: BlockBootstrap = blocks) -> Floats:
            return blocks.totals(blocks.sums(values))

        many, first = summed(np.ones(n)), summed(counts)
        expected = _expected(submit, span, begins, window, n)
        with np.errstate(invalid="ignore", divide="ignore"):
            ratio = summed(counts**2) / first - first / many
            about = ratio if expected is None else summed((counts - expected) ** 2) / summed(expected)
        if expected is not None:
            about = about / (1 - DAY / span)  # the pattern was learnt from the same days, and is too near to them
        found.append(Dispersion(window, *interval(ratio), about))
    return found


def _expected(submit: Floats, span: float, begins: float, window: float, n: int) -> Floats | None:
    """How many jobs the daily pattern lets one expect in each window; none where there is no pattern."""
    rates = pattern(submit, span, begins)
    if rates is None:
        return None
    edges = np.arange(math.ceil((span + begins) / HOUR) + 2) * HOUR - begins
    upto = np.concatenate([[0.0], np.cumsum(np.tile(rates, len(edges) // 24 + 1)[: len(edges) - 1] * HOUR)])
    return np.asarray(np.diff(np.interp(np.arange(n + 1) * window, edges, upto)))


def gaps_scv(submit: Floats) -> float:
    """The SCV of the gaps between arrivals; nan where there are too few."""
    gaps = np.diff(submit)
    return float(gaps.var() / gaps.mean() ** 2) if len(gaps) > 1 and gaps.any() else math.nan


def _hour(submit: Floats, begins: float) -> NDArray[np.int64]:
    return np.asarray(((submit + begins) // HOUR).astype(np.int64) % 24)


def _seconds(span: float, begins: float) -> Floats:
    """How many seconds of each hour of the day the log has."""
    edges = np.clip(np.arange(math.ceil((span + begins) / HOUR) + 1) * HOUR, begins, begins + span)
    return np.asarray(np.bincount(np.arange(len(edges) - 1) % 24, np.diff(edges), minlength=24), dtype=np.float64)
