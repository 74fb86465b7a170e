"""Several results together: figures of one name share a sheet where they can, else the same axes side by side."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from operator import or_

import polars as pl

from fleetlab.core import Estimate, Figure, Result
from fleetlab.report.defaults import drawn
from fleetlab.report.draw import Chart, Reach, ready
from fleetlab.report.words import number

TOGETHER = 8  # curves that are still told apart on one sheet
METRICS = 4  # numbers of the summary that are drawn beside each other


@dataclass(frozen=True, slots=True)
class Panel:
    """One place on the page: a chart, or several side by side, each with its heading and the results it is of."""

    title: str
    charts: tuple[tuple[str, tuple[str, ...], Chart], ...]
    reach: Reach | None = None  # of all, where they have the same axes


def panels(results: Mapping[str, Result], *, most: int) -> list[Panel]:
    """All figures of all results, in the order in which they come, with about `most` points in all."""
    own = {label: result.figures() or drawn(result.tables()) for label, result in results.items()}
    names = list(dict.fromkeys(name for figures in own.values() for name in figures))
    found = [{label: figures[name] for label, figures in own.items() if name in figures} for name in names]
    each = _each([f for figures in found for f in figures.values()], most)
    return _metrics(results) + [_panel(figures, each) for figures in found]


def _each(figures: list[Figure], most: int) -> int:
    """How many points each curve may have, so that all of them together are not too many."""
    curves = sum(f.frame["series"].n_unique() if "series" in f.frame.columns else 1 for f in figures)
    return max(40, min(1500, most // max(1, curves)))


def _panel(figures: Mapping[str, Figure], most: int) -> Panel:
    first = next(iter(figures.values()))
    if len(figures) > 1 and (laid := _laid_over(figures)) is not None:
        return Panel(first.title, ((first.title, tuple(figures), ready(laid, most=most)),))
    charts = {label: ready(figure, most=most) for label, figure in figures.items()}
    told = tuple((label, (label,), chart) for label, chart in charts.items())
    drawable = [c for c in charts.values() if not c.empty]
    alike = len({(c.x_names, c.y_names, c.log_x, c.log_y) for c in drawable}) == 1
    same = len(drawable) > 1 and alike and len({_axes(f) for f in figures.values()}) == 1
    return Panel(first.title, told, reduce(or_, (c.reach() for c in drawable)) if same else None)


def _axes(figure: Figure) -> tuple[object, ...]:
    return figure.kind, figure.x, figure.y, figure.log_x, figure.log_y, figure.frame["x"].dtype.is_numeric()


def _laid_over(figures: Mapping[str, Figure]) -> Figure | None:
    """One figure of all, if their axes are the same and there are not too many curves."""
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
    """Curve by curve under its result's name; one that is the same in all, such as what was published, once."""
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
    """By metric, in the order in which they come: what each result says of it."""
    found: dict[str, dict[str, Estimate]] = {}
    for label, result in results.items():
        for e in result.summary():
            found.setdefault(str(e.metric), {}).setdefault(label, e)
    return found


def _metrics(results: Mapping[str, Result]) -> list[Panel]:
    """The first numbers that all results estimate, each drawn by result."""
    shared = [found for found in summaries(results).values() if len(found) == len(results) > 1]
    unsure = [found for found in shared if any(e.low < e.high for e in found.values())]
    figures = [_metric(found) for found in unsure[:METRICS]]
    charts = tuple((f.title, tuple(results), ready(f)) for f in figures)
    return [Panel("Side by side", charts)] if charts else []


def _metric(found: Mapping[str, Estimate]) -> Figure:
    told = list(found.values())
    frame = pl.DataFrame(
        {
            "x": list(found),
            "y": [float(e.value) for e in told],
            "low": [float(e.low) for e in told],
            "high": [float(e.high) for e in told],
        }
    )
    unit = f", {told[0].unit}" if told[0].unit else ""
    alt = "; ".join(f"{label}: {number(e)}" for label, e in found.items())
    return Figure(str(told[0].metric), "dots", frame, "result", f"{told[0].metric}{unit}", alt)
