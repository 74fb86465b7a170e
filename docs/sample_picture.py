"""Draw docs/images/sample.svg: a real Slurm before and after one line of slurm.conf, its GPUs and its queue."""

import numpy as np

from fleetlab.core.data import open_trace

WIDTH, PANEL, LEFT, TOP, GAP = 860, 88, 56, 52, 34
STEP = 2.0  # s
RUNS = (("sample", "Slurm's defaults"), ("sample:changed", "with one line of slurm.conf changed"))
LINE = "SchedulerParameters=batch_sched_delay=0,bf_interval=1,bf_resolution=1,bf_continue"
STYLE = """
<style>
 text { font: 12px system-ui, sans-serif; fill: #57606a } .title { font-size: 14px; fill: #24292f; font-weight: 600 }
 .code { font-family: ui-monospace, monospace } .grid { stroke: #d0d7de }
 .gpus { fill: #54aeff } .queue { fill: #d4a72c }
 @media (prefers-color-scheme: dark) {
  text { fill: #8b949e } .title { fill: #e6edf3 } .grid { stroke: #30363d }
  .gpus { fill: #1f6feb } .queue { fill: #9e6a03 }
 }
</style>"""


def over_time(name: str) -> tuple[float, np.ndarray, np.ndarray, np.ndarray]:
    """Return the mean wait, times, allocated GPUs and waiting jobs."""
    jobs = open_trace(name).workload.frame
    submit, start, end = (jobs[column].to_numpy() for column in ("submit", "start", "end"))
    gpus = (jobs["gpu_milli"] * jobs["instances"]).to_numpy() / 1000
    at = np.arange(0.0, end.max() + STEP, STEP)
    busy = np.array([gpus[(start <= t) & (t < end)].sum() for t in at])
    waiting = np.array([((submit <= t) & (t < start)).sum() for t in at])
    return float((start - submit).mean()), at, busy, waiting


def area(kind: str, x: np.ndarray, values: np.ndarray, most: float, base: float) -> str:
    points = " ".join(f"{a:.0f},{base - v / most * PANEL:.0f}" for a, v in zip(x, values, strict=True))
    return f'<polygon class="{kind}" points="{x[0]:.0f},{base} {points} {x[-1]:.0f},{base}"/>'


def draw() -> str:
    runs = [(text, *over_time(name)) for name, text in RUNS]
    last, queue = max(r[2][-1] for r in runs), 50 * np.ceil(max(r[4].max() for r in runs) / 50)
    height = TOP + 2 * (2 * PANEL + GAP + 8) + 24
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" role="img">']
    parts += ["<title>One line of slurm.conf: the same jobs on a real Slurm, before and after</title>", STYLE]
    parts += [
        f'<text class="title" x="{LEFT}" y="18">The same 1,000 jobs on a real Slurm, before and after one line</text>'
    ]
    parts += [f'<text class="code" x="{LEFT}" y="36">{LINE}</text>']
    top = TOP
    for text, wait, at, busy, waiting in runs:
        x = LEFT + at / last * (WIDTH - LEFT - 12)
        parts.append(f'<text class="title" x="{LEFT}" y="{top + 16}">Mean wait {wait:.0f} s, {text}</text>')
        for kind, values, most, what in (("gpus", busy, 160, "GPUs in use"), ("queue", waiting, queue, "jobs waiting")):
            base = top + GAP - 6 + PANEL
            parts.append(area(kind, x, values, most, base))
            parts.append(f'<path class="grid" d="M{LEFT} {base}H{WIDTH - 12}"/>')
            parts.append(f'<text x="{LEFT - 6}" y="{base - PANEL + 10}" text-anchor="end">{most:.0f}</text>')
            parts.append(f'<text x="{WIDTH - 14}" y="{base - PANEL + 10}" text-anchor="end">{what}</text>')
            top += PANEL + GAP - (kind == "gpus") * (GAP - 8)
    for minute in range(0, int(last // 60) + 1, 2):
        x = LEFT + minute * 60 / last * (WIDTH - LEFT - 12)
        parts.append(f'<text x="{x:.0f}" y="{top + 14}" text-anchor="middle">{minute} min</text>')
    return "\n".join([*parts, "</svg>\n"])
