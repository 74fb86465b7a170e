"""How long do jobs run, when some still ran as the log ended? Kaplan and Meier's estimate, with Greenwood's variance.

Intervals are Greenwood's on the scale of log(−log S), so that they stay between 0 and 1 (Kalbfleisch and Prentice);
the interval of a quantile is where they cross its level (Brookmeyer and Crowley 1982).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from fleetlab.core.censoring import product_limit
from fleetlab.describe.ecdf import Bools
from fleetlab.stats import NORMAL, Floats, Interval, no_interval

DRAWN = 200  # points of a curve in a figure


@dataclass(frozen=True, slots=True, eq=False)
class Survival:
    """At each time at which some ended: the share that ran longer, and how sure that is."""

    series: str
    count: int
    ended: int
    time: Floats
    alive: Floats
    low: Floats
    high: Floats
    last: float  # the longest time seen, ended or not
    _spread: Floats  # Greenwood's terms d / (n (n - d))

    @property
    def censored(self) -> int:
        """How many still ran."""
        return self.count - self.ended

    def quantile(self, level: float) -> Interval:
        """When so many have ended; infinite where the log is too short to tell."""
        return Interval(*(self._crossed(side, 1 - level) for side in (self.alive, self.low, self.high)))

    def _crossed(self, side: Floats, level: float) -> float:
        reached = side <= level + 1e-12
        return float(self.time[int(np.argmax(reached))]) if reached.any() else float("inf")

    def mean(self) -> Interval:
        """The mean time up to the longest seen: the area below the curve, with its normal interval."""
        if not len(self.time):
            return no_interval(self.last)
        edges = np.concatenate(([0.0], self.time, [self.last]))
        parts = np.diff(edges) * np.concatenate(([1.0], self.alive))
        after = np.cumsum(parts[::-1])[::-1][1:]  # the area beyond each time
        half = NORMAL * float((after**2 @ self._spread) ** 0.5)
        area = float(parts.sum())
        return Interval(area, area - half, area + half)

    def points(self) -> pl.DataFrame:
        """What a figure draws: the share that has ended, in percent."""
        wanted = np.linspace(0, len(self.time) - 1, min(DRAWN, len(self.time))).astype(np.int64)
        columns = {"x": self.time, "y": 1 - self.alive, "low": 1 - self.high, "high": 1 - self.low}
        percent = [pl.col(c) * 100 for c in ("y", "low", "high")]
        frame = pl.DataFrame({k: v[wanted] for k, v in columns.items()}).with_columns(percent)
        return frame.with_columns(series=pl.lit(self.series))


def kaplan_meier(series: str, time: Floats, ended: Bools) -> Survival:
    """The estimate from how long each was seen, and whether it ended then or was seen no longer.

    >>> s = kaplan_meier("by hand", np.array([1.0, 2.0, 2.0, 3.0]), np.array([True, True, False, True]))
    >>> s.time.tolist(), s.alive.tolist()
    ([1.0, 2.0, 3.0], [0.75, 0.5, 0.0])
    """
    when, risk, deaths = product_limit(time, ended)
    alive = np.asarray(np.cumprod(1 - deaths / risk), dtype=np.float64)
    left = risk - deaths
    spread = np.divide(deaths, risk * left, out=np.zeros(len(risk)), where=left > 0)
    low, high = _greenwood(alive, np.cumsum(spread))
    last = float(time.max(initial=0.0))
    return Survival(series, len(time), int(ended.sum()), when, alive, low, high, last, spread)


def _greenwood(alive: Floats, variance: Floats) -> tuple[Floats, Floats]:
    """S to the power of exp(±z·se), where se is that of log(−log S); at 0 and 1 nothing can be said of how sure."""
    inside = (alive > 0) & (alive < 1)
    log = np.log(alive, out=np.full(len(alive), -1.0), where=inside)
    wide = np.exp(np.where(inside, NORMAL * np.sqrt(variance) / -log, 0.0))
    return np.where(inside, np.exp(log * wide), alive), np.where(inside, np.exp(log / wide), alive)
