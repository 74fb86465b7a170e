"""Scales and colors: positions of values, round numbers for ticks, colors that everybody can tell apart.

Eight for curves: each at 3:1 or more against its background, and each two apart for all three kinds of color
blindness (the tests simulate them). Past eight the line's dashes tell. A page sets them by its style; a file that
stands alone has those for paper in its attributes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

PAPER, INK, SOFT, RULE = "#ffffff", "#1a1d23", "#565d68", "#d9dce1"
DARK_PAPER, DARK_INK, DARK_SOFT, DARK_RULE = "#14171c", "#e9ebee", "#a9b0bb", "#363c46"
SERIES = ("#1746c7", "#db5600", "#008765", "#9b328b", "#6d4203", "#3c96e8", "#4f4062", "#910041")
DARK_SERIES = ("#3282e8", "#ff791e", "#34dfa0", "#ee6ebd", "#c0945c", "#99efff", "#aecec9", "#fda181")
DASHES = (None, "6 3", "2 3", "9 3 2 3")
# From dark blue to yellow through grey, growing in lightness alone, after Nuñez, Anderton and Renslow 2018
# (doi:10.1371/journal.pone.0199239).
HEAT = ("#10284f", "#3d4b6c", "#66696f", "#948d74", "#c4b567", "#f6e24a")
LEVELS = 24  # of a heat map: more cannot be distinguished


def color(k: int) -> str:
    """Return the color of the `k`th look, in light mode."""
    return SERIES[k % len(SERIES)]


def dash(k: int) -> str | None:
    """Return the dashes of the `k`th look: they change when the colors repeat."""
    return DASHES[k // len(SERIES) % len(DASHES)]


def stroke(k: int) -> dict[str, str]:
    """Return the attributes of its line: a color for a file, a class for a page."""
    return {"class_": f"s{k % len(SERIES)}", "stroke": color(k)}


def fill(k: int) -> dict[str, str]:
    """Return the attributes of its area."""
    return {"class_": f"f{k % len(SERIES)}", "fill": color(k)}


def ends(k: int) -> str:
    """Return the shape of its dots: round and square alternate."""
    return ("round", "square")[(k + k // len(SERIES)) % 2]


def heat(level: int) -> str:
    """Return the color of a level, from 0 to LEVELS - 1.

    >>> heat(0), heat(LEVELS - 1)
    ('#10284f', '#f6e24a')
    """
    place = level / (LEVELS - 1) * (len(HEAT) - 1)
    k = min(int(place), len(HEAT) - 2)
    a, b = (tuple(int(c[i : i + 2], 16) for i in (1, 3, 5)) for c in (HEAT[k], HEAT[k + 1]))
    return "#" + "".join(f"{round(p + (q - p) * (place - k)):02x}" for p, q in zip(a, b, strict=True))


def style() -> str:
    """Return the style sheet of figures, light and dark."""
    light = _values(SERIES, PAPER, INK, SOFT, RULE)
    dark = _values(DARK_SERIES, DARK_PAPER, DARK_INK, DARK_SOFT, DARK_RULE)
    series = "".join(f".s{k}{{stroke:var(--s{k})}}.f{k}{{fill:var(--s{k})}}" for k in range(len(SERIES)))
    return (
        f":root{{color-scheme:light;{light}}}\n"
        f"@media screen and (prefers-color-scheme:dark){{:root:not([data-theme=light]){{color-scheme:dark;{dark}}}}}\n"
        f"@media screen{{:root[data-theme=dark]{{color-scheme:dark;{dark}}}}}\n{series}\n"
    )


def _values(series: tuple[str, ...], paper: str, ink: str, soft: str, rule: str) -> str:
    named = {"paper": paper, "ink": ink, "soft": soft, "rule": rule} | {f"s{k}": c for k, c in enumerate(series)}
    return "".join(f"--{name}:{value};" for name, value in named.items())


Floats = NDArray[np.float64]
ROUND = (1.0, 2.0, 5.0, 10.0)
TIMES = {
    0.01: "10 ms",
    0.1: "0.1 s",
    1.0: "1 s",
    10.0: "10 s",
    60.0: "1 min",
    600.0: "10 min",
    3600.0: "1 h",
    21_600.0: "6 h",
    86_400.0: "1 d",
    864_000.0: "10 d",
    8_640_000.0: "100 d",
}
SECONDS = ", s"  # how the label of an axis of seconds ends
HIGH = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True, slots=True)
class Scale:
    """An axis: values from `low` to `high` lie between `start` and `stop`; names are at 0, 1, 2 and so on."""

    low: float
    high: float
    start: float
    stop: float
    log: bool = False
    names: tuple[str, ...] = ()
    whole: bool = False  # only whole numbers are written: there is no half hour of the day
    times: Mapping[float, str] = field(default_factory=dict)  # seconds that are written as durations

    def at(self, values: Floats) -> Floats:
        """Return the positions of values; those beyond an end are not far beyond.

        >>> Scale(1, 100, 0, 50, log=True).at(np.array([10.0])).tolist()
        [25.0]
        """
        low, high = (math.log10(v) if self.log else v for v in (self.low, self.high))
        with np.errstate(divide="ignore", invalid="ignore"):
            along = ((np.log10(values) if self.log else values) - low) / (high - low)
        return np.asarray(self.start + np.clip(along, -2, 3) * (self.stop - self.start))

    def one(self, value: float) -> float:
        """Return the position of one value."""
        return float(self.at(np.array([value], dtype=np.float64))[0])

    def ticks(self, most: int) -> list[tuple[float, str]]:
        """Return the positions and labels of about `most` ticks."""
        if self.names:
            every = max(1, math.ceil(len(self.names) / max(1, most)))
            return [(self.one(k), name) for k, name in enumerate(self.names) if k % every == 0]
        if self.times:
            within = [v for v in self.times if self.low * (1 - 1e-9) <= v <= self.high * (1 + 1e-9)]
            return [(self.one(v), self.times[v]) for v in within[:: max(1, math.ceil(len(within) / max(1, most)))]]
        values = decades(self.low, self.high, most) if self.log else nice(self.low, self.high, most)
        values = [v for v in values if not self.whole or v.is_integer()]
        return [(self.one(v), text) for v, text in zip(values, labels(values), strict=True)]


def durations(label: str, low: float, high: float) -> dict[float, str]:
    """Return round durations for a logarithmic axis of seconds; none where it spans few of them, or something else.

    >>> list(durations("wait, s", 1, 4000).values()), durations("wait, s", 2, 50), durations("GPUs", 1, 4000)
    (['1 s', '10 s', '1 min', '10 min', '1 h'], {}, {})
    """
    within = {v: text for v, text in TIMES.items() if low * (1 - 1e-9) <= v <= high * (1 + 1e-9)}
    return within if label.endswith(SECONDS) and len(within) > 2 else {}


def nice(low: float, high: float, most: int = 6) -> list[float]:
    """Return round numbers from `low` to `high`, two or more, in steps of 1, 2 or 5 times a power of ten.

    >>> nice(0, 1, 5)
    [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    >>> nice(-3, 12, 3)
    [0.0, 5.0, 10.0]
    """
    step = stride(low, high, most)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    if last <= first and most < 5:  # with five steps, two of them fit
        return nice(low, high, most + 1)
    # A quotient of whole numbers is exact where a product with 0.2 would not be.
    return [k * step if step >= 1 else k / round(1 / step, 6) for k in range(first, last + 1)]


def stride(low: float, high: float, most: int = 6) -> float:
    """Return the step of `nice`."""
    rough = (high - low) / max(1, most)
    size = 10.0 ** math.floor(math.log10(rough))
    return next((r * size for r in ROUND if r * size >= rough * 0.999), 10 * size)


def decades(low: float, high: float, most: int = 6) -> list[float]:
    """Return powers of ten from `low` to `high`; with 2 and 5 between where there are few.

    >>> decades(1, 1000, 6)
    [1.0, 10.0, 100.0, 1000.0]
    >>> decades(1, 10, 6)
    [1.0, 2.0, 5.0, 10.0]
    """
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    between = (1, 2, 5) if last - first <= 2 else (1,)
    every = max(1, math.ceil((last - first) / max(1, most)))
    powers = (10.0**k for k in range(first, last + 1) if k % every == 0)
    ticks = [m * p for p in powers for m in between if low * (1 - 1e-9) <= m * p <= high * (1 + 1e-9)]
    return ticks if len(ticks) > 1 else nice(low, high, most)


def labels(values: list[float]) -> list[str]:
    """Return the labels of ticks.

    >>> labels([0.0, 2500.0, 5000.0]), labels([0.0, 20000.0]), labels([0.01, 1.0, 1e6, 1e9])
    (['0', '2,500', '5,000'], ['0', '20k'], ['0.01', '1', '1M', '10⁹'])
    """
    return [label(v) for v in values]


def label(value: float) -> str:
    """Return the label of one tick."""
    size = abs(value)
    if size and not 1e-4 <= size < 1e9:
        power = math.floor(math.log10(size) + 1e-9)
        lead = f"{size / 10.0**power:.3g}"
        text = ("" if lead == "1" else f"{lead}·") + "10" + str(power).translate(HIGH)
    elif size >= 1e6:
        text = f"{size / 1e6:.6g}M"
    elif size >= 1e4:
        text = f"{size / 1e3:.6g}k"
    else:
        text = f"{size:,.6g}"
    return f"−{text}" if value < 0 else text


def rounded(low: float, high: float) -> tuple[float, float]:
    """Return a slightly wider range of round numbers.

    >>> rounded(0.3, 9.2)
    (0.0, 10.0)
    """
    step = stride(low, high, 5)
    return math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step


def px(value: float) -> str:
    """Return a position as text, to a tenth of a pixel.

    >>> px(12.04), px(-0.04)
    ('12', '0')
    """
    text = f"{value:.1f}".removesuffix(".0")
    return "0" if text == "-0" else text
