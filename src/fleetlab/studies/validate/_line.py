"""One line of a validation: what is expected, what was found, how sure that is, and whether the two agree."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import polars as pl

from fleetlab.studies._spread import USUAL, Mean, rarely_more

AGREES, CHANCE, DIFFERS, KNOWN, VAGUE = "agrees", "by chance", "differs", "differs, as known", "cannot tell"
VERDICTS = (AGREES, CHANCE, VAGUE, KNOWN, DIFFERS)
TOGETHER = 0.99  # of all lines that count: one honest validation in a hundred has a line outside
SCHEMA: dict[str, pl.DataType] = {
    "case": pl.String(),
    "metric": pl.String(),
    "expected": pl.Float64(),
    "found": pl.Float64(),
    "low": pl.Float64(),
    "high": pl.Float64(),
    "off %": pl.Float64(),
    "verdict": pl.String(),
    "why": pl.String(),
}

Progress = Callable[[str, int, float], None]


@dataclass(frozen=True, slots=True)
class Line:
    """What theory, a paper or a log says, beside what was simulated.

    `near` is how far off, in parts of what is expected, is as good as equal; `why` is what is known of a difference.
    """

    case: str
    metric: str
    expected: float
    found: Mean
    near: float = 0.0
    why: str = ""
    counts: bool = True  # False: a difference is known and shown, and speaks against nothing
    most: bool = False  # what is expected is a bound: less agrees too

    @property
    def off(self) -> float:
        """By how much of it the found value is above the expected one."""
        if self.expected == self.found.value:
            return 0.0
        return self.found.value / self.expected - 1 if self.expected else math.inf

    @property
    def vague(self) -> bool:
        """Is the interval so wide that nothing at all would agree as well?"""
        low, high = self.found.between()
        return (high - low) / 2 > abs(self.expected) > 0 and abs(self.off) > self.near

    def holds(self, sure: float) -> bool:
        """Is the expected value inside the interval, or near enough?"""
        low, high = self.found.between(sure)
        inside = low <= self.expected and (self.most or self.expected <= high)
        return inside or abs(self.off) <= self.near

    def verdict(self, sure: float = USUAL) -> str:
        """In words; `sure` is that of all lines together, as one line of them needs it."""
        if self.holds(USUAL):
            return VAGUE if self.vague else AGREES
        if not self.counts:
            return KNOWN
        return CHANCE if self.holds(sure) else DIFFERS


def exactly(case: str, metric: str, expected: float, found: float, why: str = "") -> Line:
    """A line of what was counted, not estimated: the interval is the number itself."""
    return Line(case, metric, expected, Mean(found, 0.0, 1), why=why)


def each_of(lines: Sequence[Line]) -> float:
    """How sure each line must be, so that all of those that count are together (Bonferroni)."""
    return 1 - (1 - TOGETHER) / max(1, sum(line.counts for line in lines))


def table(lines: Sequence[Line]) -> pl.DataFrame:
    """All lines, with the 95 % interval of each; a verdict looks at all that count together."""
    sure = each_of(lines)
    rows = []
    for line in lines:
        numbers = (line.expected, line.found.value, *line.found.between(), 100 * line.off)
        told = [x if math.isfinite(x) else None for x in numbers]
        verdict = line.verdict(sure)
        rows.append((line.case, line.metric, *told, verdict, line.why if verdict in (KNOWN, DIFFERS) else ""))
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


def agree(lines: Sequence[Line]) -> bool:
    """Do those that count agree together, and are no more of them off than chance allows?"""
    counted = [line for line in lines if line.counts]
    missed = sum(not line.holds(USUAL) for line in counted)
    return all(line.holds(each_of(lines)) for line in counted) and missed <= rarely_more(len(counted))
