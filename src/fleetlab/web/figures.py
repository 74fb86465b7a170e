"""Parts of the page that are drawn on the server: the same figures as in a report, by the same code."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import polars as pl

from fleetlab.core import Figure, Result
from fleetlab.core.durations import readable_unit
from fleetlab.core.result import amount
from fleetlab.report.draw import ready
from fleetlab.report.figures import figure, figures
from fleetlab.report.markup import Markup, clean, joined, tag
from fleetlab.report.tables import table
from fleetlab.sim.figures import MINUTE, WAITS, WAITS_SHARE

BEYOND = 1.1  # times as long as jobs arrive: after that, the queue only empties
ROWS = 60  # of a table in a description
BASE, NOW = "baseline", "scenario"
OVER_TIME = {
    "allocated": "GPUs allocated over time",
    "waiting_gpus": "GPUs requested by waiting jobs over time",
}
BY_CLASS = {
    "by GPUs per instance": "Mean wait by GPUs per instance",
    "by gang size": "Mean wait by number of instances",
}


def description_html(result: Result, *, most: int) -> Markup:
    """Draw the description of a trace: findings, numbers, figures, tables."""
    findings = [tag("li", line) for line in result.findings]
    numbers = [tag("div", tag("dt", clean(e.metric, 120)), tag("dd", tag("b", amount(e)))) for e in result.summary()]
    return joined(
        [
            tag("ul", *findings, class_="findings"),
            tag("dl", *numbers, class_="numbers"),
            tag("div", *figures({"trace": result}, most=most), class_="figures"),
            *(table(name, frame, rows=ROWS, label="") for name, frame in result.tables().items() if frame.height),
        ]
    )


def comparison_html(base: Mapping[str, Any], now: Mapping[str, Any], how: str) -> Markup:
    """Draw two outcomes on the same axes: over time, and by class of job."""
    both = {NOW: now, BASE: base} if base is not now else {NOW: now}
    charts = [*_over_time(both), *_waits(both), *_by_class(both)]
    # Keys are counted, never made from names: names are text.
    return joined(
        figure(ready(f), tag("h3", f.title), how, key=f"w{k}") for k, f in enumerate(charts) if f.frame.height
    )


def _waits(both: Mapping[str, Mapping[str, Any]]) -> Iterator[Figure]:
    """Draw how waits are distributed."""
    frames = [
        pl.DataFrame(o["distribution"]).select(pl.lit(label).alias("series"), pl.all())
        for label, o in both.items() if o["distribution"]
    ]  # fmt: skip
    if not frames:
        return
    frame = pl.concat(frames, how="diagonal")
    soon = frame.filter(pl.col("x") <= MINUTE).group_by("series", maintain_order=True).agg(pl.col("y").last())
    alt = "; ".join(f"{label}: {y:.0f} % of the jobs wait a minute or less" for label, y in soon.iter_rows())
    yield Figure(WAITS, "line", frame, "wait, s", WAITS_SHARE, alt, log_x=True)


def _over_time(both: Mapping[str, Mapping[str, Any]]) -> Iterator[Figure]:
    part = any(o.get("selected") for o in both.values())
    until = BEYOND * max(o["span"] for o in both.values())
    if part:
        until = max(o["result"]["tables"]["timeline"][-1]["time"] for o in both.values())
    since = "the selection begins" if part else "the first submission"
    unit, length = readable_unit(until)
    for column, title in OVER_TIME.items():
        rows = [
            {"series": label, "x": row["time"] / length, "y": row[column]}
            for label, o in both.items()
            for row in o["result"]["tables"]["timeline"]
            if row["time"] <= until and row[column] is not None
        ]
        frame = pl.DataFrame(rows, schema={"series": pl.String, "x": pl.Float64, "y": pl.Float64})
        most = frame.group_by("series", maintain_order=True).agg(pl.col("y").max())
        alt = "; ".join(f"{label}: at most {y:,.0f} GPUs" for label, y in most.iter_rows())
        yield Figure(title, "line", frame, f"time since {since}, {unit}", "GPUs", alt)


def _by_class(both: Mapping[str, Mapping[str, Any]]) -> Iterator[Figure]:
    for name, title in BY_CLASS.items():
        tables = {label: pl.DataFrame(o["result"]["tables"][name]) for label, o in both.items()}
        parts = [
            table.select(
                pl.lit(label).alias("series"), pl.nth(0).cast(pl.String).alias("x"),
                pl.col("mean wait").cast(pl.Float64).alias("y"), pl.col("low", "high").cast(pl.Float64),
            )
            for label, table in tables.items() if table.height
        ]  # fmt: skip
        if not parts:
            continue
        frame = pl.concat(parts)
        most = frame["y"].max()
        unit, length = readable_unit(most if isinstance(most, float) else 0.0)
        frame = frame.with_columns(pl.col("y", "low", "high") / length)
        last = frame.filter(pl.col("series") == NOW)
        alt = "; ".join(f"{x}: {y:,.3g} {unit}" for x, y in last.select("x", "y").iter_rows())
        column = next(table.columns[0] for table in tables.values() if table.height)
        yield Figure(title, "dots", frame, column, f"mean wait, {unit}", f"scenario, {alt}")
