"""A goal in words: `p90 wait < 600`, `mean response < 2h`, `p99 slowdown < 3`."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import numpy as np

from fleetlab.core import WorkloadError
from fleetlab.studies._blocks import Blocks, Floats

# What is measured, and the column of a simulated job that has it.
MEASURES = {"wait": "wait", "response": "jct", "slowdown": "slowdown"}
SECONDS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}
GRAMMAR = re.compile(r"(mean|p\d{1,2}(?:\.\d+)?)\s+([a-z]+)\s*<\s*([0-9.eE+]+)\s*([a-z]*)", re.IGNORECASE)
HINT = "p90 wait < 600, mean response < 2h, p99 slowdown < 3: a mean or a percentile of wait, response or slowdown"


@dataclass(frozen=True, slots=True)
class Goal:
    """A statistic of the jobs that must stay below a limit."""

    quantile: float | None  # None: the mean
    measure: str
    limit: float  # seconds, or times

    @classmethod
    def read(cls, words: str) -> Goal:
        """Read it.

        >>> Goal.read("p90 wait < 10m")
        Goal(quantile=0.9, measure='wait', limit=600.0)
        """
        told = GRAMMAR.fullmatch(" ".join(str(words).split()))
        if told is None or (measure := told[2].lower()) not in MEASURES:
            msg = f"not a goal: `{words}`"
            raise WorkloadError(msg, hint=HINT)
        unit = told[4].lower()
        if unit not in SECONDS or (unit and measure == "slowdown"):
            msg = f"a limit of {measure} is not in that unit: `{unit}`"
            raise WorkloadError(msg, hint="s, m or h for times, none for a slowdown")
        limit, q = _number(told[3], words) * SECONDS[unit], told[1].lower()
        return cls(None if q == "mean" else _quantile(float(q[1:]), words), measure, limit)

    def __str__(self) -> str:
        which = "mean" if self.quantile is None else f"P{100 * self.quantile:g}"
        return f"{which} {self.measure}"

    @property
    def unit(self) -> str:
        """Of the limit."""
        return "" if self.measure == "slowdown" else "s"

    @property
    def column(self) -> str:
        """Of a simulated job."""
        return MEASURES[self.measure]

    @property
    def least(self) -> float:
        """What no job can be below."""
        return 1.0 if self.measure == "slowdown" else 0.0

    def of(self, values: Floats) -> float:
        """The statistic alone."""
        return float(values.mean() if self.quantile is None else np.quantile(values, self.quantile))

    def between(self, values: Floats, blocks: Blocks) -> tuple[float, float, float]:
        """The statistic with its interval."""
        return blocks.mean(values) if self.quantile is None else blocks.quantile(values, self.quantile)


def _number(told: str, words: str) -> float:
    try:
        limit = float(told)
    except ValueError:
        limit = math.nan
    if not 0 < limit < math.inf:
        msg = f"the limit of a goal is not a number above 0: `{words}`"
        raise WorkloadError(msg, hint=HINT)
    return limit


def _quantile(percent: float, words: str) -> float:
    if not 0 < percent < 100:
        msg = f"a percentile lies between 0 and 100: `{words}`"
        raise WorkloadError(msg, hint=HINT)
    return percent / 100
