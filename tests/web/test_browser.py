"""The page in a real browser: what moves, what the address brings back, what is sent and downloaded."""

import json
import time
from contextlib import contextmanager
from urllib.parse import urlsplit

import pytest

from .conftest import CSV, HOSTILE
from .tab import PATIENCE, Tab, complaints

pytestmark = pytest.mark.browser
SMALL = "v=1&trace=folder:small"
SLOW = f"{SMALL}&order=srpt&load=10&seed=7"  # which no other test asks: the page would have the answer already


@pytest.fixture
def tab(browser, page):
    return Tab(browser, page)


def asked_for(browser):
    """The addresses that the page asked the network for."""
    told = [json.loads(e["message"])["message"] for e in browser.get_log("performance")]
    sent = [m["params"] for m in told if m["method"] == "Network.requestWillBeSent"]
    return [p["request"]["url"] for p in sent if p["documentURL"] != "about:blank"]


def test_it_loads_without_a_complaint_and_asks_nobody_else(tab):
    tab.open(SMALL)
    tab.open(f"{SMALL}&view=trace", ready=False).until(
        "document.querySelectorAll('#description figure svg').length > 5"
    )
    assert complaints(tab.browser) == []
    others = [url for url in asked_for(tab.browser) if not url.startswith((tab.page.url, "data:", "blob:"))]
    assert others == []


def test_the_baseline_stands_beside_what_is_now(tab):
    tab.open(f"{SMALL}&load=2").refined()
    wait = tab.numbers()["mean wait"]
    assert all(words and words != "–" for words in wait)
    assert wait[0] != wait[1]
    assert "(" in wait[2]  # the interval of the change
    assert "baseline" in tab.text("reasons")


def test_one_run_is_shown_first_and_replicas_replace_its_numbers(tab):
    # What the page asks for is answered late, so that the first answer can be looked at.
    tab.open(SMALL).refined()
    tab.ask("(() => { const ask = window.fetch; window.asked = []; window.fetch = async (path, o) => {"
            " if (String(o?.body).includes('refine')) { window.asked.push(path);"
            " await new Promise(go => { window.go = go; }); } return ask(path, o); }; })()")  # fmt: skip
    tab.choose("option-order", "sjf")
    tab.until("window.asked.length === 1")
    assert tab.text("evidence") == "Refining: 1 of 5 runs"
    first = tab.numbers()["mean wait"]
    assert not any("(" in text for text in first)
    assert tab.ask("document.querySelectorAll('#numbers .better, #numbers .worse').length") == 0
    tab.ask("window.go()")
    tab.refined()
    answer = tab.page.operation(kind="refine", link=f"{SMALL}&order=sjf")["result"]
    row = next(r for r in answer["rows"] if r["metric"] == "mean wait")
    assert [text.partition("\n")[0] for text in tab.numbers()["mean wait"]][:2] == [
        row[s]["text"] for s in ("base", "now")
    ]
    assert tab.numbers()["mean wait"][2] == f"{row['change']['text']} {row['verdict']}"
    assert f"{answer['replicas']} replicas of this log" in tab.text("evidence")


def test_a_change_of_the_settings_ends_the_replicas_of_the_ones_before(tab):
    tab.open("v=1&trace=builtin:20000:2&load=1.1")
    tab.until("document.getElementById('evidence').textContent.startsWith('Refining')")
    tab.choose("option-order", "sjf")
    tab.refined()
    mean = tab.numbers()["mean wait"]
    answer = tab.page.operation(kind="refine", link="trace=builtin:20000:2&load=1.1&order=sjf")["result"]
    assert mean[1] == next(r for r in answer["rows"] if r["metric"] == "mean wait")["now"]["text"]


def test_dragging_a_slider_moves_the_numbers_and_the_address(tab):
    before = tab.open(SMALL).numbers()
    slider = tab.find("#load")
    for _ in range(10):
        slider.send_keys("\ue014")  # arrow to the right
    tab.until("new URLSearchParams(location.search).get('load') === '1.5'")
    tab.until(
        "document.getElementById('status').textContent.startsWith('Answered') && !document.querySelector('.stale')"
    )
    tab.until(
        "document.querySelector('#numbers tbody tr:nth-child(2) td:nth-child(3)').innerText !== arguments[0]",
        before["mean wait"][1],
    )
    answer = tab.refined().page.operation(kind="refine", link=f"{SMALL}&load=1.5")["result"]
    wait = next(row for row in answer["rows"] if row["metric"] == "mean wait")
    assert tab.numbers()["mean wait"][:2] == [wait["base"]["text"], wait["now"]["text"]]
    assert slider.get_attribute("aria-valuetext") == "1.50 × that of the trace"


