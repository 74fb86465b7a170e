"""Figures of a diagnosis: waiting by reason and by hour, and the effect of each change."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from fleetlab.core import Figure

OF_CHANGES = "Change of the mean wait"


def figures(frames: Mapping[str, pl.DataFrame]) -> dict[str, Figure]:
    """Return a figure of each table that is not empty."""
    charts = {}
    if "waiting" in frames:
        charts["waiting by reason"] = _reasons(frames["waiting"])
    if "by hour of the day" in frames:
        charts["mean wait by hour"] = _hours(frames["by hour of the day"])
    if (changes := frames["changes"].drop_nulls("mean wait change")).height:
        charts["changes"] = _changes(changes)
    return charts


def _reasons(waiting: pl.DataFrame) -> Figure:
    percent = {name: 100 * pl.col(column) for name, column in (("y", "share"), ("low", "low"), ("high", "high"))}
    frame = waiting.select(x="reason", **percent)
    alt = "; ".join(f"{reason} {share:.0f} %" for reason, share in frame.select("x", "y").iter_rows())
    return Figure("Waiting by reason", "bar", frame, "reason", "share of all waiting time, %", alt)


def _hours(hours: pl.DataFrame) -> Figure:
    frame = hours.select(x=pl.nth(0).cast(pl.Float64), y="mean wait", low="low", high="high")
    worst = frame.sort("y", descending=True, nulls_last=True).row(0, named=True)
    alt = f"longest for jobs submitted from {worst['x']:.0f} to {worst['x'] + 1:.0f} h: {worst['y']:,.0f} s"
    return Figure("Mean wait by hour", "line", frame, f"{hours.columns[0]}, of submission", "mean wait, s", alt)


def _changes(changes: pl.DataFrame) -> Figure:
    frame = changes.select(x="title", y="mean wait change", low="mean wait change low", high="mean wait change high")
    alt = "; ".join(f"{title}: {by:+,.0f} s" for title, by in frame.select("x", "y").iter_rows())
    return Figure(OF_CHANGES, "bar", frame, "change", "change of mean wait, s", alt)
