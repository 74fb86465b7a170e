"""Tables of a page: cut to a readable length, and sortable by the script."""

from __future__ import annotations

import math
from collections.abc import Sequence

import polars as pl

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
    body = grid(frame.head(rows), caption)
    counts = [f"{frame.height:,} rows" if frame.height > 1 else "1 row"]
    counts += [f"the first {rows:,} are shown"] if frame.height > rows else []
    counts += [f"the first {COLUMNS} of {frame.width} columns"] if frame.width > COLUMNS else []
    summary = tag(
        "summary", tag("b", clean(caption, WIDEST)), " ", tag("span", f"({', '.join(counts)})", class_="soft")
    )
    return tag("details", summary, body, class_="table", open="" if frame.height <= OPEN else None)


def grid(frame: pl.DataFrame, caption: str, *, heads: Sequence[str] = ()) -> Markup:
    """Return all rows; they can be reached and scrolled by keyboard."""
    frame = frame.select(frame.columns[:COLUMNS])
    numeric = [dtype.is_numeric() for dtype in frame.dtypes]
    head = [
        tag("th", clean(c, WIDEST), scope="col", class_="n" if n else None)
        for c, n in zip(heads or frame.columns, numeric, strict=True)
    ]
    body = [tag("tr", *map(cell, row)) for row in frame.iter_rows()]
    inside = tag("table", tag("thead", tag("tr", *head)), tag("tbody", *body))
    return tag("div", inside, class_="scroll", tabindex=0, role="region", aria_label=clean(caption, WIDEST))


def cell(value: object) -> Markup:
    """Return one value; a number carries its full value, to sort by."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return tag("td", "–")
    if isinstance(value, bool):
        return tag("td", "yes" if value else "no")
    if isinstance(value, int | float):
        return tag("td", number_text(value), class_="n", data_v=f"{value:.9g}")
    text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return tag("td", clean(text, WIDEST), class_="long" if len(text) > 36 else None)


def number_text(value: float) -> str:
    """Return a number with four significant digits.

    >>> number_text(1260920), number_text(0.123456), number_text(98765.4)
    ('1,260,920', '0.1235', '98,765')
    """
    if isinstance(value, int):
        return f"{value:,}" if abs(value) < 10**18 else f"{value:.4g}"
    return f"{value:,.4g}" if abs(value) < 10_000 else f"{value:,.0f}" if abs(value) < 1e15 else f"{value:.4g}"


def numbers(chart: Chart) -> Markup:
    """Return the points of a chart as a table."""
    frame, heads = _points(chart)
    few = frame.gather_every(max(1, math.ceil(frame.height / POINTS))) if frame.height else frame
    summary = f"Data: {frame.height:,} points"
    summary += f", of which {few.height:,} are shown" if few.height < frame.height else ""
    body = grid(few, f"data of: {chart.figure.title}", heads=[heads[c] for c in few.columns])
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
    heads = {k: k for k in ("series", "low", "high", "value")} | {"x": figure.x or "x", "y": figure.y or "y"}
    return pl.concat(parts, how="diagonal_relaxed") if parts else pl.DataFrame(), heads
