"""One line of a validation: an expected and a simulated value with its interval, and whether they agree."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import polars as pl

from fleetlab.stats import CONFIDENCE, Statistic, allowed_misses, bonferroni

AGREES, CHANCE, DIFFERS = "agrees", "within chance", "differs"
KNOWN, INCONCLUSIVE = "known difference", "inconclusive"
VERDICTS = (AGREES, CHANCE, INCONCLUSIVE, KNOWN, DIFFERS)
JOINT = 0.99  # confidence of all counted lines together
SCHEMA: dict[str, pl.DataType] = {
    "case": pl.String(),
    "metric": pl.String(),
    "expected": pl.Float64(),
    "simulated": pl.Float64(),
    "low": pl.Float64(),
    "high": pl.Float64(),
    "difference %": pl.Float64(),
    "verdict": pl.String(),
    "explanation": pl.String(),
}


@dataclass(frozen=True, slots=True)
class Line:
    """A value of theory, of a paper or of a log, and the simulated one.

    `near` is the relative difference that is accepted; `why` explains a known difference.
    """

    case: str
    metric: str
    expected: float
    simulated: Statistic
    near: float = 0.0
    why: str = ""
    counts: bool = True  # False: a difference is known, and does not fail the part
    most: bool = False  # the expected value is an upper bound

    @property
    def off(self) -> float:
        """The relative difference of the simulated from the expected value."""
        if self.expected == self.simulated.value:
            return 0.0
        return self.simulated.value / self.expected - 1 if self.expected else math.inf

    @property
    def vague(self) -> bool:
        """Whether the interval is so wide that 0 would agree as well."""
        _, low, high = self.simulated.interval()
        return (high - low) / 2 > abs(self.expected) > 0 and abs(self.off) > self.near

    def holds(self, sure: float) -> bool:
        """Return whether the expected value is inside the interval, or near enough."""
        _, low, high = self.simulated.interval(sure)
        inside = low <= self.expected and (self.most or self.expected <= high)
        return inside or abs(self.off) <= self.near

    def verdict(self, sure: float = CONFIDENCE) -> str:
        """Return the verdict; `sure` is the confidence of one line that makes all of them jointly significant."""
        if self.holds(CONFIDENCE):
            return INCONCLUSIVE if self.vague else AGREES
        if not self.counts:
            return KNOWN
        return CHANCE if self.holds(sure) else DIFFERS


def exactly(case: str, metric: str, expected: float, count: float, why: str = "") -> Line:
    """Return a line of an exact count, without an interval."""
    return Line(case, metric, expected, Statistic.symmetric(count, 0.0, 1), why=why)


def independent(simulated: Statistic, other: Statistic) -> Statistic:
    """Return the simulated value with the error of its difference from another estimate."""
    below, above = math.hypot(simulated.below, other.above), math.hypot(simulated.above, other.below)
    return replace(simulated, below=below, above=above, df=min(simulated.df, other.df))


def each_of(lines: Sequence[Line]) -> float:
    """Return the confidence of each line with which all counted lines are jointly significant (Bonferroni)."""
    return bonferroni(sum(line.counts for line in lines), JOINT)


def table(lines: Sequence[Line]) -> pl.DataFrame:
    """Return all lines with their 95 % intervals and verdicts."""
    sure = each_of(lines)
    rows = []
    for line in lines:
        numbers = (line.expected, *line.simulated.interval(), 100 * line.off)
        values = [x if math.isfinite(x) else None for x in numbers]
        verdict = line.verdict(sure)
        rows.append((line.case, line.metric, *values, verdict, line.why if verdict in (KNOWN, DIFFERS) else ""))
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


def agree(lines: Sequence[Line]) -> bool:
    """Return whether the counted lines agree jointly, and no more of them miss than chance allows."""
    counted = [line for line in lines if line.counts]
    missed = sum(not line.holds(CONFIDENCE) for line in counted)
    return all(line.holds(each_of(lines)) for line in counted) and missed <= allowed_misses(len(counted))
