"""Figures for a paper: matplotlib objects, and files of any kind that it writes; SVG is drawn without it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fleetlab.core import Figure, FleetlabError
from fleetlab.core.files import atomic_write
from fleetlab.report.draw import Chart, ready, svg
from fleetlab.report.draw.chart import ChartSeries
from fleetlab.report.draw.scale import SERIES

if TYPE_CHECKING:
    import matplotlib.figure

SIZE = (6.4, 3.8)  # inches: the width of a page's text
DASHES = ("-", "--", ":")
EXTRA = "pip install 'fleetlab[plots]'"


def save(figure: Figure, path: Path) -> None:
    """Write a figure as the ending of the file says."""
    if path.suffix == ".svg":
        atomic_write(path, svg(ready(figure), key="f", whole=True).encode())
        return
    drawn = to_matplotlib(figure)
    if path.suffix[1:] not in (kinds := sorted(drawn.canvas.get_supported_filetypes())):
        msg = f"no figure can be written as a file of that kind: {path.name}"
        raise FleetlabError(msg, hint=f"endings are {', '.join(kinds)}")
    drawn.savefig(path, bbox_inches="tight", metadata={"CreationDate": None} if path.suffix == ".pdf" else None)


def to_matplotlib(figure: Figure) -> matplotlib.figure.Figure:
    """Draw a figure by matplotlib; what a page leaves out of it is left out here too."""
    try:
        from matplotlib.figure import Figure as Canvas
    except ImportError as e:
        msg = f"figures of this kind need `{e.name}`, which is not installed"
        raise FleetlabError(msg, hint=f"{EXTRA}; figure.save('figure.svg') needs nothing more") from None
    chart, canvas = ready(figure), Canvas(figsize=SIZE, layout="constrained")
    axes = canvas.subplots()
    axes.set(title=figure.title, xlabel=figure.x, ylabel=figure.y)
    if figure.kind == "heat":
        _heat(canvas, axes, chart)
    for k, curve in enumerate(chart.curves if figure.kind != "heat" else ()):
        _curve(axes, figure.kind, curve, k, len(chart.curves))
    if chart.log_x:
        axes.set_xscale("log")
    if chart.log_y:
        axes.set_yscale("log")
    _names(axes, figure.kind, chart)
    if chart.named and figure.kind != "heat":
        axes.legend(frameon=False)
    return canvas


def _curve(axes: Any, kind: str, curve: ChartSeries, number: int, count: int) -> None:  # noqa: ANN401
    look = {"color": SERIES[curve.look % len(SERIES)], "label": curve.name or None}
    dashes = DASHES[curve.look // len(SERIES) % len(DASHES)]
    ends = None if curve.low is None or curve.high is None else (curve.low, curve.high)
    if kind == "span" and ends:
        axes.barh(curve.x, ends[1] - ends[0], left=ends[0], **look)
    elif kind in ("line", "step"):
        steps = "steps-post" if kind == "step" else "default"
        axes.plot(curve.x, curve.y, linestyle=dashes, drawstyle=steps, **look)
        if ends:
            axes.fill_between(curve.x, *ends, color=look["color"], alpha=0.2, step="post" if kind == "step" else None)
    else:
        width = 0.8 / count if kind == "bar" else 0.0
        x = curve.x + width * (number - (count - 1) / 2)
        if kind == "bar":
            axes.bar(x, curve.y, width, **look)
        else:
            axes.plot(x, curve.y, "o", **look)
        if ends:
            reach = [np.maximum(curve.y - ends[0], 0.0), np.maximum(ends[1] - curve.y, 0.0)]
            axes.errorbar(x, curve.y, reach, fmt="none", color="black", linewidth=0.8)


def _heat(canvas: Any, axes: Any, chart: Chart) -> None:  # noqa: ANN401
    values = np.full((len(chart.y_names), len(chart.x_names)), np.nan)
    for cells in chart.curves:
        values[cells.y.astype(int), cells.x.astype(int)] = cells.value
    canvas.colorbar(axes.imshow(values, aspect="auto", cmap="cividis"))


def _names(axes: Any, kind: str, chart: Chart) -> None:  # noqa: ANN401
    """Write names in place of numbers; those of a span's rows go upwards."""
    if chart.x_names and kind == "span":
        axes.set_yticks(range(len(chart.x_names)), chart.x_names)
        axes.set(xlabel=chart.figure.y, ylabel=chart.figure.x)
    elif chart.x_names:
        long = max(map(len, chart.x_names)) * len(chart.x_names) > 60
        axes.set_xticks(
            range(len(chart.x_names)), chart.x_names, rotation=30 if long else 0, ha="right" if long else "center"
        )
    if chart.y_names:
        axes.set_yticks(range(len(chart.y_names)), chart.y_names)
