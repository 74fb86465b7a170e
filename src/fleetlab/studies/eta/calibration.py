"""Intervals that held for earlier asks: as much wider, or narrower, as those turned out to need.

Walking forward, an ask knows the asks before it and what had become of them by then. How far a start was from the
median is measured in spreads of that answer, on the scale log(1 + seconds/10): a minute counts for a wait of minutes
and not for one of a day. An answer's quantiles are put where so many of the earlier asks say: split conformal
prediction with a normalized score (Lei et al. 2018). A job that has not started yet counts as far as it has waited, by
Kaplan and Meier's estimate: to leave it out would make waits too short. Of many asks the latest count, so that the
correction follows the log as its load changes; some more count as if they had turned out as replays say.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from fleetlab.core.censoring import Bools, Floats, product_limit
from fleetlab.studies.eta.replay import LEVELS

SCALE = 10.0  # s
FLOOR = 0.1  # the least spread of an answer: 1 s of a wait of seconds, a tenth of a long one
ENOUGH = 20  # earlier asks whose outcome is known: with fewer, intervals stay as they are
RECENT = 200  # earlier asks that count, the latest
PRIOR = 20  # asks that count as if they had turned out as replays say: few others move quantiles little
FARTHEST = 4.0  # spreads that a quantile is put from the median: on logarithms, more would be any time at all
BEYOND = 4.0  # times the longest wait of the earlier asks, to which a quantile is put at most
MOST_ALIKE = 0.9  # correlation of a miss and the next
MEDIAN = 0.5
OUTER = 0.75  # share of the misses below which the tail does not begin
MIDDLE = len(LEVELS) // 2
WANTED = np.array(LEVELS)
# In spreads of an answer, its P10 is at -1, its median at 0 and its P90 at 1.
AS_SAID = np.array([NormalDist().inv_cdf((k + 0.5) / PRIOR) / NormalDist().inv_cdf(0.9) for k in range(PRIOR)])


@dataclass(frozen=True, slots=True, eq=False)
class Asks:
    """What was asked when, what was answered, and what happened; one entry an ask, in order of time."""

    at: Floats
    answer: Floats  # [asks, levels]: seconds to the start
    truth: Floats  # seconds to the start; inf: nobody knows


@dataclass(frozen=True, slots=True, eq=False)
class Correction:
    """Where quantiles are put, in spreads from the median of an answer; None: they stay where they are."""

    miss: Floats | None
    asks: int  # that say so
    longest: float = np.inf  # s: a wait that no quantile is put beyond, unless replays say so

    def apply(self, answer: Floats) -> Floats:
        """Return the quantiles of an answer as they should be. What starts at once in all replays does so."""
        if self.miss is None or answer[-1] <= 0 or not np.isfinite(answer[:-1]).all():
            return answer
        middle, down, up = _spreads(answer)
        put = middle + self.miss * np.where(self.miss > 0, up, down)
        put = np.minimum(put, log_scale(np.maximum(answer, self.longest)))
        return np.asarray(np.maximum.accumulate(np.expm1(np.maximum(put, 0.0)) * SCALE))

    def spread(self, seconds: Floats, answer: Floats) -> Floats:
        """Return replays moved to where these quantiles of theirs are, on the scale of logarithms, in order of time."""
        ordered = np.sort(seconds)
        if self.miss is None or not np.isfinite(answer).all() or answer[-1] <= 0:
            return ordered
        share = np.arange(1, len(ordered) + 1) / (len(ordered) + 1)
        return np.asarray(np.expm1(np.interp(share, WANTED, log_scale(answer))) * SCALE)


def correction(asks: Asks, at: float) -> Correction:
    """Return what the asks before an instant say of one that is made then."""
    earlier = np.flatnonzero(asks.at < at)[-RECENT:]
    asked, truth = asks.at[earlier], asks.truth[earlier]
    known = asked + truth <= at
    if known.sum() < ENOUGH:
        return Correction(None, 0)
    middle, down, up = _spreads(asks.answer[earlier])
    waited = np.where(known, truth, at - asked)
    off = log_scale(waited) - middle
    own = off / np.where(off > 0, up, down)
    miss, is_known = np.append(own, AS_SAID), np.append(known, np.ones(PRIOR, dtype=bool))
    found = _quantiles(miss, is_known, WANTED, PRIOR + independent(own))
    return Correction(np.clip(found, -FARTHEST, FARTHEST), len(earlier), BEYOND * float(waited.max()))


def log_scale(seconds: Floats) -> Floats:
    """Return times on the scale on which they are compared."""
    return np.asarray(np.log1p(np.asarray(seconds) / SCALE))


def _spreads(answer: Floats) -> tuple[Floats, Floats, Floats]:
    """Return the median of answers, and how far P10 is below and P90 above it, on the scale of logarithms."""
    log = log_scale(answer)
    low, middle, high = (log[..., k] for k in (1, MIDDLE, 3))
    return middle, np.maximum(middle - low, FLOOR), np.maximum(high - middle, FLOOR)


def independent(miss: Floats) -> float:
    """Return how many independent misses tell as much as these, which follow each other in time.

    Asks of one busy day are missed alike: with a correlation r of each and the next, n of them are n (1 - r) / (1 + r)
    (Bayley and Hammersley 1946, for a first-order process).

    >>> independent(np.tile([1.0, -1.0], 50)), round(independent(np.repeat([1.0, -1.0, 1.0, -1.0], 25)), 1)
    (100.0, 5.3)
    """
    near = np.tanh(miss)  # a single one far off would be all of the correlation
    if len(near) < 3 or not near[1:].std() or not near[:-1].std():
        return float(len(miss))
    r = float(np.clip(np.corrcoef(near[1:], near[:-1])[0, 1], 0.0, MOST_ALIKE))
    return len(miss) * (1 - r) / (1 + r)


def _quantiles(miss: Floats, known: Bools, levels: Floats, count: float) -> Floats:
    """Return the misses that one more to come stays below with these probabilities; some are only known to be above.

    They tell as much as `count` independent ones. Where there are too few for a rank, it is beyond all of them: as far
    as an exponential tail tells.

    >>> _quantiles(np.arange(1.0, 40.0), np.ones(39, dtype=bool), np.array([0.1, 0.5, 0.975]), 39).round(6).tolist()
    [4.0, 20.0, 39.0]
    """
    when, risk, deaths = product_limit(miss, known)
    below = 1 - np.cumprod(1 - deaths / risk)
    # One more is to come: it may be the lowest, or the highest.
    high, low = below * count / (count + 1), (np.append(0.0, below[:-1]) * count + 1) / (count + 1)
    up, down = np.interp(levels, high, when), np.interp(levels, low, when)
    found = np.where(levels > MEDIAN, up, np.where(levels < MEDIAN, down, (up + down) / 2))
    far, near = levels > high[-1], levels < low[0]
    if far.any():
        found[far] = _beyond(miss, known, when[np.searchsorted(high, min(OUTER, high[-1]))], 1 - levels[far])
    if near.any():
        lower = -miss[known]
        found[near] = -_beyond(lower, np.ones(len(lower), dtype=bool), float(np.quantile(lower, OUTER)), levels[near])
    return np.asarray(np.maximum.accumulate(found))


def _beyond(miss: Floats, known: Bools, begin: float, rest: Floats) -> Floats:
    """Return what so small shares of the misses are above, by an exponential tail; never below the largest known."""
    outer = miss > begin
    mean = float((miss[outer] - begin).sum() / max((outer & known).sum(), 1))
    share = float(outer.sum() + 1) / (len(miss) + 1)
    return np.asarray(np.maximum(begin + mean * np.log(np.maximum(share / rest, 1.0)), miss[known].max()))
