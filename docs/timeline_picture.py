"""Make docs/images/timeline.png: a report of the built-in trace in headless Chromium. Run from the checkout."""

import tempfile
from pathlib import Path

import fleetlab

SIZE = (1180, 760)


def draw(trace: str = "builtin") -> bytes:
    from benchmarks.timeline import FIRST, browser

    with tempfile.TemporaryDirectory() as folder:
        page = fleetlab.report(fleetlab.simulate(trace), Path(folder) / "report.html")
        chromium = browser()
        try:
            chromium.set_window_size(*SIZE)
            chromium.get(page.as_uri())
            chromium.execute_async_script(FIRST)
            timeline = chromium.find_element("css selector", ".cluster-timeline")
            return timeline.screenshot_as_png
        finally:
            chromium.quit()


if __name__ == "__main__":
    (Path(__file__).parent / "images" / "timeline.png").write_bytes(draw())
