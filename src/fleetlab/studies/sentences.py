"""Numbers in sentences: percentages, means, and how a mean changes."""

from __future__ import annotations

import math
from collections.abc import Sequence

from fleetlab.core import Estimate
from fleetlab.core.durations import duration
from fleetlab.core.result import amount, amount_and_interval


def percent(fraction: float) -> str:
    """Return a fraction as a percentage.

    >>> percent(0.426)
    '43 %'
    """
    return f"{100 * fraction:.0f} %"


def mean_of(metric: str, values: Sequence[float], *, start: str = "The") -> str:
    """Return a mean of seconds with its 95 % interval.

    >>> mean_of("wait", (600.0, 480.0, 720.0))
    'The mean wait is 10.0 min (95 % CI 8.0 to 12.0)'
    """
    return f"{start} mean {metric} is {amount(Estimate('', values[0], values[1], values[2], 's'))}"


def change_of_mean(metric: str, before: float, difference: Sequence[float]) -> str:
    """Return how a mean of seconds changes, with the difference and its 95 % interval.

    >>> change_of_mean("wait", 80.0, (-36.0, -67.0, -5.0))
    'Mean wait falls from 80 s to 44 s (−45 %; difference −36 s, 95 % CI −67 to −5)'
    """
    value, low, high = difference
    verb = "falls" if value < 0 else "rises" if value > 0 else "does not change:"
    relative = f"{100 * value / before:+.0f} %; ".replace("-", "−") if before else ""
    by, interval = amount_and_interval(Estimate("", value, low, high, "s"))
    interval = "too few jobs for a 95 % CI" if math.isnan(low) else f"95 % CI {interval or f'{by} to {by}'}"
    then = f"{duration(before)} to {duration(before + value)}"
    return f"Mean {metric} {verb} from {then} ({relative}difference {by}, {interval})"
