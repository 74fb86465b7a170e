"""Colors that everybody can tell apart, on paper and on a dark screen.

Eight for curves: each at 3:1 or more against its background, and each two apart for all three kinds of color
blindness (the tests simulate them). Past eight the line's dashes tell. A page sets them by its style; a file that
stands alone has those for paper in its attributes.
"""

from __future__ import annotations

PAPER, INK, SOFT, RULE = "#ffffff", "#1a1d23", "#565d68", "#d9dce1"
DARK_PAPER, DARK_INK, DARK_SOFT, DARK_RULE = "#14171c", "#e9ebee", "#a9b0bb", "#363c46"
SERIES = ("#1746c7", "#db5600", "#008765", "#9b328b", "#6d4203", "#3c96e8", "#4f4062", "#910041")
DARK_SERIES = ("#3282e8", "#ff791e", "#34dfa0", "#ee6ebd", "#c0945c", "#99efff", "#aecec9", "#fda181")
DASHES = (None, "6 3", "2 3", "9 3 2 3")
# From dark blue to yellow through grey, growing in lightness alone, after Nuñez, Anderton and Renslow 2018
# (doi:10.1371/journal.pone.0199239).
HEAT = ("#10284f", "#3d4b6c", "#66696f", "#948d74", "#c4b567", "#f6e24a")
LEVELS = 24  # of a heat map: more nobody can tell apart


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
