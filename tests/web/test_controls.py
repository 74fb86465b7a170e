"""Presets, typed numbers, undo, the clock, titles and access for everybody, in a real browser."""

import pytest

from fleetlab.core.durations import duration

from .tab import Tab, complaints, violations

pytestmark = pytest.mark.browser
SMALL = "v=1&trace=folder:small"
ANSWERED = "document.getElementById('status').textContent.startsWith('Answered') && !document.querySelector('.stale')"


@pytest.fixture
def tab(browser, page):
    return Tab(browser, page)


# --- presets -----------------------------------------------------------------------------------------------------


def test_four_presets_are_answered_in_one_sentence_each(tab):
    tab.open(SMALL)
    names = tab.ask("[...document.querySelectorAll('.preset b')].map(b => b.innerText)")
    assert names == ["EASY backfill", "Add 6 nodes", "+30 % load", "Lose a rack"]
    tab.until("[...document.querySelectorAll('.preset .soft')].every(s => /wait|cannot run/i.test(s.innerText))")
    tab.click("#preset-3")
    tab.until(ANSWERED)
    assert tab.state["nodes"] == ["MISC -8"]
    assert tab.text("headline").startswith("Nodes MISC -8: ")
    assert tab.ask("document.getElementById('preset-3').getAttribute('aria-pressed')") == "true"
    tab.click("#preset-3")
    tab.until("!location.search.includes('nodes')")
    assert complaints(tab.browser) == []


def test_the_headline_says_what_was_changed_and_what_it_does(tab):
    tab.open(f"{SMALL}&warm_up=none&load=2&base=warm_up%3Dnone").refined()
    assert tab.text("headline").startswith("Load 2: mean wait rises from ")
    assert "mean wait rises" not in tab.text("findings").lower()  # it is said once


# --- numbers, reset, undo ----------------------------------------------------------------------------------------


def test_a_number_can_be_typed_where_the_slider_ends(tab):
    tab.open(SMALL)
    tab.choose("load-number", "3.25")
    tab.until("location.search.includes('load=3.25')")
    tab.answered()
    assert tab.ask("document.getElementById('load').value") == "2"  # as far as it goes
    tab.choose("nodes-0-number", "17")
    tab.until("location.search.includes('nodes=')")
    assert tab.state["nodes"] == ["MISC 17"]


def test_a_number_that_no_simulation_takes_is_not_sent(tab):
    tab.open(SMALL)
    tab.choose("load-number", "-1")
    tab.choose("load-number", "")
    assert tab.ask("document.getElementById('load-number').value") == "1"
    assert "load" not in tab.state


def test_each_control_can_be_reset_alone(tab):
    tab.open(f"{SMALL}&order=sjf&load=1.5&nodes=MISC+20")
    shown = "[...document.querySelectorAll('.again')].filter(b => !b.hidden).map(b => b.getAttribute('aria-label'))"
    assert tab.ask(shown) == ["Reset MISC", "Reset Nodes", "Reset Arrival rate", "Reset Order"]
    tab.click("#reset-order")
    tab.until("!location.search.includes('order')")
    tab.click("#nodes-0-reset")
    tab.until("!location.search.includes('nodes')")
    assert tab.state["load"] == ["1.5"]
    assert tab.ask("document.activeElement.id") == "nodes-0"


def test_changes_are_undone_and_redone_by_the_history_of_the_browser(tab):
    tab.open(SMALL)
    tab.choose("option-order", "sjf")
    tab.until(ANSWERED)
    for _ in range(4):
        tab.find("#load").send_keys("\ue014")  # one drag is one step
    tab.until("location.search.includes('load=1.2')")
    tab.until(ANSWERED)
    slow = tab.refined().numbers()["mean wait"]
    tab.browser.back()
    tab.until("!location.search.includes('load')")
    assert tab.ask("document.getElementById('load').value") == "1"
    tab.until(ANSWERED)
    assert tab.numbers()["mean wait"] != slow
    tab.click("#undo")
    tab.until("!location.search.includes('order') && document.getElementById('undo').disabled")
    tab.click("#redo")
    tab.browser.forward()
    tab.until("location.search.includes('load=1.2')")
    tab.until(ANSWERED)
    assert tab.refined().numbers()["mean wait"] == slow
    assert tab.ask("document.getElementById('redo').disabled")


