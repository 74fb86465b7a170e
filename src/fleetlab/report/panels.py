"""Figures of several results: those of one name share axes where they can, else they stand side by side."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from operator import or_

import polars as pl

from fleetlab.core import Estimate, Figure, Result
from fleetlab.core.durations import readable_unit
from fleetlab.core.result import amount
from fleetlab.report.draw import Chart, Reach, ready
from fleetlab.report.table_figures import table_figures

TOGETHER = 8  # curves that can be told apart in one figure
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
