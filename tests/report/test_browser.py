"""The page in a real browser: nothing fetched, no error, and everything that can be done can be done by keyboard."""

import base64
import http.server
import json
import re
import threading
import time
from contextlib import contextmanager

import polars as pl
import pytest

import fleetlab
from fleetlab import Figure

from .conftest import Found, curve, every_kind

pytestmark = pytest.mark.browser
PATIENCE = 60.0  # seconds


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    rows = {"user": ["ann", "bob", "<i>eve</i>"], "wait": [30.5, 4.0, None], "jobs": [7, 1200, 30]}
    long = pl.DataFrame({f"column {k}": [f"{k * n}" for n in range(60)] for k in range(12)})
    first = Found(
        findings=("Half of the jobs wait less than 4 s.",),
        frames={"by user": pl.DataFrame(rows), "long": long},
        charts={"cdf": curve("step", series=("fifo", "sjf"), x=(1.0, 10.0, 100.0, 1000.0), log_x=True), **every_kind()},
    )
    return fleetlab.report(first, tmp_path_factory.mktemp("page") / "page.html", title="a report")


@contextmanager
def opened(browser, page, *, width=1280, dark=False, media=""):
    """The page on a screen of that width."""
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": scheme})
    browser.get("about:blank")
    for log in ("browser", "performance"):
        browser.get_log(log)  # what was before
    browser.get(page.as_uri())
    end = time.monotonic() + PATIENCE  # on a busy machine the driver may come back while the page is on its way
    while not ask(browser, "location.href === arguments[0] && document.readyState === 'complete'", page.as_uri()):
        assert time.monotonic() < end, ask(browser, "location.href")
        time.sleep(0.05)
    yield browser
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": []})


def ask(browser, script, *words):
    return browser.execute_script(f"return ({script})", *words)


def keys(browser, *names):
    from selenium.webdriver.common.action_chains import ActionChains

    chain = ActionChains(browser)
    for name in names:
        chain.send_keys(name)
    chain.perform()


def test_it_opens_without_an_error_and_asks_for_nothing(browser, page):
    with opened(browser, page):
        assert ask(browser, "document.querySelectorAll('figure[data-live]').length") == 7
        assert browser.get_log("browser") == []
        told = [json.loads(line["message"])["message"] for line in browser.get_log("performance")]
    asked = {m["params"]["request"]["url"] for m in told if m["method"] == "Network.requestWillBeSent"}
    assert asked == {page.as_uri()}


def test_even_a_script_in_it_cannot_reach_out(browser, page):
    heard = []

    class Ear(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            heard.append(self.path)
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Ear) as server, opened(browser, page):
        threading.Thread(target=server.serve_forever, daemon=True).start()
        where = f"http://127.0.0.1:{server.server_port}/"
        said = browser.execute_async_script(
            "const [where, done] = arguments; const i = new Image(); i.src = where + 'image';"
            "const s = document.createElement('script'); s.src = where + 'script'; document.head.append(s);"
            "fetch(where + 'fetch', {mode: 'no-cors'}).then(() => done('came'), () => done('refused'));",
            where,
        )
        browser.get_log("browser")
        server.shutdown()
    assert said == "refused"
    assert heard == []


def test_a_name_stays_a_name(browser, page):
    with opened(browser, page):
        assert ask(browser, "document.querySelectorAll('td i').length") == 0
        assert ask(browser, "[...document.querySelectorAll('td')].some(c => c.textContent === '<i>eve</i>')")


def test_a_table_sorts_by_number_both_ways_and_the_unknown_stays_last(browser, page):
    users = "[...document.querySelectorAll('.table tbody')][0].innerText.match(/ann|bob|eve/g)"
    head = "[...document.querySelectorAll('.table thead th')][1]"
    with opened(browser, page):
        ask(browser, f"{head}.querySelector('button').click()")
        up, said = ask(browser, users), ask(browser, f"{head}.getAttribute('aria-sort')")
        ask(browser, f"{head}.querySelector('button').click()")
        down = ask(browser, users)
    assert (up, said, down) == (["bob", "ann", "eve"], "ascending", ["ann", "bob", "eve"])


def test_a_curve_can_be_switched_off_and_on(browser, page):
    seen = "[...document.querySelectorAll('#f0 .plot > svg.wide .marks > g')].map(g => getComputedStyle(g).display)"
    press = "document.querySelectorAll('#f0 .legend button')[1]"
    with opened(browser, page):
        before = ask(browser, seen)
        ask(browser, f"{press}.click()")
        off, said = ask(browser, seen), ask(browser, f"{press}.getAttribute('aria-pressed')")
        ask(browser, f"{press}.click()")
        assert (before, off, said) == (["inline", "inline"], ["inline", "none"], "false")
        assert ask(browser, seen) == before


