"""Times in a log: how they are written, in which zone, and when the log begins.

Where clocks are set back, an hour occurs twice and a local time is ambiguous. It is read as the first one, unless an
end would come before its start: then as the second.

Unix time is known by its size: above 1e11 it is in milliseconds, above 1e14 in microseconds, above 1e17 in nanoseconds.
Else a text is ISO 8601, with a zone or by the clock of a place. A small number is seconds from an unknown date.

Programs that print a log list what ran inside a window, and so what was submitted long before it. Left where it is, one
such job stretches the span of a month over a year, and every rate comes out too low.
"""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import polars as pl

from fleetlab.core import TraceError
from fleetlab.traces.input.intake import Rule
from fleetlab.traces.input.written_times import in_iso

STAMP = (
    "%Y-%m-%d %H:%M:%S"  # without fractions of a second: none of these logs has them, and parsing is four times faster
)
LATEST = 1e11  # seconds, some three thousand years: nothing that was logged lies beyond


def is_zone(zone: str) -> bool:
    """Is this the name of a time zone, to us and to the frame library?"""
    try:
        ZoneInfo(zone)
        pl.select(pl.lit(datetime(2000, 1, 1)).dt.replace_time_zone(zone))
    except (ZoneInfoNotFoundError, ValueError, OSError, pl.exceptions.PolarsError):
        return False
    return True


def valid_zone(zone: str) -> str:
    """Give back a zone that the user named, or raise if there is none by that name."""
    if not is_zone(zone):
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


# How a text begins, and how many characters of it are the day and the time; what follows is a tail.
DAY = "^[0-9]{4}-[0-9]{2}-[0-9]{2}"
HEADS = {19: DAY + "[Tt ][0-9]{2}:[0-9]{2}:[0-9]{2}", 16: DAY + "[Tt ][0-9]{2}:[0-9]{2}", 10: DAY + "$"}
TAIL = r"^(?:[.,](?<fraction>[0-9]{1,6})[0-9]*)?\s*(?<zone>[Zz]|UTC|[+-][0-9]{2}(?::?[0-9]{2})?)?$"

# What a value was found to be; those from MILLI on tell a day of the calendar, SECONDS may or may not.
# A time that the clock of its place skipped, as it was set forward, is none.
NOTHING, SECONDS, MILLI, MICRO, NANO, ZONED, LOCAL, TWICE, SKIPPED = range(9)
SIZES = {MILLI: ("milliseconds", 1e11, 1e3), MICRO: ("microseconds", 1e14, 1e6), NANO: ("nanoseconds", 1e17, 1e9)}

EPOCH = 3e8  # seconds: what is above is a Unix time (of 1979 or later), what is below a count from somewhere
LAST = 253_402_300_800.0  # the end of the year 9999


def moments(text: pl.Series, zone: str) -> tuple[pl.Series, pl.Series]:
    """Seconds of each moment (null where it is none) and what it was found to be."""
    seconds, form = by_size(text.cast(pl.Float64, strict=False))
    if not (seconds.is_null() & text.is_not_null()).any():
        return seconds, form
    read, how = iso_moments(text, zone)
    if (read.is_null() & seconds.is_null() & text.is_not_null() & (how != SKIPPED)).any():
        read, how = iso_moments(in_iso(text), zone)
    return seconds.zip_with(seconds.is_not_null(), read), form.zip_with(seconds.is_not_null(), how)


def by_size(number: pl.Series) -> tuple[pl.Series, pl.Series]:
    """Seconds of a number that may be in a smaller unit, and which."""
    x = pl.col("x")
    seconds: pl.Expr = x
    form = pl.when(x.is_not_null()).then(SECONDS).otherwise(NOTHING)
    for unit, (_, above, per_second) in SIZES.items():
        # NaN and infinity stay as they are, and are rejected later with their own reason.
        large = x.is_finite() & (x > above)
        seconds = pl.when(large).then(x / per_second).otherwise(seconds)
        form = pl.when(large).then(unit).otherwise(form)
    result = pl.DataFrame({"x": number}).select(seconds=seconds, form=form.cast(pl.UInt8))
    return result["seconds"], result["form"]


def iso_moments(text: pl.Series, zone: str) -> tuple[pl.Series, pl.Series]:
    """Unix seconds of what is ISO 8601, null for what is not; without a zone of its own, by the clock of `zone`."""
    frame = pl.DataFrame({"text": text}).with_columns(head=_head())
    frame = frame.with_columns(naive=_naive(), tail=pl.col("text").str.slice(pl.col("head")))
    # Tails are few, +08:00 in every row as a rule: each is parsed once.
    tails = frame.select(pl.col("tail").drop_nulls().unique()).with_columns(_tail())
    frame = frame.join(tails, on="tail", how="left", maintain_order="left")
    first, last = (
        pl.col("naive").dt.replace_time_zone(zone, ambiguous=which, non_existent="null").dt.epoch("us")
        for which in ("earliest", "latest")
    )
    zoned = pl.col("offset").is_not_null()
    moment = pl.when(zoned).then(pl.col("naive").dt.epoch("us") - pl.col("offset")).otherwise(first)
    # An hour that the clock went through twice: the earlier one is taken, unless `settled` knows better.
    form = pl.when(zoned).then(ZONED).when(first != last).then(TWICE).otherwise(LOCAL)
    seconds = (moment + pl.col("fraction")) / 1e6
    skipped = pl.col("naive").is_not_null() & pl.col("fraction").is_not_null() & ~zoned & first.is_null()
    form = pl.when(skipped).then(SKIPPED).when(seconds.is_null()).then(NOTHING).otherwise(form).cast(pl.UInt8)
    result = frame.select(seconds=seconds, form=form)
    return result["seconds"], result["form"]


