"""Charts by mix: a row of marks for each, and matrices of who minds whom."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from fleetlab.bench.analysis.look import DASHED, INK, Look, grid, in_order, looks, marks, reaches, sheet
from fleetlab.bench.analysis.meetings import spoken
from fleetlab.bench.analysis.result import Analysis

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import QuadMesh
    from matplotlib.figure import Figure

MOST = 30  # rows of a chart


def pages(found: Analysis, column: str) -> list[list[str]]:
    """Mixes by kind, in lots that fit a page; where some were measured in several modes, only those."""
    t = _charted(found, column)
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


def _charted(found: Analysis, column: str) -> pl.DataFrame:
    # More and more of the same has a chart of its own.
    crowd = (pl.col("tenants") > 2) & pl.col("mix").str.contains(r"^\d+ [^+]*$")
    t = found.tables()["mixes"]
    return t if t.is_empty() else t.filter(pl.col(column).is_not_null() & ~crowd)


def dots(found: Analysis, mixes: list[str], column: str, label: str) -> Figure:
    """A row a mix, by kind; a mark with limits a mode; a line at 1."""
    t = _charted(found, column).filter(pl.col("mix").is_in(mixes))
    kind_of = dict(t.select("mix", "kind").iter_rows())
    kinds = list(dict.fromkeys(kind_of[mix] for mix in mixes))
    figure = sheet(found, 8.2, 1.1 + 0.27 * len(mixes) + 0.4 * len(kinds))
    heights = [sum(kind_of[mix] == kind for mix in mixes) + 0.6 for kind in kinds]
    axes = figure.subplots(len(kinds), 1, sharex=True, height_ratios=heights, squeeze=False)[:, 0]
    for ax, kind in zip(axes, kinds, strict=True):
        rows = [mix for mix in mixes if kind_of[mix] == kind]
        _marked(ax, t.filter(pl.col("kind") == kind), rows, column, looks(found))
        ax.axvline(1.0, color=INK, linewidth=0.8, linestyle=DASHED)
        ax.set_title(kind, loc="left", weight="bold")
    axes[-1].set_xlabel(label)
    modes = in_order(t)
    figure.legend(handles=marks(found, modes), loc="outside upper right", ncols=min(len(modes), 4))
    return figure


def _marked(ax: Axes, t: pl.DataFrame, mixes: list[str], column: str, known: dict[str, Look]) -> None:
    modes = in_order(t)
    for r in t.iter_rows(named=True):
        # Marks of one mix stand a little apart, lest one hides the other.
        y = mixes.index(r["mix"]) + 0.2 * ((len(modes) - 1) / 2 - modes.index(r["mode"]))
        bars = np.array([reaches(r[column], r[f"{column}_low"], r[f"{column}_high"])]).T
        colour, mark = known[r["mode"]]
        ax.errorbar(r[column], y, xerr=bars, fmt=mark, color=colour, markersize=4, capsize=2.5, linewidth=1.1)
    ax.set_yticks(range(len(mixes)), mixes)
    ax.set_ylim(-0.6, len(mixes) - 0.4)
    ax.tick_params(axis="y", length=0)
    grid(ax, "x")


# --- who minds whom --------------------------------------------------------------------------------------------------


Sides = tuple[list[str], list[str]]  # who makes progress, and beside whom


def groups(found: Analysis) -> list[Sides]:
    """Tenants that met in pairs, directly or by others: each group is a matrix of its own, and so are the stressors."""
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
    met.sort(key=lambda g: -t.filter(pl.col("tenant").is_in(list(g))).height)  # the largest first
    ordered = [_ordered(found, g) for g in met if len(g) > 1]
    pressed = {tenant for tenant, beside in t.select("tenant", "beside").iter_rows() if beside in stressors} & names
    return [(g, g) for g in ordered] + ([(_ordered(found, pressed), stressors)] if pressed else [])


def _ordered(found: Analysis, names: set[str]) -> list[str]:
    """Training, then inference, then the rest."""
    kinds = found.facts.gathered.kinds
    return sorted(names, key=lambda name: ({"training": 0, "inference": 1}.get(kinds[name], 2), name))


def matrix(found: Analysis, sides: Sides) -> Figure:
    """A panel a mode; the same scale for all."""
    rows, columns = sides
    t = found.tables()["progress"].filter(pl.col("tenant").is_in(rows) & pl.col("beside").is_in(columns))
    modes = in_order(t)
    across = min(len(modes), 3)
    down = math.ceil(len(modes) / across)
    wide, high = 0.55 * max(len(columns), 3), 0.55 * len(rows)
    figure = sheet(found, across * wide + 2.6, down * (high + 0.4) + 1.0)
    axes = figure.subplots(down, across, squeeze=False, sharey=True, sharex=True)
    for ax in axes.flat[len(modes) :]:
        ax.set_visible(False)
    for ax, mode in zip(axes.flat, modes, strict=False):
        image = _heat(ax, t.filter(pl.col("mode") == mode), rows, columns)
        ax.set_title(spoken(mode), weight="bold")
    bar = figure.colorbar(image, ax=axes, shrink=0.8, pad=0.02, extend="max")
    bar.set_label("progress (1 = as alone)")
    figure.supxlabel("beside", fontsize=9)
    figure.supylabel("progress of", fontsize=9)
    return figure


def _heat(ax: Axes, t: pl.DataFrame, rows: list[str], columns: list[str]) -> QuadMesh:
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
