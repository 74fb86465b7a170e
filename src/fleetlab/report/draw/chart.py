"""A figure prepared for drawing: finite numbers, names in order, no more points than a screen shows.

What is left out is counted in `left_out`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import polars as pl

from fleetlab.core import Figure
from fleetlab.report.draw.scale import SERIES, Floats, rounded
from fleetlab.report.markup import clean

POINTS = 1500  # of a curve: about two a pixel
CURVES = 12  # in one figure: more cannot be distinguished
NAMES = 40  # rows or bars of a figure
CELLS = 60  # names of one side of a heat map
LARGEST = 1e300  # larger numbers overflow when they are subtracted
NAME = 80  # characters of a name


@dataclass(frozen=True, slots=True)
class ChartSeries:
    """One series: its points, with intervals where it has them; for a heat map, the cells."""

    name: str
    x: Floats
    y: Floats
    low: Floats | None = None
    high: Floats | None = None
    value: Floats | None = None
    look: int = 0  # its color and dashes, as `palette` counts them

    def where(self, rows: np.ndarray) -> ChartSeries:
        """Return some of the points, by index or mask."""
        low, high, value = (None if v is None else v[rows] for v in (self.low, self.high, self.value))
        return replace(self, x=self.x[rows], y=self.y[rows], low=low, high=high, value=value)


@dataclass(frozen=True, slots=True)
class Reach:
    """The ranges of the axes."""

    x: tuple[float, float]
    y: tuple[float, float]

    def __or__(self, other: Reach) -> Reach:
        """Return the smallest ranges that contain both."""
        ends = ((min(a[0], b[0]), max(a[1], b[1])) for a, b in ((self.x, other.x), (self.y, other.y)))
        return Reach(*ends)


@dataclass(frozen=True, slots=True)
class Chart:
    """A figure that can be drawn as it is, and notes on what was left out."""

    figure: Figure
    curves: tuple[ChartSeries, ...]
    x_names: tuple[str, ...] = ()
    y_names: tuple[str, ...] = ()
    log_x: bool = False
    log_y: bool = False
    left_out: tuple[str, ...] = ()

    @property
    def empty(self) -> bool:
        """Whether there is nothing to draw."""
        return not any(len(c.x) for c in self.curves)

    @property
    def named(self) -> bool:
        """Whether the series have names."""
        return len(self.curves) > 1 or any(c.name for c in self.curves)

    @property
    def whole(self) -> bool:
        """Whether all x are integers, and more than one."""
        return self.figure.frame["x"].dtype.is_integer() and self.figure.frame["x"].n_unique() > 1

    def reach(self) -> Reach:
        """Return the ranges of its points and intervals, rounded where that costs little."""
        if self.empty:
            return Reach((0, 1), (0, 1))
        if self.figure.kind == "heat":
            return Reach((-0.5, len(self.x_names) - 0.5), (-0.5, len(self.y_names) - 0.5))
        y = _ends((v for c in self.curves for v in (c.y, c.low, c.high)), log=self.log_y)
        return Reach(self._along(), y if self.log_y else self._upwards(*y))

    def _along(self) -> tuple[float, float]:
        if self.x_names:
            return -0.5, len(self.x_names) - 0.5
        low, high = _ends((c.x for c in self.curves), log=self.log_x)
        if self.log_x or self.figure.kind in ("line", "step"):
            return low, high
        margin = width_of(self.curves) / 2 if self.figure.kind == "bar" else (high - low) * 0.03
        return low - margin, high + margin

    def _upwards(self, low: float, high: float) -> tuple[float, float]:
        if self.figure.kind == "bar" or 0 <= low <= high / 2:
            low, high = min(low, 0.0), max(high, 0.0)
        return rounded(low, high)


def ready(figure: Figure, *, most: int = POINTS) -> Chart:
    """Prepare a figure, with at most `most` points per series, and note what is left out."""
    if figure.kind == "heat":
        return _cells(figure)
    frame, notes = figure.frame.filter(pl.col("x").is_not_null()), list[str]()
    names = () if frame["x"].dtype.is_numeric() else _names(frame["x"])
    if len(names) > NAMES and figure.kind in ("bar", "dots"):
        notes.append(f"the first {NAMES} of {len(names):,} names are drawn")
        names = names[:NAMES]
    curves = list(_curves(frame, names))
    if len(curves) > CURVES:
        notes.append(f"the first {CURVES} of {len(curves)} series are drawn")
    looks = kin([c.name for c in curves[:CURVES]])
    styled = [replace(c, name=clean(c.name, NAME), look=look) for c, look in zip(curves, looks, strict=False)]
    chart = _logs(Chart(figure, tuple(styled), tuple(clean(n, NAME) for n in names)), notes)
    if half := sum(_one_sided(c) for c in styled):
        notes.append(f"{half:,} intervals are known on one side only, and not drawn")
    if not names:
        chart = replace(chart, curves=tuple(_thin(c, figure.kind, most) for c in chart.curves))
        if before := sum(len(c.x) for c in styled if len(c.x) > most):
            notes.append(f"{before:,} points are thinned to what a screen can show; the extremes are kept")
    return replace(chart, left_out=tuple(notes))


def kin(names: Sequence[str]) -> list[int]:
    """Return the look of each series: `A, published`, and the `A` of another result, have the color of `A`, and dashes.

    >>> kin(["A", "B", "A, published", "C"]), kin(["fifo: A", "sjf: A", "fifo: B"])
    ([0, 1, 8, 2], [0, 8, 1])
    """
    looks, families = list[int](), dict[str, int]()
    for name in names:
        own = name.partition(": ")[2] or name
        parent = own.rpartition(", ")[0]
        look = families.setdefault(parent if parent in families else own, len(families))
        while look in looks:
            look += len(SERIES)
        looks.append(look)
    return looks


def _curves(frame: pl.DataFrame, names: tuple[str, ...]) -> Iterator[ChartSeries]:
    if "series" not in frame.columns:
        frame = frame.with_columns(series=pl.lit(""))
    frame = frame.with_columns(pl.col("series").cast(pl.String, strict=False).fill_null("–"))
    for (name,), rows in frame.group_by("series", maintain_order=True):
        x = _places(rows["x"], names) if names else _numbers(rows, "x")
        low, high = (_numbers(rows, side) if side in rows.columns else None for side in ("low", "high"))
        if low is not None and high is not None and not np.isfinite(low + high).any():
            low = high = None
        curve = ChartSeries(str(name), x, _numbers(rows, "y"), *((low, high) if high is not None else (None, None)))
        yield curve.where(np.isfinite(x))


def _one_sided(curve: ChartSeries) -> int:
    if curve.low is None or curve.high is None:
        return 0
    return int((np.isfinite(curve.low) != np.isfinite(curve.high)).sum())


def _numbers(frame: pl.DataFrame, column: str) -> Floats:
    """Return floats; what is no number, or too large to draw, is NaN."""
    try:
        values = frame[column].cast(pl.Float64, strict=False).fill_null(math.nan).to_numpy()
    except pl.exceptions.PolarsError:
        values = np.full(frame.height, math.nan)
    return np.where(np.abs(values) < LARGEST, values, math.nan)


def _names(column: pl.Series) -> tuple[str, ...]:
    """Return the names in their order; numbers, which a heat map may have, by size."""
    values = column.drop_nulls().unique(maintain_order=True)
    return tuple(map(str, (values.sort() if values.dtype.is_numeric() else values).to_list()))


def _places(column: pl.Series, names: tuple[str, ...]) -> Floats:
    where = {name: float(k) for k, name in enumerate(names)}
    return np.array([where.get(str(v), math.nan) for v in column.to_list()], dtype=np.float64)


def _cells(figure: Figure) -> Chart:
    x, y, notes = _names(figure.frame["x"]), _names(figure.frame["y"]), list[str]()
    for side, names in (("x", x), ("y", y)):
        if len(names) > CELLS:
            notes.append(f"the first {CELLS} of {len(names):,} names along {side} are drawn")
    x, y = x[:CELLS], y[:CELLS]
    value = _numbers(figure.frame, "value")
    cells = ChartSeries("", _places(figure.frame["x"], x), _places(figure.frame["y"], y), value=value)
    cells = cells.where(np.isfinite(cells.x) & np.isfinite(cells.y) & np.isfinite(value))
    short = [tuple(clean(n, NAME) for n in names) for names in (x, y)]
    return Chart(figure, (cells,), short[0], short[1], left_out=tuple(notes))


# --- logarithms --------------------------------------------------------------------------------------------------


def _logs(chart: Chart, notes: list[str]) -> Chart:
    """Leave out what has no logarithm. A curve that begins at 0 begins at the edge, where its level is correct."""
    figure, curves = chart.figure, chart.curves
    log_x = figure.log_x and not chart.x_names and any((c.x > 0).any() for c in curves)
    log_y = figure.log_y and any((c.y > 0).any() for c in curves)
    if log_x and (low := sum(int((c.x <= 0).sum()) for c in curves)):
        edge = min(float(c.x[c.x > 0].min()) for c in curves if (c.x > 0).any())
        if figure.kind in ("line", "step"):
            curves = tuple(replace(c, x=np.maximum(c.x, edge)) for c in curves)
            notes.append(f"{low:,} points at or below 0 are drawn at the left edge of the logarithmic axis")
        else:
            curves = tuple(c.where(c.x > 0) for c in curves)
            notes.append(f"{low:,} points at or below 0 are not on the logarithmic axis")
    if log_y and (low := sum(int((c.y <= 0).sum()) for c in curves)):
        curves = tuple(replace(c, y=np.where(c.y > 0, c.y, math.nan)) for c in curves)
        notes.append(f"{low:,} points at or below 0 are not on the logarithmic axis upwards")
    if log_y:
        # An interval that reaches down to 0 reaches down to the edge.
        edge = min(float(c.y[c.y > 0].min()) for c in curves if (c.y > 0).any())
        curves = tuple(replace(c, low=_above(c.low, edge), high=_above(c.high, edge)) for c in curves)
    return replace(chart, curves=curves, log_x=log_x, log_y=log_y)


def _above(side: Floats | None, edge: float) -> Floats | None:
    return None if side is None else np.where(side <= 0, edge, side)


# --- how far, how many -------------------------------------------------------------------------------------------


def _ends(parts: Iterable[Floats | None], *, log: bool = False) -> tuple[float, float]:
    """Return the smallest and the largest number; always two different ones."""
    values = [v[np.isfinite(v)] for v in parts if v is not None]
    values = [v for v in values if len(v)]
    if not values:
        return (1.0, 10.0) if log else (0.0, 1.0)
    low, high = min(float(v.min()) for v in values), max(float(v.max()) for v in values)
    if log:
        return (low, high) if high > low * 1.001 else (low / 2, high * 2)
    least = max(abs(low), abs(high), 1.0) * 1e-9
    return (low, high) if high - low > least else (low - max(abs(low) / 10, 0.5), high + max(abs(high) / 10, 0.5))


def width_of(curves: Iterable[ChartSeries]) -> float:
    """Return the width of a bar where x are numbers: the least step between two."""
    steps = [np.diff(np.unique(c.x)).min() for c in curves if len(np.unique(c.x)) > 1]
    return float(min(steps, default=1.0))


def _thin(curve: ChartSeries, kind: str, most: int) -> ChartSeries:
    """Sort by x; of many points, keep the first, last, lowest and highest of each stretch."""
    n = len(curve.x)
    if kind == "dots":
        return curve if n <= most else curve.where(np.linspace(0, n - 1, most).astype(np.int64))
    curve = curve.where(np.argsort(curve.x, kind="stable"))
    if n <= most:
        return curve
    edges = np.linspace(0, n, max(2, most // 4) + 1).astype(np.int64)
    rows = {k for a, b in pairwise(edges.tolist()) for k in _corners(curve.y[a:b], a)}
    return curve.where(np.array(sorted(rows)))


def _corners(y: Floats, offset: int) -> set[int]:
    finite = np.where(np.isfinite(y), y, np.nanmean(y) if np.isfinite(y).any() else 0.0)
    return {offset, offset + len(y) - 1, offset + int(finite.argmin()), offset + int(finite.argmax())}