def later_occurrence(seconds: pl.Expr, zone: str) -> pl.Expr:
    """Of the hour that the clock of `zone` goes through twice, the same time of day for the second time."""
    there = pl.from_epoch((seconds * 1e6).round().cast(pl.Int64), "us").dt.convert_time_zone(zone)
    wall_clock = there.dt.replace_time_zone(None)
    later = wall_clock.dt.replace_time_zone(zone, ambiguous="latest", non_existent="null")
    return seconds + (later.dt.epoch("us") - there.dt.epoch("us")) / 1e6


def as_written(seconds: pl.Expr, form: pl.Expr, zone: str) -> pl.Expr:
    """A moment as it was written, or nearly so."""
    stamp = pl.from_epoch((seconds * 1e6).round().cast(pl.Int64), "us").dt.replace_time_zone("UTC")
    text = [pl.when(form == ZONED).then(stamp.dt.strftime("%Y-%m-%dT%H:%M:%SZ"))]
    text += [pl.when(form >= LOCAL).then(stamp.dt.convert_time_zone(zone).dt.strftime("%Y-%m-%dT%H:%M:%S"))]
    for unit, (_, _, per_second) in SIZES.items():
        whole = (seconds * per_second).round().cast(pl.Int64, strict=False)
        text += [pl.when(form == unit).then(whole.cast(pl.String))]
    return pl.coalesce(*text, seconds.cast(pl.String))


def _head() -> pl.Expr:
    sizes = [pl.when(pl.col("text").str.contains(shape)).then(size) for size, shape in HEADS.items()]
    return pl.coalesce(sizes).cast(pl.Int64)


def _naive() -> pl.Expr:
    day, time = pl.col("text").str.slice(0, 10), pl.col("text").str.slice(11, pl.col("head") - 11)
    text = (
        pl.when(pl.col("head") == 19).then(day + "T" + time)
        .when(pl.col("head") == 16).then(day + "T" + time + ":00")
        .when(pl.col("head") == 10).then(day + "T00:00:00")
    )  # fmt: skip
    return text.str.to_datetime("%Y-%m-%dT%H:%M:%S", time_unit="us", strict=False)


def _tail() -> list[pl.Expr]:
    """Microseconds to add and, where there is a zone, to take away; all null if it is no tail of a moment."""
    parts = pl.col("tail").str.extract_groups(TAIL)
    fraction, zone = parts.struct.field("fraction"), parts.struct.field("zone")
    micro = fraction.str.pad_end(6, "0").cast(pl.Int64)
    hours = zone.str.extract("^[+-]([0-9]{2})").cast(pl.Int64).fill_null(0)
    minutes = zone.str.extract("^[+-][0-9]{2}:?([0-9]{2})$").cast(pl.Int64).fill_null(0)
    east = pl.when(zone.str.starts_with("-")).then(-1).otherwise(1)
    fits = pl.col("tail").str.contains(TAIL)
    return [
        pl.when(fits).then(micro.fill_null(0)).alias("fraction"),
        pl.when(zone.is_not_null()).then(east * (hours * 3600 + minutes * 60) * 1_000_000).alias("offset"),
    ]


FEWEST = 20  # jobs: of fewer, a long silence tells nothing
NEAR = 0.01  # of the span


def moment(text: str | None, zone: str) -> float | None:
    """The moment that a user names, by the clock of `zone`, as a log would write it."""
    if text is None:
        return None
    seconds = moments(pl.Series([text.strip()], dtype=pl.String), zone)[0][0]
    if seconds is None or not abs(seconds) <= LAST:
        msg = f"`since` is not a date or time: `{text[:80]}`"
        raise TraceError(msg, hint="as in 2024-05-01 or 2024-05-01T08:00:00, in the time zone `zone`")
    return float(seconds)


def ended_before(since: float | None, value: str | pl.Expr) -> list[Rule]:
    """What has no part in the log."""
    return [] if since is None else [("ended before `since`", pl.col("end") < since, value)]


def clip_to_start(jobs: pl.DataFrame, since: float | None) -> tuple[pl.DataFrame, tuple[str, ...]]:
    """Let older jobs be submitted when the log begins; of what ran by then, start and run time are not the log's."""
    if since is None:
        return jobs, _sparse(jobs["submit"].sort())
    older, ran = pl.col("submit") < since, (pl.col("start") < since).fill_null(value=False)
    first = jobs.select(older.sum().alias("older"), ran.sum().alias("ran")).row(0)
    note = f"{first[0]:,} jobs were submitted before `since`: their submit time is set to 0; "
    note += f"{first[1]:,} of them had started by then: they hold their GPUs from the begin of the log on"
    unless_running = [pl.when(~ran).then(pl.col(c)).alias(c) for c in ("start", "runtime")]
    times = pl.col([c for c in ("submit", "eligible") if c in jobs.columns]).clip(lower_bound=since)
    return jobs.with_columns(times, *unless_running, initial=older), (note,)


def _sparse(submit: pl.Series) -> tuple[str, ...]:
    """A word of warning, where hardly any job takes up most of the span."""
    if len(submit) < FEWEST or not (span := submit[-1] - submit[0]):
        return ()
    part = (submit - submit[0]) / span
    # The first hundredth of them, less those that are near what follows.
    first = max(k for k in range(1, len(submit) // 100 + 2) if k == 1 or part[k] - part[k - 1] > NEAR)
    if part[first] <= 0.5:
        return ()
    note = f"the first {int(100 * part[first])} % of the span has {first:,} of {len(submit):,} jobs; if these are "
    return (note + "older than the log, arrival rates are too low: set `since` to the start of the log",)
