"""The block bootstrap: one way to find the uncertainty of any number that one run, or a pair of runs, gives.

Waits are autocorrelated: a busy hour delays every job in it. So time is cut into blocks, and blocks are resampled with
replacement (Carlstein 1986). Blocks that are still alike are accounted for by the autocorrelation of what the statistic
loses without each block (the jackknife), and few blocks by Student's t. The resamples do not depend on the scenario:
two runs of the same jobs share them, and where nothing changed the difference and its interval are exactly zero.

A statistic is computed for all jobs, for each resample and without each block: these numbers are its *replicates*.
Differences, ratios and other functions of statistics are functions of their replicates.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fleetlab.stats.intervals import (
    ANY,
    CONFIDENCE,
    NORMAL,
    POSITIVE,
    Floats,
    Interval,
    Ints,
    Range,
    Statistic,
    no_interval,
    student_quantile,
)
from fleetlab.stats.means import LEAST, degrees_of_freedom, variance_inflation, variance_inflations

# One number for all traces, so that any two runs of the same jobs can be paired, whatever their load; on daily patterns
# it covers as well as blocks of a day (docs/measurements/statistics.md).
BLOCKS = 40
RESAMPLES = 999
GRID, TAIL = 2000, 500  # ranks at which a distribution is kept: evenly spaced, and closer in the upper tenth
BEYOND = 3  # independent values beyond a quantile: with fewer, order statistics have no limit on that side either
FEW = 200  # units up to which the acceleration of a bootstrap over units is estimated


@cache
def _weights(blocks: int, resamples: int) -> Floats:
    """Return how often each block counts in each replicate: once in the first; resampled; all but one."""
    resampled = np.random.default_rng(0).multinomial(blocks, np.full(blocks, 1 / blocks), size=resamples)
    # Of many blocks, which are independent units, nothing is left out: it would be a large matrix for no use.
    without = 1 - np.eye(blocks if blocks <= FEW else 0, blocks)
    weights: Floats = np.vstack((np.ones((1, blocks)), resampled, without)).astype(np.float64)
    weights.flags.writeable = False
    return weights


@dataclass(frozen=True, slots=True, eq=False)
class BlockBootstrap:
    """The block of each value, and how often each block counts in each replicate.

    Blocks that are independent, such as users, are not checked for autocorrelation and need no jackknife.
    """

    index: Ints  # [values]
    weights: Floats  # [1 + resamples + blocks, blocks]; [1, blocks] where values are too few for an interval
    independent: bool = False

    @classmethod
    def of_times(
        cls, times: Floats, span: float | None = None, *, resamples: int = RESAMPLES, least: int = LEAST
    ) -> BlockBootstrap:
        """Cut the time from 0 to `span` (default: the last of the times) into blocks of the same length.

        With fewer than `least` values there is no interval.
        """
        span = float(times.max(initial=0.0)) if span is None else span
        share = times / span if span > 0 else np.zeros(len(times))
        index = np.clip((share * BLOCKS).astype(np.int64), 0, BLOCKS - 1)
        weights = _weights(BLOCKS, resamples)
        return cls(index, weights if span > 0 and len(times) >= least else weights[:1])

    @classmethod
    def of_series(cls, n: int) -> BlockBootstrap:
        """Cut `n` values in order of time into blocks of the same length."""
        weights = _weights(min(BLOCKS, max(n, 1)), RESAMPLES)
        return cls(np.arange(n) * weights.shape[1] // max(n, 1), weights if n > 1 else weights[:1])

    @classmethod
    def of_units(cls, index: Ints, units: int, *, resamples: int = RESAMPLES) -> BlockBootstrap:
        """Resample independent units, such as users or applications; `index` is the unit of each value."""
        return cls(index, _weights(units, resamples)[: 1 + resamples if units > 1 else 1], independent=True)

    @property
    def blocks(self) -> int:
        """How many blocks there are."""
        return int(self.weights.shape[1])

    @property
    def enough(self) -> bool:
        """Are there enough values for an interval?"""
        return len(self.weights) > 1

    def part(self, where: NDArray[np.bool_] | Ints | slice) -> BlockBootstrap:
        """Return the bootstrap of some of the values, in the same blocks and resamples; of few there is no interval."""
        index = self.index[where]
        return BlockBootstrap(index, self.weights if len(index) >= LEAST else self.weights[:1], self.independent)

    def sums(self, values: ArrayLike) -> Floats:
        """Return the sum of the values in each block."""
        weights = np.asarray(values, dtype=np.float64)
        return np.bincount(self.index, weights=weights, minlength=self.blocks).astype(np.float64)

    def totals(self, sums: Floats) -> Floats:
        """Return the replicates of a sum, from that of each block."""
        return np.asarray(self.weights @ sums)

    def replicates(self, values: ArrayLike) -> Replicates:
        """Take an array with one number a replicate, such as a function of `totals`."""
        return Replicates(np.asarray(values, dtype=np.float64), self.blocks, independent=self.independent)

    def ratios(self, top: Floats, bottom: Floats) -> Replicates:
        """Return one sum over another, from those of each block; NaN where the other is 0."""
        return self.replicates(divide(self.totals(top), self.totals(bottom)))

    def means(self, values: Floats) -> Replicates:
        """Return the mean of the values."""
        return self.ratios(self.sums(values), self.sums(np.ones(len(values))))

    def quantiles(self, values: Floats, levels: Sequence[float]) -> list[Replicates]:
        """Return quantiles of the values."""
        if not len(values):
            return [self.replicates(np.full(len(self.weights), np.nan)) for _ in levels]
        ranked = np.sort(values)
        grid = _grid(ranked)
        cell = np.searchsorted(grid, values)  # the first of the grid that is not below
        counts = np.bincount(cell * self.blocks + self.index, minlength=len(grid) * self.blocks)
        heights = np.cumsum(counts.reshape(len(grid), self.blocks), axis=0, dtype=np.float64)
        # Of heavy tails only the ranks show the autocorrelation; of waits, the values show how long the tail lasts.
        size, replicates = min(self.effective_size(values), self.effective_size(cell.astype(np.float64))), []
        for q in levels:
            at = self._first_at(heights, q)
            values_at = grid[at]
            values_at[0] = _quantile(ranked, q)  # itself, not its neighbor on the grid
            beyond = round(size * min(q, 1 - q), 1)
            replicates.append(replace(self.replicates(values_at), df=beyond))
        return replicates

    def _first_at(self, heights: Floats, level: float) -> Ints:
        """Return where on the grid each replicate reaches a level, by bisection of all replicates at once."""
        target = level * (self.weights @ heights[-1]) * (1 - 1e-12)
        low, high = np.zeros(len(target), dtype=np.int64), np.full(len(target), len(heights) - 1)
        while (low < high).any():
            middle = (low + high) // 2
            reached = np.einsum("rb,rb->r", self.weights, heights[middle]) >= target
            low, high = np.where(reached, low, middle + 1), np.where(reached, middle, high)
        return high

    def cdf_band(self, cells: Floats, levels: Floats) -> tuple[Floats, Floats]:
        """Return the pointwise 95 % band of a distribution function, from weights by block and cell of a grid.

        The variance of a share is that of what the blocks have beyond their share of it (Cochran 1977).
        """
        heights = np.cumsum(cells, axis=1)
        excess = heights - levels * heights[:, -1:]
        inflation = variance_inflations(excess)
        error = np.sqrt(inflation * (excess**2).sum(axis=0) * self.blocks / (self.blocks - 1)) / heights[:, -1].sum()
        freedom = [degrees_of_freedom(self.blocks, x) for x in inflation.tolist()]
        half = np.array([student_quantile((1 + CONFIDENCE) / 2, df) for df in freedom]) * error
        return np.maximum(levels - half, 0.0), np.minimum(levels + half, 1.0)

    def effective_size(self, values: Floats) -> float:
        """Return how many independent values would give a mean with the same variance."""
        counts = self.sums(np.ones(len(values)))
        excess = self.sums(values) - values.mean() * counts
        variance = variance_inflation(excess) * float(excess @ excess) / len(values) ** 2
        return min(len(values), float(values.var()) / variance) if variance else math.inf

    def ratio(self, top: Floats, bottom: Floats, within: Range = ANY) -> Statistic:
        """Return one sum over another with its standard errors, from those of each block."""
        return self.ratios(top, bottom).statistic(within)

    def mean(self, values: Floats, within: Range = ANY) -> Statistic:
        """Return the mean of the values with its standard errors."""
        return self.means(values).statistic(within)

    def quantile(self, values: Floats, level: float, within: Range = ANY) -> Statistic:
        """Return a quantile of the values with its standard errors."""
        return self.quantiles(values, [level])[0].statistic(within)


@dataclass(frozen=True, slots=True, eq=False)
class Replicates:
    """A statistic of all values, of each resample, and without each block, in this order.

    `df` bounds the degrees of freedom: a P99 rests on the few independent values beyond it.
    """

    values: Floats  # [1 + resamples + blocks], or [1] where there are too few values for an interval
    blocks: int
    df: float = math.inf
    independent: bool = False
    within: Range = ANY

    def __sub__(self, other: Replicates) -> Replicates:
        """Return the paired difference of two runs of the same jobs."""
        if len(self.values) != len(other.values):  # one of them has too few values
            return replace(self, values=self.values[:1] - other.values[:1], within=ANY)
        values, within = self.values - other.values, ANY
        if not self.values.any() and (values <= 0).all():  # no wait is less than before, however long that was
            within = -math.inf, 0.0
        elif not other.values.any() and (values >= 0).all():
            within = POSITIVE
        return replace(self, values=values, df=min(self.df, other.df), within=within)

    def statistic(self, within: Range | None = None) -> Statistic:
        """Return the value with its standard errors.

        The 2.5 and 97.5 % quantiles of the resamples are taken for 1.96 standard errors to either side.
        """
        value, finite, within = float(self.values[0]), self._resamples(), within or self.within
        if not len(finite) or not math.isfinite(value):
            return Statistic.symmetric(value, math.nan, 0, within)
        low, high = _percentiles(finite)
        if self.df < BEYOND and low < high:  # what is the same in every resample needs nothing beyond it
            return Statistic.symmetric(value, math.nan, 0, within)
        inflation = (
            1.0 if self.independent else variance_inflation(np.nan_to_num(self.values[-self.blocks :], nan=value))
        )
        stretch = math.sqrt(inflation * self.blocks / (self.blocks - 1)) / NORMAL
        # Resamples that reach a bound show that the limit does: a median wait may well be 0.
        below = math.inf if low <= within[0] < value else stretch * max(value - low, 0.0)
        above = math.inf if high >= within[1] > value else stretch * max(high - value, 0.0)
        df = min(degrees_of_freedom(self.blocks, inflation), max(self.df, 1.0))
        return Statistic(value, below, above, df, within)

    def interval(self, within: Range | None = None) -> Interval:
        """Return the 95 % interval; where the value is infinite, that between the resamples."""
        value, finite = float(self.values[0]), self._resamples()
        if math.isfinite(value) or not len(finite):
            return self.statistic(within).interval()
        return Interval(value, *_percentiles(finite)).clipped(within or self.within)

    def _resamples(self) -> Floats:
        """Return those that are known; none where fewer than half are."""
        end = len(self.values) - (0 if self.independent else self.blocks)
        resamples = self.values[1 : max(1, end)]
        finite = resamples[~np.isnan(resamples)]
        return finite if 2 * len(finite) > len(resamples) and self.blocks > 1 else finite[:0]


def paired_difference(before: Replicates, after: Replicates) -> Statistic:
    """Return how far a statistic moves between two runs of the same jobs."""
    return (after - before).statistic()


def _percentiles(resamples: Floats) -> tuple[float, float]:
    # Some resamples may be infinite: between two of them there is nothing to interpolate.
    low, high = np.quantile(resamples, [0.025, 0.975], method="nearest").tolist()
    return low, high


def divide(top: ArrayLike, bottom: ArrayLike) -> Floats:
    """Return the ratio; NaN where there is nothing to divide by.

    >>> divide(np.array([1.0, 0.0]), np.array([2.0, 0.0]))
    array([0.5, nan])
    """
    top, bottom = np.asarray(top, dtype=np.float64), np.asarray(bottom, dtype=np.float64)
    shape = np.broadcast(top, bottom).shape
    return np.asarray(np.divide(top, bottom, out=np.full(shape, np.nan), where=bottom != 0))


def _grid(ranked: Floats) -> Floats:
    n = len(ranked)
    if n <= GRID + TAIL:
        return np.unique(ranked)
    upper = n - np.geomspace(1, n / 10, TAIL)
    return np.unique(ranked[np.concatenate((np.linspace(0, n - 1, GRID), upper)).astype(np.int64)])


def _quantile(ranked: Floats, level: float) -> float:
    """Return the quantile of sorted values, interpolated as numpy does."""
    at = level * (len(ranked) - 1)
    low, high = float(ranked[math.floor(at)]), float(ranked[math.ceil(at)])
    return low if low == high else low + (at - math.floor(at)) * (high - low)


def bootstrap_units(
    units: ArrayLike,
    function: Callable[[Floats], float],
    *,
    seed: int = 0,
    resamples: int = 2000,
    confidence: float = CONFIDENCE,
    within: Range = ANY,
) -> Interval:
    """Return a function of independent units, such as users or measurements, with its interval.

    `units` has one row a unit; `function` takes any selection of rows. Limits are bias-corrected, and accelerated where
    there are few units (Efron 1987). Below five units there is no interval.
    """
    rows = np.asarray(units, dtype=np.float64)
    value = function(rows)
    if len(rows) < 5:
        return no_interval(value)
    rng = np.random.default_rng(seed)
    resampled = np.sort([function(rows[rng.integers(len(rows), size=len(rows))]) for _ in range(resamples)])
    resampled = resampled[~np.isnan(resampled)]
    if not len(resampled):
        return no_interval(value)
    below = float((resampled < value).mean() + 0.5 * (resampled == value).mean())
    if not 0 < below < 1:
        return Interval(value, float(resampled[0]), float(resampled[-1])).clipped(within)
    normal, acceleration = NormalDist(), _acceleration(rows, function)
    bias = normal.inv_cdf(below)
    ends = [bias + normal.inv_cdf((1 + sign * confidence) / 2) for sign in (-1, 1)]
    low, high = (float(np.quantile(resampled, normal.cdf(bias + z / (1 - acceleration * z)))) for z in ends)
    return Interval(value, low, high).clipped(within)


def _acceleration(rows: Floats, function: Callable[[Floats], float]) -> float:
    if len(rows) > FEW:
        return 0.0  # it vanishes as 1/√n
    without = np.array([function(np.delete(rows, k, axis=0)) for k in range(len(rows))])
    lean = without.mean() - without
    spread = float((lean**2).sum() ** 1.5)
    return float((lean**3).sum()) / (6 * spread) if spread else 0.0
