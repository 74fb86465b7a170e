"""How long the timeline of a cluster takes: from the run's end to the first picture, and frames a second in Chromium.

    python -m benchmarks.timeline                      # two months of PAI: 1,260,920 jobs on 6,742 GPUs
    python -m benchmarks.timeline builtin:20000
    python -m benchmarks.timeline builtin:100000 page  # the page, which fetches tiles while it is moved

It writes a report, or starts the page, opens it in a headless Chromium, moves and zooms the timeline, and prints
tables. Where others use the machine, the CPU time of the page's main thread says which rate an idle core would have.
"""

import json
import os
import platform
import subprocess
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
# On the page each movement begins where no tile was fetched yet.
PAGE_MOVES = {
    "pan": "if (!n) t.look([0, t.whole / 16]); t.move(0.02)",
    "zoom in and out": "if (!n) t.look([t.whole / 2, t.whole]); t.zoom(n % 240 < 120 ? 0.95 : 1 / 0.95, 0.3)",
    "pan in time and rows, zoomed in": "if (!n) t.look([t.whole / 8, t.whole / 6], [0, 0.1]); t.move(0.01, 0.02)",
}
DRIVE = """
const [step, seconds, done] = arguments;
const t = window.fleetlab.pageTimeline ?? document.querySelector('.cluster-timeline').timeline;
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
  const t = window.fleetlab?.pageTimeline ?? document.querySelector('.cluster-timeline')?.timeline;
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


FETCHED = "return performance.getEntriesByType('resource').filter((e) => e.name.includes('/tile/')).length"


def drive(page: Path) -> None:
    chromium = browser()
    try:
        chromium.get(page.as_uri())
        print(f"first picture of the report: {chromium.execute_async_script(FIRST) / 1000:.2f} s after it was opened\n")
        move(chromium, MOVES)
    finally:
        chromium.quit()


def drive_page(source: str) -> None:
    """Drive the page: tiles are cut by the server while the timeline is moved."""
    command = [sys.executable, "-m", "fleetlab.cli", "web", "--port", "0", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        chromium = browser()
        try:
            chromium.get(f"{json.loads(server.stdout.readline())['url']}?v=1&trace={source}:0")
            chromium.execute_async_script(FIRST)
            chromium.execute_script("performance.setResourceTimingBufferSize(10000)")
            print(f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; page of {source}\n")
            move(chromium, PAGE_MOVES)
        finally:
            chromium.quit()
            server.terminate()


def cpu_seconds(chromium: Any) -> float:  # noqa: ANN401
    """Return what the main thread of the page has used of a CPU."""
    metrics = chromium.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
    return float(next(m["value"] for m in metrics if m["name"] == "TaskDuration"))


def move(chromium: Any, moves: dict[str, str]) -> None:  # noqa: ANN401
    chromium.execute_cdp_cmd("Performance.enable", {"timeDomain": "threadTicks"})
    print("| movement | frames/s | median frame, ms | P95 frame, ms | CPU of a frame, ms | tiles fetched |")
    print("|---|--:|--:|--:|--:|--:|")
    for name, step in moves.items():
        before, cpu = chromium.execute_script(FETCHED), cpu_seconds(chromium)
        times = sorted(chromium.execute_async_script(DRIVE, step, SECONDS))
        rate, median, late = 1000 * len(times) / sum(times), times[len(times) // 2], times[int(0.95 * len(times))]
        used, fetched = cpu_seconds(chromium) - cpu, chromium.execute_script(FETCHED) - before
        print(f"| {name} | {rate:.0f} | {median:.0f} | {late:.0f} | {1000 * used / len(times):.1f} | {fetched} |")


if __name__ == "__main__":
    words = sys.argv[1:] or [FULL]
    (drive_page if "page" in words[1:] else main)(words[0])
