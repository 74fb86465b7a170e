"""A chart as PNG, for slides and documents: drawn by matplotlib."""

from __future__ import annotations

import io
import warnings
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from fleetlab.core import FleetlabError
from fleetlab.report.draw import palette
from fleetlab.report.draw.chart import Chart, ChartSeries
from fleetlab.report.draw.marks import shift
from fleetlab.report.draw.scale import decades, labels, nice
from fleetlab.report.markup import clean

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# A name with dollar signs is a name, not a formula; a glyph that a font lacks is line as a box.
LOOK: dict[Any, Any] = {
    "text.parse_math": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "font.size": 9.0,
}
DPI = 160


def png(chart: Chart) -> bytes:
    """Draw a chart; this needs the extra `plots`."""
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure as Sheet
    except ImportError:
        msg = "a PNG needs matplotlib, which is not installed"
        raise FleetlabError(msg, hint="pip install 'fleetlab[plots]'; --svg needs nothing more") from None
    with mpl.rc_context(LOOK), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        sheet = Sheet(figsize=(7.6, _tall(chart)), layout="constrained")
        ax = sheet.subplots()
        _draw(ax, chart)
        to = io.BytesIO()
        sheet.savefig(to, format="png", dpi=DPI, metadata={"Software": None})
    return to.getvalue()


def _rows(chart: Chart) -> bool:
    return bool(chart.x_names) and chart.figure.kind in ("bar", "dots")


def _tall(chart: Chart) -> float:
    if chart.figure.kind == "heat":
        return 1.6 + 0.3 * len(chart.y_names)
    return 1.4 + 0.28 * len(chart.x_names) * max(1.0, 0.6 * len(chart.curves)) if _rows(chart) else 3.6


def _draw(ax: Axes, chart: Chart) -> None:
    figure = chart.figure
    x, y = clean(figure.x, 90), clean(figure.y, 90)
    ax.set_title(clean(figure.title, 90), loc="left", weight="bold")
    if chart.empty:
        ax.text(0.5, 0.5, "there is nothing to draw", ha="center", transform=ax.transAxes)
    elif figure.kind == "heat":
        _heat(ax, chart)
    else:
        for k, curve in enumerate(chart.curves):
            _curve(ax, chart, curve, k)
        _axes(ax, chart)
    ax.set_xlabel(y if _rows(chart) else x)
    ax.set_ylabel(x if _rows(chart) else y)


def _axes(ax: Axes, chart: Chart) -> None:
    ax.grid(color=palette.RULE, linewidth=0.6, axis="x" if _rows(chart) else "both")
    ax.set_axisbelow(True)
    reach = chart.reach()
    if _rows(chart):
        ax.set_yticks(range(len(chart.x_names)), [clean(n, 40) for n in chart.x_names])
        ax.set_ylim(len(chart.x_names) - 0.5, -0.5)  # the first at the top
    elif chart.x_names:
        some = range(0, len(chart.x_names), max(1, len(chart.x_names) // 8))
        ax.set_xticks(some, [clean(chart.x_names[k], 20) for k in some])
    else:
        _numbered(ax, "x", reach.x, log=chart.log_x)
    _numbered(ax, "x" if _rows(chart) else "y", reach.y, log=chart.log_y)
    if chart.named:
        ax.legend(ax.get_legend_handles_labels()[0], [clean(c.name, 40) for c in chart.curves], frameon=False)


def _numbered(ax: Axes, side: Literal["x", "y"], reach: tuple[float, float], *, log: bool) -> None:
    """Set the ticks of an axis of numbers."""
    ax.set(**{f"{side}scale": "log" if log else "linear"})
    axis = ax.xaxis if side == "x" else ax.yaxis
    values = decades(*reach) if log else nice(*reach)
    axis.set_ticks(values, labels(values))
    axis.set_ticks([], minor=True)
    ax.set(**{f"{side}lim": reach})


def _curve(ax: Axes, chart: Chart, curve: ChartSeries, k: int) -> None:
    look: dict[str, Any] = {"color": palette.color(curve.look), "label": f"curve {k}"}
    if chart.figure.kind in ("line", "step"):
        filling: dict[str, Any] = {"step": "post"} if chart.figure.kind == "step" else {}
        style: dict[str, Any] = {"drawstyle": "steps-post"} if filling else {}
        dashes = palette.dash(curve.look)
        line = (0, tuple(map(float, dashes.split()))) if dashes else "-"
        ax.plot(curve.x, curve.y, linestyle=line, linewidth=1.4, **style, **look)
        if curve.low is not None and curve.high is not None:
            ax.fill_between(curve.x, curve.low, curve.high, alpha=0.18, color=look["color"], linewidth=0, **filling)
        return
    aside, each = shift(chart, k) if chart.x_names or chart.figure.kind == "bar" else (0.0, 1.0)
    at, bars = curve.x + aside, _reaches(curve)
    if chart.figure.kind == "bar":
        side: dict[str, Any] = (
            {"xerr": bars, "height": each * 0.92} if _rows(chart) else {"yerr": bars, "width": each * 0.92}
        )
        (ax.barh if _rows(chart) else ax.bar)(at, curve.y, capsize=2, ecolor=palette.INK, **side, **look)
    elif _rows(chart):
        ax.errorbar(curve.y, at, xerr=bars, fmt="os"[k % 2], markersize=4.5, capsize=2.5, **look)
    else:
        ax.errorbar(at, curve.y, yerr=bars, fmt="os"[k % 2], markersize=3, capsize=2, **look)


def _reaches(curve: ChartSeries) -> np.ndarray | None:
    """Return the distances of the interval's ends from the value, which it need not contain."""
    if curve.low is None or curve.high is None:
        return None
    reach = np.array([curve.y - curve.low, curve.high - curve.y])
    return np.where(np.isfinite(reach), np.maximum(reach, 0.0), 0.0)


def _heat(ax: Axes, chart: Chart) -> None:
    from matplotlib.colors import ListedColormap

    cells = chart.curves[0]
    assert cells.value is not None
    grid = np.full((len(chart.y_names), len(chart.x_names)), np.nan)
    grid[cells.y.astype(np.int64), cells.x.astype(np.int64)] = cells.value
    shades = ListedColormap([palette.heat(k) for k in range(palette.LEVELS)])
    image = ax.imshow(np.ma.masked_invalid(grid), cmap=shades, aspect="auto")
    ax.figure.colorbar(image, ax=ax)
    ax.set_yticks(range(len(chart.y_names)), [clean(n, 30) for n in chart.y_names])
    short = [clean(n, 18) for n in chart.x_names]
    ax.set_xticks(range(len(short)), short, rotation=38, ha="right", rotation_mode="anchor")
