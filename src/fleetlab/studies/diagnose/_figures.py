"""A diagnosis to be drawn: what jobs wait for, when they wait, and what each change takes off, with intervals."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from fleetlab.core import Figure


def figures(frames: Mapping[str, pl.DataFrame]) -> dict[str, Figure]:
    """Draw the tables that have something in them."""
    found = {}
    if frames["waiting"]["seconds"].sum() > 0:
        found["waiting by reason"] = _reasons(frames["waiting"])
        found["mean wait by hour"] = _hours(frames["by hour"])
    if (changes := frames["changes"].drop_nulls("mean change")).height:
        found["changes"] = _changes(changes)
    return found


def _reasons(waiting: pl.DataFrame) -> Figure:
    percent = {name: 100 * pl.col(column) for name, column in (("y", "share"), ("low", "low"), ("high", "high"))}
    frame = waiting.filter(pl.col("seconds") > 0).select(x="reason", **percent)
    alt = "; ".join(f"{reason} {share:.0f} %" for reason, share in frame.select("x", "y").iter_rows())
    return Figure("What jobs wait for", "bar", frame, "reason", "share of all waiting, %", alt)


def _hours(hours: pl.DataFrame) -> Figure:
    frame = hours.select(x=pl.col("hour").cast(pl.Float64), y="mean wait", low="low", high="high")
    worst = frame.sort("y", descending=True, nulls_last=True).row(0, named=True)
    alt = f"jobs submitted from {worst['x']:.0f} to {worst['x'] + 1:.0f} h wait longest: {worst['y']:,.0f} s"
    return Figure("When jobs wait", "line", frame, "hour of submission", "mean wait, s", alt)


def _changes(changes: pl.DataFrame) -> Figure:
    frame = changes.select(x="title", y="mean change", low="mean low", high="mean high")
    alt = "; ".join(f"{title}: {by:+,.0f} s" for title, by in frame.select("x", "y").iter_rows())
    return Figure("What each change does to the mean wait", "bar", frame, "change", "change of mean wait, s", alt)
