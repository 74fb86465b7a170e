"""How long the timeline of a cluster takes: from the run's end to the first picture, and frames a second in Chromium.

    python -m benchmarks.timeline                      # two months of PAI: 1,260,920 jobs on 6,742 GPUs
    python -m benchmarks.timeline builtin:20000

It writes a report, opens it in a headless Chromium, moves and zooms the timeline, and prints one table.
"""

import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import fleetlab
from fleetlab.sim import SimResult
from fleetlab.sim.tiles.figure import packed, panels
from fleetlab.sim.tiles.timeline import ROWS, ClusterTimeline, TilePlace

FULL = "builtin:1260920"
SECONDS = 6.0  # of each movement
T = TypeVar("T")
MOVES = {
    "pan": "t.move(n % 200 < 100 ? 0.01 : -0.01)",
    "zoom in and out": "t.zoom(n % 120 < 60 ? 0.95 : 1 / 0.95)",
    "pan rows, zoomed in": "t.look([t.whole / 5, t.whole / 4], [0.2, 0.4]); t.move(0.01 * (n % 50), 0.01 * (n % 50))",
}
DRIVE = """
const [step, seconds, done] = arguments;
const t = document.querySelector('.cluster-timeline').timeline;
const act = new Function('t', 'n', step);
const times = [];
let [n, last] = [0, performance.now()];
const start = last;
const next = () => {
  const now = performance.now();
  times.push(now - last);
  last = now;
  if (now - start > 1000 * seconds) return done(times.slice(1));
  act(t, n++);
  return requestAnimationFrame(next);
};
requestAnimationFrame(next);
"""
# When the first tile was drawn, from the beginning of the navigation.
FIRST = """
const done = arguments[0];
const look = () => {
  const t = document.querySelector('.cluster-timeline')?.timeline;
  if (t && t.frames && t.missing === 0) return done(performance.now());
  return setTimeout(look, 20);
};
look();
"""


def timed(what: str, work: Callable[[], T]) -> T:
    wall, cpu = time.perf_counter(), time.process_time()
    result = work()
    print(f"| {what} | {time.perf_counter() - wall:.2f} | {time.process_time() - cpu:.2f} |", flush=True)
    return result


def browser() -> Any:  # noqa: ANN401
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    for word in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--window-size=1280,1000",
    ):
        options.add_argument(word)
    found = webdriver.Chrome(options=options, service=Service("/usr/bin/chromedriver"))
    found.set_script_timeout(300)
    return found


def first_picture(result: SimResult) -> None:
    """Do what a page does before it can draw: index, rows, one tile with two planes."""
    timeline = ClusterTimeline.of(result.world, result.played, result.cluster, result.scenario, whole=False)
    panels(result.world, result.played, reasons=False)
    sizes = [len(level.edges) - 1 for level in timeline.rows.levels]
    level = next(k for k, size in enumerate(sizes) if size <= ROWS)
    packed(timeline, TilePlace(level, 0, 0, 0), ("taken", "user"))


def main(source: str) -> None:
    small = fleetlab.simulate("builtin:2000")
    first_picture(small)  # compiled code is loaded once
    small.cluster_timeline(100_000)
    print(f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; {source}\n")
    print("| step | wall, s | CPU, s |\n|---|--:|--:|")
    result = timed("simulate", lambda: fleetlab.simulate(source))
    timed("run's end to the first tiles", lambda: first_picture(result))
    timed("run's end to the first tiles, again", lambda: first_picture(result))
    timed("waiting jobs by reason", lambda: panels(result.world, result.played))
    with tempfile.TemporaryDirectory() as folder:
        page = timed("report", lambda: fleetlab.report(result, Path(folder) / "report.html"))
        print(f"\nreport: {page.stat().st_size / 1e6:.2f} MB\n")
        drive(page)


def drive(page: Path) -> None:
    chromium = browser()
    try:
        chromium.get(page.as_uri())
        print(f"first picture of the report: {chromium.execute_async_script(FIRST) / 1000:.2f} s after it was opened\n")
        print("| movement | frames/s | median frame, ms | P95 frame, ms |\n|---|--:|--:|--:|")
        for name, step in MOVES.items():
            times = sorted(chromium.execute_async_script(DRIVE, step, SECONDS))
            rate = 1000 * len(times) / sum(times)
            print(f"| {name} | {rate:.0f} | {times[len(times) // 2]:.0f} | {times[int(0.95 * len(times))]:.0f} |")
    finally:
        chromium.quit()


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else FULL)
