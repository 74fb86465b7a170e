"""How far apart are two traces? Figure by figure: the widest gap of distribution functions, the area between them.

The widest gap is Kolmogorov and Smirnov's; its interval comes from the bands of Dvoretzky, Kiefer and Wolfowitz of
both, so that it holds for independent values. The area is Wasserstein's first distance, in the figure's
unit. The difference of medians has the interval of Zou and Donner (2008), from the intervals of both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import hypot

import numpy as np
import polars as pl

from fleetlab.core import Figure
from fleetlab.describe.ecdf import Ecdf
from fleetlab.describe.published import SUFFIX
from fleetlab.stats import CONFIDENCE

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
    apart = np.abs(a.levels(x) - b.levels(x))
    at = int(np.argmax(apart))
    return float(apart[at]), float(x[at])


def wasserstein(a: Ecdf, b: Ecdf) -> float:
    """The area between two distribution functions: how far values must be moved, on average, to make one the other."""
    x = np.union1d(a.x, b.x)
    return float(np.abs(a.levels(x) - b.levels(x))[:-1] @ np.diff(x))


def overlaid(ours: Mapping[str, Figure], theirs: Mapping[str, Figure], names: tuple[str, str]) -> dict[str, Figure]:
    """The figures of both on the same axes; those that only one has, as they are."""
    drawn = dict(ours)
    for name, figure in ours.items():
        other = theirs.get(name)
        if other is not None and other.kind == figure.kind:
            drawn[name] = _both(figure, other, names)
    return drawn


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
