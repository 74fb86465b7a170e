"""Whether two means differ, are equivalent within a margin, or neither is shown; and how many more samples decide.

Equivalence is shown by two one-sided tests (Schuirmann, J. Pharmacokinetics and Biopharmaceutics 15, 1987): the 90 %
interval of the difference lies within the margin. An interval that includes 0 alone shows nothing.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

from fleetlab.stats.intervals import CONFIDENCE
from fleetlab.stats.student import student_quantile

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
            for tail, room in ((ALPHA / 2, abs(self.value)), (ALPHA, margin - abs(self.value))):
                if room > (student_quantile(1 - tail, freedom) + student_quantile(POWER, freedom)) * error:
                    return more
        return None
