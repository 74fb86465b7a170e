"""Distribution functions with confidence bands, quantiles and means; and survival where some jobs still run.

The band is pointwise. It comes from how much blocks of time differ: a share is a ratio of sums over blocks, and its
variance that of what blocks have beyond it (Cochran 1977), with Student's t for that many blocks. Where a sample is too
small for blocks or has no times, the band is that of Dvoretzky, Kiefer and Wolfowitz with Massart's constant, which
holds for the whole curve if values are independent. A quantile is interpolated between the two nearest values, as
everywhere in fleetlab (numpy's `linear`, type 7 of Hyndman and Fan 1996); its interval is where the band crosses its
level (Woodruff 1952).

Intervals are Greenwood's on the scale of log(−log S), so that they stay between 0 and 1 (Kalbfleisch and Prentice);
the interval of a quantile is where they cross its level (Brookmeyer and Crowley 1982).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fleetlab.core.censoring import product_limit
from fleetlab.stats import (
    ANY,
    CONFIDENCE,
    NORMAL,
    POSITIVE,
    SHARE,
    BlockBootstrap,
    Floats,
    Interval,
    Ints,
    effective_size,
    no_interval,
    weighted_mean,
    wilson,
)

Bools = NDArray[np.bool_]

# Levels at which a curve is kept: between two of them it is off by less than the step.
LEVELS = np.unique(np.concatenate((np.linspace(0, 1, 801), 1 - np.geomspace(1e-6, 1e-3, 31))))
DRAWN = np.unique(np.concatenate((np.linspace(0, 1, 121), 1 - np.geomspace(1e-4, 1e-2, 9))))  # of those, in a figure
JUMP = 0.004  # a step this high is drawn upright
PERCENTS = (5, 10, 25, 50, 75, 90, 95, 98, 99)
SHOWN = (25, 50, 75, 90, 95, 99)  # of them, in a table
WITH_LIMITS = (50, 90)  # of those, with an interval


@dataclass(frozen=True, slots=True, eq=False)
class Ecdf:
    """The distribution of one thing: `upto[k]` of the weight is at or below `x[k]`, `under[k]` below it."""

    series: str
    count: int
    size: float  # Kish's, of the weights
    x: Floats
    under: Floats
    upto: Floats
    low: Floats
    high: Floats
    mean: Interval
    quantiles: dict[int, Interval]
    zero: float  # the share at 0
    largest: float

    def level(self, x: float) -> float:
        """The share at or below `x`."""
        at = int(np.searchsorted(self.x, x, side="right"))
        return float(self.upto[at - 1]) if at else 0.0

    def levels(self, x: Floats) -> Floats:
        """The share at or below each of them."""
        return np.concatenate(([0.0], self.upto))[np.searchsorted(self.x, x, side="right")]

    def between(self, x: float) -> Interval:
        """The share at or below `x`, with its interval."""
        at = int(np.searchsorted(self.x, x, side="right"))
        return Interval(*(float(side[at - 1]) if at else 0.0 for side in (self.upto, self.low, self.high)))

    def points(self) -> pl.DataFrame:
        """What a figure draws of it, in percent: steep steps upright, the rest by straight lines."""
        at = np.unique(np.minimum(np.searchsorted(self.upto, DRAWN), len(self.x) - 1))
        tall = at[self.upto[at] - self.under[at] > JUMP]
        # The foot of a step has the band of the point before it.
        foot = np.maximum(tall - 1, 0)
        low, high = (np.where(tall > 0, side[foot], 0.0) for side in (self.low, self.high))
        x = np.concatenate((self.x[tall], self.x[at]))
        y = np.concatenate((self.under[tall], self.upto[at]))
        low = np.concatenate((np.minimum(low, self.under[tall]), self.low[at]))
        high = np.concatenate((np.maximum(high, self.under[tall]), self.high[at]))
        order = np.lexsort((y, x))
        columns = {"x": x, "y": 100 * y, "low": 100 * low, "high": 100 * high}
        return pl.DataFrame({k: v[order] for k, v in columns.items()}).with_columns(series=pl.lit(self.series))


def ecdf(
    series: str,
    values: Floats,
    *,
    weights: Floats | None = None,
    where: Bools | None = None,
    blocks: BlockBootstrap | None = None,
    order: Ints | None = None,
) -> Ecdf | None:
    """The curve of the values that are there, each in its block; none where there are none.

    `order` sorts the values, where that is known already.
    """
    order = np.argsort(values) if order is None else order
    # What is not a number comes last.
    rows = order[: len(values) - int(np.isnan(values).sum())]
    if where is not None:
        rows = rows[where[rows]]
    if weights is not None:
        rows = rows[weights[rows] > 0]
    if not len(rows):
        return None
    weight = np.ones(len(rows)) if weights is None else weights[rows]
    return _curve(series, values[rows], weight, blocks.part(rows) if blocks is not None else None)


def _curve(series: str, values: Floats, weights: Floats, blocks: BlockBootstrap | None) -> Ecdf:
    sums = np.cumsum(weights)
    total = float(sums[-1])
    x = np.unique(values[np.minimum(np.searchsorted(sums, LEVELS * total * (1 - 1e-15)), len(values) - 1)])
    end, begin = (np.searchsorted(values, x, side=side) for side in ("right", "left"))
    padded = np.concatenate(([0.0], sums)) / total
    upto, under = padded[end], padded[begin]
    if blocks is not None and blocks.enough:
        cell = np.repeat(np.arange(len(x)), np.diff(end, prepend=0))
        cells = np.bincount(blocks.index * len(x) + cell, weights=weights, minlength=blocks.blocks * len(x))
        low, high = blocks.cdf_band(cells.reshape(blocks.blocks, len(x)).astype(np.float64), upto)
        range_ = POSITIVE if values[0] >= 0 else ANY
        mean = blocks.ratio(blocks.sums(values * weights), blocks.sums(weights), range_).interval()
    else:
        half = (np.log(2 / (1 - CONFIDENCE)) / (2 * effective_size(weights))) ** 0.5
        low, high = np.maximum(upto - half, 0.0), np.minimum(upto + half, 1.0)
        mean = weighted_mean(values, weights)
    quantiles = {p: _quantile(p / 100, values, sums, x, low, high) for p in PERCENTS}
    zero = float(padded[np.searchsorted(values, 0.0, side="right")] - padded[np.searchsorted(values, 0.0)])
    size, largest = effective_size(weights), float(values[-1])
    return Ecdf(series, len(values), size, x, under, upto, low, high, mean, quantiles, zero, largest)


def _quantile(level: float, values: Floats, sums: Floats, x: Floats, low: Floats, high: Floats) -> Interval:
    """The quantile, and where the band reaches its level."""
    value = weighted_quantile(values, sums, level)
    first = min(int(np.argmax(high >= level)), len(x) - 1)
    reached = low >= level
    last = int(np.argmax(reached)) if reached.any() else len(x) - 1
    return Interval(value, min(value, float(x[first])), max(value, float(x[last])))


def weighted_quantile(ranked: Floats, sums: Floats, level: float) -> float:
    """Interpolate between sorted values with these cumulative weights; a weight of 2 is a value twice.

    Of weights that are no counts, such as GPU time, the mean is one value.

    >>> weighted_quantile(np.array([1.0, 2.0, 4.0]), np.array([1.0, 2.0, 3.0]), 0.75)
    3.0
    >>> weighted_quantile(np.array([1.0, 2.0]), np.array([1.0, 10.0]), 0.5)
    2.0
    """
    counts = bool(np.all(sums == np.floor(sums)))
    size = float(sums[-1]) if counts else len(ranked)
    at = level * (size - 1)
    places = np.floor(at), np.ceil(at)
    ranks = np.searchsorted(sums * (size / sums[-1]) * (1 - 1e-12), places, side="right")
    below, above = (float(ranked[min(rank, len(ranked) - 1)]) for rank in ranks)
    return below + (at - float(places[0])) * (above - below)


def table(curves: Sequence[Ecdf], of: str) -> pl.DataFrame:
    """Counts, means and quantiles, one row a curve."""
    return pl.DataFrame([_row(c, of) for c in curves], infer_schema_length=None)


def _row(c: Ecdf, of: str) -> dict[str, object]:
    """A row; limits stand behind what they are the limits of, where a reader, and `core.display`, look for them."""
    row: dict[str, object] = {of: c.series, "count": c.count, **c.mean.columns("mean"), "at 0, %": 100 * c.zero}
    for p in SHOWN:
        value = c.quantiles[p]
        row |= value.columns(f"P{p}") if p in WITH_LIMITS else {f"P{p}": value[0]}
    return row | {"largest": c.largest}


def share(which: Bools, weights: Floats | None, blocks: BlockBootstrap) -> Interval:
    """In percent, the part of the weight for which it is so."""
    weight = np.ones(len(which)) if weights is None else weights
    if not len(which) or not weight.sum():
        return no_interval()
    if blocks.enough:
        return blocks.ratio(blocks.sums(weight * which), blocks.sums(weight), SHARE).interval().scaled(100)
    part, size = float(weight @ which) / float(weight.sum()), effective_size(weight)
    return wilson(part * size, size)._replace(value=part).scaled(100)


POINTS = 200  # points of a curve in a figure


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
        at = np.linspace(0, len(self.time) - 1, min(POINTS, len(self.time))).astype(np.int64)
        columns = {"x": self.time, "y": 1 - self.alive, "low": 1 - self.high, "high": 1 - self.low}
        percent = [pl.col(c) * 100 for c in ("y", "low", "high")]
        frame = pl.DataFrame({k: v[at] for k, v in columns.items()}).with_columns(percent)
        return frame.with_columns(series=pl.lit(self.series))


def kaplan_meier(series: str, time: Floats, ended: Bools) -> Survival:
    """The estimate from how long each was seen, and whether it ended then or was seen no longer.

    >>> s = kaplan_meier("by hand", np.array([1.0, 2.0, 2.0, 3.0]), np.array([True, True, False, True]))
    >>> s.time.tolist(), s.alive.tolist()
    ([1.0, 2.0, 3.0], [0.75, 0.5, 0.0])
    """
    when, risk, deaths = product_limit(time, ended)
    alive = np.asarray(np.cumprod(1 - deaths / risk), dtype=np.float64)
    survivors = risk - deaths
    spread = np.divide(deaths, risk * survivors, out=np.zeros(len(risk)), where=survivors > 0)
    low, high = _greenwood(alive, np.cumsum(spread))
    last = float(time.max(initial=0.0))
    return Survival(series, len(time), int(ended.sum()), when, alive, low, high, last, spread)


def _greenwood(alive: Floats, variance: Floats) -> tuple[Floats, Floats]:
    """S to the power of exp(±z·se), where se is that of log(−log S); at 0 and 1 nothing can be said of how sure."""
    inside = (alive > 0) & (alive < 1)
    log = np.log(alive, out=np.full(len(alive), -1.0), where=inside)
    wide = np.exp(np.where(inside, NORMAL * np.sqrt(variance) / -log, 0.0))
    return np.where(inside, np.exp(log * wide), alive), np.where(inside, np.exp(log / wide), alive)
