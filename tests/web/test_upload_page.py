"""A log of one's own in a real browser: dropped, looked at, mapped, read with its rejects, and kept by its name."""

import pytest

from .conftest import HOSTILE
from .tab import Tab, complaints, violations

pytestmark = pytest.mark.browser
SMALL = "v=1&trace=folder:small"
ROWS = "".join(f"{10 * k},{1 + k % 4},{30 + k % 700},u{k % 3}\n" for k in range(400))
LOG = f"submit,gpus,took,person\n{ROWS}soon,1,30,ada\n4100,-2,30,ada\n"
DROP = """((name, text) => {
  const carried = new DataTransfer();
  carried.items.add(new File([text], name));
  const event = (kind) => new DragEvent(kind, { dataTransfer: carried, bubbles: true, cancelable: true });
  document.body.dispatchEvent(event('dragover'));
  document.body.dispatchEvent(event('drop'));
})(arguments[0], arguments[1])"""


@pytest.fixture
def tab(browser, page):
    return Tab(browser, page)


def menus(tab):
    return tab.ask("[...document.querySelectorAll('#preview select')].map(s => s.value)")


def take(tab, column, target):
    choose = "(s => { s.value = arguments[1]; s.dispatchEvent(new Event('change')); })"
    tab.ask(f"{choose}(document.querySelectorAll('#preview select')[arguments[0]])", column, target)


def test_a_log_is_dropped_looked_at_mapped_read_and_keeps_its_name(tab):
    tab.open(SMALL)
    tab.ask(DROP, "our jobs, May.csv", LOG)
    tab.until("!document.getElementById('upload').hidden")
    assert tab.text("upload-name") == "our jobs, May.csv"
    assert "Any delimited table" in tab.text("looks-like")
    assert tab.ask("document.querySelectorAll('#preview tbody tr').length") == 5
    assert menus(tab) == ["submit", "gpu_milli", "", ""]
    take(tab, 2, "runtime")
    take(tab, 3, "user")
    assert menus(tab) == ["submit", "gpu_milli", "runtime", "user"]
    mapped = tab.ask("document.getElementById('map').value.split('\\n')")
    assert sorted(mapped) == ["gpu_milli=gpus*1000", "runtime=took", "submit=submit", "user=person"]
    assert violations(tab.browser) == []
    tab.click("#send")
    tab.until("!document.getElementById('confirm').hidden")
    assert tab.text("read-counts") == "our jobs, May.csv: 400 jobs, 2 rows rejected."
    rejected = tab.ask(
        "[...document.querySelectorAll('#rejected tbody tr')].map(r => [...r.cells].map(c => c.innerText))"
    )
    assert [(file, line) for file, line, _ in rejected] == [("our jobs, May.csv", "402"), ("our jobs, May.csv", "403")]
    assert "soon" in rejected[0][2]
    assert "folder:small" in tab.state["trace"]  # nothing is used before it was seen
    assert violations(tab.browser) == []
    tab.click("#use")
    tab.until("location.search.includes('upload%3A')")
    tab.answered()
    assert "our jobs, May.csv" in tab.text("about")
    tab.open(tab.browser.current_url.partition("?")[2])  # the link brings the name back
    assert tab.ask("document.querySelector('#trace option:checked').textContent") == "our jobs, May.csv"
    assert tab.browser.title.endswith("our jobs, May.csv · fleetlab")
    assert complaints(tab.browser) == []


def test_a_column_that_is_not_wanted_is_not_guessed_again(tab):
    tab.open(SMALL)
    tab.ask(DROP, "jobs.csv", LOG)
    tab.until("!document.getElementById('upload').hidden")
    take(tab, 1, "")
    tab.click("#send")
    tab.until("!document.getElementById('confirm').hidden")
    assert "gpu_milli" not in tab.text("read-notes").split("\n")[0]
    tab.click("#discard")
    tab.until("document.getElementById('status').textContent === 'The upload is deleted.'")


def test_a_map_that_is_wrong_is_said_and_can_be_corrected_without_choosing_the_file_again(tab):
    tab.open(SMALL)
    tab.ask(DROP, "jobs.csv", LOG)
    tab.until("!document.getElementById('upload').hidden")
    tab.choose("map", "submit=nothing")
    tab.click("#send")
    tab.until("document.getElementById('trouble').innerText.includes('nothing')")
    tab.choose("map", "submit=submit\nruntime=took")
    tab.click("#send")
    tab.until("!document.getElementById('confirm').hidden")
    assert "400 jobs" in tab.text("read-counts") or "401 jobs" in tab.text("read-counts")
    tab.click("#discard")


def test_names_and_cells_of_a_log_are_text(tab):
    tab.open(SMALL)
    tab.ask(DROP, f"{HOSTILE}.csv", f"submit,{HOSTILE}\n1,{HOSTILE}\n")
    tab.until("!document.getElementById('upload').hidden")
    assert HOSTILE in tab.text("preview")
    assert tab.ask("document.querySelectorAll('img').length") == 0
    tab.click("#forget")
    tab.until("document.getElementById('upload').hidden")


def test_what_no_reader_knows_is_said(tab):
    tab.open(SMALL)
    tab.ask(DROP, "page.html", "<html>\n<body>\n")
    tab.until("!document.getElementById('upload').hidden")
    assert "No format was recognized" in tab.text("looks-like")
    tab.click("#send")
    tab.until("document.getElementById('trouble').innerText.includes('page.html')")
