"""What a notebook shows of a result, a figure or a noun: plain HTML and SVG, without a script or a network.

A cell has what a reader needs first (findings, numbers, few figures) and folds the rest. It takes the notebook's own
style for text and tables; figures have their own paper, so that they can be read in a dark notebook too.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256

import polars as pl

from fleetlab.core import Estimate, Figure, Result
from fleetlab.core.display import INTERVAL, UNKNOWN, ShownColumn, display_columns
from fleetlab.core.durations import plural
from fleetlab.core.result import amount_and_interval, finite
from fleetlab.report.draw import NARROW, WIDE, ready, svg
from fleetlab.report.figures import table_figures
from fleetlab.report.markup import Markup, clean, joined, prose, provenance_line, tag

FIGURES = 4  # of a result
POINTS = 300  # of a curve
ROWS = 10  # of a table
COLUMNS = 12
TABLES = 12
LINES = 12  # findings, numbers or notes
WIDEST = 300  # characters of a text in a table, which the notebook wraps
BESIDE = "display:flex;flex-wrap:wrap;gap:0.5em;margin:0.5em 0"
SCROLL = "overflow-x:auto"
LEFT, RIGHT = "text-align:left", "text-align:right"
# Some notebooks break no line in a table: long headings and names would make it wider than any screen.
HEADING, TEXT, NUMBER = "white-space:normal;max-width:9em", "white-space:normal;max-width:30em", "white-space:nowrap"


def cell(value: object) -> str:
    """Return a result, a figure or an estimate as HTML."""
    if isinstance(value, Figure):
        return _box([_figure(value, WIDE)])
    if isinstance(value, Estimate):
        return _box([_numbers([value])])
    if isinstance(value, Result):
        return _result(value)
    return _box([tag("p", repr(value))])


def noun_cell(line: str, tables: Mapping[str, pl.DataFrame]) -> str:
    """Return one line, and tables below it."""
    return _box([tag("p", tag("b", line)), *(_table(name, frame) for name, frame in tables.items())])


def _result(result: Result) -> str:
    """Return findings first: of which jobs, what was found, the numbers, figures; then what can be opened."""
    covered = [result.coverage.line] if result.coverage is not None else []
    tables = {name: frame for name, frame in result.tables().items() if frame.height}
    figures = result.figures() or table_figures(tables)
    charts = [_figure(figure, NARROW) for figure in list(figures.values())[:FIGURES]]
    parts = [
        tag("p", tag("b", f"{result.provenance.verb}: {clean(result.provenance.source, WIDEST)}")),
        _list([*covered, *result.findings]),
        _numbers(result.summary()),
        tag("div", *charts, style=BESIDE) if charts else Markup(),
        *(_folded(name, frame) for name, frame in list(tables.items())[:TABLES]),
        _more([*list(figures)[FIGURES:], *list(tables)[TABLES:]]),
        _notes(result.notes),
        tag("p", tag("small", provenance_line({"": result.provenance}))),
    ]
    return _box(parts)


def _box(parts: Iterable[Markup]) -> str:
    return str(tag("div", *parts, class_="fleetlab-cell"))


def _figure(figure: Figure, width: float) -> Markup:
    """Draw a figure; what names its parts follows from its content, so that no two of a notebook are confused."""
    content = json.dumps([finite(figure.to_json(), infinite=False), width], default=str)
    key = f"f{sha256(content.encode()).hexdigest()[:12]}"
    return svg(ready(figure, most=POINTS), width=width, key=key, whole=True)


def _list(lines: Sequence[str], where: str = "findings") -> Markup:
    more = [tag("li", prose(f"and {len(lines) - LINES:,} more: `.{where}`"))] if len(lines) > LINES else []
    return tag("ul", *(tag("li", prose(line)) for line in lines[:LINES]), *more) if lines else Markup()


def _numbers(estimates: Sequence[Estimate]) -> Markup:
    """Return each number with its interval, as a table."""
    if not estimates:
        return Markup()
    texts = [amount_and_interval(e) if e.value == e.value else (UNKNOWN, "") for e in estimates[:LINES]]
    columns = [
        ShownColumn("metric", numeric=False, texts=tuple(e.metric for e in estimates[:LINES]), values=()),
        ShownColumn("value", numeric=True, texts=tuple(value for value, _ in texts), values=()),
        ShownColumn(INTERVAL, numeric=True, texts=tuple(interval for _, interval in texts), values=()),
    ]
    counted = not any(columns[-1].texts)  # exact numbers have no interval
    more = f"and {len(estimates) - LINES:,} more: `.summary()`"
    below = [tag("p", tag("small", prose(more)))] if len(estimates) > LINES else []
    return joined([_grid(columns[:2] if counted else columns, "numbers"), *below])


def _table(name: str, frame: pl.DataFrame, rows: int = 2 * ROWS) -> Markup:
    about, grid = _sized(name, frame, rows)
    return joined([tag("p", about), grid])


def _folded(name: str, frame: pl.DataFrame) -> Markup:
    about, grid = _sized(name, frame, ROWS)
    return tag("details", tag("summary", about), grid)


def _sized(name: str, frame: pl.DataFrame, rows: int) -> tuple[Markup, Markup]:
    """Return the name of a table with its size, and its first rows and columns."""
    columns = display_columns(frame.head(rows))
    size = plural(frame.height, "row")
    size += f", the first {rows} are shown" if frame.height > rows else ""
    size += f", the first {COLUMNS} of {len(columns)} columns" if len(columns) > COLUMNS else ""
    return joined([tag("b", clean(name, WIDEST)), f" ({size})"]), _grid(columns[:COLUMNS], name)


def _grid(columns: Sequence[ShownColumn], caption: str) -> Markup:
    """Return the rows; they can be reached and scrolled by keyboard."""
    sides = [RIGHT if c.numeric else LEFT for c in columns]
    heads = [
        tag("th", clean(c.name, WIDEST), scope="col", style=f"{side};{HEADING}")
        for c, side in zip(columns, sides, strict=True)
    ]
    styles = [f"{side};{NUMBER if side == RIGHT else TEXT}" for side in sides]
    rows = zip(*(c.texts for c in columns), strict=True)
    body = [
        tag("tr", *(tag("td", clean(t, WIDEST), style=style) for t, style in zip(row, styles, strict=True)))
        for row in rows
    ]
    inside = tag("table", tag("thead", tag("tr", *heads)), tag("tbody", *body))
    return tag("div", inside, style=SCROLL, tabindex=0, role="group", aria_label=clean(caption, WIDEST))


def _more(names: Sequence[str]) -> Markup:
    """Say which figures and tables are not shown."""
    text = f"not shown: {', '.join(clean(name, WIDEST) for name in names)}; `.figures()` and `.tables()` have them"
    return tag("p", tag("small", prose(text))) if names else Markup()


def _notes(notes: Sequence[str]) -> Markup:
    if not notes:
        return Markup()
    return tag("details", tag("summary", tag("b", "notes"), f" ({len(notes):,})"), _list(notes, "notes"))
