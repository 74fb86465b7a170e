"""Durations as people write and read them: seconds, or a number with a unit."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
HINT = "seconds, or a number with s, m, h or d after it: 5m"
PART = re.compile(
    r"(\d+(?:\.\d*)?(?:e[+-]?\d+)?)\s*(seconds?|secs?|minutes?|mins?|hours?|hrs?|days?|[smhd])?(?:\s*,?\s*(?:and\s)?\s*)"
)


def in_seconds(duration: str | float) -> float:
    """Return seconds; nan if it is not a duration.

    >>> in_seconds("5m"), in_seconds("90"), in_seconds(3600), in_seconds("often")
    (300.0, 90.0, 3600.0, nan)
    >>> in_seconds("10 minutes"), in_seconds("4h30m")
    (600.0, 16200.0)
    """
    if not isinstance(duration, str):
        return float(duration) if 0 <= duration < math.inf else math.nan
    text = duration.strip().lower()
    parts = PART.findall(text)
    several = len(parts) > 1 and not all(unit for _, unit in parts)  # only a number alone may have no unit
    if not parts or PART.sub("", text) or several:
        return math.nan
    return sum(float(number) * UNITS[unit[:1]] for number, unit in parts)


def readable_unit(seconds: float) -> tuple[str, float]:
    """Return the unit in which so many seconds are shown, and its length in seconds.

    >>> readable_unit(119), readable_unit(-3600), readable_unit(86_400), readable_unit(172_800)
    (('s', 1.0), ('min', 60.0), ('h', 3600.0), ('days', 86400.0))
    """
    longest = ((2 * 86_400.0, "days", 86_400.0), (7200.0, "h", 3600.0), (120.0, "min", 60.0))
    return next(((unit, length) for least, unit, length in longest if abs(seconds) >= least), ("s", 1.0))


def duration(seconds: float) -> str:
    """Return a duration in a readable unit.

    >>> duration(78.2), duration(600), duration(-4 * 86_400)
    ('78.2 s', '10 min', '−4 days')
    """
    unit, length = readable_unit(seconds)
    return f"{number(seconds / length)} {unit}"


def brief(seconds: float) -> str:
    """Return a duration with two significant digits, for a sentence.

    >>> brief(85.4), brief(119.7), brief(5532), brief(0.031), brief(-36.8)
    ('85 s', '2 min', '92 min', '0.031 s', '−37 s')
    """
    seconds = float(f"{seconds:.2g}")
    unit, length = readable_unit(seconds)
    return f"{number_text(float(f'{seconds / length:.2g}'))} {unit}"


APART = 0.25  # of the recorded mean wait: a simulation that differs by more is not the site


def beside_the_log(recorded: float, simulated: float) -> str:
    """Return the mean wait of a log beside the simulated one, and what to do where they differ much.

    >>> beside_the_log(83.6, 85.1)
    'Recorded mean wait 84 s, simulated 85 s.'
    >>> beside_the_log(330.0, 954.0)
    'Recorded mean wait 5.5 min, simulated 16 min. Run `fleetlab calibrate` before you trust the numbers below.'
    """
    return f"Recorded mean wait {brief(recorded)}, simulated {brief(simulated)}.{if_apart(recorded, simulated)}"


def if_apart(recorded: float, simulated: float) -> str:
    """Return what to do where the mean wait of a log and that of the same jobs simulated differ much."""
    apart = abs(simulated - recorded) > APART * recorded
    return " Run `fleetlab calibrate` before you trust the numbers below." * apart


def number(value: float) -> str:
    """Return a number with three significant digits.

    >>> number(1234.5), number(0.06789), number(-2.0), number(999.7)
    ('1,230', '0.0679', '−2', '1,000')
    """
    return number_text(float(f"{value:.3g}"))


def number_text(value: float, digits: int = 4) -> str:
    """Return a number with four significant digits; a whole one with all of them.

    >>> number_text(1260920), number_text(0.123456), number_text(9999.6), number_text(math.inf)
    ('1,260,920', '0.1235', '10,000', '∞')
    """
    if isinstance(value, int) and abs(value) < 10**18:
        return minus(f"{value:,}")
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    whole = 10.0**digits <= abs(float(f"{value:.{digits}g}")) < 1e15
    return minus(f"{value:,.0f}" if whole else f"{value:,.{digits}g}")


def plural(count: float, noun: str) -> str:
    """Return a number of things.

    >>> plural(1, "GPU"), plural(1200, "job"), plural(0.5, "GPU")
    ('1 GPU', '1,200 jobs', '0.5 GPUs')
    """
    return f"{number_text(count)} {noun}{'' if count == 1 else 's'}"


def minus(text: str) -> str:
    """Return a number with a minus sign in place of a hyphen."""
    return f"−{text[1:]}" if text.startswith("-") else text


def clock_text(seconds: float, epoch: float | None = None, zone: str | None = None) -> str:
    """Return when that is: by the clock of a log whose second 0 is known, else the day counted from 1, and the time.

    >>> clock_text(90_061), clock_text(90_061, 0.0, "Asia/Tokyo")
    ('day 2, 1:01:01', 'Fri 1970-01-02 10:01:01')
    """
    if epoch is None:
        day, rest = divmod(seconds, UNITS["d"])
        return f"day {int(day) + 1}, {timedelta(seconds=round(rest, 3))}"
    at = datetime.fromtimestamp(epoch + seconds, UTC).astimezone(ZoneInfo(zone or "UTC"))
    return at.strftime("%a %Y-%m-%d %H:%M:%S")


def between_text(begin: float, end: float, epoch: float | None = None, zone: str | None = None) -> str:
    """Return two times as an interval; seconds are left out where both are whole minutes.

    >>> between_text(3600, 90_000), between_text(0, 30, 0.0), between_text(7200, math.inf)
    ('between day 1, 1:00 and day 2, 1:00', 'between Thu 1970-01-01 00:00:00 and 00:00:30', 'from day 1, 2:00 on')
    """
    texts = ["" if math.isinf(t) else clock_text(t, epoch, zone) for t in (begin, end)]
    if all(text.endswith(":00") or not text for text in texts):
        texts = [text.removesuffix(":00") for text in texts]
    first, last = texts
    if not last:
        return f"from {first} on"
    day, _, time = last.rpartition(" ")
    return f"between {first} and {time if first.startswith(f'{day} ') else last}"
