"""The seeds of a study: a fixed number, or as many as it takes until intervals are narrow enough.

An interval at which one stops because it is narrow has been looked at several times, so each look spends a part of
the error rate: look k may miss with probability α/(k(k+1)), which adds up to α over any number of looks
(alpha spending, Bonferroni over looks). Looks are after `least` seeds, and after half as many again each time, up to
`most`. Because the sum never ends, `most` may be raised later; `least` may not be changed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fleetlab.core import WorkloadError
from fleetlab.core.names import lookup
from fleetlab.stats import spent_at_look

GROWTH = 1.5
LEAST, MOST = 6, 72
HINT = 'seeds = 10, seeds = [1, 2, 3], or [seeds] with least = 6, most = 72, within = "5%"'
KEYS = ("first", "least", "most", "within", "metric")


@dataclass(frozen=True, slots=True)
class Seeds:
    """Which seeds, how many at least and at most, and when there are enough."""

    values: tuple[int, ...]  # all that may be run, in order
    least: int
    within: float | None = None  # half-width of the interval; None: all seeds are run
    percent: bool = False  # `within` is a percentage of the mean
    metric: str = "mean wait"

    @classmethod
    def of(cls, seeds: Seeds | int | Sequence[int] | Mapping[str, Any]) -> Seeds:
        """Take a number of seeds, a list of them, or a table with `least`, `most` and `within`."""
        if isinstance(seeds, Seeds):
            return seeds
        if isinstance(seeds, Mapping):
            return cls._adaptive(seeds)
        values: Any = range(seeds) if isinstance(seeds, int) and _whole(seeds) and seeds <= 10**6 else seeds
        if not isinstance(values, Sequence) or not values or not all(map(_whole, values)):
            raise WorkloadError(f"seeds are a number of them, from 1 to 1,000,000, or a list: {seeds!r}", hint=HINT)
        values = tuple(dict.fromkeys(values))
        return cls(values, len(values))

    @classmethod
    def _adaptive(cls, table: Mapping[str, Any]) -> Seeds:
        for key in table:
            lookup("key of [seeds]", key, KEYS, error=WorkloadError)
        first, least, most = table.get("first", 0), table.get("least", LEAST), table.get("most", MOST)
        if not (_whole(first) and _whole(least) and _whole(most) and 3 <= least <= most <= 10**6):
            msg = f"[seeds] first, least and most are whole numbers, 3 ≤ least ≤ most: {first!r}, {least!r}, {most!r}"
            raise WorkloadError(msg, hint=HINT)
        within, percent = _within(table.get("within"))
        metric = table.get("metric", "mean wait")
        if not isinstance(metric, str):
            raise WorkloadError(f"[seeds] metric is a name in quotes, not: {metric!r}", hint='metric = "mean wait"')
        return cls(tuple(range(first, first + most)), least if within is not None else most, within, percent, metric)

    def __str__(self) -> str:
        if self.within is None:
            return f"{self.most:,} seed{'s' if self.most > 1 else ''}"
        return f"{self.least:,} to {self.most:,} seeds, until {self.metric} ± {self.within:g}{' %' * self.percent}"

    @property
    def most(self) -> int:
        """The number of seeds at most."""
        return len(self.values)

    def looks(self) -> list[int]:
        """Return after how many seeds the intervals are looked at.

        >>> Seeds(tuple(range(20)), 6, 1.0).looks()
        [6, 9, 14]
        """
        counts = [self.least]
        while self.within is not None and (more := math.ceil(counts[-1] * GROWTH)) <= self.most:
            counts.append(more)
        return counts

    def error_rate(self, look: int, total: float) -> float:
        """Return the probability of a miss that a look may spend, of the total; looks are counted from 1."""
        return total if self.within is None else spent_at_look(look, total)

    def enough(self, half: float, mean: float) -> bool:
        """Whether the half-width of an interval is narrow enough, given the mean that percentages are of."""
        if self.within is None:
            return True
        return half <= (self.within / 100 * abs(mean) if self.percent else self.within)


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31


def _within(value: object) -> tuple[float | None, bool]:
    """Read `"5%"` of the mean, or a number in the unit of the metric."""
    percent = isinstance(value, str) and value.strip().endswith("%")
    try:
        width = float(value.strip().removesuffix("%")) if isinstance(value, str) else value
    except ValueError:
        width = -1.0
    if width is not None and (isinstance(width, bool) or not isinstance(width, int | float) or not 0 < width < 1e12):
        msg = f"[seeds] within is a number above 0, or a percentage of the mean: {value!r}"
        raise WorkloadError(msg, hint='within = "5%", or within = 30 for thirty seconds')
    return width, percent
