"""What was published of a public trace, to be drawn on the axes of it or of one like it, and how far that is off.

Most was read off figures, by pixels: every curve says where, and how well it could be read. What does not name its
trace is of the PAI cluster.

The widest gap is Kolmogorov and Smirnov's; its interval comes from the bands of Dvoretzky, Kiefer and Wolfowitz of
both, so that it holds for independent values. The area is Wasserstein's first distance, in the figure's
unit. The difference of medians has the interval of Zou and Donner (2008), from the intervals of both.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files
from math import hypot
from typing import Any

import numpy as np
import polars as pl

from fleetlab.core import Figure
from fleetlab.describe.curves import Ecdf
from fleetlab.stats import CONFIDENCE

SUFFIX = ", published"
PAI = "pai2020"
ACROSS, POINT = 0.08, 1.0  # a quantile's value may be misread by 8 %, a level by a point
ACROSS_ENDS, TAIL = 0.15, 0.1  # beyond P5 and P95: 15 % of the value, a tenth of the tail
MIDDLE = 5.0, 95.0
MISREAD = 0.03  # of a request: the pixel by which a step may be misread
HAIR = 1.0001  # relative tolerance, so that round requests compare as equal
PRINTED = 0.1  # points of level by which quantiles of the same rows differ from one definition to another
ERRORS = 3.0  # standard errors of a sample of this size, on top


@cache
def published_values() -> dict[str, Any]:
    """The file beside this one."""
    return json.loads(files("fleetlab.describe").joinpath("published.json").read_text("utf-8"))  # type: ignore[no-any-return]


@cache
def traces() -> frozenset[str]:
    """The traces of which something was published."""
    curves = (c for figure in published_values()["curves"].values() for c in figure.values())
    return frozenset(x.get("trace", PAI) for x in (*curves, *published_values()["numbers"].values()))


def trace_of(source: str) -> str:
    """The public trace that a source is, or is made to be like."""
    return source.split(":")[-1]


def _curves(figure: str, trace: str) -> dict[str, Any]:
    curves = published_values()["curves"].get(figure, {})
    return {series: c for series, c in curves.items() if c.get("trace", PAI) == trace}


def points(figure: str, series: Sequence[str], trace: str = PAI) -> pl.DataFrame:
    """The published points of a figure's curves, each as a series of its own."""
    curves = _curves(figure, trace)
    rows = [(float(x), float(y), name + SUFFIX) for name in series if name in curves for x, y in curves[name]["points"]]
    return pl.DataFrame(rows, schema={"x": pl.Float64, "y": pl.Float64, "series": pl.String}, orient="row")


def hours(name: str) -> Mapping[str, list[float]]:
    """Published values by hour."""
    return published_values()["hours"][name]  # type: ignore[no-any-return]


def numbers(name: str, trace: str = PAI) -> Mapping[str, float]:
    """Published numbers by name; none where they are of another trace."""
    entry = published_values()["numbers"].get(name, {"values": {}})
    return entry["values"] if entry.get("trace", PAI) == trace else {}


def beside(compared: Mapping[str, Sequence[Ecdf]], trace: str = PAI) -> pl.DataFrame:
    """For each published curve: its points, the widest gap of level, and how many points are within what is known."""
    rows = [
        _row(figure, c, curve)
        for figure, curves in compared.items()
        for c in curves
        if (curve := _curves(figure, trace).get(c.series)) is not None
    ]
    return pl.DataFrame(rows, infer_schema_length=None)


def _row(figure: str, c: Ecdf, published: Mapping[str, Any]) -> dict[str, object]:
    gaps = [_gap(c, x, y, published) for x, y in published["points"]]
    return {
        "figure": figure,
        "series": c.series,
        "points": len(gaps),
        "within": sum(near for _, near in gaps),
        "KS distance, points": max(abs(gap) for gap, _ in gaps),
        "sampling error, points": ERRORS * 50 / max(c.size, 1.0) ** 0.5,  # at the median, where it is most
        "source": published["source"],
    }


def _gap(c: Ecdf, x: float, y: float, published: Mapping[str, Any]) -> tuple[float, bool]:
    """How far above a published point the curve passes, in points of level; and is that within an error of reading?"""
    level = min(max(y / 100, 0.0), 1.0)
    sampled = ERRORS * 100 * (level * (1 - level) / max(c.size, 1.0)) ** 0.5
    grain = published.get("grain", 0.0)
    if published["read"] == "level":
        gap = _beyond(c, x * HAIR, x * (1 + MISREAD), y)
        return gap, abs(gap) <= POINT + sampled
    gap = _beyond(c, x - grain, (x + grain) * HAIR, y)
    if published["read"] == "printed":  # of the same rows: nothing is sampled
        return gap, abs(gap) <= PRINTED
    inside = MIDDLE[0] <= y <= MIDDLE[1]
    across, up = (ACROSS, POINT) if inside else (ACROSS_ENDS, TAIL * min(y, 100 - y))
    misread = _beyond(c, x * (1 - across) - grain, x * (1 + across) + grain, y)
    return gap, abs(gap) <= up + sampled or abs(misread) <= sampled


