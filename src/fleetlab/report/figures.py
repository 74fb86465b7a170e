"""Figures and tables of a page: those that results bring or tables give, drawn for wide and narrow screens.

Only where that is safe: a number followed by its `low` and `high`, by name or along a number; a `share` by name; and
columns over `time`. A table of several units is never drawn.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import count
from operator import or_

import polars as pl

from fleetlab.core import Estimate, Figure, Result
from fleetlab.core.display import UNKNOWN, ShownColumn, display_columns, triples
from fleetlab.core.durations import number_text, readable_unit
from fleetlab.core.result import amount
from fleetlab.report.draw import NARROW, WIDE, Chart, Reach, ready, svg
from fleetlab.report.draw.scale import Floats, durations
from fleetlab.report.draw.svg import swatch
from fleetlab.report.markup import Markup, clean, data, provenance_line, tag

TABLE_ROWS = 200  # of a table
COLUMNS = 24
WIDEST = 120  # characters of a cell
OPEN = 16  # rows of a table that is open from the start
FIGURE_ROWS = 100  # rows of the numbers behind a figure


def table(name: str, frame: pl.DataFrame, *, rows: int = TABLE_ROWS, label: str = "") -> Markup:
    """Return one table, folded if it is long."""
    caption = f"{name} ({label})" if label else name
    columns = display_columns(frame.head(rows))
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
    few = frame.gather_every(max(1, math.ceil(frame.height / FIGURE_ROWS))) if frame.height else frame
    summary = f"Data: {frame.height:,} points"
    summary += f", of which {few.height:,} are shown" if few.height < frame.height else ""
    columns = [
        column._replace(name=heads.get(column.name, column.name)) for column in display_columns(few, intervals=False)
    ]
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


TOGETHER = 8  # curves that a reader can distinguish in one figure
METRICS = 4  # numbers of the summary that are drawn side by side


@dataclass(frozen=True, slots=True)
class FigurePanel:
    """A chart, or several side by side, each with its heading and the labels of its results."""

    title: str
    charts: tuple[tuple[str, tuple[str, ...], Chart], ...]
    reach: Reach | None = None  # of all, where they have the same axes


def panels(results: Mapping[str, Result], *, most: int) -> list[FigurePanel]:
    """Return all figures of all results, in their order, with about `most` points in all."""
    own = {label: result.figures() or table_figures(result.tables()) for label, result in results.items()}
    names = list(dict.fromkeys(name for figures in own.values() for name in figures))
    by_name = [{label: figures[name] for label, figures in own.items() if name in figures} for name in names]
    each = _each([f for figures in by_name for f in figures.values()], most)
    return _metrics(results) + [_panel(figures, each) for figures in by_name]


def _each(figures: list[Figure], most: int) -> int:
    """Return how many points each curve may have."""
    curves = sum(f.frame["series"].n_unique() if "series" in f.frame.columns else 1 for f in figures)
    return max(40, min(1500, most // max(1, curves)))


def _panel(figures: Mapping[str, Figure], most: int) -> FigurePanel:
    first = next(iter(figures.values()))
    if len(figures) > 1 and (merged := _merged(figures)) is not None:
        return FigurePanel(first.title, ((first.title, tuple(figures), ready(merged, most=most)),))
    charts = {label: ready(figure, most=most) for label, figure in figures.items()}
    separate = tuple((label, (label,), chart) for label, chart in charts.items())
    drawable = [c for c in charts.values() if not c.empty]
    alike = len({(c.x_names, c.y_names, c.log_x, c.log_y) for c in drawable}) == 1
    same = len(drawable) > 1 and alike and len({_axes(f) for f in figures.values()}) == 1
    return FigurePanel(first.title, separate, reduce(or_, (c.reach() for c in drawable)) if same else None)


def _axes(figure: Figure) -> tuple[object, ...]:
    return figure.kind, figure.x, figure.y, figure.log_x, figure.log_y, figure.frame["x"].dtype.is_numeric()


def _merged(figures: Mapping[str, Figure]) -> Figure | None:
    """Return one figure of all, if their axes are the same and there are not too many curves."""
    first = next(iter(figures.values()))
    if first.kind == "heat" or len({_axes(f) for f in figures.values()}) > 1:
        return None
    parts = list(_parts(figures))
    if len(parts) > TOGETHER:
        return None
    alts = list(dict.fromkeys(f.alt for f in figures.values()))
    alt = alts[0] if len(alts) == 1 else "; ".join(f"{label}: {f.alt}" for label, f in figures.items())
    return replace(first, frame=pl.concat(parts, how="diagonal_relaxed"), alt=alt)


def _parts(figures: Mapping[str, Figure]) -> Iterator[pl.DataFrame]:
    """Yield each curve under the name of its result; one that is the same in all results, such as a reference, once."""
    number_x = next(iter(figures.values())).frame["x"].dtype.is_numeric()
    kinds = {"x": pl.Float64 if number_x else pl.String, "y": pl.Float64, "low": pl.Float64, "high": pl.Float64}
    curves: dict[str, dict[str, pl.DataFrame]] = {}
    for label, figure in figures.items():
        frame = figure.frame.select(
            pl.col(c).cast(kinds[c], strict=False) for c in kinds if c in figure.frame.columns
        ).with_columns(series=_series(figure.frame))
        for (name,), rows in frame.group_by("series", maintain_order=True):
            curves.setdefault(str(name), {})[label] = rows
    for name, by_label in curves.items():
        frames = list(by_label.values())
        if name and len(frames) == len(figures) > 1 and all(frames[0].equals(f) for f in frames[1:]):
            yield frames[0]
            continue
        for label, rows in by_label.items():
            yield rows.with_columns(series=pl.lit(f"{label}: {name}" if name else label))


def _series(frame: pl.DataFrame) -> pl.Series:
    if "series" not in frame.columns:
        return pl.Series("series", [""] * frame.height, dtype=pl.String)
    return frame["series"].cast(pl.String, strict=False).fill_null("–")


# --- summaries -----------------------------------------------------------------------------------------------------


def summaries(results: Mapping[str, Result]) -> dict[str, dict[str, Estimate]]:
    """Return the estimates of each result by metric."""
    by_metric: dict[str, dict[str, Estimate]] = {}
    for label, result in results.items():
        for e in result.summary():
            by_metric.setdefault(str(e.metric), {}).setdefault(label, e)
    return by_metric


def _metrics(results: Mapping[str, Result]) -> list[FigurePanel]:
    """Return the first numbers that all results estimate, each as a figure by result."""
    shared = [by for by in summaries(results).values() if len(by) == len(results) > 1]
    uncertain = [by for by in shared if any(e.low < e.high for e in by.values())]
    figures = [_metric(by) for by in uncertain[:METRICS]]
    charts = tuple((f.title, tuple(results), ready(f)) for f in figures)
    return [FigurePanel("Side by side", charts)] if charts else []


def _metric(by_label: Mapping[str, Estimate]) -> Figure:
    estimates = list(by_label.values())
    metric, unit = str(estimates[0].metric), estimates[0].unit
    most = max((abs(e.value) for e in estimates if math.isfinite(e.value)), default=0.0)
    unit, length = readable_unit(most) if unit == "s" else (unit, 1.0)
    frame = pl.DataFrame(
        {
            "x": list(by_label),
            "y": [e.value / length for e in estimates],
            "low": [e.low / length for e in estimates],
            "high": [e.high / length for e in estimates],
        }
    )
    alt = "; ".join(f"{label}: {amount(e)}" for label, e in by_label.items())
    return Figure(metric, "dots", frame, "result", f"{metric}, {unit}" if unit else metric, alt)


MOST = 8  # figures of a result
NAMES = 40  # names of a figure
MIXED = {"unit", "metric", "figure"}  # a column so called may make rows of different kinds


def table_figures(tables: Mapping[str, pl.DataFrame]) -> dict[str, Figure]:
    """Return the figures that tables make by themselves, by name."""
    figures = [(figure.title, figure) for name, frame in tables.items() for figure in _of(name, frame)]
    return dict(figures[:MOST])


def _of(name: str, frame: pl.DataFrame) -> Iterator[Figure]:
    if frame.height < 2 or len(set(frame.columns)) < 2:
        return
    if frame.columns[0] == "time" and frame["time"].dtype.is_numeric():
        yield from _over_time(name, frame)
        return
    if any(frame[c].n_unique() > 1 for c in MIXED & set(frame.columns)):
        return
    intervals = list(triples(frame))
    for column, low, high in intervals:
        yield from _interval(name, frame, column, low, high)
    if not intervals:
        yield from _share(name, frame)


def _interval(name: str, frame: pl.DataFrame, column: str, low: str, high: str) -> Iterator[Figure]:
    rows = frame.filter(pl.col(column).is_not_null())
    if rows.height < 2 or not (rows[high] > rows[low]).any():
        return  # without a width it is no estimate
    first = rows.columns[0]
    along = rows[first].dtype.is_numeric() and first != column and rows[first].is_unique().all()
    x = rows[first] if along else _names(rows, column)
    if x is None:
        return
    points = pl.DataFrame({"x": x, "y": rows[column], "low": rows[low], "high": rows[high]})
    alt = f"{column} with its interval, by {x.name}: {_extremes(points)}"
    yield Figure(f"{name}: {column}", "line" if along else "dots", points, x.name, column, alt)


def _share(name: str, frame: pl.DataFrame) -> Iterator[Figure]:
    if "share" not in frame.columns or not frame["share"].dtype.is_float():
        return
    rows = frame.filter(pl.col("share").is_not_null())
    x = _names(rows, "share")
    if x is None or not rows["share"].is_between(0, 1).all():
        return
    points = pl.DataFrame({"x": x, "y": rows["share"]})
    yield Figure(f"{name}: share", "bar", points, x.name, "share", f"share by {x.name}: {_extremes(points)}")


def _names(frame: pl.DataFrame, column: str) -> pl.Series | None:
    """Return one name per row, from the text columns before a column; None where two rows would share one."""
    before = frame.columns[: frame.columns.index(column)]
    texts = [c for c in before if frame[c].dtype in (pl.String, pl.Categorical, pl.Enum)]
    texts = [c for c in texts if frame[c].n_unique() > 1] or texts
    for n in range(1, len(texts) + 1):
        names = pl.concat_str(texts[:n], separator=" · ", ignore_nulls=True).alias(" · ".join(texts[:n]))
        joined = frame.select(names).to_series()
        if joined.is_unique().all() and 2 <= frame.height <= NAMES:
            return joined
    return None


def _over_time(name: str, frame: pl.DataFrame) -> Iterator[Figure]:
    """Draw counts in one figure and measured amounts in another: they hardly share a unit."""
    rest = [c for c in frame.columns[1:] if frame[c].dtype.is_numeric()]
    kinds = {
        "counts": [c for c in rest if frame[c].dtype.is_integer()],
        "amounts": [c for c in rest if not frame[c].dtype.is_integer()],
    }
    for kind, columns in kinds.items():
        if not columns:
            continue
        points = frame.unpivot(columns, index="time", variable_name="series", value_name="y").rename({"time": "x"})
        alt = f"{', '.join(columns)} over time, at {frame.height:,} instants"
        yield Figure(f"{name}: {kind}", "line", points, "time, s", kind, alt)


def _extremes(points: pl.DataFrame) -> str:
    ends = points.filter(pl.col("y").is_not_nan() if points["y"].dtype.is_float() else pl.lit(value=True)).sort("y")
    if ends.is_empty():
        return "no number is known"
    (low, low_y), (high, high_y) = ends.select("x", "y").row(0), ends.select("x", "y").row(-1)
    return f"lowest at {low} ({number_text(low_y)}), highest at {high} ({number_text(high_y)})"


DIGITS = 6  # of a number that the script reads out


def figures(results: Mapping[str, Result], *, most: int) -> Iterator[Markup]:
    """Draw all figures of all results, with about `most` points in all."""
    # Keys are counted, never made from names: names are text.
    keys = (f"f{k}" for k in count())
    for panel in panels(results, most=most):
        several = len(panel.charts) > 1
        elements = [
            figure(
                chart,
                tag("h4", heading) if several else tag("h3", panel.title),
                provenance_line({label: results[label].provenance for label in labels}),
                key=next(keys),
                reach=panel.reach,
                small=several,
            )
            for heading, labels, chart in panel.charts
        ]
        if several:
            yield tag("div", tag("h3", panel.title), tag("div", *elements, class_="beside"), class_="panel")
        else:
            yield elements[0]


def figure(
    chart: Chart, heading: Markup, how: str, *, key: str, reach: Reach | None = None, small: bool = False
) -> Markup:
    """Draw one chart under its heading; `key` is unique in the page, `how` is its provenance."""
    sizes = {"narrow": NARROW} if small else {"wide": WIDE, "narrow": NARROW}
    pictures = [svg(chart, reach=reach, width=w, key=f"{key}-{name}") for name, w in sizes.items()]
    caption = tag(
        "figcaption",
        tag("p", chart.figure.alt, id=f"{key}-alt"),
        *(tag("p", note, class_="soft") for note in chart.left_out),
        tag("p", how, class_="provenance"),
    )
    behind = [] if chart.empty else [numbers(chart), data(_script_data(chart, reach or chart.reach()))]
    plot = tag("div", *pictures, class_="plot")
    return tag("figure", heading, _legend(chart), plot, caption, *behind, id=key, class_="figure")


def _legend(chart: Chart) -> Markup:
    if not chart.named or chart.empty:
        return Markup()
    keys = [
        tag("li", tag("svg", swatch(c.look), viewBox="-4 0 30 12", aria_hidden="true"), tag("span", c.name), data_s=k)
        for k, c in enumerate(chart.curves)
    ]
    return tag("ul", *keys, class_="legend", aria_label="series")


def _script_data(chart: Chart, reach: Reach) -> dict[str, object]:
    """Return what the script needs to read values out: the axes and the points."""
    curves, before = list[dict[str, object]](), None
    for c in chart.curves:
        x = _short(c.x)
        values: dict[str, object] = {"name": c.name, "y": _short(c.y)}
        if x != before:  # curves often share their x
            values["x"] = before = x
        values |= {k: _short(v) for k, v in (("low", c.low), ("high", c.high), ("v", c.value)) if v is not None}
        curves.append(values)
    about = {"kind": chart.figure.kind, "xname": clean(chart.figure.x, 80), "title": clean(chart.figure.title, 80)}
    axes = {
        "x": list(reach.x),
        "logx": chart.log_x,
        "times": list(durations(chart.figure.x, *reach.x).items()) if chart.log_x else [],
        "logy": chart.log_y,
        "names": chart.x_names,
        "ynames": chart.y_names,
    }
    return about | axes | {"curves": curves}


def _short(values: Floats) -> list[float | int | None]:
    rounded = (float(f"{v:.{DIGITS}g}") for v in values.tolist())
    return [None if not math.isfinite(v) else int(v) if v.is_integer() and abs(v) < 1e15 else v for v in rounded]