def test_nodes_of_each_type_have_a_slider(tab):
    tab.open(SMALL)
    assert "MISC" in tab.text("nodes")
    tab.find("#nodes-0").send_keys("\ue012")  # arrow to the left
    tab.until("location.search.includes('nodes=')")
    assert tab.state["nodes"] == ["MISC 29"]


def test_a_rule_that_is_chosen_is_in_the_address_and_a_link_brings_everything_back(tab):
    tab.open(SMALL)
    tab.choose("option-order", "sjf")
    tab.choose("option-backfill", "none")
    tab.until("location.search.includes('backfill=none')")
    tab.answered()
    tab.click("#keep")
    tab.choose("option-placement", "spread")
    tab.until("location.search.includes('placement=spread')")
    tab.answered()
    link = urlsplit(tab.browser.current_url).query
    tab.open(link)
    chosen = "['order', 'backfill', 'placement'].map(r => document.getElementById('option-' + r).value)"
    assert tab.ask(chosen) == ["sjf", "none", "spread"]
    tab.until("document.querySelectorAll('#kept-table tbody tr').length === 2")
    tab.until("!document.getElementById('kept-table').innerText.includes('…')")
    assert "sjf/none" in tab.text("kept-table")


def test_preemption_quota_and_edits_of_nodes_are_in_the_address_and_come_back(tab):
    tab.open(SMALL)
    tab.click("#option-preemption")
    for name, value in (("quota", "64"), ("nodes", "T4 +10, V100 -50%"), ("seed", "3")):
        tab.choose(f"option-{name}", value)
    tab.until("location.search.includes('seed=3')")
    tab.answered()
    tab.open(urlsplit(tab.browser.current_url).query)
    values = "['quota', 'nodes', 'seed'].map(r => document.getElementById('option-' + r).value)"
    assert tab.ask(values) == ["64", "T4 +10, V100 -50%", "3"]
    assert tab.ask("document.getElementById('option-preemption').checked")
    slider = "[...document.querySelectorAll('.slider')].find(s => s.innerText.includes('T4')).querySelector('input')"
    assert tab.ask(f"{slider}.value") == "40"  # it follows the edit


def test_a_run_can_be_kept_shown_again_removed_and_made_the_baseline(tab):
    tab.open(f"{SMALL}&load=1.5")
    tab.click("#keep")
    assert tab.state["keep"] == ["load=1.5"]
    tab.click("#rebase")
    tab.until("location.search.includes('base=')")
    tab.answered()
    tab.until("document.getElementById('findings').innerText.includes('as in the baseline')")
    tab.click("#reset")
    tab.until("!location.search.includes('base=')")
    tab.answered()
    tab.click("#kept-table tbody tr:nth-child(2) button[aria-label^='Show']")
    tab.until("document.getElementById('load').value === '1.5'")
    tab.click("#kept-table tbody tr:nth-child(2) button[aria-label^='Remove']")
    tab.until("document.getElementById('kept').hidden")
    assert "keep" not in tab.state


def test_long_work_can_be_cancelled(tab):
    tab.open(SMALL)
    with cancelled_once_simulating(tab):
        tab.open(SLOW, ready=False).until("document.getElementById('status').textContent.startsWith('Cancelled')")
    tab.choose("option-order", "fifo")
    tab.answered()


# Presses the button while the page says that it simulates: a driver that looks for it again and again comes too late.
CANCEL = """new MutationObserver((_, watch) => {
  const status = document.getElementById('status')?.textContent ?? '';
  if (status.startsWith('Cancelled')) watch.disconnect();
  else if (status.includes('simulating')) document.getElementById('cancel').click();
}).observe(document, { subtree: true, childList: true, characterData: true });"""


@contextmanager
def cancelled_once_simulating(tab):
    """Cancel the first simulation of pages that are opened within."""
    added = tab.browser.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": CANCEL})
    try:
        yield
    finally:
        tab.browser.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", added)


