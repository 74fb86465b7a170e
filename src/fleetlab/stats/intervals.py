"""A value with its confidence interval, and a statistic from which intervals of any confidence and tests follow."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fleetlab.stats.student import student_cdf, student_quantile

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Range = tuple[float, float]
Change = Literal["lower", "higher", "same", "not significant", "unknown"]

CONFIDENCE = 0.95
ANY: Range = (-math.inf, math.inf)
POSITIVE: Range = (0.0, math.inf)  # waits, JCTs, counts, rates
SHARE: Range = (0.0, 1.0)
PERCENT: Range = (0.0, 100.0)
SLOWDOWN: Range = (1.0, math.inf)


class Interval(NamedTuple):
    """A value and the limits of its confidence interval; both limits are NaN where there are too few values.

    `Estimate("mean wait", *interval, "s")` makes an `Estimate` of it. This room imports only numpy, since it also
    runs on GPU hosts where polars, which `core` needs, is not installed.
    """

    value: float
    low: float
    high: float

    def scaled(self, factor: float) -> Interval:
        """Return it `factor` times as large; the factor is positive."""
        return Interval(factor * self.value, factor * self.low, factor * self.high)

    def clipped(self, within: Range) -> Interval:
        """Return it with the limits inside a range; the limits always enclose the value."""
        low, high = max(self.low, within[0]), min(self.high, within[1])  # `max` and `min` keep a NaN that comes first
        return Interval(self.value, min(low, self.value), max(high, self.value))

    def change(self) -> Change:
        """Return what the interval of a difference says: `lower` and `higher` exclude 0."""
        return change(*self)


def change(value: float, low: float, high: float) -> Change:
    """Classify a difference by its interval.

    >>> change(-2.0, -3.0, -1.0), change(1.0, -1.0, 3.0), change(0.0, 0.0, 0.0)
    ('lower', 'not significant', 'same')
    """
    if not math.isfinite(high - low):
        return "unknown"
    if value == low == high == 0:
        return "same"
    return "lower" if high < 0 else "higher" if low > 0 else "not significant"


def no_interval(value: float = math.nan) -> Interval:
    """Return a value without limits."""
    return Interval(float(value), math.nan, math.nan)


@dataclass(frozen=True, slots=True)
class Statistic:
    """A value, its standard errors downward and upward, and the degrees of freedom they were estimated with.

    Intervals, probabilities and verdicts all follow from these numbers, so they cannot contradict each other: the 95 %
    interval of a difference lies below 0 exactly where the probability that it is negative is above 97.5 %. Toward a
    bound of the possible range, it is the logarithm of the distance from the bound that has the standard error.
    """

    value: float
    below: float
    above: float
    df: float
    within: Range = ANY

    @classmethod
    def symmetric(cls, value: float, error: float, df: float, within: Range = ANY) -> Statistic:
        """Make one with the same standard error to both sides."""
        return cls(value, error, error, df, within)

    @property
    def error(self) -> float:
        """The standard error: the root mean square of both sides."""
        return math.sqrt((self.below**2 + self.above**2) / 2)

    def interval(self, confidence: float = CONFIDENCE) -> Interval:
        """Return Student's interval of this confidence, inside the range of possible values."""
        if math.isnan(self.value) or not self.df > 0:
            return no_interval(self.value)
        t = student_quantile((1 + confidence) / 2, self.df)
        low = self.value - _reach(t * self.below, self.value - self.within[0])
        return Interval(self.value, low, self.value + _reach(t * self.above, self.within[1] - self.value))

    def probability_below(self, x: float = 0.0) -> float:
        """Return the confidence that the true value is below `x` (a one-sided test); 0.5 where it equals `x`."""
        distance, above = abs(x - self.value), x > self.value
        room = self.within[1] - self.value if above else self.value - self.within[0]
        error = self.above if above else self.below
        if math.isnan(distance) or math.isnan(error) or not self.df > 0:
            return math.nan
        if not distance or math.isinf(error):
            return 0.5
        if room < math.inf:  # the inverse of `_reach`
            distance = -room * math.log1p(-distance / room) if distance < room else math.inf
        inside = student_cdf(distance / error, self.df) if error else 1.0
        return inside if above else 1 - inside

    def change(self, confidence: float = CONFIDENCE) -> Change:
        """Return what the interval of a difference says."""
        return self.interval(confidence).change()

    def scaled(self, factor: float) -> Statistic:
        """Return it `factor` times as large; a negative factor swaps the sides."""
        below, above = (self.below, self.above) if factor >= 0 else (self.above, self.below)
        low, high = sorted(factor * x for x in self.within)
        return Statistic(factor * self.value, abs(factor) * below, abs(factor) * above, self.df, (low, high))

    def inside(self, within: Range) -> Statistic:
        """Return it with another range of possible values."""
        return replace(self, within=within)


def _reach(half: float, room: float) -> float:
    """Return how far a limit is from the value, where the range of possible values leaves so much room."""
    if room == math.inf:
        return half
    return room * -math.expm1(-half / room) if room > 0 else 0.0
