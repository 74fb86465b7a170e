"""How long the page takes in Chromium: first paint, first answer, a what-if, and frames of the timeline.

    python -m benchmarks.page            # needs chromedriver; starts the page and ends it

Seconds are of the browser's own clock. The page is opened twice: the second time its code is compiled and loaded.
"""

from __future__ import annotations

import statistics
import time

from docs.pictures import Camera, camera

NUMBERS = "document.querySelectorAll('#tiles dd').length === 4 && !document.querySelector('.stale')"
FRAMES = """const t = window.fleetlab.pageTimeline, done = arguments[0], times = [];
const step = (now) => {
  times.push(now);
  if (times.length > 121) { done(times.slice(1).map((v, k) => v - times[k])); return; }
  t.move(times.length % 2 ? 0.01 : -0.008);
  requestAnimationFrame(step);
};
t.zoom(0.5);
requestAnimationFrame(step);"""


def _wait(shot: Camera, shows: str) -> float:
    """Return the seconds, of the page's own clock, at which a script first says yes."""
    while True:
        found, now = shot.driver.execute_script(f"return [!!({shows}), performance.now() / 1000]")
        if found:
            return float(now)
        time.sleep(0.01)


def measure(shot: Camera) -> dict[str, float]:
    """Open the page, and measure it."""
    shot.driver.get(shot.page)
    first = _wait(shot, NUMBERS)
    paint = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime / 1000"
    painted = float(shot.driver.execute_script(f"return {paint}"))
    _wait(shot, "document.getElementById('status').textContent.startsWith('Answered')")
    shot.driver.execute_script("document.getElementById('preset-0').click()")
    begun = shot.driver.execute_script("return performance.now() / 1000")
    time.sleep(0.1)
    after = _wait(shot, NUMBERS) - begun
    _wait(shot, "window.fleetlab.pageTimeline?.runs.length === 2")
    shot.driver.set_script_timeout(300)
    frames = shot.driver.execute_async_script(FRAMES)
    return {
        "first paint, s": painted, "first answer, s": first, "what-if, s": after,
        "frames per second, median": 1000 / statistics.median(frames),
        "frames per second, slowest twentieth": 1000 / sorted(frames)[int(0.95 * len(frames))],
    }  # fmt: skip


def main() -> None:
    """Print a line for each number, cold and warm."""
    with camera() as shot:
        size = {"width": 1400, "height": 1000, "deviceScaleFactor": 1, "mobile": False}
        shot.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        runs = {"cold": measure(shot), "warm": measure(shot)}
        for name in runs["cold"]:
            print(f"{name:40} {runs['cold'][name]:8.2f} {runs['warm'][name]:8.2f}")


if __name__ == "__main__":
    main()