def test_dragging_zooms_and_the_axis_follows(browser, page):
    from selenium.webdriver.common.action_chains import ActionChains

    numbers = "[...document.querySelectorAll('#f0 svg.wide .across text')].map(t => t.textContent)"
    with opened(browser, page):
        svg = browser.find_element("css selector", "#f0 .plot > svg.wide")
        before = ask(browser, numbers)
        width = svg.rect["width"]
        browser.execute_script("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", svg)
        ActionChains(browser).move_to_element_with_offset(svg, int(-0.1 * width), 0).click_and_hold().move_by_offset(
            int(0.2 * width), 0
        ).release().perform()
        zoomed = ask(browser, numbers)
        reset = browser.find_element("xpath", "//figure[@id='f0']//button[text()='Whole range']")
        assert reset.is_displayed()
        reset.click()
        assert ask(browser, numbers) == before == ["1 s", "10 s", "1 min", "10 min"]
    values = [float(v.removesuffix(" s").replace(",", "")) for v in zoomed]  # fewer than two durations are left
    assert zoomed != before
    assert min(values) > 5
    assert max(values) < 300


def test_a_pointer_reads_the_numbers_out(browser, page):
    from selenium.webdriver.common.action_chains import ActionChains

    with opened(browser, page):
        svg = browser.find_element("css selector", "#f0 .plot > svg.wide")
        browser.execute_script("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", svg)
        ActionChains(browser).move_to_element(svg).perform()
        said = ask(browser, "document.querySelector('#f0 .readout').innerText")
    # The middle of the axis lies between 10 and 100: a step holds what it was at 10.
    assert "fifo: 0.4 (0.35 to 0.45)" in said
    assert "sjf: 0.4" in said


