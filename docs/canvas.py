"""A small drawing: axes, lines, bars and text, in colors that read on light and on dark."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

WIDTH = 860
COLORS = {"a": ("#0969da", "#4493f8"), "b": ("#9a6700", "#d29922"), "c": ("#1a7f37", "#3fb950"),
          "d": ("#8250df", "#a371f7"), "e": ("#cf222e", "#f85149"), "f": ("#57606a", "#8b949e")}  # fmt: skip


def style() -> str:
    """Return the colors of each scheme."""
    light = " ".join(f".{name} {{ fill: {color}; stroke: {color} }}" for name, (color, _) in COLORS.items())
    dark = " ".join(f".{name} {{ fill: {color}; stroke: {color} }}" for name, (_, color) in COLORS.items())
    return f"""<style>
 text {{ font: 12px system-ui, sans-serif; fill: #57606a; stroke: none }} .title {{ font-size: 14px; fill: #24292f }}
 .grid {{ stroke: #d0d7de; fill: none }} .line {{ fill: none; stroke-width: 1.8 }} .inside {{ fill: #fff }} {light}
 @media (prefers-color-scheme: dark) {{ text {{ fill: #8b949e }} .title {{ fill: #e6edf3 }} .grid {{ stroke: #30363d }}
 .inside {{ fill: #0d1117 }} {dark} }}
 .line {{ fill: none }}
</style>"""


class Canvas:
    """A drawing with a title; parts are added in order."""

    def __init__(self, title: str, height: int) -> None:
        self.height = height
        self.parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">',
            f"<title>{escape(title)}</title>", style(), f'<text class="title" x="16" y="20">{escape(title)}</text>',
        ]  # fmt: skip

    def text(self, x: float, y: float, words: str, *, anchor: str = "start", kind: str = "") -> None:
        """Write words."""
        named = f' class="{kind}"' if kind else ""
        self.parts.append(f'<text{named} x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>')

    def bar(self, x: float, y: float, size: tuple[float, float], color: str, *, opacity: float = 1.0) -> None:
        """Draw a rectangle."""
        faint = f' opacity="{opacity}"' if opacity < 1 else ""
        width, height = size
        self.parts.append(
            f'<rect class="{color}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"{faint}/>'
        )

    def line(self, points: Sequence[tuple[float, float]], color: str, *, dashed: bool = False) -> None:
        """Draw a line through points."""
        dashes = ' stroke-dasharray="4 3"' if dashed else ""
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self.parts.append(f'<polyline class="{color} line" points="{path}"{dashes}/>')

    def grid(self, x: tuple[float, float], y: float) -> None:
        """Draw a faint horizontal line."""
        self.parts.append(f'<path class="grid" d="M{x[0]:.1f} {y:.1f}H{x[1]:.1f}"/>')

    def legend(self, names: Sequence[tuple[str, str]], y: float, step: float = 150) -> None:
        """Name colors, from the left."""
        for k, (color, name) in enumerate(names):
            self.bar(16 + k * step, y - 9, (18, 10), color)
            self.text(40 + k * step, y, name)

    def svg(self) -> str:
        """Return the drawing."""
        return "\n".join([*self.parts, "</svg>", ""])
