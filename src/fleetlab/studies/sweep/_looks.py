"""How many seeds, and how sure one may be after having looked several times.

Seeds are added until an interval is as narrow as was asked for. Whoever stops at the first narrow interval has looked
at several, and 95 % of each would be too much to promise. So the chance to be wrong is spent on the looks beforehand:
look k may be wrong with chance α/(k(k+1)), which adds up to α over all looks there could ever be (Bonferroni over
time, an α-spending). Looks are at `least` seeds and at half as many again each time, so that there are few; the last
is the last that does not exceed `most`. Because the sum has no end, `most` may be raised later; `least` may not.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fleetlab.core import WorkloadError

GROWTH = 1.5
LEAST, MOST = 6, 72
HINT = 'seeds = 10, seeds = [1, 2, 3], or [seeds] with least = 6, most = 72, within = "5%"'
KEYS = ("first", "least", "most", "within", "metric")


@dataclass(frozen=True, slots=True)
class Seeds:
    """Which seeds, how many at least and at most, and when there are enough."""

    listed: tuple[int, ...]  # all that may come, in order
    least: int
    within: float | None = None  # half of the interval's width; None: all seeds are played
    percent: bool = False  # of the mean that others are held against
    metric: str = "mean wait"

    @classmethod
    def read(cls, told: object) -> Seeds:
        """From `seeds` of a study: a number, a list, or a table."""
        if isinstance(told, Mapping):
            return cls._growing(told)
        listed: Any = list(range(told)) if isinstance(told, int) and _whole(told) and told <= 10**6 else told
        if not isinstance(listed, list) or not listed or not all(map(_whole, listed)):
            msg = f"seeds are a number of them, from 1 to a million, or a list: {told!r}"
            raise WorkloadError(msg, hint=HINT)
        listed = list(dict.fromkeys(listed))
        return cls(tuple(listed), len(listed))

    @classmethod
    def _growing(cls, told: Mapping[str, Any]) -> Seeds:
        if unknown := [key for key in told if key not in KEYS]:
            msg = f"no such key in the table [seeds]: `{unknown[0]}`"
            raise WorkloadError(msg, hint=f"there are {', '.join(KEYS)}")
        first, least, most = told.get("first", 0), told.get("least", LEAST), told.get("most", MOST)
        if not (_whole(first) and _whole(least) and _whole(most) and 3 <= least <= most <= 10**6):
            msg = f"[seeds] first, least and most are whole numbers, 3 ≤ least ≤ most: {first!r}, {least!r}, {most!r}"
            raise WorkloadError(msg, hint=HINT)
        within, percent = _within(told.get("within"))
        metric = told.get("metric", "mean wait")
        if not isinstance(metric, str):
            msg = f"[seeds] metric is a name in quotes, not: {metric!r}"
            raise WorkloadError(msg, hint='metric = "mean wait"')
        return cls(tuple(range(first, first + most)), least if within is not None else most, within, percent, metric)

    def __str__(self) -> str:
        if self.within is None:
            return f"{self.most:,} seed{'s' if self.most > 1 else ''}"
        return f"{self.least:,} to {self.most:,} seeds, until {self.metric} ± {self.within:g}{' %' * self.percent}"

    @property
    def most(self) -> int:
        """How many may come in all."""
        return len(self.listed)

    def looks(self) -> list[int]:
        """After how many seeds one looks.

        >>> Seeds(tuple(range(20)), 6, 1.0).looks()
        [6, 9, 14]
        """
        found = [self.least]
        while self.within is not None and (more := math.ceil(found[-1] * GROWTH)) <= self.most:
            found.append(more)
        return found

    def spent(self, look: int, wrong: float) -> float:
        """The chance to be wrong that is spent on a look, of all that there is; looks are counted from 1."""
        return wrong if self.within is None else wrong / (look * (look + 1))

    def enough(self, half: float, mean: float) -> bool:
        """Is half an interval, around a mean, as narrow as was asked for?"""
        if self.within is None:
            return True
        return half <= (self.within / 100 * abs(mean) if self.percent else self.within)


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31


def _within(told: object) -> tuple[float | None, bool]:
    """`"5%"` of the mean, or a number in the metric's own unit."""
    percent = isinstance(told, str) and told.strip().endswith("%")
    try:
        value = None if told is None else float(told.strip().removesuffix("%")) if isinstance(told, str) else told
    except ValueError:
        value = -1.0
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e12):
        msg = f"[seeds] within is a number above 0, or a percentage of the mean: {told!r}"
        raise WorkloadError(msg, hint='within = "5%", or within = 30 for thirty seconds')
    return value, percent