def test_between_its_points_a_line_says_about_what_it_shows(browser, tmp_path):
    from selenium.webdriver.common.keys import Keys

    frame = pl.DataFrame(
        {"x": [0.0, 1.0, 2.0, 0.0, 2.0, 4.0], "y": [0.0, 1.0, 2.0, 10.0, 30.0, 50.0], "series": list("aaabbb")}
    )
    figure = Figure("f", "line", frame, "x", "y", "says")
    with opened(browser, fleetlab.report(Found(charts={"f": figure}), tmp_path / "p.html")):
        browser.execute_script("document.querySelector('#f0 .plot').focus()")
        keys(browser, Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
        said = ask(browser, "document.querySelector('#f0 .readout').innerText")
    assert said.splitlines() == ["1 · x", "a: 1", "b: ≈ 20"]


def test_arrow_keys_read_every_kind_of_figure_out(browser, page):
    from selenium.webdriver.common.keys import Keys

    with opened(browser, page):
        said = []
        for k in range(7):
            browser.execute_script(f"document.querySelector('#f{k} .plot').focus()")
            keys(browser, Keys.ARROW_RIGHT)
            said.append(ask(browser, f"document.querySelector('#f{k} .readout').innerText"))
        keys(browser, Keys.ESCAPE)
        assert ask(browser, "document.querySelector('#f6 .readout').innerText") == ""
        assert browser.get_log("browser") == []
    assert said[0].startswith("1 · wait, s")
    assert all("n0" in text for text in said[1:])


def test_the_keyboard_reaches_everything_in_the_order_of_the_page(browser, page):
    from selenium.webdriver.common.keys import Keys

    here = "(() => { const e = document.activeElement; const all = [...document.querySelectorAll('*')];" \
        " return [all.indexOf(e), e.tagName, e.className || e.textContent.trim()]; })()"  # fmt: skip
    with opened(browser, page):
        reached = []
        for _ in range(24):
            keys(browser, Keys.TAB)
            reached.append(ask(browser, here))
    places = [at for at, _, _ in reached]
    words = [said for _, _, said in reached]
    assert places == sorted(set(places))
    assert words[:3] == ["skip", "theme", "Summary"]
    assert {"fifo", "sjf", "plot", "Save SVG", "Save PNG"} <= set(words)


@pytest.mark.parametrize("width", [360, 768, 1280])
def test_no_screen_is_too_narrow(browser, page, width):
    with opened(browser, page, width=width):
        assert ask(browser, "document.documentElement.scrollWidth") <= width
        cut = "[...document.querySelectorAll('.plot > svg')].filter(s => s.getBoundingClientRect().right > innerWidth)"
        assert ask(browser, f"{cut}.length") == 0
        small = (
            "Math.min(...[...document.querySelectorAll('.plot > svg text')]"
            ".map(t => t.getBoundingClientRect().height).filter(h => h > 0))"
        )
        assert ask(browser, small) >= 10  # pixels: it can still be read


def test_dark_is_what_the_reader_prefers_or_switches_to(browser, page):
    paper = "getComputedStyle(document.body).backgroundColor"
    stroke = "getComputedStyle(document.querySelector('.marks .s0')).stroke"
    with opened(browser, page):
        light = ask(browser, f"[{paper}, {stroke}]")
        ask(browser, "document.querySelector('.theme').click()")
        switched = ask(browser, f"[{paper}, {stroke}]")
    with opened(browser, page, dark=True):
        preferred = ask(browser, f"[{paper}, {stroke}]")
        ask(browser, "document.querySelector('.theme').click()")
        assert ask(browser, f"[{paper}, {stroke}]") == light
    assert light[0] == "rgb(255, 255, 255)"
    assert switched == preferred
    assert not set(light) & set(switched)


def test_on_paper_all_figures_and_all_rows_are_there(browser, page):
    with opened(browser, page, media="print", dark=True):
        assert ask(browser, "getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        shown = "[...document.querySelectorAll('figure')].filter(f => [...f.querySelectorAll('.plot > svg')]" \
            ".some(s => s.getBoundingClientRect().height > 50)).length"  # fmt: skip
        assert ask(browser, shown) == 7
        assert ask(browser, "getComputedStyle(document.querySelector('.tools')).display") == "none"
        rows = "[...document.querySelectorAll('.table tbody tr')].filter(r => r.getBoundingClientRect().height > 0)"
        assert ask(browser, f"{rows}.length") == 63  # also those of a table that is folded on a screen
        told = browser.execute_cdp_cmd("Page.printToPDF", {"preferCSSPageSize": True})
    pdf = base64.b64decode(told["data"])
    assert pdf.startswith(b"%PDF")
    assert len(re.findall(rb"/Type\s*/Page\b", pdf)) >= 3


BROKEN = """(() => {
  const found = [], walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const node = walk.currentNode, range = document.createRange();
    if (!node.parentElement.closest('td, dd')) continue;
    for (const number of node.data.matchAll(/\\d[\\d,.]*/g)) {
      range.setStart(node, number.index);
      range.setEnd(node, number.index + number[0].length);
      if (new Set([...range.getClientRects()].map(r => Math.round(r.top))).size > 1) found.push(number[0]);
    }
  }
  return found;
})()"""


def test_on_paper_no_number_is_broken_and_a_wide_table_has_a_wide_page(browser, tmp_path):
    names = {"pool": ["V100M32", "no GPU"]}
    numbers = {f"mean of many things {k}": [1234567.25 * (k + 1), 0.000123456] for k in range(15)}
    found = Found(
        frames={"wide": pl.DataFrame(names | numbers), "two": pl.DataFrame(names | dict([*numbers.items()][:8]))}
    )
    page = fleetlab.report(found, tmp_path / "page.html", title="numbers")
    with opened(browser, page, width=680, media="print"):  # as wide as A4 with its margins
        assert ask(browser, BROKEN) == []
        told = browser.execute_cdp_cmd("Page.printToPDF", {"preferCSSPageSize": True})
    boxes = re.findall(rb"MediaBox \[0 0 ([\d.]+) ([\d.]+)\]", base64.b64decode(told["data"]))
    assert {float(width) > float(height) for width, height in boxes} == {True, False}


def test_a_figure_can_be_saved_as_a_drawing_and_as_a_picture(browser, page):
    kept = """
      const done = arguments[arguments.length - 1]; const found = [];
      URL.createObjectURL = (real => blob => { found.push(blob); return real(blob); })(URL.createObjectURL.bind(URL));
      HTMLAnchorElement.prototype.click = () => {};
      for (const b of document.querySelectorAll('#f0 .tools button')) if (b.textContent.startsWith('Save')) b.click();
      const look = setInterval(() => {
        if (!found.some(b => b.type === 'image/png')) return;
        clearInterval(look);
        done(found.map(b => [b.type, b.size]));
      }, 50);
    """
    with opened(browser, page):
        found = browser.execute_async_script(kept)
        assert browser.get_log("browser") == []
    assert {kind for kind, size in found if size > 1000} == {"image/svg+xml", "image/png"}


def test_without_scripts_it_can_still_be_read(browser, page):
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        with opened(browser, page):
            drawn = browser.find_elements("css selector", ".plot > svg.wide")
            assert sum(d.is_displayed() for d in drawn) == 7
            assert browser.find_elements("css selector", "button") == []
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
