"""The window brushed in the timeline: what all numbers are of, in the address, and kept between what-ifs."""

import re
import time
from contextlib import suppress
from urllib.parse import quote, urlsplit

import pytest

from fleetlab import WorkloadError
from fleetlab.web.link import Link

from .tab import PATIENCE, Tab, complaints, violations

SMALL = "v=1&trace=folder:small"
PART = f"{SMALL}&submitted=2000..5000"


@pytest.fixture
def tab(browser, page):
    return Tab(browser, page)


def test_an_address_has_the_time_in_seconds_and_refuses_what_is_none():
    link = Link.of("trace=builtin:2000:0&submitted=30m..2h")
    assert link.between == (1800.0, 7200.0)
    assert "submitted=1800..7200" in link.query()
    with pytest.raises(WorkloadError, match=r"BEGIN\.\.END"):
        Link.of("submitted=soon")


def test_numbers_are_of_the_jobs_submitted_in_the_time_on_both_sides(page, small):
    answer = page.ask(f"/api/run?{PART}&order=sjf").json
    submit = small.workload.frame["submit"]
    count = int(((submit >= 2000) & (submit < 5000)).sum())
    selected = rf"the {count:,} jobs submitted between Wed 2020-07-01 00:33:\d\d and 01:23:\d\d"
    assert all(re.search(selected, answer[place]) for place in ("population", "headline", "submitted"))
    whole = page.ask(f"/api/run?{SMALL}&order=sjf").json
    waits = [next(r for r in a["rows"] if r["metric"] == "mean wait") for a in (answer, whole)]
    assert waits[0]["base"]["value"] != waits[1]["base"]["value"]
    total = sum(r["now"]["value"] for r in answer["wait_reasons"])
    assert total == pytest.approx(waits[0]["now"]["value"])


def test_a_window_means_the_same_jobs_at_another_load_and_is_measured_not_simulated_again(page):
    page.ask(f"/api/run?{SMALL}&load=1.3")
    answer = page.ask(f"/api/run?{PART}&load=1.3").json
    same = page.ask(f"/api/run?{PART}").json
    counts = [re.search(r"the ([\d,]+) jobs submitted", a["submitted"])[1] for a in (answer, same)]
    assert counts[0] == counts[1]
    base = [next(r for r in a["rows"] if r["metric"] == "mean wait")["base"]["value"] for a in (answer, same)]
    assert base[0] == base[1]


def test_a_time_without_jobs_and_baselines_of_other_jobs_are_refused_in_words(page):
    empty = page.ask(f"/api/run?{SMALL}&submitted=100d..101d")
    assert (empty.status, "no job is submitted" in empty.json["error"]) == (400, True)
    other = page.ask(f"/api/run?{SMALL}&window=0..1h")
    assert (other.status, "cannot be compared" in other.json["error"]) == (400, True)


def test_the_report_of_an_address_says_of_which_jobs_its_numbers_are(page):
    html = page.ask(f"/api/report.html?{PART}&order=sjf").body.decode()
    assert re.search(r"jobs submitted between Wed 2020-07-01 00:33:\d\d and 01:23", html)


UNTIL = "v=1&trace=builtin:2000:0&until=7200&base=until%3D7200"


def test_reasons_are_of_the_jobs_that_completed_and_add_up_to_their_mean_wait(page):
    answer = page.ask(f"/api/run?{UNTIL}").json
    wait = next(row for row in answer["rows"] if row["metric"] == "mean wait")
    for side in ("base", "now"):
        total = sum(reason[side]["value"] for reason in answer["wait_reasons"])
        assert total == pytest.approx(wait[side]["value"])


def test_a_time_after_the_end_of_the_run_is_refused_and_one_that_it_reaches_is_not(page):
    late = page.ask(f"/api/run?{UNTIL}&submitted=8000..9000")
    assert (late.status, "was simulated: the run ends 2 h after" in late.json["error"]) == (400, True)
    part = page.ask(f"/api/run?{UNTIL}&submitted=7000..9000")
    assert (part.status, "mean wait" in part.json["headline"]) == (200, True)