# --- time --------------------------------------------------------------------------------------------------------


def test_work_of_more_than_a_second_has_a_clock_that_moves_and_an_estimate_of_what_is_left(tab):
    tab.open(SMALL)
    tab.open(f"{SMALL}&order=srpt&load=10", ready=False)
    clock = "document.getElementById('clock').hidden ? '' : document.getElementById('clock').innerText"
    first = tab.until(f"({clock})")
    second = tab.until(f"({clock}) !== arguments[0] && ({clock})", first)
    assert any(words in second for words in ("left", "any moment", "longer than expected"))
    tab.click("#cancel")
    tab.until("document.getElementById('clock').hidden")


def test_durations_have_one_rule_on_the_page_and_on_the_server(tab):
    seconds = [0.0, 0.4213, 7.4, 119.0, 120.0, 3599.0, 7199.0, 7200.0, 86_400.0, 172_800.0, 5_184_000.0, -90_000.0]
    tab.open(SMALL)
    assert tab.ask("arguments[0].map(window.fleetlab.duration)", seconds) == [duration(s) for s in seconds]


# --- what it says of itself, and to whom -------------------------------------------------------------------------


def test_title_and_preview_say_what_a_link_shows_and_names_are_text(page):
    text = page.ask("/?trace=builtin:2000:0&load=1.3&order=sjf").body.decode()
    assert "<title>What if order sjf, load 1.3 · PAI (synthetic), 2,000 jobs · fleetlab</title>" in text
    assert '<meta property="og:title" content="What if order sjf, load 1.3 ·' in text
    assert "<img" not in page.ask("/?trace=folder:%3Cimg%20src=x%3E").body.decode()
    assert "<title>What if · " in page.ask("/?nonsense=%3Cscript%3E").body.decode()


def test_the_title_of_the_tab_follows(tab):
    tab.open(f"{SMALL}&load=1.5")
    assert tab.browser.title == "What if load=1.5 · small · fleetlab"


def test_on_a_phone_the_result_stays_in_sight(tab):
    tab.open(f"{SMALL}&load=2", width=380)
    tab.ask("document.getElementById('row-load').scrollIntoView({block: 'center'})")
    box = "document.getElementById('pinned').getBoundingClientRect()"
    assert tab.ask(f"{box}.bottom <= innerHeight && {box}.top > 0")
    assert "mean wait" in tab.text("pinned")
    wide = tab.open(f"{SMALL}&load=2").ask("getComputedStyle(document.getElementById('pinned')).display")
    assert wide == "none"


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 380])
def test_axe_finds_nothing_on_the_scenario(tab, dark, width):
    tab.open(f"{SMALL}&order=sjf&load=2&nodes=MISC+20&keep=load%3D1.5", width=width, dark=dark)
    tab.until("!document.getElementById('kept-table').innerText.includes('…')")
    tab.ask("document.querySelectorAll('#controls details').forEach(d => { d.open = true; })")
    assert violations(tab.browser) == []


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_axe_finds_nothing_while_a_run_is_in_progress(tab, dark):
    tab.open(SMALL, dark=dark)
    tab.choose("option-order", "srpt")
    tab.choose("load-number", "10")
    tab.until("document.querySelector('.stale') && !document.getElementById('clock').hidden")
    found = violations(tab.browser)
    tab.click("#cancel")
    assert found == []


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_axe_finds_nothing_on_the_trace(tab, dark):
    tab.open(f"{SMALL}&view=trace", dark=dark, ready=False)
    tab.until("document.querySelectorAll('#description figure svg').length > 5")
    assert violations(tab.browser) == []
