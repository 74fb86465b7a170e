"""A number with its interval, and how both are said: with as many digits as the interval supports."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from fleetlab.core.cells import cell
from fleetlab.core.durations import minus, number_text, readable_unit

INFINITE = ("inf", "-inf")  # JSON has no number for it
ROUNDING = 1e-12  # of a number: what differs by less is the same
VISIBLE = 1e-6  # of a number: a narrower interval is not shown


class Estimate(NamedTuple):
    """A number with its 95 % interval; an exact count has `low == value == high`.

    Attributes
    ----------
    metric
        What it is.
    value
        The number.
    low
        The lower limit of its interval; NaN where there is none.
    high
        The upper limit.
    unit
        Its unit: durations are in `s`, whatever they are shown in.

    Examples
    --------
    >>> Estimate("mean wait", 90.0, 80.0, 100.0, "s").value
    90.0
    """

    metric: str
    value: float
    low: float
    high: float
    unit: str

    @classmethod
    def exact(cls, metric: str, value: float, unit: str = "") -> Estimate:
        """Build one for a number that was counted, not estimated.

        Parameters
        ----------
        metric
            What it is.
        value
            The number.
        unit
            Its unit (default: none).

        Returns
        -------
        Estimate
            The number as its own interval.

        Examples
        --------
        >>> Estimate.exact("jobs", 3)
        Estimate(metric='jobs', value=3, low=3, high=3, unit='')
        """
        return cls(metric, value, value, value, unit)

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> Estimate:
        """Build one from what `Result.to_json` wrote.

        Parameters
        ----------
        row
            The fields by name; null is NaN, and "inf" is infinite.

        Returns
        -------
        Estimate
            The number.

        Examples
        --------
        >>> Estimate.from_json({"metric": "wait", "value": 1.0, "low": 0.0, "high": "inf", "unit": "s"}).high
        inf
        """
        numbers = (from_json_number(row[key]) for key in ("value", "low", "high"))
        value, low, high = (math.nan if number is None else number for number in numbers)
        return cls(str(row["metric"]), value, low, high, str(row["unit"]))

    def _repr_html_(self) -> str:
        return cell(self)


def say(e: Estimate) -> str:
    """Return the name of a number, and the number with its unit and 95 % interval.

    >>> say(Estimate("mean wait", 0.8321, 0.6912, 0.9730, "s"))
    'mean wait 0.83 s (95 % CI 0.69 to 0.97)'
    >>> say(Estimate("mean wait", 7200, 3600, 10_800, "s"))
    'mean wait 2.0 h (95 % CI 1.0 to 3.0)'
    >>> say(Estimate.exact("jobs", 1260920))
    'jobs 1,260,920'
    >>> say(Estimate("P90 wait", 83.21, math.nan, math.nan, "s"))
    'P90 wait 83.21 s (no 95 % CI)'
    """
    unsure = math.isnan(e.low) and math.isfinite(e.value)
    return f"{e.metric} {amount(e)}{' (no 95 % CI)' if unsure else ''}"


def amount(e: Estimate, scale: float | None = None) -> str:
    """Return a number, its unit and its 95 % interval, with as many digits as the interval supports, and two at least.

    Seconds are shown in a readable unit: that of `scale`, or of the number itself.

    >>> amount(Estimate("mean wait", 2.0, 0.0, math.inf, "s"))  # nothing is known of how long it may be
    '2 s (95 % CI 0 to ∞)'
    >>> amount(Estimate("P90 wait", 38.2, 0.3, 83_330.0, "s"))  # a wide interval makes no zero of a number
    '38 s (95 % CI 0.30 to 83,000)'
    """
    if math.isnan(e.value):
        return "–"
    value, interval = amount_and_interval(e, scale)
    return f"{value} (95 % CI {interval})" if interval else value


def amount_and_interval(e: Estimate, scale: float | None = None) -> tuple[str, str]:
    """Return a number with its unit, and its interval in the same unit; no text where it has none."""
    unit, length = readable_unit(e.value if scale is None else scale) if e.unit == "s" else (e.unit, 1.0)
    value, low, high = (x / length for x in (e.value, e.low, e.high))
    counted, unit = isinstance(e.value, int) and not unit, f" {unit}" if unit and math.isfinite(e.value) else ""
    # An interval of rounding errors alone is none, nor is one that takes seven digits to see.
    if math.isclose(high, low, rel_tol=VISIBLE) or math.isnan(high - low):
        return number_text(e.value if counted else value) + unit, ""
    if math.isinf(high - low):
        return number_text(value) + unit, f"{number_text(low)} to {number_text(high)}"
    # Two digits of the interval's half width, and no more, mean something; a count stays a whole number.
    digits = 0 if counted else 1 - math.floor(math.log10(high - low) - math.log10(2))
    plain = [counted or abs(x) <= ROUNDING * (high - low) for x in (value, low, high)]
    enough = [digits if p else _decimals(x, digits, value) for x, p in zip((value, low, high), plain, strict=True)]
    texts = [minus(f"{round(x, d):,.{max(0, d)}f}") for x, d in zip((value, low, high), enough, strict=True)]
    return texts[0] + unit, f"{texts[1]} to {texts[2]}"


def _decimals(number: float, digits: int, value: float) -> int:
    """Return so many decimals; for the value, and a limit that they would make 0 or put beyond it, two digits at least.

    >>> _decimals(38.2, -3, 38.2), _decimals(0.3, -3, 38.2), _decimals(83_330.0, -3, 38.2)
    (0, 2, -3)
    """
    rounded = round(number, digits)
    if number != value and rounded and (rounded - value) * (number - value) >= 0:
        return digits
    return max(digits, 1 - math.floor(math.log10(abs(number))))


def from_json_number(value: Any) -> Any:  # noqa: ANN401  whatever JSON has
    """Return a number that JSON has as text: an infinite one."""
    return float(str(value)) if value in INFINITE else value
