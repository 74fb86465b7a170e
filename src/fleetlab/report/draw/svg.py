"""A chart as SVG: the same drawing in a page and in a file.

Colors stand in attributes, for a file that stands alone, and as classes, by which a page overrules them. Title and
key lie outside of the part that a page shows: it has its own; a file, or a reader who saves one, takes the whole.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fleetlab.report.draw.chart import Chart, Reach
from fleetlab.report.draw.marks import SIZE, Plane, fitted, long, marks, plane, upwards
from fleetlab.report.draw.scale import INK, LEVELS, PAPER, RULE, SECONDS, SOFT, dash, heat, label, px, stroke
from fleetlab.report.draw.scale import ends as ends_of
from fleetlab.report.markup import Markup, clean, joined, tag

WIDE, NARROW = 560.0, 344.0
EDGE = 10.0  # pixels around a whole drawing
TITLE = 34.0  # pixels above the sheet
KEY = 20.0  # pixels a line of the key
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', sans-serif"


def svg(
    chart: Chart, *, reach: Reach | None = None, width: float = WIDE, key: str = "f", whole: bool = False
) -> Markup:
    """Draw a chart; `key` is unique in the page; `whole` adds title and legend, for a file."""
    sheet = plane(chart, reach or chart.reach(), width)
    inside = [_nothing(sheet)] if chart.empty else _layers(chart, sheet, key)
    names, deep = _key(chart, sheet)
    full = (-EDGE, -TITLE, sheet.width + 2 * EDGE, sheet.height + TITLE + deep + EDGE)
    view = full if whole else (0, 0, sheet.width, sheet.height)
    paper = tag("rect", x=-EDGE, y=-TITLE, width=full[2], height=full[3], class_="paper", fill=PAPER)
    title = _text(fitted(chart.figure.title, width / 1.3), 0, -12, font_weight="600", font_size=SIZE + 2)
    about: dict[str, Any] = {
        "role": "img",
        "data_full": " ".join(map(px, full)),
        "font_family": FONT,
        "font_size": SIZE,
    }
    if whole:
        about |= {"xmlns": "http://www.w3.org/2000/svg", "width": px(full[2]), "height": px(full[3])}
        about |= {"aria_label": clean(chart.figure.alt)}
    else:
        about |= {"aria_labelledby": f"{key.rpartition('-')[0]}-alt", "class_": "wide" if width == WIDE else "narrow"}
        about |= {"data_box": " ".join(map(px, sheet.box)), "data_rows": "1" if sheet.rows else None}
    return tag("svg", paper, title, *inside, names, viewBox=" ".join(map(px, view)), **about)


def _layers(chart: Chart, sheet: Plane, key: str) -> list[Markup]:
    left, top, right, bottom = sheet.box
    clip = tag("rect", x=px(left - 6), y=px(top - 6), width=px(right - left + 12), height=px(bottom - top + 12))
    inner = tag("g", marks(chart, sheet), class_="marks")
    # The clip is on a group of its own: it must stay where it is when the marks are stretched.
    return [
        tag("clipPath", clip, id=f"{key}-clip"),
        _axes(chart, sheet),
        tag("g", inner, clip_path=f"url(#{key}-clip)") if chart.figure.kind != "heat" else inner,
        *([_shades(chart, sheet)] if chart.figure.kind == "heat" else []),
    ]


def _text(text: str, x: float, y: float, **more: Any) -> Markup:  # noqa: ANN401
    look = {"class_": "t", "fill": INK} | more
    return tag("text", text, x=px(x), y=px(y), **look)


def _nothing(sheet: Plane) -> Markup:
    left, top, right, bottom = sheet.box
    return _text("there is nothing to draw", (left + right) / 2, (top + bottom) / 2, text_anchor="middle")


# --- axes --------------------------------------------------------------------------------------------------------


def _axes(chart: Chart, sheet: Plane) -> Markup:
    left, _, right, bottom = sheet.box
    along = chart.figure.x.removesuffix(SECONDS) if sheet.along.times else chart.figure.x
    across, down = (chart.figure.y, along) if sheet.rows else (along, chart.figure.y)
    below = sheet.height - (42 if chart.figure.kind == "heat" else 8)
    soft = {"class_": "t soft", "fill": SOFT}
    return joined(
        [
            tag("g", *_across(sheet), class_="across"),
            tag("g", *_down(sheet), class_="down"),
            tag("line", x1=px(left), x2=px(right), y1=px(bottom), y2=px(bottom), class_="axis", stroke=SOFT),
            _text(fitted(down, sheet.width), 0, 12, **soft),
            _text(fitted(across, right), right, below, text_anchor="end", **soft),
        ]
    )


def _across(sheet: Plane) -> list[Markup]:
    """Draw the ticks below, with grid lines where they are numbers."""
    scale = sheet.up if sheet.rows else sheet.along
    left, top, right, bottom = sheet.box
    most = max(2, int((right - left) / 78))
    if scale.names:
        widest = max(map(long, scale.names))
        most = len(scale.names) if sheet.slanted else max(1, int((right - left) / (widest + 8)))
    ticks = scale.ticks(most)
    return [part for at, text in ticks for part in _tick(text, at, top, bottom, sheet, line=not scale.names)]


def _tick(text: str, at: float, top: float, bottom: float, sheet: Plane, *, line: bool) -> list[Markup]:
    if sheet.slanted:
        turned = f"rotate(-38 {px(at)} {px(bottom + 14)})"
        return [_text(clean(text, 18), at, bottom + 14, text_anchor="end", transform=turned)]
    grid = tag("line", x1=px(at), x2=px(at), y1=px(top), y2=px(bottom), class_="grid", stroke=RULE)
    return [*([grid] if line else []), _text(text, at, bottom + 17, text_anchor="middle")]


def _down(sheet: Plane) -> list[Markup]:
    """Draw the ticks on the left, with grid lines where they are numbers."""
    scale = sheet.along if sheet.rows else sheet.up
    left, _, right, _ = sheet.box
    ticks = scale.ticks(len(scale.names) or upwards(scale))
    parts = []
    for at, name in ticks:
        if not scale.names:
            parts.append(tag("line", x1=px(left), x2=px(right), y1=px(at), y2=px(at), class_="grid", stroke=RULE))
        parts.append(_text(fitted(name, left - 6), left - 6, at + 4, text_anchor="end"))
    return parts


def _shades(chart: Chart, sheet: Plane) -> Markup:
    """Draw the color scale of a heat map."""
    value = chart.curves[0].value
    assert value is not None
    left, _, right, _ = sheet.box
    y, wide = sheet.height - 28, min(240.0, (right - left) * 0.6) / LEVELS
    steps = [
        tag("rect", x=px(left + k * wide), y=px(y), width=px(wide + 0.3), height=8, fill=heat(k)) for k in range(LEVELS)
    ]
    low, high = (label(float(f"{v:.3g}")) for v in (np.min(value), np.max(value)))
    end = left + LEVELS * wide
    return joined([*steps, _text(low, left, y + 20), _text(high, end, y + 20, text_anchor="end")])


def _key(chart: Chart, sheet: Plane) -> tuple[Markup, float]:
    """Draw the legend below, and return its height."""
    if not chart.named or chart.empty:
        return Markup(), 0.0
    parts, x, y = list[Markup](), 0.0, sheet.height + 14
    for curve in chart.curves:
        text = clean(curve.name, 40)
        if x and x + 34 + long(text) > sheet.width:
            x, y = 0.0, y + KEY
        parts += [swatch(curve.look, x, y - 4), _text(text, x + 28, y)]
        x += 44 + long(text)
    return tag("g", *parts, class_="key"), y - sheet.height + 10


def swatch(look: int, x: float = 0, y: float = 6) -> Markup:
    """Draw a short line or dot of that look."""
    line, dot = Markup(f"M{px(x)} {px(y)}h22"), Markup(f"M{px(x + 11)} {px(y)}h0")
    color, ends = stroke(look), ends_of(look)
    return joined(
        [
            tag("path", d=line, stroke_width=2, stroke_dasharray=dash(look), **color),
            tag("path", d=dot, stroke_width=7 if ends == "round" else 6, stroke_linecap=ends, **color),
        ]
    )
