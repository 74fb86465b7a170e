"""The style of the figures: one color and one marker per mode.

Colors are those of Okabe and Ito (Color Universal Design, 2008), which are distinguishable with any color vision;
each mode also has its own marker. Heat maps use cividis (Nuñez, Anderton and Renslow, PLoS ONE 13(7), 2018).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from fleetlab.bench.analysis.noise import mode_order
from fleetlab.bench.analysis.result import REHEARSAL, Analysis
from fleetlab.bench.analysis.suite_data import mode_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

MarkStyle = tuple[str, str]  # color, marker
INK, PAPER, GRID, LOUD = "#1b1e23", "#ffffff", "#8a8f98", "#d55e00"
COLORS = ("#E69F00", "#0072B2", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#7f7f7f", "#8c6d00")
MARKS = ("o", "s", "^", "D", "v", "P", "X", "*")
DASHED = (0, (4, 3))
STYLE: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.titlesize": 10,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": GRID,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.facecolor": "none",
    "figure.facecolor": PAPER,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "svg.fonttype": "none",  # text stays text: searchable, and in the page's color
    "text.parse_math": False,  # names of tenants are not formulas
}


@contextmanager
def style(**more: Any) -> Iterator[None]:  # noqa: ANN401
    """Draw and save inside this block."""
    import matplotlib as mpl

    settings: dict[Any, Any] = {key.replace("_", "."): value for key, value in more.items()}
    with mpl.rc_context(STYLE | settings):
        yield


def new_figure(found: Analysis, width: float, height: float) -> Figure:
    """An empty figure, in inches; that of a rehearsal has a warning as title."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    if found.facts.gathered.rehearsal:
        figure.suptitle(REHEARSAL, color=LOUD, weight="bold", fontsize=11)
    return figure


def mode_styles(found: Analysis) -> dict[str, MarkStyle]:
    """Color and marker of each mode, the same in every figure."""
    meetings = found.facts.gathered.meetings
    modes = sorted({m.mode for m in meetings if len(m.tenants) > 1 or not m.tenants[0].share}, key=mode_order)
    return {mode: nth_style(k) for k, mode in enumerate(modes)}


def nth_style(k: int) -> MarkStyle:
    """The k-th color and marker."""
    return COLORS[k % len(COLORS)], MARKS[k % len(MARKS)]


def table_modes(t: pl.DataFrame) -> list[str]:
    """The modes of a table."""
    return sorted(t["mode"].unique(), key=mode_order)


def legend_marks(found: Analysis, modes: list[str]) -> list[Line2D]:
    """Legend entries."""
    from matplotlib.lines import Line2D

    known = mode_styles(found)
    return [
        Line2D([], [], color=known[mode][0], marker=known[mode][1], linestyle="none", label=mode_name(mode))
        for mode in modes
    ]


def grid(axes: Axes, axis: Any = "both") -> None:  # noqa: ANN401
    """Faint lines behind the data."""
    axes.grid(axis=axis, color=GRID, alpha=0.3, linewidth=0.6)
    axes.set_axisbelow(True)


def error_bars(value: float, low: float | None, high: float | None) -> tuple[float, float]:
    """Lengths of the error bars; 0 if the interval is unknown."""
    if low is None or high is None or not math.isfinite(high - low):
        return 0.0, 0.0
    return max(value - low, 0.0), max(high - value, 0.0)


def error_line(axes: Axes, t: pl.DataFrame, x: str, y: str, with_: MarkStyle, **how: Any) -> None:  # noqa: ANN401
    """Draw values with error bars, connected."""
    columns = (t[y], t[f"{y}_low"], t[f"{y}_high"])
    bars = np.array([error_bars(*row) for row in zip(*columns, strict=True)]).reshape(-1, 2).T
    at, values = t[x].to_list(), t[y].to_list()
    axes.errorbar(at, values, yerr=bars, color=with_[0], marker=with_[1], markersize=4.5, capsize=2.5, **how)


def log_ticks(axes: Axes) -> None:
    """A log scale with plain numbers at 1, 2 and 5."""
    from matplotlib.ticker import LogLocator, NullFormatter

    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(base=10, subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(lambda v, _: f"{v:g}")
    axes.yaxis.set_minor_formatter(NullFormatter())


def slug(name: str) -> str:
    """Make a file name."""
    return "".join(c if (c.isascii() and c.isalnum()) or c == "-" else "-" for c in name)