def test_where_no_job_completed_the_headline_is_of_gpus_in_few_digits(page):
    answer = page.ask(f"/api/run?{UNTIL}&submitted=7180..7190").json
    assert re.search(r", GPU allocation while jobs arrive is \d\d(\.\d{1,5})? %", answer["headline"])
    assert answer["findings"][-1] == "No job completed."


def test_a_result_says_that_it_is_of_the_whole_run(page):
    notes = page.ask(f"/api/result.json?{PART}").json["notes"]
    assert re.match(r"numbers and tables are of the whole run: .* jobs submitted between Wed 2020", notes[0])
    assert "whole run" not in str(page.ask(f"/api/result.json?{SMALL}").json["notes"])


# --- in a browser ---

TIMELINE = "window.fleetlab.pageTimeline"


def drawn(tab):
    """Wait until all of the timeline is there: the queues come after the rows, and are laid out anew with them."""
    tab.until(f"{TIMELINE}?.frames > 0 && {TIMELINE}.missing === 0 && {TIMELINE}.runs.every(r => r.about.meanings)")


# The middle of the rows, once it rests there for two frames and nothing covers it.
RESTS = """(done => {
  const over = document.querySelector('#cluster-timeline .timeline .u-over');
  over.scrollIntoView({ block: 'center', behavior: 'instant' });
  const place = () => { const b = over.getBoundingClientRect(); return [b.left, b.top, b.width, b.height]; };
  const before = place();
  requestAnimationFrame(() => requestAnimationFrame(() => {
    const [left, top, width, height] = place();
    const there = document.elementFromPoint(left + width / 2, top + height / 2);
    done(String(before) === String([left, top, width, height]) && over.contains(there));
  }));
})(arguments[0])"""


def rows_in_view(tab):
    """Scroll to the rows at once: the page itself scrolls smoothly, and a mouse would miss what still moves."""
    drawn(tab)
    tab.browser.set_script_timeout(PATIENCE)
    end = time.monotonic() + PATIENCE
    while not tab.browser.execute_async_script(RESTS):
        assert time.monotonic() < end, "the timeline moves, or is covered"
    return tab.find("#cluster-timeline .timeline .u-over")


def settled(tab):
    tab.until(
        "document.getElementById('status').textContent.startsWith('Answered') && !document.querySelector('.stale')"
    )


def press_and_drag(tab):
    """Drag over the rows until the timeline has a brush: one that is drawn anew meanwhile has lost the press."""
    from selenium.common.exceptions import StaleElementReferenceException
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        chain = ActionChains(tab.browser)
        with suppress(StaleElementReferenceException):
            chain.key_down(Keys.SHIFT).move_to_element_with_offset(rows_in_view(tab), -300, 0).click_and_hold()
            chain.move_by_offset(200, 5).perform()
            if tab.ask(f"Boolean({TIMELINE}.brush)"):
                return
        ActionChains(tab.browser).reset_actions()
    raise AssertionError("no drag is seen by the timeline")


@pytest.mark.browser
def test_a_brush_sets_the_window_of_all_numbers_and_stays_from_one_what_if_to_the_next(tab):
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    tab.open(SMALL)
    before = tab.numbers()["mean wait"][0]
    press_and_drag(tab)
    tab.ask(f"{TIMELINE}.show(null)")  # as an answer that comes meanwhile does
    ActionChains(tab.browser).release().key_up(Keys.SHIFT).perform()
    tab.until("location.search.includes('submitted=')")
    settled(tab)
    window = tab.state["submitted"]
    assert tab.numbers()["mean wait"][0] != before
    assert "jobs submitted between" in tab.text("selected-text")
    assert "jobs submitted between" in tab.text("headline")
    tab.choose("option-order", "sjf")
    tab.until("location.search.includes('order=sjf')")
    settled(tab)
    assert tab.state["submitted"] == window
    assert tab.ask(f"{TIMELINE}.window") == [float(t) for t in window[0].split("..")]
    link = urlsplit(tab.browser.current_url).query
    numbers = tab.refined().numbers()
    tab.open(link).refined()
    drawn(tab)
    assert (tab.numbers(), tab.ask(f"{TIMELINE}.window.length")) == (numbers, 2)
    tab.find("body").send_keys(Keys.ESCAPE)
    tab.until("!location.search.includes('submitted=')")
    settled(tab)
    assert tab.ask(f"{TIMELINE}.window") is None
    assert tab.ask("document.getElementById('selected').hidden")
    assert complaints(tab.browser) == []


