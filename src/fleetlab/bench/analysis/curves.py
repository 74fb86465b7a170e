"""Curves: on fewer SMs, with more tenants, at higher rates, and over time."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from fleetlab.bench.analysis.look import (
    COLOURS,
    DASHED,
    GRID,
    INK,
    PAPER,
    grid,
    in_order,
    line,
    log_ticks,
    look,
    looks,
    marks,
    sheet,
)
from fleetlab.bench.analysis.meetings import spoken
from fleetlab.bench.analysis.result import Analysis
from fleetlab.bench.analysis.timeline import SHOWN, Timeline

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def sm_curve(found: Analysis) -> Figure | None:
    """A line a tenant."""
    t = found.tables()["curve"]
    if t.is_empty():
        return None
    figure = sheet(found, 7.4, 4.4)
    ax = figure.subplots()
    most = max(t["sms"])
    ax.plot([0, most], [0, 1], linestyle=":", color=INK, linewidth=1)
    ends = []
    for k, name in enumerate(dict.fromkeys(t["tenant"])):
        here = t.filter(pl.col("tenant") == name).sort("sms")
        # Where the host sets the speed, limits are wide and SMs say little: in the background.
        faint = 0.35 if found.facts.gathered.kinds[name] == "launch-bound" else 1.0
        line(ax, here, "sms", "progress", look(k), alpha=faint)
        ends.append((name, here["sms"][-1], here["progress"][-1], look(k)[0]))
    ax.set(xlabel="SMs that it may use", ylabel="progress (1 = as alone on all, without MPS)")
    ax.set_ylim(0, max(1.1, 1.12 * max(t["progress"])))
    ax.set_xlim(0, 1.02 * most)
    ax.set_xticks(sorted(t["sms"].unique()))
    _named(ax, ends)
    grid(ax)
    return figure


def _named(ax: Axes, ends: list[tuple[str, float, float, str]]) -> None:
    """Names beside the ends of their lines, moved apart where they would overlap."""
    last = -math.inf
    for name, x, y, colour in sorted(ends, key=lambda e: e[2]):
        last = max(y, last + 0.05 * ax.get_ylim()[1])
        ax.text(1.03 * x, last, name, color=colour, va="center", fontsize=8.5, weight="bold", clip_on=False)


def breaking(found: Analysis, tenant: str) -> Figure | None:
    """What the card does in all, and the tail, by how many there are."""
    t = found.tables()["scale"].filter((pl.col("tenant") == tenant) & pl.col("rate").is_not_null())
    if t.is_empty():
        return None
    figure = sheet(found, 9.0, 3.7)
    left, right = figure.subplots(1, 2)
    for mode in in_order(t):
        here = t.filter(pl.col("mode") == mode).sort("tenants")
        line(left, here, "tenants", "rate", looks(found)[mode], label=spoken(mode))
        line(right, here.filter(pl.col("tail_ms").is_not_null()), "tenants", "tail_ms", looks(found)[mode])
    log_ticks(right)
    _limit(right, t, found.facts.factor)
    for ax in (left, right):
        ax.set_xscale("log", base=2)
        ticks = _apart(sorted(t["tenants"].unique()))
        ax.set_xticks(ticks, [str(n) for n in ticks])
        ax.minorticks_off()
        ax.set_xlabel(f"{tenant} at once")
        grid(ax)
    left.set_ylim(0)
    left.yaxis.set_major_formatter(lambda v, _: f"{v:,.0f}")
    left.set_ylabel(f"{t['unit'][0]} in all")
    timed = t["percentile"][0] == "P99"  # only who has a timetable is asked for that
    right.set_ylabel(f"{t['percentile'][0]} {'from when it was due' if timed else 'of a step'}, ms")
    left.legend(loc="best")
    return figure


def _apart(counts: list[int]) -> list[int]:
    """Those that have room for their names on a log scale.

    >>> _apart([1, 2, 4, 5, 16, 18, 24])
    [1, 2, 4, 16, 24]
    """
    kept: list[int] = []
    for n in counts:
        if not kept or n >= 1.28 * kept[-1]:
            kept.append(n)
    return kept


def _limit(ax: Axes, t: pl.DataFrame, factor: float) -> None:
    """Beyond this it is broken."""
    known = t.filter(pl.col("times").is_not_null())
    if known.height:
        limit = factor * known["tail_ms"][0] / known["times"][0]
        ax.axhline(limit, color=INK, linewidth=0.8, linestyle=DASHED)
        where = ax.get_yaxis_transform()
        ax.text(0.99, 0.97 * limit, f"{factor:g} times alone", ha="right", va="top", fontsize=8, transform=where)


def serving(found: Analysis) -> Figure | None:
    """A panel a background: P99 by rate, a line a mode."""
    t = found.tables()["serving"]
    t = t if t.is_empty() else t.filter(pl.col("p99_ms").is_not_null())
    if t.is_empty():
        return None
    backgrounds = list(dict.fromkeys(t["background"]))
    figure = sheet(found, 2.9 * len(backgrounds) + 0.9, 3.9)
    axes = figure.subplots(1, len(backgrounds), sharey=True, squeeze=False)[0]
    for ax, background in zip(axes, backgrounds, strict=True):
        _rates(ax, found, t.filter(pl.col("background") == background))
        ax.set_title("alone" if background == "nothing" else f"beside {background}", weight="bold")
        ax.set_xlabel("requests/s offered")
    log_ticks(axes[0])
    axes[0].set_ylabel("P99 from when it was due, ms")
    modes = in_order(t)
    figure.legend(handles=marks(found, modes), loc="outside upper center", ncols=min(len(modes), 4))
    return figure


def _rates(ax: Axes, found: Analysis, t: pl.DataFrame) -> None:
    for mode in in_order(t):
        colour, mark = looks(found)[mode]
        here = t.filter(pl.col("mode") == mode).sort("offered")
        line(ax, here, "offered", "p99_ms", (colour, mark))
        late = here.filter(~pl.col("valid"))
        at, tail = late["offered"].to_list(), late["p99_ms"].to_list()
        ax.plot(at, tail, linestyle="none", marker=mark, markersize=5, mfc=PAPER, mec=colour, zorder=5)
    grid(ax)


# --- over time -------------------------------------------------------------------------------------------------------


def over_time(found: Analysis, one: Timeline) -> Figure | None:
    """A panel a quantity; cells are shaded."""
    shown = {name: label for name, label in SHOWN.items() if np.isfinite(one.values[name]).any()}
    if not shown:
        return None
    figure = sheet(found, 9.0, 1.2 * len(shown) + 0.9)
    axes = figure.subplots(len(shown), 1, sharex=True, squeeze=False)[:, 0]
    for ax, (name, label) in zip(axes, shown.items(), strict=True):
        spans = [(opens, closes - opens) for opens, closes, *_ in one.cells]
        ax.broken_barh(spans, (0, 1), transform=ax.get_xaxis_transform(), color=GRID, alpha=0.18, linewidth=0)
        values = np.asarray(one.values[name]) / (1024 if name == "memory_mib" else 1)
        ax.plot(one.at, values, color=COLOURS[1], linewidth=0.9 if one.sampled else 2.0)
        ax.set_ylabel(label.replace(", ", "\n"), rotation=0, ha="right", va="center")
        ax.set_ylim(0, 108 if name == "util" else 1.12 * float(np.nanmax(values)) or 1)
        grid(ax, "y")
    figure.align_ylabels()
    _stages(axes[0], one)
    axes[-1].set_xlabel("seconds from the first cell")
    return figure


def _stages(ax: Axes, one: Timeline) -> None:
    """Where a stage begins, by name."""
    seen = ""
    for opens, _, stage, _ in one.cells:
        if stage != seen:
            ax.annotate(stage, (opens, 1.04), xycoords=("data", "axes fraction"), fontsize=8, va="bottom")
            seen = stage
