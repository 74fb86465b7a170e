"""The time that a user asked for: sacct's Timelimit (`1-00:00:00`) and TimelimitRaw (in minutes)."""

from __future__ import annotations

import re

from fleetlab.traces.input.timestamps import LATEST

NONE = frozenset({"", "unlimited", "partition_limit", "invalid", "not_set", "none", "n/a", "unknown", "(null)"})
_LIMIT = re.compile(r"(?:(\d{1,9})-)?(\d{1,12})(?::(\d{1,4}))?(?::(\d{1,4}))?")


def limit(text: str) -> float | None:
    """Seconds of a limit, None where there is none, as also 0 means; ValueError for what is no length of time.

    A number alone is minutes, two are minutes and seconds, three begin with hours; after days the first is hours.

    >>> [limit(text) for text in ("1-12", "01:30:00", "90:00", "90", "UNLIMITED")]
    [129600.0, 5400.0, 5400.0, 5400.0, None]
    """
    if text.strip().lower() in NONE:
        return None
    match = _LIMIT.fullmatch(text.strip())
    days, *parts = match.groups("0") if match else ("0",)
    hours = bool(match and (match[1] or match[4]))
    units = (3600, 60, 1) if hours else (60, 1, 1)
    seconds = 86_400 * int(days) + sum(int(part) * unit for part, unit in zip(parts, units, strict=False))
    if not match or seconds > LATEST:
        msg = f"not a length of time: {text[:80]}"
        raise ValueError(msg)
    return float(seconds) or None
