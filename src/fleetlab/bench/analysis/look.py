"""How the figures look: one style, one colour and one marker a mode, limits wherever there is a number.

Colours are those of Okabe and Ito (Color Universal Design, 2008), which people with any colour vision can tell apart;
each mode has a marker of its own too. Heat maps use cividis (Nuñez, Anderton and Renslow, PLoS ONE 13(7), 2018).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from fleetlab.bench.analysis.meetings import spoken
from fleetlab.bench.analysis.noise import rank
from fleetlab.bench.analysis.result import REHEARSAL, Analysis

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

Look = tuple[str, str]  # colour, marker
INK, PAPER, GRID, LOUD = "#1b1e23", "#ffffff", "#8a8f98", "#d55e00"
COLOURS = ("#E69F00", "#0072B2", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#7f7f7f", "#8c6d00")
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
    "svg.fonttype": "none",  # words stay words: they can be searched, and follow the page's colour
    "text.parse_math": False,  # a tenant's name is not a formula
}


@contextmanager
def style(**more: Any) -> Iterator[None]:  # noqa: ANN401
    """Draw and save inside this."""
    import matplotlib as mpl

    settings: dict[Any, Any] = {key.replace("_", "."): value for key, value in more.items()}
    with mpl.rc_context(STYLE | settings):
        yield


def sheet(found: Analysis, width: float, height: float) -> Figure:
    """An empty figure, in inches; that of a rehearsal says so in its head."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    if found.facts.gathered.rehearsal:
        figure.suptitle(REHEARSAL, color=LOUD, weight="bold", fontsize=11)
    return figure


def looks(found: Analysis) -> dict[str, Look]:
    """A colour and a marker for each mode, the same in every figure."""
    meetings = found.facts.gathered.meetings
    modes = sorted({m.mode for m in meetings if len(m.tenants) > 1 or not m.tenants[0].share}, key=rank)
    return {mode: look(k) for k, mode in enumerate(modes)}


def look(k: int) -> Look:
    """The k-th of them."""
    return COLOURS[k % len(COLOURS)], MARKS[k % len(MARKS)]


def in_order(t: pl.DataFrame) -> list[str]:
    """The modes of a table."""
    return sorted(t["mode"].unique(), key=rank)


def marks(found: Analysis, modes: list[str]) -> list[Line2D]:
    """For a legend."""
    from matplotlib.lines import Line2D

    known = looks(found)
    return [
        Line2D([], [], color=known[mode][0], marker=known[mode][1], linestyle="none", label=spoken(mode))
        for mode in modes
    ]


def grid(axes: Axes, axis: Any = "both") -> None:  # noqa: ANN401
    """Faint lines behind the data."""
    axes.grid(axis=axis, color=GRID, alpha=0.3, linewidth=0.6)
    axes.set_axisbelow(True)


def reaches(value: float, low: float | None, high: float | None) -> tuple[float, float]:
    """How far limits reach to each side; nothing where there are none."""
    if low is None or high is None or not math.isfinite(high - low):
        return 0.0, 0.0
    return max(value - low, 0.0), max(high - value, 0.0)


def line(axes: Axes, t: pl.DataFrame, x: str, y: str, with_: Look, **how: Any) -> None:  # noqa: ANN401
    """Values with their limits, joined."""
    columns = (t[y], t[f"{y}_low"], t[f"{y}_high"])
    bars = np.array([reaches(*row) for row in zip(*columns, strict=True)]).reshape(-1, 2).T
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
    """A name that a file may have."""
    return "".join(c if (c.isascii() and c.isalnum()) or c == "-" else "-" for c in name)
