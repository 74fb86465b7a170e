"""Recommendations: the cheapest first, each worth what a run of its own says, and tried with one press in a browser."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from fleetlab import Cluster, Provenance, Trace, Workload, simulate
from fleetlab.core import FleetlabError
from fleetlab.studies.capacity.sizes import scaled
from fleetlab.web.advice import BOUGHT, SETTING, advise
from fleetlab.web.link import read_scenario

from .tab import Tab, complaints, violations

BUSY = "v=1&trace=folder:busy"


@pytest.fixture(scope="module")
def busy() -> Trace:
    """Three hundred jobs, few of them long, on nodes of two types that cannot run them all at once."""
    draw = np.random.default_rng(5)
    jobs = pl.DataFrame({
        "submit": 110.0 * np.arange(300),
        "runtime": np.where(draw.random(300) < 0.1, 6000.0, 200.0),
        "gpu_milli": 1000 * draw.integers(1, 4, 300),
        "user": draw.choice(["ada", "bob", "eve"], 300),
        "group": "g",
    })  # fmt: skip
    nodes = pl.concat([Cluster.uniform(2, 4, gpu_type=kind).frame for kind in ("A", "B")])
    nodes = nodes.with_columns(node=pl.format("n{}", pl.int_range(pl.len())))
    return Trace(Workload.of(jobs, source="busy"), Provenance("read", "busy"), cluster=Cluster.of(nodes, source="busy"))


@pytest.fixture(scope="module")
def scenario(busy):
    return read_scenario("", "folder:busy").bind(busy, None)


@pytest.fixture(scope="module")
def page(page, root, busy):
    """The page of all modules, which finds this trace too."""
    busy.save(root / "busy")
    return page


@pytest.fixture
def tab(browser, page):
    return Tab(browser, page)


def test_what_helps_comes_first_and_of_that_the_cheapest(scenario):
    rows = advise(scenario, "diagnose")["rows"]
    assert len(rows) > 2
    ranks = [(row["verdict"] == "not decided", row["tier"], row["cost"]) for row in rows]
    assert ranks == sorted(ranks)
    assert all(row["effect"]["value"] < 0 for row in rows)
    bought = [row for row in rows if row["tier"] == BOUGHT]
    assert bought
    assert all(row["cost"] > 0 and "GPU-h more" in row["cost_text"] for row in bought)
    assert all(row["cost"] == 0 for row in rows if row["tier"] != BOUGHT)


def test_a_recommendation_that_can_be_tried_does_what_it_says(scenario):
    before = simulate(scenario).jobs
    rows = [row for row in advise(scenario, "diagnose")["rows"] if row["words"] and row["verdict"] == "better"]
    assert rows
    for row in rows:
        after = simulate(scenario.replace(**row["words"])).jobs
        waits = [float((jobs["start"] - jobs["submit"]).mean()) for jobs in (before, after)]
        assert waits[1] < waits[0], row["action"]


def test_a_run_with_the_nodes_that_meet_a_goal_meets_it_and_one_with_two_does_not(scenario, busy):
    answer = advise(scenario, "capacity", "mean wait < 20m")
    [row] = answer["rows"]
    needed = int(row["action"].split()[1])
    assert row["effect"]["text"] == "mean wait < 20m"
    assert row["tier"] == (BOUGHT if needed > 4 else SETTING)
    waits = []
    for size in (2, needed):  # of two types in proportion
        jobs = simulate(replace(busy, cluster=scaled(scenario.cluster, None, size))).jobs
        waits.append(float((jobs["start"] - jobs["submit"]).mean()))
    assert waits[1] < 1200 <= waits[0]


def test_a_study_or_goal_that_does_not_exist_is_refused(scenario, page):
    with pytest.raises(FleetlabError, match="not a goal"):
        advise(scenario, "capacity", "shorter")
    question = {"kind": "advise", "link": BUSY, "study": "guess"}
    assert page.ask("/api/operations", method="POST", body=question).status == 400
    failed = page.operation(kind="advise", link=BUSY, study="capacity", goal="shorter")
    assert (failed["status"], "not a goal" in failed["error"]["error"]) == ("failed", True)


@pytest.mark.browser
def test_recommendations_are_a_view_and_one_of_them_can_be_tried(tab):
    tab.open(f"{BUSY}&view=advice", ready=False)
    tab.until("document.querySelectorAll('#advice-table tbody tr').length > 2")
    assert tab.browser.title.startswith("What to do · busy")
    assert "mean wait" in tab.text("advice-diagnose")
    assert "`" not in tab.text("advice-diagnose")
    tab.click("#ask-calibrate")
    tab.until("document.getElementById('advice-calibrate').innerText.length > 20")
    assert violations(tab.browser) == []
    tab.click("#advice-table button")
    tab.until("!document.getElementById('what-if').hidden")
    tab.answered()
    assert set(tab.state) - {"v", "trace"}
    assert "view" not in tab.state
    tab.browser.back()
    tab.until("!document.getElementById('advice').hidden")
    assert complaints(tab.browser) == []


@pytest.mark.browser
def test_a_goal_is_asked_for_and_its_answer_joins_the_table(tab):
    tab.open(f"{BUSY}&view=advice", dark=True, ready=False)
    tab.until("document.querySelectorAll('#advice-table tbody tr').length > 2")
    tab.choose("goal", "mean wait < 20m")
    tab.click("#ask-capacity")
    tab.until("document.getElementById('advice-table').innerText.includes('mean wait < 20m')")
    assert "keep the mean wait below 20 min" in tab.text("advice-capacity")
    assert violations(tab.browser) == []
