"""Make every picture of the README and of the guides anew, from real runs. Run from the checkout.

    make pictures                           # or: python -m docs.pictures
    python -m docs.pictures web timeline    # only these

The page, reports and the demo are opened in headless Chromium, and photographed once they show what the picture is of.
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from base64 import b64decode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from docs import concept_pictures, packages_picture, sample_picture, week_picture

import fleetlab

IMAGES = Path(__file__).parent / "images"
TRACE = "builtin:20000"
PATIENCE = 900  # s until what a picture shows is there: other work may share the machine
HIGHEST = 1200  # pixels
LARGEST = 300_000  # bytes of a picture
FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars")
ANSWERED = "document.getElementById('status').textContent.startsWith('Answered')"
DRAWN = "[...document.querySelectorAll('.cluster-timeline')].every(t => t.timeline?.frames && !t.timeline.missing)"
AT_REST = "document.getElementById('progress').hidden"
LINE = "SchedulerParameters=batch_sched_delay=0,bf_interval=1,bf_resolution=1,bf_continue"
CHANGED = urlencode({"v": 1, "trace": "sample", "scheduler": json.dumps({"kind": "site", "conf": LINE})})
BY_REASON = "Object.keys(window.fleetlab.pageTimeline?.runs.at(-1).about.panels.waiting ?? {}).length > 1"
BUSY = "v=1&trace=builtin:2000:0&load=3"


class Camera:
    """A browser that takes pictures of pages."""

    def __init__(self, driver: Any, folder: Path) -> None:
        self.driver, self.folder = driver, folder
        self._page = ""

    def open(self, address: str, shows: str, *, size: tuple[int, int] = (1280, 960), dark: bool = False) -> Camera:
        """Open a page, and wait until it shows what a script tests; a high picture is smaller than the window."""
        scale = min(1.0, HIGHEST / size[1])
        metrics = {"width": size[0], "height": size[1], "deviceScaleFactor": scale, "mobile": size[0] < 500}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
        self.driver.get(address)
        return self.until(shows)

    def until(self, shows: str) -> Camera:
        """Wait until a script says yes, and until what moves has come to rest."""
        end = time.monotonic() + PATIENCE
        while not self.driver.execute_script(f"return !!({shows})"):
            if time.monotonic() > end:
                sys.exit(f"the page does not show it: {shows}")
            time.sleep(0.2)
        time.sleep(0.5)
        return self

    def run(self, script: str) -> Camera:
        """Do something on the page."""
        self.driver.execute_script(script)
        return self

    def screen(self) -> bytes:
        """Photograph what is in the window."""
        return bytes(self.driver.get_screenshot_as_png())

    def element(self, css: str) -> bytes:
        """Photograph one element, also what of it is outside of the window."""
        box = "const b = document.querySelector(arguments[0]).getBoundingClientRect();"
        clip = self.driver.execute_script(
            f"{box} return {{x: b.x + scrollX, y: b.y + scrollY, width: b.width, height: b.height, scale: 1}}", css
        )
        shot = {"format": "png", "clip": clip, "captureBeyondViewport": True}
        return b64decode(self.driver.execute_cdp_cmd("Page.captureScreenshot", shot)["data"])

    @property
    def page(self) -> str:
        """The address of `fleetlab web`, which is started when it is first asked for."""
        if not self._page:
            command = [sys.executable, "-m", "fleetlab.cli", "web", "--port", "0", "--json"]
            self._server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            assert self._server.stdout is not None
            self._page = json.loads(self._server.stdout.readline())["url"]
        return self._page

    def close(self) -> None:
        """End the browser and the server."""
        self.driver.quit()
        if self._page:
            self._server.terminate()
            self._server.wait()


@contextmanager
def camera() -> Iterator[Camera]:
    """Start Chromium, and end it."""
    from selenium import webdriver

    driver = shutil.which("chromedriver")
    if driver is None:
        sys.exit("no chromedriver: apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    with tempfile.TemporaryDirectory(prefix="fleetlab-pictures-") as folder:
        for flag in (*FLAGS, f"--user-data-dir={folder}/profile"):
            options.add_argument(flag)
        made = Camera(webdriver.Chrome(options=options, service=webdriver.ChromeService(driver)), Path(folder))
        try:
            yield made
        finally:
            made.close()


def _report(camera: Camera, name: str, result: Callable[[], fleetlab.Result]) -> str:
    page = camera.folder / f"{name}.html"
    if not page.exists():
        fleetlab.report(result(), page)
    return page.as_uri()


def _description(camera: Camera) -> str:
    return _report(camera, "description", lambda: fleetlab.describe(fleetlab.Scenario.of(TRACE).trace))


def report(camera: Camera) -> bytes:
    """The description of the built-in trace as a report."""
    shows = "document.querySelectorAll('figure svg').length > 3"
    return camera.open(_description(camera), shows, size=(1280, 1600)).screen()


def report_dark(camera: Camera) -> bytes:
    """The same in the dark, with values read out by the keyboard."""
    camera.open(_description(camera), "document.querySelectorAll('figure svg').length > 3", dark=True)
    camera.run(
        "const all = [...document.querySelectorAll('figure')];"
        "const one = all.find(f => f.innerText.includes('Wait by GPU')) || all[0];"
        "one.scrollIntoView(); const plot = one.querySelector('[tabindex]'); plot.focus();"
        "const right = () => new KeyboardEvent('keydown', {key: 'ArrowRight', bubbles: true});"
        "for (let k = 0; k < 24; k++) plot.dispatchEvent(right());"
    )
    return camera.until("document.activeElement !== document.body").screen()


def report_phone(camera: Camera) -> bytes:
    """The same on a phone."""
    shows = "document.querySelectorAll('figure svg').length > 3"
    return camera.open(_description(camera), shows, size=(390, 844)).screen()


def timeline(camera: Camera) -> bytes:
    """The timeline of a simulated cluster, in a report."""
    address = _report(camera, "timeline", lambda: fleetlab.simulate(TRACE, load=1.3))
    camera.open(address, DRAWN, size=(1100, 1600))
    return camera.element(".cluster-timeline")


def web(camera: Camera) -> bytes:
    """The page with a line of slurm.conf changed, before and after."""
    shows = f"{ANSWERED} && {BY_REASON}"
    camera.open(f"{camera.page}?{CHANGED}", shows)  # the first answer may have waited for a compilation
    return camera.open(f"{camera.page}?{CHANGED}", shows, size=(1400, 1200)).screen()


def web_trace_dark(camera: Camera) -> bytes:
    """The description of a trace on the page, in the dark."""
    shows = "document.querySelectorAll('#description figure svg').length > 3"
    return camera.open(f"{camera.page}?v=1&trace=builtin:20000:0&view=trace", shows, dark=True).screen()


def web_recommendations(camera: Camera) -> bytes:
    """What to do about waiting."""
    shows = f"document.querySelectorAll('#advice-table tbody tr').length > 4 && {AT_REST}"
    return camera.open(f"{camera.page}?{BUSY}&view=advice", shows, size=(1280, 800)).screen()


def web_job(camera: Camera) -> bytes:
    """The story of the job that waits longest, beside the timeline."""
    run = fleetlab.simulate("sample")
    longest = run.jobs.sort("wait", descending=True)["job"][0]
    shows = f"document.querySelector('#job-story svg, #job-story table') && {AT_REST} && {BY_REASON}"
    return camera.open(f"{camera.page}?v=1&trace=sample&view=job&job=%23{longest}", shows, size=(1400, 900)).screen()


def demo(camera: Camera) -> bytes:
    """The page of `fleetlab demo`."""
    from fleetlab.studies.demo import demo as diagnosed
    from fleetlab.studies.story import story

    page = story(diagnosed("sample"), camera.folder / "demo.html")
    return camera.open(page.as_uri(), "document.querySelectorAll('.timeline canvas').length > 2").screen()


def sample(_: Camera) -> bytes:
    """A real Slurm before and after one line of its configuration."""
    return sample_picture.draw().encode()


def week(_: Camera) -> bytes:
    """Jobs per hour over a week, as published and as built in."""
    return week_picture.draw().encode()


def concept(name: str) -> Callable[[Camera], bytes]:
    """The figure of a concept."""
    return lambda _: concept_pictures.DRAWINGS[name]().encode()


def packages(_: Camera) -> bytes:
    """The packages of fleetlab, and one job's way."""
    return packages_picture.draw().encode()


