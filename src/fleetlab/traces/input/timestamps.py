"""Timestamps in one fixed format, as Unix seconds.

Where clocks are set back, an hour occurs twice and a local time is ambiguous. It is read as the first one, unless an
end would come before its start: then as the second.
"""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import polars as pl

from fleetlab.core import TraceError

STAMP = (
    "%Y-%m-%d %H:%M:%S"  # without fractions of a second: none of these logs has them, and parsing is four times faster
)
LATEST = 1e11  # seconds, some three thousand years: nothing that was logged lies beyond


def known(zone: str) -> bool:
    """Is this the name of a time zone, to us and to the frame library?"""
    try:
        ZoneInfo(zone)
        pl.select(pl.lit(datetime(2000, 1, 1)).dt.replace_time_zone(zone))
    except (ZoneInfoNotFoundError, ValueError, OSError, pl.exceptions.PolarsError):
        return False
    return True


def valid_zone(zone: str) -> str:
    """Give back a zone that the user named, or raise if there is none by that name."""
    if not known(zone):
        msg = f"unknown time zone: `{zone[:80]}`"
        raise TraceError(msg, hint="use IANA names: America/Los_Angeles, Asia/Shanghai, UTC")
    return zone


def local(column: str, zone: str, *, again: bool = False) -> pl.Expr:
    """When the clock of `zone` showed this stamp (`again`: for the second time); null if it never did."""
    wall_clock = pl.col(column).str.strip_chars().str.to_datetime(STAMP, strict=False, time_unit="us")
    there = wall_clock.dt.replace_time_zone(zone, ambiguous="latest" if again else "earliest", non_existent="null")
    return _seconds(there)


def local_after(column: str, zone: str, before: str) -> pl.Expr:
    """When the clock of `zone` showed this stamp, not before the moment in column `before` if that can be."""
    once = local(column, zone)
    return pl.when(once < pl.col(before)).then(local(column, zone, again=True)).otherwise(once)


def with_offset(column: str) -> pl.Expr:
    """When it was, by a stamp that carries its offset from UTC; null if it is not such a stamp."""
    return _seconds(pl.col(column).str.strip_chars().str.to_datetime(f"{STAMP}%#z", strict=False, time_unit="us"))


def _seconds(moment: pl.Expr) -> pl.Expr:
    seconds = moment.dt.timestamp("us") / 1e6
    # The Unix zero is what programs write when they know no time.
    return pl.when((seconds > 0) & (seconds < LATEST)).then(seconds)
