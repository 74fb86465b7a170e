"""How sure is a number of one run, or the difference of two? Time is cut into blocks, and blocks are drawn again.

Waits hang together: a busy hour delays everybody in it. So not jobs but blocks of time are drawn with replacement
(Carlstein 1986), and what the draws give is stretched as Student's interval is for that many blocks. The same draws
serve both runs of a pair: where nothing changed, the difference and its interval are exactly zero.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fleetlab._student import student
from fleetlab.core import Estimate
from fleetlab.studies._spread import USUAL

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

DAY = 86_400.0
FEWEST, MOST = 20, 60  # blocks: a day each where that gives so many
LEAST = 200  # jobs: with fewer, no interval is given
DRAWS = 400
GRID = 4_000  # values among which the quantile of a draw is looked for
NORMAL = 1.959964  # standard errors on either side of a 95 % interval


@dataclass(frozen=True, slots=True, eq=False)
class Blocks:
    """Which block each job was submitted in, and how often each draw has each block."""

    of: Ints  # [jobs]
    draws: Floats  # [DRAWS, blocks]; [0, blocks] where there are too few jobs for an interval

    @classmethod
    def cut(cls, submit: Floats, *, seed: int = 0) -> Blocks:
        """Cut the time in which jobs are submitted into blocks of the same length."""
        span = float(submit.max(initial=0.0))
        count = int(np.clip(span // DAY, FEWEST, MOST))
        of = np.minimum((submit / (span or 1.0) * count).astype(np.int64), count - 1)
        draws = np.random.default_rng(seed).multinomial(count, np.full(count, 1 / count), size=DRAWS)
        return cls(of, draws[: DRAWS if len(submit) >= LEAST else 0].astype(np.float64))

    @property
    def count(self) -> int:
        """How many blocks there are."""
        return int(self.draws.shape[1])

    def sums(self, values: Floats) -> Floats:
        """The sum of a job's value over each block."""
        return np.bincount(self.of, weights=values, minlength=self.count).astype(np.float64)

    def ratio(self, top: Floats, below: Floats) -> tuple[float, float, float]:
        """The sum of one over the sum of the other, from what each block has of both; with its interval."""
        total = float(below.sum())
        if not total:
            return (float("nan"),) * 3
        under = self.draws @ below
        drawn = np.divide(self.draws @ top, under, out=np.full(len(under), np.nan), where=under > 0)
        return self._around(float(top.sum()) / total, drawn)

    def share(self, top: Floats, below: Floats) -> tuple[float, float, float]:
        """The same of a part and its whole: the interval too ends at none and at all."""
        value, low, high = self.ratio(top, below)
        return (value, low, high) if np.isnan(low) else (value, max(low, 0.0), min(high, 1.0))

    def mean(self, values: Floats) -> tuple[float, float, float]:
        """The mean over all jobs."""
        return self.ratio(self.sums(values), self.sums(np.ones(len(values))))

    def better(self, change: Floats) -> float:
        """In which share of the draws the mean change is below zero; half of those where it is zero."""
        drawn = self.draws @ self.sums(change)
        return float(((drawn < 0).mean() + (drawn <= 0).mean()) / 2) if len(drawn) else float("nan")

    def quantile(self, values: Floats, q: float) -> tuple[float, float, float]:
        """A quantile over all jobs."""
        grid = _grid(values)
        return self._around(_exactly(values, q), _centred(self._drawn(values, grid, q), values, q))

    def shift(self, before: Floats, after: Floats, q: float) -> tuple[float, float, float]:
        """How far a quantile over all jobs moves."""
        grid = _grid(np.concatenate((before, after)))
        drawn = [_centred(self._drawn(x, grid, q), x, q) for x in (before, after)]
        return self._around(_exactly(after, q) - _exactly(before, q), drawn[1] - drawn[0])

    def _drawn(self, values: Floats, grid: Floats, q: float) -> Floats:
        """The quantile in each draw, and last that of all jobs, among the values of a grid."""
        at = np.searchsorted(grid, values, side="right") - 1
        cells = np.bincount(self.of * len(grid) + at, minlength=self.count * len(grid)).reshape(self.count, len(grid))
        heights = np.cumsum(np.vstack((self.draws, np.ones(self.count))) @ cells, axis=1)
        return np.asarray(grid[np.argmax(heights >= q * heights[:, -1:], axis=1)])

    def _around(self, value: float, drawn: Floats) -> tuple[float, float, float]:
        known = drawn[~np.isnan(drawn)]
        if not len(known):
            return value, float("nan"), float("nan")
        low, high = np.quantile(known, [0.025, 0.975]).tolist()
        stretch = _stretch(self.count)
        return value, min(value, value + stretch * (low - value)), max(value, value + stretch * (high - value))


def estimate(metric: str, told: tuple[float, float, float], unit: str = "", *, times: float = 1.0) -> Estimate:
    """A value with its interval as an Estimate, `times` as large."""
    value, low, high = (times * x for x in told)
    return Estimate(metric, value, low, high, unit)


def _stretch(blocks: int) -> float:
    """How much wider Student's interval is than the normal one, and the spread of draws too small, for few blocks."""
    return float(student(blocks - 1, USUAL) / NORMAL * (blocks / (blocks - 1)) ** 0.5)


def _grid(values: Floats) -> Floats:
    ranked = np.sort(values)
    return np.unique(ranked[np.linspace(0, len(ranked) - 1, min(GRID, len(ranked))).astype(np.int64)])


def _exactly(values: Floats, q: float) -> float:
    return float(np.quantile(values, q))


def _centred(drawn: Floats, values: Floats, q: float) -> Floats:
    """Draws about the quantile itself, not about its neighbour on the grid."""
    return np.asarray(drawn[:-1] - drawn[-1] + _exactly(values, q))
