"""One job: three jobs whose waits can be worked out by hand, found and told over HTTP and in a browser.

On two nodes of two GPUs, of types A and B, three jobs want type A: `first` runs from 0 to 100 on both GPUs, `second`
(2 GPUs, submitted at 10, 50 s) has to wait until 100, `third` (1 GPU, submitted at 20) until `second` has ended.
"""

from urllib.parse import quote

import polars as pl
import pytest

from fleetlab import Cluster, FleetlabError, Provenance, Trace, Workload
from fleetlab.web.advice import explain_job
from fleetlab.web.link import Link, read_scenario
from fleetlab.web.openapi import description

from .conftest import HOSTILE
from .tab import Tab, complaints, violations
from .test_handlers import described

LINK = "v=1&trace=folder:three"
VIEW = f"{LINK}&view=job"
ROWS = "[...document.querySelectorAll('#job-story tbody tr')].map(r => [...r.cells].map(c => c.innerText.trim()))"


@pytest.fixture(scope="module")
def three() -> Trace:
    jobs = pl.DataFrame({
        "submit": [0.0, 10.0, 20.0],
        "start": [0.0, 130.0, None],
        "end": [100.0, 180.0, None],
        "runtime": [100.0, 50.0, 30.0],
        "gpu_milli": [2000, 2000, 1000],
        "user": ["ada", "bob", "bob"],
        "group": ["g", "g", HOSTILE],
        "gpu_types": [["A"]] * 3,
    })  # fmt: skip
    nodes = pl.concat([Cluster.uniform(1, 2, gpu_type=kind).frame for kind in ("A", "B")])
    cluster = Cluster.of(nodes.with_columns(node=pl.Series(["n0", "n1"])), source="three")
    names = pl.LazyFrame({"job": [0, 1, 2], "name": ["first", "second", "third"]})
    return Trace(Workload.of(jobs, source="three"), Provenance("read", "three"), cluster=cluster, names=names)


@pytest.fixture(scope="module")
def scenario(three):
    return read_scenario("", "folder:three").bind(three, None)


@pytest.fixture(scope="module")
def page(page, root, three):
    """The page of all modules, which finds this trace too."""
    three.save(root / "three")
    return page


@pytest.fixture
def tab(browser, page):
    return Tab(browser, page)


def test_without_words_the_longest_waits_come_first(scenario):
    found = explain_job(scenario, "")["found"]
    assert [(row["words"], row["wait"]) for row in found] == [("third", 130.0), ("second", 90.0), ("first", 0.0)]


def test_words_that_mean_several_jobs_list_them(scenario):
    assert [row["name"] for row in explain_job(scenario, "user=bob")["found"]] == ["third", "second"]
    with pytest.raises(FleetlabError, match="no job is called that"):
        explain_job(scenario, "fourth")


def test_the_story_tells_the_wait_beside_the_log_and_who_held_it(scenario):
    answer = explain_job(scenario, "second")
    job, tables = answer["result"]["job"], answer["result"]["tables"]
    assert (job["wait"], job["recorded"]["wait"]) == (90.0, 120.0)
    assert [(row["name"], row["wait"]) for row in tables["holders"]] == [("first", 90.0)]
    assert "<svg" in answer["strip"]
    assert "what would have started it sooner" not in tables  # only where it is asked for
    tried = explain_job(scenario, "second", what_if=True)["result"]["tables"]["what would have started it sooner"]
    assert ("GPU type B", 0.0, -90.0) in [(row["change"], row["wait"], row["wait change"]) for row in tried]


def test_the_operation_is_as_described_and_refuses_what_it_does_not_know(page):
    question = {"kind": "explain", "link": LINK, "job": "second"}
    done = page.operation(**question)
    assert done["result"]["result"]["job"]["name"] == "second"
    described(description("test"), "post", "/api/operations", page.ask("/api/operations", method="POST", body=question))
    for wrong in ({"what_if": "yes"}, {"job": "x" * 201}, {"job": 7}):
        assert page.ask("/api/operations", method="POST", body=question | wrong).status == 400
    failed = page.operation(kind="explain", link=LINK, job="fourth")
    assert (failed["status"], "no job is called that" in failed["error"]["error"]) == ("failed", True)


def test_an_address_has_the_job():
    link = Link.of(f"{VIEW}&job={quote('user=a&b %')}")
    assert (link.view, link.job) == ("job", "user=a&b %")
    assert Link.of(link.query()) == link


@pytest.mark.browser
def test_a_job_is_found_among_the_longest_waits_and_its_story_told(tab):
    tab.open(VIEW, ready=False)
    tab.until("document.querySelectorAll('#job-story tbody tr').length === 3")
    assert tab.browser.title.startswith("One job · three")
    assert tab.ask(ROWS)[0][:5] == ["third", "bob", HOSTILE, "1", "2.17 min"]
    assert violations(tab.browser) == []
    tab.click("#job-story tr:nth-child(2) button")
    tab.until("document.getElementById('job-story').innerText.includes('Job second')")
    assert tab.state["job"] == ["second"]
    rows = tab.ask(ROWS)
    assert ["Wait", "90 s", "2 min"] in rows
    assert any(row[:2] == ["first", "ada"] and row[4] == "90 s" for row in rows)
    assert tab.ask("document.querySelectorAll('#job-story figure svg').length") > 0
    tab.click("#ask-sooner")
    tab.until("document.getElementById('job-story').innerText.includes('GPU type B')")
    assert ["GPU type B", "0 s", "−90 s", "sooner"] in tab.ask(ROWS)
    assert violations(tab.browser) == []
    tab.browser.back()
    tab.until("document.querySelectorAll('#job-story tbody tr').length === 3")
    assert "job" not in tab.state
    assert complaints(tab.browser) == []


@pytest.mark.browser
def test_a_story_follows_the_controls_and_is_readable_in_the_dark(tab):
    tab.open(f"{VIEW}&job=second", dark=True, ready=False)
    tab.until("document.getElementById('job-story').innerText.includes('Job second')")
    assert violations(tab.browser) == []
    tab.choose("option-nodes", "A +1")
    tab.until("document.getElementById('job-story').innerText.includes('Job second')")
    tab.until(f"({ROWS}).some(r => r[0] === 'Wait' && r[1] === '0 s')")
    tab.choose("job-words", "fourth")
    tab.ask("document.getElementById('job-search').requestSubmit()")
    tab.until("!document.getElementById('trouble').hidden")
    assert "no job is called that" in tab.text("trouble")
