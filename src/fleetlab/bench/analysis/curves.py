"""Line charts: by SMs, by number of tenants, by request rate, and over time."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from fleetlab.bench.analysis.result import Analysis
from fleetlab.bench.analysis.style import (
    COLORS,
    DASHED,
    GRID,
    INK,
    PAPER,
    error_line,
    grid,
    legend_marks,
    log_ticks,
    mode_styles,
    new_figure,
    nth_style,
    table_modes,
)
from fleetlab.bench.analysis.suite_data import mode_name
from fleetlab.bench.analysis.timeline import SHOWN, Timeline

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def sm_curve(found: Analysis) -> Figure | None:
    """One line per tenant."""
    t = found.tables()["curve"]
    if t.is_empty():
        return None
    figure = new_figure(found, 7.4, 4.4)
    ax = figure.subplots()
    most = max(t["sms"])
    ax.plot([0, most], [0, 1], linestyle=":", color=INK, linewidth=1)
    ends = []
    for k, name in enumerate(dict.fromkeys(t["tenant"])):
        here = t.filter(pl.col("tenant") == name).sort("sms")
        # Launch-bound tenants have wide intervals and hardly depend on SMs: drawn faintly.
        faint = 0.35 if found.facts.gathered.kinds[name] == "launch-bound" else 1.0
        error_line(ax, here, "sms", "progress", nth_style(k), alpha=faint)
        ends.append((name, here["sms"][-1], here["progress"][-1], nth_style(k)[0]))
    ax.set(xlabel="SMs", ylabel="progress (1: alone on all SMs, without MPS)")
    ax.set_ylim(0, max(1.1, 1.12 * max(t["progress"])))
    ax.set_xlim(0, 1.02 * most)
    ax.set_xticks(sorted(t["sms"].unique()))
    _label_ends(ax, ends)
    grid(ax)
    return figure


def _label_ends(ax: Axes, ends: list[tuple[str, float, float, str]]) -> None:
    """Labels at the ends of lines, moved apart if they would overlap."""
    last = -math.inf
    for name, x, y, colour in sorted(ends, key=lambda e: e[2]):
        last = max(y, last + 0.05 * ax.get_ylim()[1])
        ax.text(1.03 * x, last, name, color=colour, va="center", fontsize=8.5, weight="bold", clip_on=False)


def breaking(found: Analysis, tenant: str) -> Figure | None:
    """Total throughput and tail latency by number of copies."""
    t = found.tables()["scale"].filter((pl.col("tenant") == tenant) & pl.col("rate").is_not_null())
    if t.is_empty():
        return None
    figure = new_figure(found, 9.0, 3.7)
    left, right = figure.subplots(1, 2)
    for mode in table_modes(t):
        here = t.filter(pl.col("mode") == mode).sort("tenants")
        error_line(left, here, "tenants", "rate", mode_styles(found)[mode], label=mode_name(mode))
        error_line(right, here.filter(pl.col("tail_ms").is_not_null()), "tenants", "tail_ms", mode_styles(found)[mode])
    log_ticks(right)
    _limit(right, t, found.facts.factor)
    for ax in (left, right):
        ax.set_xscale("log", base=2)
        ticks = _apart(sorted(t["tenants"].unique()))
        ax.set_xticks(ticks, [str(n) for n in ticks])
        ax.minorticks_off()
        ax.set_xlabel(f"copies of {tenant}")
        grid(ax)
    left.set_ylim(0)
    left.yaxis.set_major_formatter(lambda v, _: f"{v:,.0f}")
    left.set_ylabel(f"{t['unit'][0]} in total")
    timed = t["percentile"][0] == "P99"  # only open loops have this percentile
    right.set_ylabel(f"{t['percentile'][0]} {'latency' if timed else 'step time'}, ms")
    left.legend(loc="best")
    return figure


def _apart(counts: list[int]) -> list[int]:
    """Ticks whose labels do not overlap on a log scale.

    >>> _apart([1, 2, 4, 5, 16, 18, 24])
    [1, 2, 4, 16, 24]
    """
    kept: list[int] = []
    for n in counts:
        if not kept or n >= 1.28 * kept[-1]:
            kept.append(n)
    return kept


def _limit(ax: Axes, t: pl.DataFrame, factor: float) -> None:
    """Draw the latency limit."""
    known = t.filter(pl.col("times").is_not_null())
    if known.height:
        limit = factor * known["tail_ms"][0] / known["times"][0]
        ax.axhline(limit, color=INK, linewidth=0.8, linestyle=DASHED)
        where = ax.get_yaxis_transform()
        ax.text(0.99, 0.97 * limit, f"{factor:g} times one tenant", ha="right", va="top", fontsize=8, transform=where)


def serving(found: Analysis) -> Figure | None:
    """One panel per background: P99 by rate, one line per mode."""
    t = found.tables()["serving"]
    t = t if t.is_empty() else t.filter(pl.col("p99_ms").is_not_null())
    if t.is_empty():
        return None
    backgrounds = list(dict.fromkeys(t["background"]))
    figure = new_figure(found, 2.9 * len(backgrounds) + 0.9, 3.9)
    axes = figure.subplots(1, len(backgrounds), sharey=True, squeeze=False)[0]
    for ax, background in zip(axes, backgrounds, strict=True):
        _rates(ax, found, t.filter(pl.col("background") == background))
        ax.set_title("alone" if background == "nothing" else f"beside {background}", weight="bold")
        ax.set_xlabel("requests/s offered")
    log_ticks(axes[0])
    axes[0].set_ylabel("P99 latency, ms")
    modes = table_modes(t)
    figure.legend(handles=legend_marks(found, modes), loc="outside upper center", ncols=min(len(modes), 4))
    return figure


def _rates(ax: Axes, found: Analysis, t: pl.DataFrame) -> None:
    for mode in table_modes(t):
        colour, mark = mode_styles(found)[mode]
        here = t.filter(pl.col("mode") == mode).sort("offered")
        error_line(ax, here, "offered", "p99_ms", (colour, mark))
        late = here.filter(~pl.col("valid"))
        at, tail = late["offered"].to_list(), late["p99_ms"].to_list()
        ax.plot(at, tail, linestyle="none", marker=mark, markersize=5, mfc=PAPER, mec=colour, zorder=5)
    grid(ax)


# --- over time -------------------------------------------------------------------------------------------------------


def over_time(found: Analysis, one: Timeline) -> Figure | None:
    """One panel per quantity; cells are shaded."""
    panels = {name: label for name, label in SHOWN.items() if np.isfinite(one.values[name]).any()}
    if not panels:
        return None
    figure = new_figure(found, 9.0, 1.2 * len(panels) + 0.9)
    axes = figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0]
    for ax, (name, label) in zip(axes, panels.items(), strict=True):
        spans = [(opens, closes - opens) for opens, closes, *_ in one.cells]
        ax.broken_barh(spans, (0, 1), transform=ax.get_xaxis_transform(), color=GRID, alpha=0.18, linewidth=0)
        values = np.asarray(one.values[name]) / (1024 if name == "memory_mib" else 1)
        ax.plot(one.at, values, color=COLORS[1], linewidth=0.9 if one.sampled else 2.0)
        ax.set_ylabel(label.replace(", ", "\n"), rotation=0, ha="right", va="center")
        ax.set_ylim(0, 108 if name == "util" else 1.12 * float(np.nanmax(values)) or 1)
        grid(ax, "y")
    figure.align_ylabels()
    _stages(axes[0], one)
    axes[-1].set_xlabel("seconds from the first cell")
    return figure


def _stages(ax: Axes, one: Timeline) -> None:
    """Label the beginning of each stage."""
    last = ""
    for opens, _, stage, _ in one.cells:
        if stage != last:
            ax.annotate(stage, (opens, 1.04), xycoords=("data", "axes fraction"), fontsize=8, va="bottom")
            last = stage
