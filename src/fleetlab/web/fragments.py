"""Parts of the page that are drawn here: the same figures as in a report, by the same pen."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import polars as pl

from fleetlab.core import Figure, Result
from fleetlab.report.draw import ready
from fleetlab.report.figures import figure, figures
from fleetlab.report.markup import Markup, clean, joined, tag
from fleetlab.report.tables import table
from fleetlab.report.words import number

HOUR = 3600.0
BEYOND = 1.1  # times as long as jobs arrive: after that, a run only empties
ROWS = 60  # of a table in a description
BASE, NOW = "baseline", "now"
OVER_TIME = {
    "allocated": ("GPUs held over time", "GPUs"),
    "waiting_gpus": ("GPUs waited for over time", "GPUs"),
}
BY_CLASS = {
    "by request": ("Mean wait by what jobs ask for", "asks for"),
    "by gang": ("Mean wait by number of instances", "instances"),
}


def described(found: Result, *, most: int) -> Markup:
    """A description: words, numbers, figures, tables."""
    said = [tag("li", line) for line in found.findings]
    numbers = [tag("div", tag("dt", clean(e.metric, 120)), tag("dd", tag("b", number(e)))) for e in found.summary()]
    return joined(
        [
            tag("ul", *said, class_="findings"),
            tag("dl", *numbers, class_="numbers"),
            tag("div", *figures({"trace": found}, most=most), class_="figures"),
            *(table(name, frame, rows=ROWS, label="") for name, frame in found.tables().items() if frame.height),
        ]
    )


def drawn(base: Mapping[str, Any], now: Mapping[str, Any], how: str) -> Markup:
    """Two outcomes on the same axes: over time, and by class of job."""
    both = {NOW: now, BASE: base} if base is not now else {NOW: now}
    made = [*_over_time(both), *_by_class(both)]
    # Keys are counted, never made from names: names are text.
    return joined(figure(ready(f), tag("h3", f.title), how, key=f"w{k}") for k, f in enumerate(made) if f.frame.height)


def _over_time(both: Mapping[str, Mapping[str, Any]]) -> Iterator[Figure]:
    until = BEYOND * max(o["span"] for o in both.values())
    for column, (title, unit) in OVER_TIME.items():
        rows = [
            {"series": label, "x": row["time"] / HOUR, "y": row[column]}
            for label, o in both.items()
            for row in o["result"]["tables"]["timeline"]
            if row["time"] <= until and row[column] is not None
        ]
        frame = pl.DataFrame(rows, schema={"series": pl.String, "x": pl.Float64, "y": pl.Float64})
        most = frame.group_by("series", maintain_order=True).agg(pl.col("y").max())
        alt = "; ".join(f"{label}: at most {y:,.0f} {unit}" for label, y in most.iter_rows())
        yield Figure(title, "line", frame, "hours from the first submission", unit, alt)


def _by_class(both: Mapping[str, Mapping[str, Any]]) -> Iterator[Figure]:
    schema = {"series": pl.String, "x": pl.String} | dict.fromkeys(("y", "low", "high"), pl.Float64)
    for name, (title, column) in BY_CLASS.items():
        rows = [
            {"series": label, "x": row[column], "y": row["wait"], "low": row["low"], "high": row["high"]}
            for label, o in both.items()
            for row in o["result"]["tables"][name]
        ]
        frame = pl.DataFrame(rows, schema=schema)
        last = frame.filter(pl.col("series") == NOW)
        alt = "; ".join(f"{x}: {y:,.0f} s" for x, y in last.select("x", "y").iter_rows())
        yield Figure(title, "dots", frame, column, "mean wait, s", f"now, {alt}")