def _beyond(c: Ecdf, low: float, high: float, y: float) -> float:
    """How far the levels between two values are from a published one: 0 if it lies among them."""
    least, most = 100 * c.level(low), 100 * c.level(high)
    return least - y if y < least else most - y if y > most else 0.0


SCHEMA = {
    "figure": pl.String, "series": pl.String, "KS distance, points": pl.Float64, "KS low": pl.Float64,
    "KS high": pl.Float64, "at": pl.Float64, "Wasserstein": pl.Float64, "unit": pl.String, "median": pl.Float64,
    "other median": pl.Float64, "difference": pl.Float64, "difference low": pl.Float64, "difference high": pl.Float64,
}  # fmt: skip


def distances(
    ours: Mapping[str, Sequence[Ecdf]], theirs: Mapping[str, Sequence[Ecdf]], units: Mapping[str, str]
) -> pl.DataFrame:
    """One row for each curve that both have."""
    rows = [row(name, units.get(name, ""), a, b) for name, a, b in _pairs(ours, theirs)]
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


def _pairs(
    ours: Mapping[str, Sequence[Ecdf]], theirs: Mapping[str, Sequence[Ecdf]]
) -> Iterator[tuple[str, Ecdf, Ecdf]]:
    for name, curves in ours.items():
        others = {c.series: c for c in theirs.get(name, ())}
        for c in curves:
            if c.series in others:
                yield name, c, others[c.series]


def row(name: str, unit: str, a: Ecdf, b: Ecdf) -> dict[str, object]:
    """Both distances and the medians of two curves."""
    gap, at = widest(a, b)
    slack = sum(_half(c.size) for c in (a, b))
    (m, low, high), (n, least, most) = a.quantiles[50], b.quantiles[50]
    below, above = hypot(m - low, most - n), hypot(high - m, n - least)
    return {
        "figure": name, "series": a.series, "KS distance, points": 100 * gap, "KS low": 100 * max(0.0, gap - slack),
        "KS high": 100 * min(1.0, gap + slack), "at": at, "Wasserstein": wasserstein(a, b), "unit": unit,
        "median": m, "other median": n, "difference": m - n, "difference low": m - n - below,
        "difference high": m - n + above,
    }  # fmt: skip


def _half(size: float) -> float:
    """The band's half width; half of what may be missed for each of the two."""
    return float((np.log(4 / (1 - CONFIDENCE)) / (2 * max(size, 1.0))) ** 0.5)


def widest(a: Ecdf, b: Ecdf) -> tuple[float, float]:
    """The widest gap between two distribution functions, and where it is."""
    x = np.union1d(a.x, b.x)
    gaps = np.abs(a.levels(x) - b.levels(x))
    at = int(np.argmax(gaps))
    return float(gaps[at]), float(x[at])


def wasserstein(a: Ecdf, b: Ecdf) -> float:
    """The area between two distribution functions: how far values must be moved, on average, to make one the other."""
    x = np.union1d(a.x, b.x)
    return float(np.abs(a.levels(x) - b.levels(x))[:-1] @ np.diff(x))


def overlaid(ours: Mapping[str, Figure], theirs: Mapping[str, Figure], names: tuple[str, str]) -> dict[str, Figure]:
    """The figures of both on the same axes; those that only one has, as they are."""
    figures = dict(ours)
    for name, figure in ours.items():
        other = theirs.get(name)
        if other is not None and other.kind == figure.kind:
            figures[name] = _both(figure, other, names)
    return figures


def _both(figure: Figure, other: Figure, names: tuple[str, str]) -> Figure:
    frame = pl.concat([_named(figure.frame, names[0]), _named(other.frame, names[1])], how="diagonal_relaxed")
    alt = f"{names[0]}: {figure.alt}; {names[1]}: {other.alt}"
    return Figure(figure.title, figure.kind, frame, figure.x, figure.y, alt, log_x=figure.log_x, log_y=figure.log_y)


def _named(frame: pl.DataFrame, name: str) -> pl.DataFrame:
    """Series of a trace bear its name; what was published is nobody's."""
    if "series" not in frame.columns:
        return frame.with_columns(series=pl.lit(name))
    series = pl.col("series")
    named = pl.concat_str(pl.lit(f"{name}: "), series)
    return frame.with_columns(pl.when(series.str.ends_with(SUFFIX)).then(series).otherwise(named).alias("series"))