WATCH = """(() => {
  window.seen = [];
  const look = () => {
    const stale = document.getElementById('what-if').classList.contains('stale');
    const cells = [...document.querySelectorAll('#numbers .better, #numbers .worse')];
    const colors = cells.map(c => getComputedStyle(c).color);
    const text = document.body.innerText;
    window.seen.push({ stale, text, colored: colors.some(c => c !== getComputedStyle(document.body).color) });
    const answered = document.getElementById('status').textContent.startsWith('Answered');
    if (answered && !stale && window.seen.length > 3) return;
    setTimeout(look, 10);
  };
  const slider = document.getElementById('load');
  slider.value = '1.5';
  slider.dispatchEvent(new Event('input'));
  look();
})()"""


def test_until_the_full_run_is_there_the_numbers_are_marked_as_old_and_nothing_is_judged(tab):
    # A trace of its own size: no answer comes from memory.
    tab.open("v=1&trace=builtin:20000:1")
    assert "as in the baseline" in tab.text("findings")
    tab.ask(WATCH)
    tab.until(
        "document.getElementById('status').textContent.startsWith('Answered') && !document.querySelector('.stale')"
    )
    before = [one for one in tab.ask("window.seen") if one["stale"]]
    assert before
    assert not any("as in the baseline" in one["text"] or one["colored"] for one in before)
    assert all("the numbers below are of the previous settings" in one["text"] for one in before)
    assert tab.ask("document.getElementById('previous').hidden")
    assert "as in the baseline" not in tab.text("findings").split("\n")[0]
    assert complaints(tab.browser) == []


def test_a_long_run_is_replaced_by_the_next_request_and_marked_where_it_was_cancelled(tab):
    numbers = tab.open("v=1&trace=builtin:20000:0").refined().numbers()
    both = [("option-backfill", "conservative", "change"), ("load", "2", "input")]  # at once: one run of both
    change = "e.value = v; e.dispatchEvent(new Event(kind));"
    each = f"arguments[0].forEach(([id, v, kind]) => {{ const e = document.getElementById(id); {change} }})"
    tab.ask(f"(() => {{ {CANCEL} }})(), {each}", both)
    tab.until("document.getElementById('status').textContent.startsWith('Cancelled')")
    assert tab.text("previous").startswith(
        "The run of the new settings was cancelled: the numbers below are of the prev"
    )
    assert tab.numbers() == numbers
    tab.choose("option-backfill", "greedy")
    tab.answered()
    assert tab.ask("document.getElementById('previous').hidden")
    assert complaints(tab.browser) == []


def test_jobs_that_cannot_run_are_the_first_row_in_red(tab):
    tab.open(f"{SMALL}&nodes=MISC:0")
    assert "jobs" in tab.text("headline")
    assert "cannot run; 13 in the baseline" in tab.text("headline")
    assert "falls" not in tab.text("headline")
    first = "document.querySelector('#numbers tbody tr')"
    assert tab.ask(f"{first}.cells[0].innerText") == "jobs that cannot run"
    assert tab.ask(f"{first}.cells[3].className") == "worse"
    assert tab.ask("document.querySelectorAll('#numbers .better').length") == 0
    assert tab.ask("document.getElementById('recorded').hidden")  # nobody waited for synthetic jobs


def test_a_log_can_be_sent_and_played(tab, tmp_path):
    (tmp_path / "my operations.csv").write_bytes(CSV)
    tab.open(SMALL)
    tab.find("#sending summary").click()
    tab.find("#files").send_keys(str(tmp_path / "my operations.csv"))
    tab.until("!document.getElementById('upload').hidden")
    tab.choose("map", "submit=submit\ngpu_milli=gpus*1000\nruntime=took")
    tab.click("#send")
    tab.until("!document.getElementById('confirm').hidden")
    assert "upload" not in tab.state["trace"]
    assert tab.text("read-notes").startswith("columns read: submit=submit, runtime=took, gpu_milli=gpus*1000")
    tab.click("#use")
    tab.until("location.search.includes('upload%3A')")
    tab.answered()
    assert tab.text("about").startswith("my operations.csv · ")
    assert " · 400 jobs in " in tab.text("about")
    assert "my operations.csv, 400 jobs" in tab.ask("document.querySelector('#trace option:checked').textContent")
    assert "allocation of 70 %" in tab.text("notes")


