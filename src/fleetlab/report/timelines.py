"""Timelines of clusters in a page: their tiles as text, and the script that draws them."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from fleetlab.core import Result
from fleetlab.core.timeline_figure import LARGEST, TimelineFigure
from fleetlab.report.markup import Markup, clean, data, tag
from fleetlab.report.words import provenance_line

MOST = 4  # timelines in one page
PARTS = ("vendor/uplot.js", "timeline.js")
STYLES = ("vendor/uplot.css", "timeline.css")


@cache
def script() -> Markup:
    """Return the library and the script that draw timelines."""
    return Markup("\n".join(_file(name) for name in PARTS))


@cache
def style() -> Markup:
    """Return the style sheet of timelines."""
    return Markup("\n".join(_file(name) for name in STYLES))


def _file(name: str) -> str:
    return files("fleetlab.report").joinpath(name).read_text("utf-8")


def timelines(results: Mapping[str, Result], share: float) -> list[Markup]:
    """Draw the timelines of results; several share the room that there is."""
    able = list(results.items())[:MOST]
    most = int(LARGEST * share / max(1, len(able)))
    found = {label: figure for label, result in able if (figure := result.cluster_timeline(most)) is not None}
    return [
        _element(figure, label if len(found) > 1 else "", provenance_line({label: results[label].provenance}))
        for label, figure in found.items()
    ]


def _element(figure: TimelineFigure, label: str, how: str) -> Markup:
    """Return one figure; the script fills it."""
    tiles = {name: b64encode(content).decode() for name, content in figure.tiles.items()}
    values = [{"about": _cleaned(figure.about), "tiles": tiles}]
    heading = tag("h3", label) if label else Markup()
    caption = [tag("p", figure.alt, class_="soft"), tag("p", how, class_="provenance")]
    return tag("div", heading, tag("div", class_="timeline"), *caption, data(values), class_="cluster-timeline")


def _cleaned(value: object) -> object:
    """Return plain values whose texts are printable."""
    if isinstance(value, str):
        return clean(value, 200)
    if isinstance(value, Mapping):
        return {clean(key, 200): _cleaned(inside) for key, inside in value.items()}
    return [_cleaned(inside) for inside in value] if isinstance(value, list | tuple) else value
