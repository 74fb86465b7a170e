"""Numbers in sentences: durations in a readable unit, and how a mean changes."""

from __future__ import annotations

import math

UNITS = ((2 * 60, 1, "s"), (2 * 3600, 60, "min"), (2 * 86_400, 3600, "h"), (math.inf, 86_400, "days"))


def unit_of(seconds: float) -> tuple[float, str]:
    """Return the unit for a duration, as seconds and by name: s under 2 min, min under 2 h, h under 2 days, or days."""
    return next((float(size), name) for below, size, name in UNITS if abs(seconds) < below or below == math.inf)


def duration(seconds: float) -> str:
    """Return a duration in a readable unit.

    >>> duration(78.2), duration(600), duration(-4 * 86_400)
    ('78.2 s', '10 min', '−4 days')
    """
    size, unit = unit_of(seconds)
    return f"{number(seconds / size)} {unit}"


def number(value: float) -> str:
    """Return a number with three significant digits.

    >>> number(1234.5), number(0.06789), number(-2.0)
    ('1,234', '0.0679', '−2')
    """
    text = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return text.replace("-", "−")


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
    size, unit = unit_of(value)
    interval = f" (95 % CI {number(low / size)} to {number(high / size)} {unit})" if math.isfinite(high - low) else ""
    return f"{start} mean {metric} is {number(value / size)} {unit}{interval}"


def change_of_mean(metric: str, before: float, difference: tuple[float, float, float], *, seconds: bool = True) -> str:
    """Return how a mean changes, with the 95 % interval of the difference.

    >>> change_of_mean("wait", 80.0, (-36.0, -67.0, -5.0))
    'Mean wait falls from 80 s to 44 s (−45 %, 95 % CI −67 to −5 s)'
    """
    value, low, high = difference
    size, unit = unit_of(max(before, before + value)) if seconds else (1.0, "")
    name = f" {unit}" if unit else ""
    verb = "falls" if value < 0 else "rises" if value > 0 else "does not change:"
    relative = f"{100 * value / before:+.0f} %, ".replace("-", "−") if before else ""
    interval = (
        f"95 % CI {number(low / size)} to {number(high / size)}{name}"
        if math.isfinite(high - low)
        else "too few jobs for a confidence interval"
    )
    then = f"{number(before / size)}{name} to {number((before + value) / size)}{name}"
    return f"Mean {metric} {verb} from {then} ({relative}{interval})"
