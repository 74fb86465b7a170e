"""When a number counts as reproduced: one tolerance for each way in which a number is published.

A tolerance depends on how a number was published, never on how far ours is from it, and is the same for all numbers
that were published in that way. Where ours comes from random runs, its 95 % interval is compared, not its mean: a wide
interval lies neither inside a tolerance nor outside of it, and so decides nothing, for success or against it.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

REPRODUCED, FITTED, DIFFERENT, NOT_POSSIBLE = "reproduced", "fitted", "different", "not possible"
UNDECIDED, UNEXPLAINED = "not decided", "different, unexplained"
VERDICTS = (REPRODUCED, FITTED, DIFFERENT, UNDECIDED, NOT_POSSIBLE, UNEXPLAINED)
HOW = (
    "A number is reproduced if ours, with its 95 % interval where it comes from random runs, lies inside the tolerance "
    "around the published one, different if it lies outside, and not decided if the interval reaches across."
)
HAIR = 1e-9  # so that 0.5 of the last digit is not lost in binary fractions


@dataclass(frozen=True, slots=True)
class Rule:
    """How far ours may be: a part of the published value, or points where it is a percentage."""

    words: str
    part: float = 0.0
    points: float | None = None  # of percentages, in place of a part of the value
    least: bool = False  # the published value is a lower bound
    most: bool = False  # the published value is an upper bound
    farthest: float | None = None  # ours is a distance from what was published, and at most this

    def room(self, published: float, digits: int, unit: str) -> float:
        """Return the difference that is accepted; half of the last printed digit always is."""
        last = 0.5 * 10.0**-digits
        wide = self.points if unit == "%" and self.points is not None else self.part * abs(published)
        return max(last, wide) + HAIR * max(1.0, abs(published))


RULES: dict[str, Rule] = {
    "counted": Rule("counted from the same rows: equal to the printed digits"),
    "printed": Rule(
        "a printed statistic: equal to the printed digits, or within 1 % (quantiles are defined in several ways)", 0.01
    ),
    "figure": Rule("read off a figure's pixels: within 8 %, or 1 point of a percentage", 0.08, 1.0),
    "curve": Rule(
        "a curve read off a figure: every point within 1 point of level, or 8 % of the value (15 % beyond P5 and P95), "
        "plus 3 standard errors of the sample; printed quantiles within 0.1 points",
        farthest=0.0,
    ),
    "hours": Rule("24 hours of a box plot: each within 8 %, plus 6 % for a quartile of 62 days", farthest=0.0),
    "stated": Rule("stated in prose, in round numbers: within 10 %, or 2 points of a percentage", 0.10, 2.0),
    "allocated": Rule("allocated in whole percent, while jobs without an end are unknown: 5 points", 0.0, 5.0),
    "packed": Rule("the authors' mean of ten random runs: the interval of the difference within 1 point", 0.0, 1.0),
    "packed curve": Rule("a curve of means of ten random runs: nowhere off by more than 1 point", farthest=1.0),
    "simulated": Rule("a result of a random simulation: the interval within 10 %", 0.10),
    "measured": Rule("computed again from the same measurements: equal to the printed digits"),
    "card": Rule("measured on another GPU: within 10 %", 0.10),
    "at least": Rule("a lower bound: ours is not below it", least=True),
    "at most": Rule("an upper bound: ours is not above it", most=True),
    "none": Rule("not compared: a statement without a number, or one that is not possible"),
}


def rules_table() -> pl.DataFrame:
    """Return every rule, as it is printed with a result."""
    return pl.DataFrame({"rule": list(RULES), "a number is reproduced if it is": [r.words for r in RULES.values()]})
