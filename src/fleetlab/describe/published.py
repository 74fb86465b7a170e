"""What was published of a public trace, to be drawn on the axes of it or of one like it, and how far that is off.

Most was read off figures, by pixels: every curve says where, and how well it could be read. What does not name its
trace is of the PAI cluster.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

import polars as pl

from fleetlab.describe.ecdf import Ecdf

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
def known() -> dict[str, Any]:
    """The file beside this one."""
    return json.loads(files("fleetlab.describe").joinpath("published.json").read_text("utf-8"))  # type: ignore[no-any-return]


@cache
def traces() -> frozenset[str]:
    """The traces of which something was published."""
    curves = (c for figure in known()["curves"].values() for c in figure.values())
    return frozenset(x.get("trace", PAI) for x in (*curves, *known()["numbers"].values()))


def trace_of(source: str) -> str:
    """The public trace that a source is, or is made to be like."""
    return source.split(":")[-1]


def _curves(figure: str, trace: str) -> dict[str, Any]:
    curves = known()["curves"].get(figure, {})
    return {series: c for series, c in curves.items() if c.get("trace", PAI) == trace}


def points(figure: str, series: Sequence[str], trace: str = PAI) -> pl.DataFrame:
    """The published points of a figure's curves, each as a series of its own."""
    curves = _curves(figure, trace)
    rows = [(float(x), float(y), name + SUFFIX) for name in series if name in curves for x, y in curves[name]["points"]]
    return pl.DataFrame(rows, schema={"x": pl.Float64, "y": pl.Float64, "series": pl.String}, orient="row")


def hours(name: str) -> Mapping[str, list[float]]:
    """Published values by hour."""
    return known()["hours"][name]  # type: ignore[no-any-return]


def numbers(name: str, trace: str = PAI) -> Mapping[str, float]:
    """Published numbers by name; none where they are of another trace."""
    found = known()["numbers"].get(name, {"values": {}})
    return found["values"] if found.get("trace", PAI) == trace else {}


def beside(compared: Mapping[str, Sequence[Ecdf]], trace: str = PAI) -> pl.DataFrame:
    """For each published curve: its points, the widest gap of level, and how many points are within what is known."""
    rows = [
        _row(figure, c, found)
        for figure, curves in compared.items()
        for c in curves
        if (found := _curves(figure, trace).get(c.series)) is not None
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
    """How far above a published point the curve passes, in points of level; and is that within what can be told?"""
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
