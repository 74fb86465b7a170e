"""Intervals that held for earlier asks: as much wider, or narrower, as those turned out to need.

Conformalized quantile regression (Romano, Patterson and Candès 2019), walking forward: an ask knows the asks before it
and those of their outcomes that were known by then. Times are compared on the scale log(1 + seconds/10), so that a
start a minute off counts for a wait of minutes and not for one of a day; below 0 s nothing is possible. Each side is
widened by itself.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fleetlab.core.censoring import Floats
from fleetlab.studies.eta.replay import LEVELS

SCALE = 10.0  # s
ENOUGH = 20  # earlier asks whose outcome is known: with fewer, intervals stay as they are
RECENT = 300  # earlier asks that count, the latest


@dataclass(frozen=True, slots=True, eq=False)
class Asks:
    """What was asked when, what was answered, and what happened; one entry an ask, in order of time."""

    at: Floats
    answer: Floats  # [asks, levels]: seconds to the start
    truth: Floats  # seconds to the start


def log_scale(seconds: Floats) -> Floats:
    """Return times on the scale on which they are compared."""
    return np.asarray(np.log1p(np.asarray(seconds) / SCALE))


def widened(asks: Asks, at: float, answer: Floats) -> tuple[Floats, int]:
    """Return quantiles as earlier asks say that they should be, and how many asks say so; 0: they stay as they are.

    An ask whose job has not started yet is late, if it has waited longer than its interval, or as good as right.
    """
    earlier = np.flatnonzero(asks.at < at)[-RECENT:]
    known = asks.at[earlier] + asks.truth[earlier] <= at
    if known.sum() < ENOUGH:
        return answer, 0
    waited = log_scale(np.where(known, asks.truth[earlier], at - asks.at[earlier]))
    seconds = answer.copy()
    for k, level in enumerate(LEVELS):
        given = log_scale(asks.answer[earlier, k])
        miss = waited - given  # above 0: it started later than this quantile
        miss = np.where(known | (miss > 0), miss, 0.0 if level > 0.5 else np.inf)
        seconds[k] = np.expm1(np.maximum(log_scale(answer[k]) + _quantile(miss, level), 0.0)) * SCALE
    # Widened one by one, quantiles may cross: a lower one is never above the median.
    middle = len(LEVELS) // 2
    seconds[:middle] = np.minimum.accumulate(np.minimum(seconds[: middle + 1], seconds[middle])[::-1])[::-1][:middle]
    seconds[middle:] = np.maximum.accumulate(seconds[middle:])
    return seconds, len(earlier)


def _quantile(values: Floats, level: float) -> float:
    """Return the value that one more to come stays below with this probability, or above for a level below 0.5.

    Where there are too few values for such a rank, it lies beyond all of them: as far as the mean excess over the outer
    quarter tells (an exponential tail).

    >>> _quantile(np.arange(1.0, 40.0), 0.975), _quantile(np.arange(1.0, 40.0), 0.1), _quantile(np.zeros(20), 0.975)
    (39.0, 4.0, 0.0)
    """
    if level < 0.5:
        return -_quantile(-values, 1 - level)
    count, ordered = len(values), np.sort(values)
    rank = (count + 1) * level
    if rank <= count + 1e-9:
        return float(np.interp(rank, np.arange(1, count + 1), ordered))
    if not np.isfinite(ordered).all():
        return float(ordered[-1])
    outer = ordered[-max(count // 4, 1) - 1 :]
    share = (len(outer) - 1) / count
    excess = float((outer[1:] - outer[0]).mean())
    return float(max(ordered[-1], outer[0] + excess * np.log(share / (1 - level))))
