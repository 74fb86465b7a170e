"""Charts by mix: dot plots, and interference matrices."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from fleetlab.bench.analysis.result import Analysis
from fleetlab.bench.analysis.style import (
    DASHED,
    INK,
    MarkStyle,
    error_bars,
    grid,
    legend_marks,
    mode_styles,
    new_figure,
    table_modes,
)
from fleetlab.bench.analysis.suite_data import mode_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import QuadMesh
    from matplotlib.figure import Figure

MOST = 30  # rows per chart


def pages(found: Analysis, column: str) -> list[list[str]]:
    """Mixes by kind, in pages; only those measured in several modes, if there are any."""
    t = _chart_rows(found, column)
    if t.is_empty():
        return []
    kept = t.filter(pl.len().over("mix") > 1)
    t = kept if kept.height else t
    lots: list[list[str]] = []
    best = (
        t.group_by("kind", "mix").agg(pl.col(column).max()).sort("kind", column, "mix", descending=[True, False, False])
    )
    for _, rows in best.group_by("kind", maintain_order=True):
        mixes = rows["mix"].to_list()
        if lots and len(lots[-1]) + len(mixes) <= MOST:
            lots[-1] += mixes
        else:
            lots += [mixes[k : k + MOST] for k in range(0, len(mixes), MOST)]
    return lots


def _chart_rows(found: Analysis, column: str) -> pl.DataFrame:
    # Copies of one tenant have a chart of their own.
    crowd = (pl.col("tenants") > 2) & pl.col("mix").str.contains(r"^\d+ [^+]*$")
    t = found.tables()["mixes"]
    return t if t.is_empty() else t.filter(pl.col(column).is_not_null() & ~crowd)


def dots(found: Analysis, mixes: list[str], column: str, label: str) -> Figure:
    """One row per mix, grouped by kind; one mark with an interval per mode; a line at 1."""
    t = _chart_rows(found, column).filter(pl.col("mix").is_in(mixes))
    kind_of = dict(t.select("mix", "kind").iter_rows())
    kinds = list(dict.fromkeys(kind_of[mix] for mix in mixes))
    figure = new_figure(found, 8.2, 1.1 + 0.27 * len(mixes) + 0.4 * len(kinds))
    heights = [sum(kind_of[mix] == kind for mix in mixes) + 0.6 for kind in kinds]
    axes = figure.subplots(len(kinds), 1, sharex=True, height_ratios=heights, squeeze=False)[:, 0]
    for ax, kind in zip(axes, kinds, strict=True):
        rows = [mix for mix in mixes if kind_of[mix] == kind]
        _draw_marks(ax, t.filter(pl.col("kind") == kind), rows, column, mode_styles(found))
        ax.axvline(1.0, color=INK, linewidth=0.8, linestyle=DASHED)
        ax.set_title(kind, loc="left", weight="bold")
    axes[-1].set_xlabel(label)
    modes = table_modes(t)
    figure.legend(handles=legend_marks(found, modes), loc="outside upper right", ncols=min(len(modes), 4))
    return figure


def _draw_marks(ax: Axes, t: pl.DataFrame, mixes: list[str], column: str, known: dict[str, MarkStyle]) -> None:
    modes = table_modes(t)
    for r in t.iter_rows(named=True):
        # Marks of one mix are shifted, so that none hides another.
        y = mixes.index(r["mix"]) + 0.2 * ((len(modes) - 1) / 2 - modes.index(r["mode"]))
        bars = np.array([error_bars(r[column], r[f"{column}_low"], r[f"{column}_high"])]).T
        colour, mark = known[r["mode"]]
        ax.errorbar(r[column], y, xerr=bars, fmt=mark, color=colour, markersize=4, capsize=2.5, linewidth=1.1)
    ax.set_yticks(range(len(mixes)), mixes)
    ax.set_ylim(-0.6, len(mixes) - 0.4)
    ax.tick_params(axis="y", length=0)
    grid(ax, "x")


# --- interference ----------------------------------------------------------------------------------------------------


Sides = tuple[list[str], list[str]]  # tenants with progress, neighbors


def groups(found: Analysis) -> list[Sides]:
    """Connected groups of tenants that were measured in pairs, each a matrix; and stressors."""
    t = found.tables()["progress"]
    if t.is_empty():
        return []
    kinds = found.facts.gathered.kinds
    stressors = sorted(name for name in set(t["tenant"]) if kinds[name] == "stressor")
    names, met = set(t["tenant"]) - set(stressors), list[set[str]]()
    for tenant, beside in t.select("tenant", "beside").unique(maintain_order=True).iter_rows():
        if {tenant, beside} <= names:
            joined = [g for g in met if g & {tenant, beside}]
            met = [g for g in met if g not in joined] + [{tenant, beside}.union(*joined)]
    met.sort(key=lambda g: -t.filter(pl.col("tenant").is_in(list(g))).height)  # largest first
    ordered = [_ordered(found, g) for g in met if len(g) > 1]
    pressed = {tenant for tenant, beside in t.select("tenant", "beside").iter_rows() if beside in stressors} & names
    return [(g, g) for g in ordered] + ([(_ordered(found, pressed), stressors)] if pressed else [])


def _ordered(found: Analysis, names: set[str]) -> list[str]:
    """Training, then inference, then the rest."""
    kinds = found.facts.gathered.kinds
    return sorted(names, key=lambda name: ({"training": 0, "inference": 1}.get(kinds[name], 2), name))


def matrix(found: Analysis, sides: Sides) -> Figure:
    """One panel per mode, with a common scale."""
    rows, columns = sides
    t = found.tables()["progress"].filter(pl.col("tenant").is_in(rows) & pl.col("beside").is_in(columns))
    modes = table_modes(t)
    across = min(len(modes), 3)
    down = math.ceil(len(modes) / across)
    wide, high = 0.55 * max(len(columns), 3), 0.55 * len(rows)
    figure = new_figure(found, across * wide + 2.6, down * (high + 0.4) + 1.0)
    axes = figure.subplots(down, across, squeeze=False, sharey=True, sharex=True)
    for ax in axes.flat[len(modes) :]:
        ax.set_visible(False)
    for ax, mode in zip(axes.flat, modes, strict=False):
        image = _heat_map(ax, t.filter(pl.col("mode") == mode), rows, columns)
        ax.set_title(mode_name(mode), weight="bold")
    bar = figure.colorbar(image, ax=axes, shrink=0.8, pad=0.02, extend="max")
    bar.set_label("progress (1: as alone)")
    figure.supxlabel("beside", fontsize=9)
    figure.supylabel("progress of", fontsize=9)
    return figure


def _heat_map(ax: Axes, t: pl.DataFrame, rows: list[str], columns: list[str]) -> QuadMesh:
    cells = np.full((len(rows), len(columns)), np.nan)
    for r in t.iter_rows(named=True):
        cells[rows.index(r["tenant"]), columns.index(r["beside"])] = r["progress"]
    across, down = (np.arange(len(names) + 1) - 0.5 for names in (columns, rows))
    image = ax.pcolormesh(across, down, np.ma.masked_invalid(cells), cmap="cividis", vmin=0.0, vmax=1.0)
    for (row, column), value in np.ndenumerate(cells):
        if math.isfinite(value):
            colour = "#000000" if value >= 0.5 else "#fefefe"
            ax.text(column, row, f"{value:.2f}", ha="center", va="center", color=colour, fontsize=8)
    ax.set_aspect("equal")
    ax.set_ylim(len(rows) - 0.5, -0.5)  # the first at the top
    ax.set_xticks(range(len(columns)), columns, rotation=45, ha="right", rotation_mode="anchor")
    ax.set_yticks(range(len(rows)), rows)
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    return image
