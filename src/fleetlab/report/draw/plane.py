"""The layout of a figure: margins, axes, and the direction of names."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass

import numpy as np

from fleetlab.report.draw.chart import Chart, Reach
from fleetlab.report.draw.scale import Floats, Scale, durations
from fleetlab.report.markup import clean

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


def fitted(text: str, room: float) -> str:
    """Return as much of a text as fits.

    >>> fitted("a long name", 1000), fitted("a long name", 40)
    ('a long name', 'a lon…')
    """
    text = clean(text, 200)
    while text and long(text) > room:
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


def _fit(chart: Chart, room: float) -> bool:
    """Whether the names fit side by side."""
    return max(map(long, chart.x_names)) + 8 <= room / len(chart.x_names)


def _rows(chart: Chart, reach: Reach, width: float) -> Plane:
    left = min(max(map(long, chart.x_names)), 0.52 * width) + 10
    each = ROW * (1.0 if chart.figure.kind == "span" else max(1.0, 0.55 * len(chart.curves)))
    bottom = HEAD + each * len(chart.x_names)
    along = Scale(*reach.x, HEAD, bottom, names=chart.x_names)
    up = Scale(*reach.y, left, width - SIDE - 8, chart.log_y)
    return Plane(width, bottom + FOOT, along, up, rows=True)


def _grid(chart: Chart, reach: Reach, width: float) -> Plane:
    left = min(max(map(long, chart.y_names), default=0.0), 0.3 * width) + 10
    room = width - SIDE - left
    slanted = bool(chart.x_names) and not _fit(chart, room)
    foot = FOOT + (min(max(map(long, chart.x_names)), 0.3 * width) * 0.6 if slanted else 0.0)
    bottom = HEAD + len(chart.y_names) * float(np.clip(room / max(1, len(chart.x_names)) * 0.6, 14, 34))
    along = Scale(*reach.x, left, width - SIDE, names=chart.x_names)
    up = Scale(*reach.y, HEAD, bottom, names=chart.y_names)
    return Plane(width, bottom + foot + 34, along, up, slanted=slanted)
