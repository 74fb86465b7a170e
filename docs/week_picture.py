"""Draw docs/images/week.svg: jobs an hour over a week, as published and as built in."""

from importlib.resources import files
from json import loads

import numpy as np

import fleetlab

WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 860, 300, 56, 46, 34
DAYS = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"]
STYLE = """
<style>
 text { font: 12px system-ui, sans-serif; fill: #57606a } .title { font-size: 14px; fill: #24292f }
 .grid { stroke: #d0d7de } .published { stroke: #9a6700; fill: none; stroke-width: 1.6 }
 .built { stroke: #0969da; fill: none; stroke-width: 1.6 }
 @media (prefers-color-scheme: dark) {
  text { fill: #8b949e } .title { fill: #e6edf3 } .grid { stroke: #30363d }
  .published { stroke: #d29922 } .built { stroke: #4493f8 }
 }
</style>"""


def published() -> np.ndarray:
    text = files("fleetlab.traces.synthesize").joinpath("laws.json").read_text("utf-8")
    return np.array(loads(text)["week"])


def built_in() -> np.ndarray:
    trace = fleetlab.synthesize("pai2020", jobs=14 * 20_338, days=14, seed=0)
    midnight = trace.workload.epoch + 8 * 3600  # the clock of Shanghai
    hour = ((trace.workload.frame["submit"].to_numpy() + midnight) // 3600).astype(int)
    weekday = hour // 24 % 7  # 1970 began on a Thursday: 3 is Sunday
    first = hour[np.flatnonzero((weekday == 3) & (hour % 24 == 0))[0]]
    return np.bincount(hour - hour.min())[first - hour.min() :][:168]


def line(values: np.ndarray, top: float, kind: str) -> str:
    x = LEFT + (np.arange(len(values)) + 0.5) * (WIDTH - LEFT - 12) / 168
    y = HEIGHT - BOTTOM - values / top * (HEIGHT - TOP - BOTTOM)
    return f'<polyline class="{kind}" points="{" ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True))}"/>'


def draw() -> str:
    week, made = published(), built_in()
    top = 500 * np.ceil(max(week.max(), made.max()) / 500)
    title = "Jobs an hour over a week: the published PAI trace and fleetlab's built-in one"
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">']
    parts += [f"<title>{title}</title>", STYLE, f'<text class="title" x="{LEFT}" y="18">{title}</text>']
    parts += [
        '<path class="published" d="M56 34h24"/><text x="86" y="38">published, one week read off the figure</text>'
    ]
    parts += ['<path class="built" d="M346 34h24"/><text x="376" y="38">built in, one week of seed 0</text>']
    for value in np.arange(0, top + 1, 500):
        y = HEIGHT - BOTTOM - value / top * (HEIGHT - TOP - BOTTOM)
        parts.append(f'<path class="grid" d="M{LEFT} {y:.1f}H{WIDTH - 12}"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{value:,.0f}</text>')
    for k, day in enumerate(DAYS):
        x = LEFT + (k + 0.5) * (WIDTH - LEFT - 12) / 7
        parts.append(f'<text x="{x:.0f}" y="{HEIGHT - 12}" text-anchor="middle">{day}</text>')
    return "\n".join([*parts, line(week, top, "published"), line(made, top, "built"), "</svg>\n"])
