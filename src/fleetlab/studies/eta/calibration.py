"""Intervals that held for earlier asks: as much wider, or narrower, as those turned out to need.

Walking forward, an ask knows the asks before it and what had become of them by then. How far a start was from the
median is measured in spreads of that answer, on the scale log(1 + seconds/10): a minute counts for a wait of minutes
and not for one of a day. An answer's quantiles are put where so many of the earlier asks say: split conformal
prediction with a normalized score (Lei et al. 2018). A job that has not started yet counts as far as it has waited, by
Kaplan and Meier's estimate: to leave it out would make waits too short. As the load changes, levels follow what was
missed (adaptive conformal inference, Gibbs and Candès 2021): a miss counts when it is known.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

import numpy as np

from fleetlab.core.censoring import Bools, Floats, product_limit
from fleetlab.studies.eta.replay import LEVELS

SCALE = 10.0  # s
FLOOR = 0.1  # the least spread of an answer: 1 s of a wait of seconds, a tenth of a long one
ENOUGH = 20  # earlier asks whose outcome is known: with fewer, intervals stay as they are
RECENT = 200  # earlier asks that count, the latest
STEP = 0.02  # by which levels follow misses
OUTER = 0.75  # share of the misses below which the tail does not begin
MIDDLE = len(LEVELS) // 2
WANTED = np.array(LEVELS)


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

    def apply(self, answer: Floats) -> Floats:
        """Return the quantiles of an answer as they should be. What starts at once in all replays does so."""
        if self.miss is None or answer[-1] <= 0 or not np.isfinite(answer[:-1]).all():
            return answer
        middle, down, up = _spreads(answer)
        put = middle + self.miss * np.where(self.miss > 0, up, down)
        return np.asarray(np.maximum.accumulate(np.expm1(np.maximum(put, 0.0)) * SCALE))

    def spread(self, seconds: Floats, answer: Floats) -> Floats:
        """Return replays moved to where these quantiles of theirs are, on the scale of logarithms, in order of time."""
        ordered = np.sort(seconds)
        if self.miss is None or not np.isfinite(answer).all() or answer[-1] <= 0:
            return ordered
        share = np.arange(1, len(ordered) + 1) / (len(ordered) + 1)
        return np.asarray(np.expm1(np.interp(share, WANTED, log_scale(answer))) * SCALE)


@dataclass(slots=True, eq=False)
class Calibrator:
    """Asks in order of time, and what is learnt of them."""

    at: list[float] = field(default_factory=list)
    answer: list[Floats] = field(default_factory=list)
    truth: list[float] = field(default_factory=list)
    level: Floats = field(default_factory=WANTED.copy)  # at which quantiles are taken now
    _later: list[tuple[float, int, int, float]] = field(default_factory=list)  # when known, ask, level, started later

    def add(self, at: float, answer: Floats, truth: float) -> Floats:
        """Ask once more; return the answer as earlier asks correct it."""
        correction = self.correction(at)
        given = correction.apply(answer)
        # Whether it starts later is known when it starts, or then; what was not corrected tells nothing of the levels.
        for k, seconds in enumerate(given if correction.asks else ()):
            heapq.heappush(self._later, (at + min(truth, float(seconds)), len(self.at), k, float(truth > seconds)))
        self.at.append(at)
        self.answer.append(answer)
        self.truth.append(truth)
        return given

    def correction(self, at: float) -> Correction:
        """Return what the asks before an instant say of one that is made then."""
        while self._later and self._later[0][0] <= at:
            _, _, k, later = heapq.heappop(self._later)
            self.level[k] = np.clip(self.level[k] + STEP * (later - (1 - WANTED[k])), *_bounds(k))
        asked, truth = np.array(self.at[-RECENT:]), np.array(self.truth[-RECENT:])
        known = asked + truth <= at
        if known.sum() < ENOUGH:
            return Correction(None, 0)
        middle, down, up = _spreads(np.array(self.answer[-RECENT:]))
        off = log_scale(np.where(known, truth, np.maximum(at - asked, 0.0))) - middle
        miss = _quantiles(off / np.where(off > 0, up, down), known, self.level)
        miss[:MIDDLE] = np.minimum.accumulate(np.minimum(miss[: MIDDLE + 1], miss[MIDDLE])[::-1])[::-1][:MIDDLE]
        return Correction(np.maximum.accumulate(miss), len(asked))


def calibrator(asks: Asks) -> Calibrator:
    """Return what is learnt of these asks."""
    made = Calibrator()
    for at, answer, truth in zip(asks.at.tolist(), asks.answer, asks.truth.tolist(), strict=True):
        made.add(at, answer, truth)
    return made


def log_scale(seconds: Floats) -> Floats:
    """Return times on the scale on which they are compared."""
    return np.asarray(np.log1p(np.asarray(seconds) / SCALE))


def _spreads(answer: Floats) -> tuple[Floats, Floats, Floats]:
    """Return the median of answers, and how far P10 is below and P90 above it, on the scale of logarithms."""
    log = log_scale(answer)
    low, middle, high = (log[..., k] for k in (1, MIDDLE, 3))
    return middle, np.maximum(middle - low, FLOOR), np.maximum(high - middle, FLOOR)


def _bounds(k: int) -> tuple[float, float]:
    """Return how far a level may go: it stays on its side of the median."""
    return (1e-3, 0.5) if k < MIDDLE else (0.5, 1 - 1e-3) if k > MIDDLE else (0.1, 0.9)


def _quantiles(miss: Floats, known: Bools, levels: Floats) -> Floats:
    """Return the misses that one more to come stays below with these probabilities; some are only known to be above.

    Where there are too few for a rank, it is beyond all of them: as far as an exponential tail tells.

    >>> _quantiles(np.arange(1.0, 40.0), np.ones(39, dtype=bool), np.array([0.1, 0.5, 0.975])).tolist()
    [4.0, 20.0, 39.0]
    """
    when, risk, deaths = product_limit(miss, known)
    share = (1 - np.cumprod(1 - deaths / risk)) * len(miss) / (len(miss) + 1)  # one more is to come
    found = np.interp(levels, share, when)
    above, below = levels > share[-1], levels < share[0]
    if above.any():
        found[above] = _beyond(miss, known, when[np.searchsorted(share, min(OUTER, share[-1]))], 1 - levels[above])
    if below.any():
        low = -miss[known]
        found[below] = -_beyond(low, np.ones(len(low), dtype=bool), float(np.quantile(low, OUTER)), levels[below])
    return np.asarray(found)


def _beyond(miss: Floats, known: Bools, begin: float, rest: Floats) -> Floats:
    """Return what so small shares of the misses are above, by an exponential tail; never below the largest known."""
    outer = miss > begin
    mean = float((miss[outer] - begin).sum() / max((outer & known).sum(), 1))
    share = float(outer.sum() + 1) / (len(miss) + 1)
    return np.maximum(begin + mean * np.log(np.maximum(share / rest, 1.0)), miss[known].max())
