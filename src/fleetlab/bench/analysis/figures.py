"""All figures of an analysis, as PNG and SVG."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from fleetlab.bench.analysis.charts import dots, groups, matrix, pages
from fleetlab.bench.analysis.curves import breaking, over_time, serving, sm_curve
from fleetlab.bench.analysis.result import Analysis
from fleetlab.bench.analysis.style import slug, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    Planned = tuple[str, str, Callable[[Analysis], Figure | None]]


def draw_figures(found: Analysis) -> Iterator[tuple[str, str, Figure]]:
    """Name, caption and figure, for all that have data."""
    names: set[str] = set()
    for name, caption, draw in _figure_list(found):
        with style():
            figure = draw(found)
        if figure is not None:
            while name in names:  # file names of two tenants may be equal
                name += "-"
            names.add(name)
            yield name, caption, figure


def _figure_list(found: Analysis) -> Iterator[Planned]:
    yield from _by_mix(
        found,
        "throughput",
        "System throughput (STP) of each mix by mode, in GPUs. Bars are 95 % intervals; "
        "right of the line, sharing is better than running one after the other.",
        column="stp",
        label="system throughput (GPUs)",
    )
    for k, sides in enumerate(groups(found), 1):
        yield (
            f"interference-{k}" if k > 1 else "interference",
            "Progress of a row beside a column, relative to the row alone. One scale for all modes.",
            partial(matrix, sides=sides),
        )
    yield "sm-curve", "Progress alone on a part of the SMs, under MPS; dotted: proportional.", sm_curve
    for tenant in dict.fromkeys(found.tables()["scale"]["tenant"]):
        yield (
            f"breaking-{slug(tenant)}",
            f"Copies of {tenant}: total throughput and tail latency.",
            partial(breaking, tenant=tenant),
        )
    yield (
        "serving",
        "P99 latency from the scheduled time, by rate, background and mode. Hollow: the generator was late.",
        serving,
    )
    yield from _by_mix(
        found,
        "energy",
        "Energy relative to running each tenant alone, one after the other. Left of the line, sharing saves energy.",
        column="energy_times",
        label="energy relative to alone",
    )
    for one in found.timelines:
        how = "samples of the monitor" if one.sampled else "means of each cell"
        yield (
            f"timeline-{slug(one.suite)}",
            f"The GPU during {one.suite}: {how}. Shaded: measurement windows.",
            partial(over_time, one=one),
        )


def _by_mix(found: Analysis, name: str, caption: str, *, column: str, label: str) -> Iterator[Planned]:
    for k, mixes in enumerate(pages(found, column), 1):
        yield f"{name}-{k}" if k > 1 else name, caption, partial(dots, mixes=mixes, column=column, label=label)


def png(figure: Figure) -> bytes:
    """Render for documents."""
    to = io.BytesIO()
    with style():
        figure.savefig(to, format="png", dpi=160)
    return to.getvalue()


def svg(figure: Figure, name: str) -> str:
    """Render reproducibly."""
    to = io.StringIO()
    with style(svg_hashsalt=name):
        figure.savefig(to, format="svg", metadata={"Date": None, "Creator": None})
    return to.getvalue()
