"""Parts of the page that are drawn on the server: the same figures as in a report, by the same code."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import polars as pl

from fleetlab.core import Figure, Result
from fleetlab.core.durations import readable_unit
from fleetlab.core.result import amount
from fleetlab.report.draw import ready
from fleetlab.report.figures import figure, figures, table
from fleetlab.report.markup import Markup, clean, joined, tag
from fleetlab.sim.figures import MINUTE, WAITS, WAITS_SHARE
from fleetlab.web.runs import RunNumbers

ROWS = 60  # of a table in a description
BASE, NOW = "baseline", "scenario"
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


def comparison_html(base: RunNumbers, now: RunNumbers, how: str) -> Markup:
    """Draw two runs on the same axes: waits, and waits by class of job."""
    both = {NOW: now, BASE: base} if base is not now else {NOW: now}
    charts = [*_waits(both), *_by_class(both)]
    # Keys are counted, never made from names: names are text.
    return joined(
        figure(ready(f), tag("h3", f.title), how, key=f"w{k}") for k, f in enumerate(charts) if f.frame.height
    )


def _waits(both: Mapping[str, RunNumbers]) -> Iterator[Figure]:
    """Draw how waits are distributed."""
    frames = [
        frame.select(pl.lit(label).alias("series"), pl.all())
        for label, numbers in both.items() if (frame := numbers.distribution).height
    ]  # fmt: skip
    if not frames:
        return
    frame = pl.concat(frames, how="diagonal")
    soon = frame.filter(pl.col("x") <= MINUTE).group_by("series", maintain_order=True).agg(pl.col("y").last())
    alt = "; ".join(f"{label}: {y:.0f} % of the jobs wait a minute or less" for label, y in soon.iter_rows())
    yield Figure(WAITS, "line", frame, "wait, s", WAITS_SHARE, alt, log_x=True)


def _by_class(both: Mapping[str, RunNumbers]) -> Iterator[Figure]:
    tables = {label: numbers.by_size for label, numbers in both.items()}
    for name, title in BY_CLASS.items():
        parts = [
            by_name[name].select(
                pl.lit(label).alias("series"), pl.nth(0).cast(pl.String).alias("x"), y="mean wait", low="low",
                high="high",
            )
            for label, by_name in tables.items() if by_name[name].height
        ]  # fmt: skip
        if not parts:
            continue
        frame = pl.concat(parts)
        most = frame["y"].max()
        unit, length = readable_unit(most if isinstance(most, float) else 0.0)
        frame = frame.with_columns(pl.col("y", "low", "high") / length)
        last = frame.filter(pl.col("series") == NOW)
        alt = "; ".join(f"{x}: {y:,.3g} {unit}" for x, y in last.select("x", "y").iter_rows())
        yield Figure(title, "dots", frame, name.removeprefix("by "), f"mean wait, {unit}", f"scenario, {alt}")