PICTURES: dict[str, Callable[[Camera], bytes]] = {
    "sample.svg": sample,
    "week.svg": week,
    "packages.svg": packages,
    **{f"concept-{name}.svg": concept(name) for name in concept_pictures.DRAWINGS},
    "report.png": report,
    "report-dark.png": report_dark,
    "report-phone.png": report_phone,
    "timeline.png": timeline,
    "web.png": web,
    "web-trace-dark.png": web_trace_dark,
    "web-recommendations.png": web_recommendations,
    "web-job.png": web_job,
    "demo.png": demo,
}


def main(names: list[str]) -> None:
    """Make all pictures, or those named."""
    if unknown := [name for name in names if name not in {Path(picture).stem for picture in PICTURES}]:
        sys.exit(f"no picture by that name: {', '.join(unknown)}; there are {', '.join(PICTURES)}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that browser and server end, too
    with camera() as eye:
        for name, draw in PICTURES.items():
            if names and Path(name).stem not in names:
                continue
            print(f"{name} …", file=sys.stderr, flush=True)
            picture = draw(eye)
            if len(picture) > LARGEST:
                print(f"{name} has {len(picture):,} bytes: more than {LARGEST:,}", file=sys.stderr)
            (IMAGES / name).write_bytes(picture)


if __name__ == "__main__":
    main(sys.argv[1:])
