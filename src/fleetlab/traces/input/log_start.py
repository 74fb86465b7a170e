"""The start of a log, as given by the user: older jobs are in the log, but their submit times are not part of its span.

Programs that print a log list what ran inside a window, and so what was submitted long before it. Left where it is, one
such job stretches the span of a month over a year, and every rate comes out too low.
"""

from __future__ import annotations

import polars as pl

from fleetlab.core import TraceError
from fleetlab.traces.input.intake import Rule
from fleetlab.traces.input.times import LAST, moments

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
    kept = [pl.when(~ran).then(pl.col(c)).alias(c) for c in ("start", "runtime")]
    times = pl.col([c for c in ("submit", "eligible") if c in jobs.columns]).clip(lower_bound=since)
    return jobs.with_columns(times, *kept, initial=older), (note,)


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