def test_a_log_that_cannot_be_read_is_refused_in_words(tab, tmp_path):
    (tmp_path / "bad.csv").write_bytes(b"nothing,known\n1,2\n")
    tab.open(SMALL)
    tab.find("#sending summary").click()
    tab.find("#files").send_keys(str(tmp_path / "bad.csv"))
    tab.until("!document.getElementById('upload').hidden")
    tab.click("#send")
    tab.until("document.getElementById('trouble').innerText.includes('bad.csv')")
    assert "folder:small" in tab.state["trace"]


def test_a_bad_address_is_answered_in_words(tab):
    tab.open(f"{SMALL}&order=sjff", ready=False).until("document.getElementById('trouble').innerText.includes('sjf')")
    assert "did you mean sjf?" in tab.text("trouble")


def test_report_and_json_are_downloaded(tab, tmp_path):
    tab.open(f"{SMALL}&order=sjf")
    tab.browser.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path)})
    tab.click("#json")
    tab.click("#report")
    end = time.monotonic() + PATIENCE
    wanted = [tmp_path / "fleetlab.json", tmp_path / "fleetlab-report.html"]
    while not all(path.exists() for path in wanted) and time.monotonic() < end:
        time.sleep(0.1)
    assert json.loads(wanted[0].read_text())["provenance"]["settings"]["order"] == "sjf"
    assert "<svg" in wanted[1].read_text()


def test_two_tabs_do_not_disturb_each_other(tab):
    tab.open(f"{SMALL}&order=sjf").refined()
    first, sjf = tab.browser.current_window_handle, tab.numbers()["mean wait"][1]
    tab.browser.switch_to.new_window("tab")
    tab.open(f"{SMALL}&order=largest")
    largest = tab.numbers()["mean wait"][1]
    tab.choose("option-sharing", "exclusive")
    tab.browser.switch_to.window(first)
    assert tab.numbers()["mean wait"][1] == sjf != largest
    assert tab.state["order"] == ["sjf"]
    for handle in tab.browser.window_handles:
        if handle != first:
            tab.browser.switch_to.window(handle)
            tab.browser.close()
    tab.browser.switch_to.window(first)


def test_names_of_a_trace_are_text(tab):
    tab.open("v=1&trace=folder:hostile")
    assert HOSTILE in tab.text("nodes")
    tab.open("v=1&trace=folder:hostile&view=trace", ready=False).until("document.querySelector('#description figure')")
    assert tab.ask("document.querySelectorAll('img').length") == 0
    assert complaints(tab.browser) == []


@pytest.mark.parametrize("width", [360, 768, 1280])
def test_no_screen_is_too_narrow(tab, width):
    tab.open(f"{SMALL}&nodes=T4+-1&keep=load%3D2", width=width)
    assert "no difference" in tab.ask("document.getElementById('numbers').textContent")
    page, window = tab.ask("[document.documentElement.scrollWidth, innerWidth]")
    assert page <= window == width  # a scroll bar takes some of the window


def test_every_control_has_a_name_and_can_be_reached_by_keyboard(tab):
    tab.open(SMALL)
    every = "[...document.querySelectorAll('select, input, textarea, button, a[href]')]"
    named = "e.labels?.length || e.innerText.trim() || e.getAttribute('aria-label')"
    nameless = f"{every}.filter(e => e.checkVisibility() && !({named})).map(e => e.id)"
    assert tab.ask(nameless) == []
    seen = []
    for _ in range(60):
        tab.browser.switch_to.active_element.send_keys("\ue004")  # tab
        seen.append(tab.ask("document.activeElement.id"))
    wanted = [
        "trace",
        "to-what-if",
        "share",
        "report",
        "json",
        "nodes-0",
        "load",
        "option-order",
        "option-sharing",
        "keep",
    ]
    assert [name for name in seen if name in wanted][: len(wanted)] == wanted


def test_what_changes_is_told_to_those_who_listen(tab):
    tab.open(SMALL)
    about = "['role', 'aria-live'].map(a => document.getElementById('status').getAttribute(a))"
    assert tab.ask(about) == ["status", "polite"]
    assert tab.ask("document.getElementById('trouble').getAttribute('role')") == "alert"


def test_it_follows_the_colors_of_the_system_and_can_be_switched(tab):
    paper = "getComputedStyle(document.body).backgroundColor"
    light = tab.open(SMALL).ask(paper)
    dark = tab.open(SMALL, dark=True).ask(paper)
    tab.find("header .theme").click()
    assert tab.ask(paper) == light != dark
