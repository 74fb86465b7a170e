"""The timeline of a report in a real browser: drawn from its own tiles, moved by keys, its window told to others."""

import re
from base64 import b64decode

import pytest

import fleetlab
from fleetlab.core.figure import LARGEST

from .test_browser import ask, keys, opened

pytestmark = pytest.mark.browser
TIMELINE = "document.querySelector('.cluster-timeline').timeline"


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    result = fleetlab.simulate("builtin:300", nodes="-90%")
    return fleetlab.report(result, tmp_path_factory.mktemp("timeline") / "page.html")


def drawn(browser):
    """Wait until all tiles of the view are there."""
    script = f"""const done = arguments[0];
    const look = () => ({TIMELINE}?.frames && {TIMELINE}.missing === 0 ? done(true) : setTimeout(look, 20)); look();"""
    assert browser.execute_async_script(script)


def pixels(browser):
    """Which colors the raster has, and of how many pixels each."""
    script = f"""const c = {TIMELINE}.charts[0].u; const b = c.bbox;
    const d = c.ctx.getImageData(b.left + 2, b.top + 2, b.width - 4, b.height - 4).data;
    const n = {{}};
    for (let k = 0; k < d.length; k += 4) {{ const w = d.slice(k, k + 3).join(' '); n[w] = (n[w] || 0) + 1; }}
    return n;"""
    return browser.execute_script(script)


def test_a_report_with_a_timeline_is_small_and_holds_its_tiles(page):
    text = page.read_text("utf-8")
    tiles = re.findall(r'"\d+/\d+/\d+/\d+/taken":"([^"]+)"', text)
    assert tiles
    assert sum(len(b64decode(tile)) for tile in tiles) <= LARGEST
    assert len(text) < 5_000_000


def test_it_is_drawn_without_an_error_and_asks_for_nothing(browser, page):
    with opened(browser, page):
        drawn(browser)
        assert len(pixels(browser)) > 3  # idle, and jobs of several users
        assert browser.get_log("browser") == []


def test_keys_move_zoom_and_go_back(browser, page):
    with opened(browser, page):
        drawn(browser)
        browser.execute_script(f"{TIMELINE}.reset(); document.querySelector('.timeline-plots').focus()")
        whole = ask(browser, f"{TIMELINE}.view.t")
        keys(browser, "+")
        near = ask(browser, f"{TIMELINE}.view.t")
        assert near[1] - near[0] == pytest.approx((whole[1] - whole[0]) / 2)
        keys(browser, "\ue014")  # right
        moved = ask(browser, f"{TIMELINE}.view.t")
        assert moved[0] > near[0]
        keys(browser, "\ue011")  # home
        assert ask(browser, f"{TIMELINE}.view.t") == whole


def test_a_selection_by_keys_is_told_as_a_window(browser, page):
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    with opened(browser, page):
        drawn(browser)
        browser.execute_script(
            "window.told = []; document.addEventListener('timeline-window', (e) => window.told.push(e.detail));"
            "document.querySelector('.timeline-plots').focus()"
        )
        step = ActionChains(browser).key_down(Keys.SHIFT).send_keys(Keys.ARROW_RIGHT).key_up(Keys.SHIFT)
        step.send_keys(Keys.SPACE).key_down(Keys.SHIFT).send_keys(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
        step.key_up(Keys.SHIFT).send_keys(Keys.SPACE).perform()
        view = ask(browser, f"{TIMELINE}.view.t")
        (window,) = ask(browser, "window.told")
        assert window["t1"] - window["t0"] == pytest.approx(2 * (view[1] - view[0]) / 50)
        keys(browser, Keys.ESCAPE)
        assert ask(browser, "window.told")[1] is None


def test_the_cursor_reads_out_node_time_and_job(browser, page):
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    with opened(browser, page):
        drawn(browser)
        browser.execute_script("document.querySelector('.timeline-plots').focus()")
        chain = ActionChains(browser).key_down(Keys.SHIFT)
        chain.send_keys(*[Keys.ARROW_LEFT] * 20, *[Keys.ARROW_UP] * 60).key_up(Keys.SHIFT).perform()
        script = (
            "const d = arguments[0]; setTimeout(() => d(document.querySelector('.timeline-live').textContent), 300)"
        )
        said = browser.execute_async_script(script)
        assert re.search(r"node-\d+.*Wed 1 Jul \d\d:\d\d:\d\d.*(busy|idle)", said)
        assert re.search(
            r"job (job-\d+|of the warm-up) user user-\d+, .* GPUs?, .*\d\d:\d\d:\d\d to \w+ \d+ \w+ .*, waited", said
        )


def test_what_is_known_of_a_job_stays_after_a_click_and_goes_with_escape(browser, page):
    from selenium.webdriver.common.action_chains import ActionChains

    with opened(browser, page):
        drawn(browser)
        over = browser.find_element("css selector", ".timeline-plots .u-over")
        # At once: the page itself scrolls smoothly, and a mouse would miss what still moves.
        browser.execute_script("arguments[0].scrollIntoView({ block: 'center', behavior: 'instant' })", over)
        ActionChains(browser).move_to_element(over).click().perform()
        told = "t.pinned && t.readout.innerText.includes('busy') ? d() : setTimeout(look, 20)"
        browser.execute_async_script(f"const t = {TIMELINE}, d = arguments[0]; const look = () => ({told}); look();")
        ActionChains(browser).move_by_offset(50, 20).perform()
        after = "const d = arguments[0]; setTimeout(() => d([t.pinned, t.readout.innerText]), 300)"
        pinned, said = browser.execute_async_script(f"const t = {TIMELINE}; {after}")
        assert pinned
        assert "busy" in said
        keys(browser, "\ue00c")  # escape
        assert ask(browser, f"{TIMELINE}.readout.hidden")


def test_every_coloring_paints_and_has_a_legend(browser, page):
    with opened(browser, page):
        drawn(browser)
        choices = ask(browser, "[...document.querySelector('.timeline-tools select').options].map((o) => o.value)")
        assert {"user", "type", "size", "allocation", "utilization", "state"} <= set(choices)
        for color in choices:
            browser.execute_script(
                "const s = document.querySelector('.timeline-tools select'); s.value = arguments[0];"
                "s.dispatchEvent(new Event('change'))",
                color,
            )
            browser.execute_async_script("const d = arguments[0]; setTimeout(d, 150)")
            drawn(browser)
            assert len(pixels(browser)) > 1, color
            assert ask(browser, "document.querySelectorAll('.timeline-legend li').length") > 1
        assert browser.get_log("browser") == []


def test_two_runs_stand_above_each_other_or_as_their_difference(browser, page):
    with opened(browser, page):
        drawn(browser)
        browser.execute_script(
            f"const t = {TIMELINE}; const r = t.runs[0]; t.set([r.about, r.about], [r.source, r.source]);"
        )
        browser.execute_async_script("const d = arguments[0]; setTimeout(d, 300)")
        drawn(browser)
        assert ask(browser, f"{TIMELINE}.charts.filter((c) => c.kind === 'raster').length") == 2
        browser.execute_script(
            f"{TIMELINE}.both.value = 'difference'; {TIMELINE}.both.dispatchEvent(new Event('change'))"
        )
        browser.execute_async_script("const d = arguments[0]; setTimeout(d, 300)")
        drawn(browser)
        assert ask(browser, f"{TIMELINE}.charts.filter((c) => c.kind === 'raster').length") == 1
        borders = pixels(browser)
        assert max(borders.values()) / sum(borders.values()) > 0.9  # a run does not differ from itself
