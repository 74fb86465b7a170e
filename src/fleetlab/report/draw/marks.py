"""Marks on a plane: curves with bands, bars, dots with whiskers, cells of heat maps; margins, axes and names."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass

import numpy as np

from fleetlab.report.draw import scale
from fleetlab.report.draw.chart import Chart, ChartSeries, Reach, width_of
from fleetlab.report.draw.scale import Floats, Scale, durations, px
from fleetlab.report.markup import Markup, clean, joined, tag

FEW = 30  # points of a curve that are also dots
BAND = 0.8  # of the width of a name that its bars take
WIDEST = 56.0  # pixels of a bar
THINNEST = 0.6  # pixels of a span
CAP = 3.0  # half the width of a whisker's end, pixels
SPOKEN = 240  # cells that are large enough for their number


def marks(chart: Chart, plane: Plane) -> Markup:
    """Draw all series, each as a group that the script can hide."""
    if chart.figure.kind == "heat":
        return _heat(chart, plane)
    draw = {"line": _curve, "step": _curve, "bar": _bars, "dots": _dots, "span": _spans}[chart.figure.kind]
    groups = [tag("g", draw(chart, plane, k), data_s=k) for k in range(len(chart.curves))]
    return joined(groups)


def shift(chart: Chart, k: int) -> tuple[float, float]:
    """Return the offset of the `k`th series beside its name, and its width, in units of names."""
    band = BAND if chart.x_names else BAND * width_of(chart.curves)
    each = band / len(chart.curves)
    return (k - (len(chart.curves) - 1) / 2) * each, each


# --- curves ------------------------------------------------------------------------------------------------------


def _curve(chart: Chart, plane: Plane, k: int) -> Markup:
    curve = chart.curves[k]
    step = chart.figure.kind == "step"
    parts, look = [], curve.look
    if curve.low is not None and curve.high is not None:
        parts.append(_band(curve, plane, step=step))
    x, y = plane.at(curve.x, curve.y)
    line = {"stroke_width": 1.8, "stroke_dasharray": scale.dash(look), "fill": "none"}
    parts.append(tag("path", d=_path(x, y, step=step), **line, **scale.stroke(look)))
    if len(curve.x) <= FEW and not step:
        parts.append(_spots(x, y, look, 5.5))
    return joined(parts)


def _path(x: Floats, y: Floats, *, step: bool) -> Markup:
    """Return a line through all points, with gaps where one is missing."""
    parts, down = list[str](), False
    for a, b in zip(x.tolist(), y.tolist(), strict=True):
        if b != b:
            down = False
            continue
        if down and step:
            parts.append(f"H{px(a)}V{px(b)}")
        else:
            parts.append(f"{'L' if down else 'M'}{px(a)} {px(b)}")
        down = True
    return Markup("".join(parts))


def _band(curve: ChartSeries, plane: Plane, *, step: bool) -> Markup:
    """Draw the interval, one closed piece for each stretch where it is known."""
    assert curve.low is not None
    assert curve.high is not None
    finite = np.isfinite(curve.low) & np.isfinite(curve.high)
    pieces = np.split(np.arange(len(finite)), np.flatnonzero(np.diff(finite.astype(np.int8))) + 1)
    parts = [_piece(curve, plane, piece, step=step) for piece in pieces if len(piece) and finite[piece[0]]]
    look = scale.fill(curve.look)
    return tag("path", d=Markup("".join(parts)), fill_opacity=0.18, **look)


def _piece(curve: ChartSeries, plane: Plane, piece: np.ndarray, *, step: bool) -> str:
    assert curve.low is not None
    assert curve.high is not None
    x, high = plane.at(curve.x[piece], curve.high[piece])
    low = plane.up.at(curve.low[piece])
    if step:  # each value holds until the next
        x, high, low = np.repeat(x, 2)[1:], np.repeat(high, 2)[:-1], np.repeat(low, 2)[:-1]
    there = _path(x, high, step=False)
    back = _path(x[::-1], low[::-1], step=False)
    return f"{there}L{back[1:]}Z"


# --- bars and dots -----------------------------------------------------------------------------------------------


def _bars(chart: Chart, plane: Plane, k: int) -> Markup:
    curve, (aside, each) = chart.curves[k], shift(chart, k)
    curve = curve.where(np.isfinite(curve.y))
    foot = plane.up.low if plane.up.log else 0.0
    if chart.x_names:  # few names leave much space: their bars still stand together
        fit = min(1.0, WIDEST / each / abs(plane.along.one(1) - plane.along.one(0)))
        aside, each = aside * fit, each * fit
    a, b = (plane.along.at(curve.x + aside + side * each * 0.46) for side in (-1, 1))
    top, ground = plane.up.at(curve.y), plane.up.one(foot)
    ends = zip(a.tolist(), b.tolist(), top.tolist(), strict=True)
    parts = [
        f"M{px(ground)} {px(p)}H{px(t)}V{px(q)}H{px(ground)}Z"
        if plane.rows
        else f"M{px(p)} {px(ground)}V{px(t)}H{px(q)}V{px(ground)}Z"
        for p, q, t in ends
    ]
    bars = tag("path", d=Markup("".join(parts)), **scale.fill(curve.look))
    return joined([bars, _whiskers(curve, plane, aside, None)])


def _spans(chart: Chart, plane: Plane, k: int) -> Markup:
    """Draw bars from low to high, all in the row of their name."""
    curve = chart.curves[k]
    assert curve.low is not None
    assert curve.high is not None
    curve = curve.where(np.isfinite(curve.low) & np.isfinite(curve.high))
    assert curve.low is not None
    assert curve.high is not None
    a, b = (plane.along.at(curve.x + side * BAND / 2) for side in (-1, 1))
    begin = plane.up.at(curve.low)
    end = np.maximum(plane.up.at(curve.high), begin + THINNEST)
    ends = zip(begin.tolist(), end.tolist(), a.tolist(), b.tolist(), strict=True)
    parts = "".join(f"M{px(s)} {px(p)}H{px(t)}V{px(q)}H{px(s)}Z" for s, t, p, q in ends)
    return tag("path", d=Markup(parts), **scale.fill(curve.look))


def _dots(chart: Chart, plane: Plane, k: int) -> Markup:
    curve = chart.curves[k]
    curve = curve.where(np.isfinite(curve.y))
    aside = shift(chart, k)[0] if chart.x_names else 0.0
    x, y = plane.at(curve.x + aside, curve.y)
    size = 8.0 if chart.x_names or len(curve.x) <= FEW else 4.5
    return joined([_whiskers(curve, plane, aside, curve.look), _spots(x, y, curve.look, size)])


def _spots(x: Floats, y: Floats, look: int, size: float) -> Markup:
    """Draw dots as lines of no length with round ends: they stay round when the figure is stretched."""
    there = np.isfinite(y) & np.isfinite(x)
    parts = "".join(f"M{px(a)} {px(b)}h0" for a, b in zip(x[there].tolist(), y[there].tolist(), strict=True))
    ends = scale.ends(look)
    wide = size if ends == "round" else size * 0.85
    return tag("path", d=Markup(parts), stroke_width=wide, stroke_linecap=ends, **scale.stroke(look))


def _whiskers(curve: ChartSeries, plane: Plane, aside: float, look: int | None) -> Markup:
    """Draw intervals; on bars in black, to be seen."""
    if curve.low is None or curve.high is None:
        return Markup()
    finite = np.isfinite(curve.low) & np.isfinite(curve.high)
    at = plane.along.at(curve.x[finite] + aside).tolist()
    low, high = (plane.up.at(side[finite]).tolist() for side in (curve.low, curve.high))
    c = CAP
    parts = [
        f"M{px(p)} {px(x - c)}v{px(2 * c)}M{px(p)} {px(x)}H{px(q)}M{px(q)} {px(x - c)}v{px(2 * c)}"
        if plane.rows
        else f"M{px(x - c)} {px(p)}h{px(2 * c)}M{px(x)} {px(p)}V{px(q)}M{px(x - c)} {px(q)}h{px(2 * c)}"
        for x, p, q in zip(at, low, high, strict=True)
    ]
    line = {"class_": "ink", "stroke": scale.INK} if look is None else scale.stroke(look)
    return tag("path", d=Markup("".join(parts)), stroke_width=1.4, fill="none", **line)


# --- cells -------------------------------------------------------------------------------------------------------


def _heat(chart: Chart, plane: Plane) -> Markup:
    cells = chart.curves[0]
    assert cells.value is not None
    levels = np.round((cells.value - cells.value.min()) / (np.ptp(cells.value) or 1.0) * (scale.LEVELS - 1))
    parts = [_level(cells.where(levels == k), plane, int(k)) for k in np.unique(levels)]
    wide = plane.along.one(1) - plane.along.one(0)
    if len(cells.x) <= SPOKEN and wide >= 34:
        parts += [_spoken(*cell, plane) for cell in zip(cells.x, cells.y, cells.value, levels, strict=True)]
    return tag("g", *parts, data_s=0)


def _level(cells: ChartSeries, plane: Plane, level: int) -> Markup:
    left, right = (plane.along.at(cells.x + side).tolist() for side in (-0.48, 0.48))
    top, bottom = (plane.up.at(cells.y + side).tolist() for side in (-0.46, 0.46))
    parts = "".join(
        f"M{px(a)} {px(b)}H{px(c)}V{px(d)}H{px(a)}Z" for a, b, c, d in zip(left, top, right, bottom, strict=True)
    )
    return tag("path", d=Markup(parts), fill=scale.heat(level))


def _spoken(x: float, y: float, value: float, level: float, plane: Plane) -> Markup:
    fill = "#ffffff" if level < scale.LEVELS * 0.5 else "#000000"
    at = {"x": px(plane.along.one(x)), "y": px(plane.up.one(y) + 4)}
    return tag("text", f"{value:.3g}", **at, fill=fill, text_anchor="middle", font_size=SIZE - 1)


LETTER = 7.2  # pixels: of a letter at 12 pixels, on the wide side
SLIM, BROAD = frozenset("iljtfrI.,:;|'!()[] ·-"), frozenset("mwMW@%—")
SIZE = 12  # of letters
ROW = 24.0  # pixels a name, where names run down
HEAD, FOOT, SIDE = 28.0, 44.0, 16.0  # above, below and right of what is drawn
SHAPE = 0.52  # height by width
LOWEST = 240.0


@dataclass(frozen=True, slots=True)
class Plane:
    """`along` is the axis of x and `up` that of y; in `rows`, names run down and the axes are swapped."""

    width: float
    height: float
    along: Scale
    up: Scale
    rows: bool = False
    slanted: bool = False  # names below the sheet that do not fit side by side

    @property
    def box(self) -> tuple[float, float, float, float]:
        """Left, top, right and bottom of the plot area."""
        across, down = (self.up, self.along) if self.rows else (self.along, self.up)
        top, bottom = sorted((down.start, down.stop))
        return across.start, top, across.stop, bottom

    def at(self, x: Floats, y: Floats) -> tuple[Floats, Floats]:
        """Return the positions of points: from the left, from the top."""
        along, up = self.along.at(x), self.up.at(y)
        return (up, along) if self.rows else (along, up)


def long(text: str) -> float:
    """Return about how many pixels a text takes, rather too many: fonts differ."""
    return sum(map(_wide, text))


def fitted(text: str, width: float) -> str:
    """Return as much of a text as fits.

    >>> fitted("a long name", 1000), fitted("a long name", 40)
    ('a long name', 'a lon…')
    """
    text = clean(text, 200)
    while text and long(text) > width:
        text = text.removesuffix("…")[:-1].rstrip() + "…" if len(text) > 2 else ""
    return text


def _wide(c: str) -> float:
    if c in SLIM:
        return 0.65 * LETTER
    broad = c in BROAD or unicodedata.east_asian_width(c) in "WF"
    return LETTER * (1.7 if broad else 1.15 if c.isupper() else 1.05)


def plane(chart: Chart, reach: Reach, width: float) -> Plane:
    """Lay out a chart of that width."""
    if chart.figure.kind == "heat":
        return _grid(chart, reach, width)
    if chart.x_names and (
        chart.figure.kind in ("dots", "span") or (chart.figure.kind == "bar" and not _fit(chart, width - 80))
    ):
        return _rows(chart, reach, width)
    height = max(LOWEST, width * SHAPE)
    up = Scale(*reach.y, height - FOOT, HEAD, chart.log_y)
    left = max(long(text) for _, text in up.ticks(upwards(up))) + 10
    times = durations(chart.figure.x, *reach.x) if chart.log_x else {}
    along = Scale(*reach.x, left, width - SIDE, chart.log_x, chart.x_names, whole=chart.whole, times=times)
    return Plane(width, height, along, up)


def upwards(scale: Scale) -> int:
    """Return about how many ticks an axis has."""
    return max(3, int(abs(scale.stop - scale.start) / 38))


def _fit(chart: Chart, width: float) -> bool:
    """Whether the names fit side by side."""
    return max(map(long, chart.x_names)) + 8 <= width / len(chart.x_names)


def _rows(chart: Chart, reach: Reach, width: float) -> Plane:
    left = min(max(map(long, chart.x_names)), 0.52 * width) + 10
    each = ROW * (1.0 if chart.figure.kind == "span" else max(1.0, 0.55 * len(chart.curves)))
    bottom = HEAD + each * len(chart.x_names)
    along = Scale(*reach.x, HEAD, bottom, names=chart.x_names)
    up = Scale(*reach.y, left, width - SIDE - 8, chart.log_y)
    return Plane(width, bottom + FOOT, along, up, rows=True)


def _grid(chart: Chart, reach: Reach, width: float) -> Plane:
    left = min(max(map(long, chart.y_names), default=0.0), 0.3 * width) + 10
    width_of_cells = width - SIDE - left
    slanted = bool(chart.x_names) and not _fit(chart, width_of_cells)
    foot = FOOT + (min(max(map(long, chart.x_names)), 0.3 * width) * 0.6 if slanted else 0.0)
    bottom = HEAD + len(chart.y_names) * float(np.clip(width_of_cells / max(1, len(chart.x_names)) * 0.6, 14, 34))
    along = Scale(*reach.x, left, width - SIDE, names=chart.x_names)
    up = Scale(*reach.y, HEAD, bottom, names=chart.y_names)
    return Plane(width, bottom + foot + 34, along, up, slanted=slanted)
