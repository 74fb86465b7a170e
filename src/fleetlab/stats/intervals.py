"""A value with its confidence interval, many of them at once, and whether two values are equivalent.

scipy has Student's distribution, but scipy is 143 MB and 0.2 to 0.4 s of imports for this one function, and this
package also runs on GPU hosts where only numpy is installed. So it is computed here, and a test compares it with scipy.

Equivalence is shown by two one-sided tests (Schuirmann, J. Pharmacokinetics and Biopharmaceutics 15, 1987): the 90 %
interval of the difference lies within the margin. An interval that includes 0 alone shows nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

NORMAL = 1.959963984540054  # the 97.5 % quantile of the normal distribution
LARGE = 1000  # degrees of freedom: from here on the normal approximation is good to six digits


def student_cdf(t: float, df: float) -> float:
    """Return the probability that a Student variable with `df` degrees of freedom is at most `t`.

    >>> student_cdf(0.0, 5), round(student_cdf(2.093, 19), 4)
    (0.5, 0.975)
    """
    if not math.isfinite(t):
        return t if math.isnan(t) else float(t > 0)
    if df >= LARGE:  # Abramowitz and Stegun, 26.7.8
        z = t * (1 - 1 / (4 * df)) / math.sqrt(1 + t * t / (2 * df))
        return 0.5 * math.erfc(-z / math.sqrt(2))
    tail = _incomplete_beta(df / 2, 0.5, df / (df + t * t)) / 2
    return 1 - tail if t > 0 else tail


@cache
def student_quantile(p: float, df: float) -> float:
    """Return the `p` quantile, 0.5 ≤ p < 1, of Student's t with `df` degrees of freedom, by bisection.

    >>> [round(student_quantile(0.975, df), 3) for df in (1, 19, 1e9)]
    [12.706, 2.093, 1.96]
    """
    low, high = 0.0, 1.0
    while student_cdf(high, df) < p:
        high *= 2
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if student_cdf(middle, df) < p else (low, middle)
    return high


def _incomplete_beta(a: float, b: float, x: float) -> float:
    """Return the regularized incomplete beta function by its continued fraction (Abramowitz and Stegun, 26.5.8)."""
    if x > (a + 1) / (a + b + 2):
        return 1 - _incomplete_beta(b, a, 1 - x)
    if x <= 0:
        return 0.0
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x))
    # Lentz's method; converges within O(√max(a, b)) terms on this side of the mean.
    c, d = 1.0, 1 / (1 - (a + b) * x / (a + 1))
    total = d
    for m in range(1, 200):
        for numerator in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d, c = 1 / (1 + numerator * d), 1 + numerator / c
            total *= c * d
        if abs(c * d - 1) < 1e-15:
            break
    return front * total / a


Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Range = tuple[float, float]

CONFIDENCE = 0.95
ANY: Range = (-math.inf, math.inf)
POSITIVE: Range = (0.0, math.inf)  # waits, JCTs, counts, rates
SHARE: Range = (0.0, 1.0)
PERCENT: Range = (0.0, 100.0)
SLOWDOWN: Range = (1.0, math.inf)


class Interval(NamedTuple):
    """A value and the limits of its confidence interval; both limits are NaN where there are too few values.

    `Estimate("mean wait", *interval, "s")` makes an `Estimate` of it. This package imports only numpy, since it also
    runs on GPU hosts where polars, which `core` needs, is not installed.
    """

    value: float
    low: float
    high: float

    def scaled(self, factor: float) -> Interval:
        """Return it `factor` times as large; the factor is positive."""
        return Interval(factor * self.value, factor * self.low, factor * self.high)

    def columns(self, name: str) -> dict[str, float]:
        """Return it as columns: limits stand behind what they are the limits of."""
        return dict(zip((name, f"{name} low", f"{name} high"), self, strict=True))

    def clipped(self, within: Range) -> Interval:
        """Return it with the limits inside a range; the limits always enclose the value."""
        low, high = max(self.low, within[0]), min(self.high, within[1])  # `max` and `min` keep a NaN that comes first
        return Interval(self.value, min(low, self.value), max(high, self.value))


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
        reach = self.within[1] - self.value if above else self.value - self.within[0]
        error = self.above if above else self.below
        if math.isnan(distance) or math.isnan(error) or not self.df > 0:
            return math.nan
        if not distance or math.isinf(error):
            return 0.5
        if reach < math.inf:  # the inverse of `_reach`
            distance = -reach * math.log1p(-distance / reach) if distance < reach else math.inf
        inside = student_cdf(distance / error, self.df) if error else 1.0
        return inside if above else 1 - inside

    def scaled(self, factor: float) -> Statistic:
        """Return it `factor` times as large; a negative factor swaps the sides."""
        below, above = (self.below, self.above) if factor >= 0 else (self.above, self.below)
        low, high = sorted(factor * x for x in self.within)
        return Statistic(factor * self.value, abs(factor) * below, abs(factor) * above, self.df, (low, high))

    def inside(self, within: Range) -> Statistic:
        """Return it with another range of possible values."""
        return replace(self, within=within)


def _reach(half: float, reach: float) -> float:
    """Return how far a limit is from the value, where possible values reach that far."""
    if reach == math.inf:
        return half
    return reach * -math.expm1(-half / reach) if reach > 0 else 0.0


def bonferroni(comparisons: int, confidence: float = CONFIDENCE) -> float:
    """Return the confidence that each of several intervals needs so that all hold together.

    >>> bonferroni(5)
    0.99
    """
    return 1 - (1 - confidence) / max(1, comparisons)


def allowed_misses(intervals: int, *, confidence: float = CONFIDENCE, sure: float = 0.999) -> int:
    """Return how many of so many valid intervals miss the truth at most, with probability `sure` (binomial).

    >>> allowed_misses(48)
    8
    """
    miss = 1 - confidence
    chance, total, k = confidence**intervals, 0.0, 0
    while (total := total + chance) < sure:
        chance *= (intervals - k) / (k + 1) * miss / confidence
        k += 1
    return k


def spent_at_look(look: int, error: float) -> float:
    """Return the error probability to spend on the k-th look at growing data, counted from 1: error/(k(k + 1)).

    The sum over all looks there could ever be is `error` (Bonferroni over time, an α-spending function).
    """
    return error / (look * (look + 1))


ALPHA = 1 - CONFIDENCE
POWER = 0.8  # chance that so many more samples decide, if the difference is as it seems
MOST = 1000  # samples that are looked at

Decision = Literal["differ", "equivalent", "undecided"]


class Difference(NamedTuple):
    """A difference of two means, the variance of one sample of each, and what more samples do not reduce."""

    value: float
    variances: tuple[float, float]
    samples: tuple[int, int]
    freedom: float  # of the variances; 0 if they are unknown
    fixed: float = 0.0  # variance between runs

    @property
    def variance(self) -> float:
        """Variance of the difference."""
        return sum(v / n for v, n in zip(self.variances, self.samples, strict=True)) + self.fixed

    def half(self, confidence: float) -> float:
        """Half width of its interval; NaN if nothing is known of the noise."""
        if not self.freedom:
            return math.nan
        return student_quantile((1 + confidence) / 2, max(int(self.freedom), 1)) * math.sqrt(self.variance)

    def decide(self, margin: float) -> Decision:
        """`equivalent` if within the margin by two one-sided tests, else `differ` if the 95 % interval excludes 0."""
        if not self.freedom:
            return "undecided"
        if abs(self.value) + self.half(1 - 2 * ALPHA) < margin:
            return "equivalent"
        return "differ" if abs(self.value) > self.half(CONFIDENCE) else "undecided"

    def samples_to_decide(self, margin: float) -> int | None:
        """How many more samples of each would decide, with a chance of 80 %; None if more than can be told.

        They are taken in one run of both, so that the variance between runs does not count; with one, only they do.
        """
        if not self.freedom or self.decide(margin) != "undecided":
            return None
        for more in range(1, MOST):
            n, m = (more, more) if self.fixed else (self.samples[0] + more, self.samples[1] + more)
            freedom = max(int(self.freedom) + 2 * more, 1)
            error = math.sqrt(self.variances[0] / n + self.variances[1] / m)
            for tail, distance in ((ALPHA / 2, abs(self.value)), (ALPHA, margin - abs(self.value))):
                if distance > (student_quantile(1 - tail, freedom) + student_quantile(POWER, freedom)) * error:
                    return more
        return None
