"""Tables of a page: cut to a readable length, and sortable by the script."""

from __future__ import annotations

import math
from collections.abc import Sequence

import polars as pl

from fleetlab.core.display import UNKNOWN, ShownColumn, shown
from fleetlab.report.draw import Chart
from fleetlab.report.markup import Markup, clean, tag

ROWS = 200  # of a table
COLUMNS = 24
WIDEST = 120  # characters of a cell
OPEN = 16  # rows of a table that is open from the start
POINTS = 100  # rows of the numbers behind a figure


def table(name: str, frame: pl.DataFrame, *, rows: int = ROWS, label: str = "") -> Markup:
    """Return one table, folded if it is long."""
    caption = f"{name} ({label})" if label else name
    columns = shown(frame.head(rows))
    body = grid(columns, caption)
    counts = [f"{frame.height:,} rows" if frame.height > 1 else "1 row"]
    counts += [f"the first {rows:,} are shown"] if frame.height > rows else []
    counts += [f"the first {COLUMNS} of {len(columns)} columns"] if len(columns) > COLUMNS else []
    summary = tag(
        "summary", tag("b", clean(caption, WIDEST)), " ", tag("span", f"({', '.join(counts)})", class_="soft")
    )
    return tag("details", summary, body, class_="table", open="" if frame.height <= OPEN else None)


def grid(columns: Sequence[ShownColumn], caption: str) -> Markup:
    """Return all rows; they can be reached and scrolled by keyboard."""
    columns = columns[:COLUMNS]
    head = [tag("th", clean(c.name, WIDEST), scope="col", class_="n" if c.numeric else None) for c in columns]
    body = [tag("tr", *row) for row in zip(*(map(cell, c.texts, c.values) for c in columns), strict=True)]
    inside = tag("table", tag("thead", tag("tr", *head)), tag("tbody", *body))
    return tag("div", inside, class_="scroll", tabindex=0, role="region", aria_label=clean(caption, WIDEST))


def cell(text: str, value: object = None) -> Markup:
    """Return one value; a number carries its full value, to sort by."""
    if isinstance(value, int | float) and not isinstance(value, bool) and text != UNKNOWN:
        return tag("td", text, class_="n", data_v=f"{value:.9g}")
    return tag("td", clean(text, WIDEST), class_="long" if len(text) > 36 else None)


def numbers(chart: Chart) -> Markup:
    """Return the points of a chart as a table."""
    frame, heads = _points(chart)
    few = frame.gather_every(max(1, math.ceil(frame.height / POINTS))) if frame.height else frame
    summary = f"Data: {frame.height:,} points"
    summary += f", of which {few.height:,} are shown" if few.height < frame.height else ""
    columns = [column._replace(name=heads.get(column.name, column.name)) for column in shown(few, intervals=False)]
    body = grid(columns, f"data of: {chart.figure.title}")
    return tag("details", tag("summary", summary), body, class_="numbers")


def _points(chart: Chart) -> tuple[pl.DataFrame, dict[str, str]]:
    """Return all points, and the heading of each column."""
    figure, parts = chart.figure, list[pl.DataFrame]()
    for c in chart.curves:
        columns: dict[str, list[object]] = {"series": [c.name] * len(c.x)} if chart.named else {}
        columns["x"] = [chart.x_names[int(k)] for k in c.x] if chart.x_names else c.x.tolist()
        columns["y"] = [chart.y_names[int(k)] for k in c.y] if chart.y_names else c.y.tolist()
        columns |= {k: v.tolist() for k, v in (("low", c.low), ("high", c.high), ("value", c.value)) if v is not None}
        parts.append(pl.DataFrame(columns, strict=False))
    heads = {"x": figure.x or "x", "y": figure.y or "y"}
    frame = pl.concat(parts, how="diagonal_relaxed") if parts else pl.DataFrame()
    if figure.kind == "line":  # of a step, which has two points at one x, the upper end: P(X <= x)
        frame = frame.unique([c for c in ("series", "x") if c in frame.columns], keep="last", maintain_order=True)
    return frame, heads
