"""How far off forecasts were, and how sure that is.

NRMSE is the root of the mean squared miss over the mean of what came. The 2025 study does not print its formula; this
is the one that fits its numbers (see docs/measurements/forecast.md). MASE is the mean absolute miss over that of the
last value, one step ahead, in what was learnt from (Hyndman and Koehler 2006); WAPE is the sum of absolute misses over
the sum of what came; pinball is the mean over the quantiles 2.5, 10, 50, 90 and 97.5 %, over the mean of what came.

Misses hang together, so blocks of time, one after the other, are drawn with replacement (Carlstein 1986), and what the
draws give is stretched as Student's interval is for that many blocks. The same draws serve both models of a pair.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fleetlab._student import student
from fleetlab.forecast.conformal import LEVELS
from fleetlab.forecast.panel import DAY, Floats, Ints

FEWEST, MOST = 20, 60  # blocks: a day each where that gives so many
DRAWS = 1000
SURE, NORMAL = 0.95, 1.959964
Told = tuple[float, float, float]  # a value, and the ends of its 95 % interval


@dataclass(frozen=True, slots=True, eq=False)
class Blocks:
    """Which block each origin is in, and how often each draw has each block."""

    of: Ints
    draws: Floats  # [DRAWS, blocks]

    @classmethod
    def cut(cls, origins: int, every: float, *, seed: int) -> Blocks:
        """Cut origins in a row into blocks of the same length."""
        count = min(origins, int(np.clip(origins * every // DAY, FEWEST, MOST)))
        draws = np.random.default_rng(seed).multinomial(count, np.full(count, 1 / count), size=DRAWS)
        return cls(np.arange(origins) * count // origins, draws.astype(np.float64))

    def sums(self, values: Floats) -> Floats:
        """The sum over each block."""
        return np.bincount(self.of, weights=values, minlength=self.draws.shape[1]).astype(np.float64)

    def rooted(self, missed: Floats, came: Floats) -> Told:
        """The root of a mean square over a mean."""
        squares, sums, counts = self.sums(missed**2), self.sums(came), self.sums(np.ones(len(came)))

        def told(s: Floats, c: Floats, n: Floats) -> Floats:
            return over(np.sqrt(s / n), c / n)

        value, drawn = (
            told(squares.sum(), sums.sum(), counts.sum()),
            told(*(self.draws @ x for x in (squares, sums, counts))),
        )
        return self._around(value, drawn, least=0.0)

    def skill(self, missed: Floats, other: Floats) -> Told:
        """By which share the root mean square is smaller than another's."""
        mine, theirs = self.sums(missed**2), self.sums(other**2)
        value = 1 - np.sqrt(over(mine.sum(), theirs.sum()))
        return self._around(value, 1 - np.sqrt(over(self.draws @ mine, self.draws @ theirs)))

    def better(self, missed: Floats, other: Floats) -> float:
        """In which share of the draws the mean square is smaller than another's; half of those where it is the same."""
        change = self.draws @ self.sums(missed**2 - other**2)
        return float(((change < 0).mean() + (change <= 0).mean()) / 2)

    def share(self, level: Floats) -> Told:
        """A mean of what is 0 or 1."""
        return self.ratio(level, np.ones(len(level)), most=1.0)

    def ratio(self, top: Floats, below: Floats, *, most: float = np.inf) -> Told:
        """One sum over another, neither of them negative."""
        above, under = self.sums(top), self.sums(below)
        value, drawn = over(above.sum(), under.sum()), over(self.draws @ above, self.draws @ under)
        return self._around(value, drawn, least=0.0, most=most)

    def _around(self, value: Floats | float, drawn: Floats, *, least: float = -np.inf, most: float = np.inf) -> Told:
        known, value, count = drawn[np.isfinite(drawn)], float(value), self.draws.shape[1]
        if len(known) < DRAWS // 2 or count < 2:
            return value, float("nan"), float("nan")
        low, high = np.quantile(known, [(1 - SURE) / 2, (1 + SURE) / 2]).tolist()
        wider = student(count - 1, SURE) / NORMAL * (count / (count - 1)) ** 0.5
        low, high = min(value, value + wider * (low - value)), max(value, value + wider * (high - value))
        return value, max(least, low), min(most, high)


def over(top: Floats | float, below: Floats | float) -> Floats:
    """A ratio; not a number where there is nothing to divide by.

    >>> over(np.array([1.0, 0.0]), np.array([2.0, 0.0]))
    array([0.5, nan])
    """
    top, below = np.asarray(top, dtype=np.float64), np.asarray(below, dtype=np.float64)
    return np.asarray(np.divide(top, below, out=np.full(np.broadcast(top, below).shape, np.nan), where=below != 0))


def pinball(came: Floats, forecasts: Floats, widths: Floats) -> Floats:
    """Each origin's mean loss over the quantiles that forecast and intervals are; `widths` are [levels, origins]."""
    ends = [(q, np.maximum(forecasts + side * w, 0.0)) for level, w in zip(LEVELS, widths, strict=True)
            for side, q in ((-1, (1 - level) / 2), (1, (1 + level) / 2))]  # fmt: skip
    losses = [np.maximum(q * (came - end), (q - 1) * (came - end)) for q, end in [(0.5, forecasts), *ends]]
    return np.asarray(np.mean(losses, axis=0))