@pytest.mark.browser
def test_a_selection_is_one_step_of_the_history_and_is_cleared_by_its_button(tab):
    tab.open(PART)
    tab.click("#unselect")
    tab.until("!location.search.includes('submitted=')")
    settled(tab)
    tab.click("#undo")
    tab.until("location.search.includes('submitted=2000..5000')")
    settled(tab)
    assert "jobs submitted between" in tab.text("population")


# Four neighboring GPUs, each held by one job of the log alone, half an hour after the first submission.
ALONE = """(async (done) => {
  const run = window.fleetlab.pageTimeline.runs[0];
  let found = [];
  for (let gpu = 0; gpu < run.about.gpus; gpu++) {
    const { count, jobs } = await run.source.at(gpu, gpu + 1, 1800);
    if (count === 1 && jobs[0].job >= 0) found.push(jobs[0].job); else found = [];
    if (found.length === 4) return done([gpu - 3, run.about.gpus, found]);
  }
  return done(null);
})(arguments[0])"""


@pytest.mark.browser
def test_a_click_on_a_job_opens_its_story_and_so_does_enter(tab):
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    tab.open(f"{SMALL}&warm_up=none&base={quote('warm_up=none')}")  # one timeline, without jobs of a warm-up
    drawn(tab)
    tab.browser.set_script_timeout(PATIENCE)
    gpu, gpus, jobs = tab.browser.execute_async_script(ALONE)
    rows = "[arguments[0] / arguments[1], (arguments[0] + 4) / arguments[1]]"
    tab.ask(f"{TIMELINE}.look([1780, 1820], {rows})", gpu, gpus)
    ActionChains(tab.browser).move_to_element(rows_in_view(tab)).click().perform()
    tab.until("location.search.includes('view=job')")
    assert tab.state["job"][0] in [f"#{job}" for job in jobs]
    tab.until("document.querySelector('#job-story h2')?.innerText.startsWith('Job ')")
    tab.browser.back()
    tab.until("!document.getElementById('what-if').hidden")
    tab.ask("document.querySelector('.timeline-plots').focus()")
    tab.ask(f"{TIMELINE}.cursor = {{ t: 1800, g: (arguments[0] + 0.5) / arguments[1] }}", gpu, gpus)
    ActionChains(tab.browser).send_keys(Keys.ENTER).perform()
    tab.until("new URLSearchParams(location.search).get('job') === arguments[0]", f"#{jobs[0]}")
    assert complaints(tab.browser) == []


@pytest.mark.browser
@pytest.mark.parametrize(("dark", "width"), [(False, 1280), (True, 360)])
def test_axe_finds_nothing_where_a_time_is_selected_and_jobs_are_read_out(tab, dark, width):
    tab.open(f"{PART}&order=sjf&nodes={quote('T4 -2')}", dark=dark, width=width)
    drawn(tab)
    tab.ask(f"{TIMELINE}.look([3000, 3400], [0, 0.05])")
    tab.ask("document.querySelector('.timeline-plots').focus()")
    key = "new KeyboardEvent('keydown', { key: 'ArrowRight', shiftKey: true, bubbles: true })"
    tab.ask(f"document.querySelector('.timeline-plots').dispatchEvent({key})")
    tab.until(f"{TIMELINE}.pinned")
    assert violations(tab.browser) == []
    page, window = tab.ask("[document.documentElement.scrollWidth, innerWidth]")
    assert page <= window == width  # a scroll bar takes some of the window
