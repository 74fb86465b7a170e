"""Figures for results that bring none, from tables whose columns say what they are.

Only where that is safe: a number followed by its `low` and `high`, by name or along a number; a `share` by name; and
columns over `time`. A table of several units is never drawn.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import polars as pl

from fleetlab.core import Figure
from fleetlab.core.display import triples
from fleetlab.core.durations import number_text

MOST = 8  # figures of a result
ROWS = 40  # names of a figure
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
    known = frame.filter(pl.col(column).is_not_null())
    if known.height < 2 or not (known[high] > known[low]).any():
        return  # without a width it is no estimate
    first = known.columns[0]
    along = known[first].dtype.is_numeric() and first != column and known[first].is_unique().all()
    x = known[first] if along else _names(known, column)
    if x is None:
        return
    points = pl.DataFrame({"x": x, "y": known[column], "low": known[low], "high": known[high]})
    alt = f"{column} with its interval, by {x.name}: {_extremes(points)}"
    yield Figure(f"{name}: {column}", "line" if along else "dots", points, x.name, column, alt)


def _share(name: str, frame: pl.DataFrame) -> Iterator[Figure]:
    if "share" not in frame.columns or not frame["share"].dtype.is_float():
        return
    known = frame.filter(pl.col("share").is_not_null())
    x = _names(known, "share")
    if x is None or not known["share"].is_between(0, 1).all():
        return
    points = pl.DataFrame({"x": x, "y": known["share"]})
    yield Figure(f"{name}: share", "bar", points, x.name, "share", f"share by {x.name}: {_extremes(points)}")


def _names(frame: pl.DataFrame, column: str) -> pl.Series | None:
    """Return one name per row, from the text columns before a column; None where two rows would share one."""
    before = frame.columns[: frame.columns.index(column)]
    texts = [c for c in before if frame[c].dtype in (pl.String, pl.Categorical, pl.Enum)]
    texts = [c for c in texts if frame[c].n_unique() > 1] or texts
    for n in range(1, len(texts) + 1):
        names = pl.concat_str(texts[:n], separator=" · ", ignore_nulls=True).alias(" · ".join(texts[:n]))
        joined = frame.select(names).to_series()
        if joined.is_unique().all() and 2 <= frame.height <= ROWS:
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
