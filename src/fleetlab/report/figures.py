"""Figures of a page: each drawn for wide and narrow screens, with its text, its numbers and its provenance."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import count

from fleetlab.core import Result
from fleetlab.report.draw import NARROW, WIDE, Chart, Reach, svg
from fleetlab.report.draw.scale import Floats, durations
from fleetlab.report.draw.svg import swatch
from fleetlab.report.markup import Markup, clean, data, tag
from fleetlab.report.panels import panels
from fleetlab.report.tables import numbers
from fleetlab.report.words import provenance_line

DIGITS = 6  # of a number that the script reads out


def figures(results: Mapping[str, Result], *, most: int, prefix: str = "f") -> Iterator[Markup]:
    """Draw all figures of all results, with about `most` points in all; their ids begin with `prefix`."""
    # Keys are counted, never made from names: names are text.
    keys = (f"{prefix}{k}" for k in count())
    for panel in panels(results, most=most):
        several = len(panel.charts) > 1
        elements = [
            figure(
                chart,
                tag("h4", heading) if several else tag("h3", panel.title),
                provenance_line({label: results[label].provenance for label in labels}),
                key=next(keys),
                reach=panel.reach,
                small=several,
            )
            for heading, labels, chart in panel.charts
        ]
        if several:
            yield tag("div", tag("h3", panel.title), tag("div", *elements, class_="beside"), class_="panel")
        else:
            yield elements[0]


def figure(
    chart: Chart, heading: Markup, how: str, *, key: str, reach: Reach | None = None, small: bool = False
) -> Markup:
    """Draw one chart under its heading; `key` is unique in the page, `how` is its provenance."""
    sizes = {"narrow": NARROW} if small else {"wide": WIDE, "narrow": NARROW}
    pictures = [svg(chart, reach=reach, width=w, key=f"{key}-{name}") for name, w in sizes.items()]
    caption = tag(
        "figcaption",
        tag("p", chart.figure.alt, id=f"{key}-alt"),
        *(tag("p", note, class_="soft") for note in chart.left_out),
        tag("p", how, class_="provenance"),
    )
    behind = [] if chart.empty else [numbers(chart), data(_script_data(chart, reach or chart.reach()))]
    plot = tag("div", *pictures, class_="plot")
    return tag("figure", heading, _legend(chart), plot, caption, *behind, id=key, class_="figure")


def _legend(chart: Chart) -> Markup:
    if not chart.named or chart.empty:
        return Markup()
    keys = [
        tag("li", tag("svg", swatch(c.look), viewBox="-4 0 30 12", aria_hidden="true"), tag("span", c.name), data_s=k)
        for k, c in enumerate(chart.curves)
    ]
    return tag("ul", *keys, class_="legend", aria_label="series")


def _script_data(chart: Chart, reach: Reach) -> dict[str, object]:
    """Return what the script needs to read values out: the axes and the points."""
    curves, before = list[dict[str, object]](), None
    for c in chart.curves:
        x = _short(c.x)
        values: dict[str, object] = {"name": c.name, "y": _short(c.y)}
        if x != before:  # curves often share their x
            values["x"] = before = x
        values |= {k: _short(v) for k, v in (("low", c.low), ("high", c.high), ("v", c.value)) if v is not None}
        curves.append(values)
    about = {"kind": chart.figure.kind, "xname": clean(chart.figure.x, 80), "title": clean(chart.figure.title, 80)}
    axes = {
        "x": list(reach.x),
        "logx": chart.log_x,
        "times": list(durations(chart.figure.x, *reach.x).items()) if chart.log_x else [],
        "logy": chart.log_y,
        "names": chart.x_names,
        "ynames": chart.y_names,
    }
    return about | axes | {"curves": curves}


def _short(values: Floats) -> list[float | int | None]:
    rounded = (float(f"{v:.{DIGITS}g}") for v in values.tolist())
    return [None if not math.isfinite(v) else int(v) if v.is_integer() and abs(v) < 1e15 else v for v in rounded]
