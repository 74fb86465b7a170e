"""The figures of an analysis: which there are, and what each says; as PNG and as SVG."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from fleetlab.bench.analysis.charts import dots, groups, matrix, pages
from fleetlab.bench.analysis.curves import breaking, over_time, serving, sm_curve
from fleetlab.bench.analysis.look import slug, style
from fleetlab.bench.analysis.result import Analysis

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    Planned = tuple[str, str, Callable[[Analysis], Figure | None]]


def drawn(found: Analysis) -> Iterator[tuple[str, str, Figure]]:
    """Name, caption and figure of each that there is something to draw for."""
    seen: set[str] = set()
    for name, caption, draw in _planned(found):
        with style():
            figure = draw(found)
        if figure is not None:
            while name in seen:  # two tenants may have names that a file cannot tell apart
                name += "-"
            seen.add(name)
            yield name, caption, figure


def _planned(found: Analysis) -> Iterator[Planned]:
    yield from _by_mix(
        found,
        "throughput",
        "System throughput of each mix by mode: how many cards' work one card did. Bars are 95 % limits; "
        "right of the line, sharing beats one after the other.",
        column="stp",
        label="system throughput (cards' work)",
    )
    for k, sides in enumerate(groups(found), 1):
        yield (
            f"interference-{k}" if k > 1 else "interference",
            "Progress of a row beside a column, against the row on a card of its own. One scale for all modes.",
            partial(matrix, sides=sides),
        )
    yield "sm-curve", "Progress alone on a part of the SMs, under MPS; dotted: in proportion.", sm_curve
    for tenant in dict.fromkeys(found.tables()["scale"]["tenant"]):
        yield (
            f"breaking-{slug(tenant)}",
            f"More and more of {tenant} at once: what the card does in all, and the tail of a step.",
            partial(breaking, tenant=tenant),
        )
    yield (
        "serving",
        "P99 from when a request was due, by rate, background and mode. Hollow: the sender fell behind.",
        serving,
    )
    yield from _by_mix(
        found,
        "energy",
        "Energy of the same work, against each tenant alone, one after the other. Left of the line, sharing saves.",
        column="energy_times",
        label="energy of the same work, times that alone",
    )
    for one in found.timelines:
        how = "samples of the monitor" if one.sampled else "means over each cell"
        yield (
            f"timeline-{slug(one.suite)}",
            f"The card during {one.suite}: {how}. Shaded: cells being measured.",
            partial(over_time, one=one),
        )


def _by_mix(found: Analysis, name: str, caption: str, *, column: str, label: str) -> Iterator[Planned]:
    for k, mixes in enumerate(pages(found, column), 1):
        yield f"{name}-{k}" if k > 1 else name, caption, partial(dots, mixes=mixes, column=column, label=label)


def png(figure: Figure) -> bytes:
    """For slides and documents."""
    to = io.BytesIO()
    with style():
        figure.savefig(to, format="png", dpi=160)
    return to.getvalue()


def svg(figure: Figure, name: str) -> str:
    """The same text for the same figure."""
    to = io.StringIO()
    with style(svg_hashsalt=name):
        figure.savefig(to, format="svg", metadata={"Date": None, "Creator": None})
    return to.getvalue()
