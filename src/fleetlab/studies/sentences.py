"""Numbers in sentences: percentages, means, and how a mean changes."""

from __future__ import annotations

import math

from fleetlab.core.durations import number, readable_unit


def percent(fraction: float) -> str:
    """Return a fraction as a percentage.

    >>> percent(0.426)
    '43 %'
    """
    return f"{100 * fraction:.0f} %"


def mean_of(metric: str, values: tuple[float, float, float], *, start: str = "The") -> str:
    """Return a mean of seconds with its 95 % interval.

    >>> mean_of("wait", (600.0, 480.0, 720.0))
    'The mean wait is 10 min (95 % CI 8 to 12 min)'
    """
    value, low, high = values
    unit, size = readable_unit(value)
    interval = f" (95 % CI {number(low / size)} to {number(high / size)} {unit})" if math.isfinite(high - low) else ""
    return f"{start} mean {metric} is {number(value / size)} {unit}{interval}"


def change_of_mean(metric: str, before: float, difference: tuple[float, float, float]) -> str:
    """Return how a mean of seconds changes, with the difference and its 95 % interval.

    >>> change_of_mean("wait", 80.0, (-36.0, -67.0, -5.0))
    'Mean wait falls from 80 s to 44 s (−45 %; difference −36 s, 95 % CI −67 to −5 s)'
    """
    value, low, high = difference
    unit, size = readable_unit(max(before, before + value))
    verb = "falls" if value < 0 else "rises" if value > 0 else "does not change:"
    relative = f"{100 * value / before:+.0f} %; ".replace("-", "−") if before else ""
    sure = math.isfinite(high - low)
    interval = f"95 % CI {number(low / size)} to {number(high / size)} {unit}" if sure else "too few jobs for a 95 % CI"
    then = f"{number(before / size)} {unit} to {number((before + value) / size)} {unit}"
    return f"Mean {metric} {verb} from {then} ({relative}difference {number(value / size)} {unit}, {interval})"
