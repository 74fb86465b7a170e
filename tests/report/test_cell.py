"""What a notebook shows of results, figures and nouns, and the frames that they hand over."""

import math
import re
import subprocess
import sys
from html.parser import HTMLParser

import polars as pl
import pytest

import fleetlab
from fleetlab import Cluster, Estimate, Figure, Policy, Scenario, Study
from fleetlab.core.result import FieldsResult, Provenance

POINTS = pl.DataFrame({"x": [1.0, 2.0, 3.0], "y": [1.0, 4.0, 9.0]})


class Outline(HTMLParser):
    """The texts of each element, and whether every element that was opened was closed."""

    def __init__(self, text):
        super().__init__()
        self.open, self.texts = [], {}
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        pass

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, text):
        self.texts.setdefault(self.open[-1] if self.open else "", []).append(text)


@pytest.fixture(scope="module")
def run():
    return fleetlab.simulate("builtin:300", load=4.0)


def result(**parts):
    return FieldsResult(Provenance("compare", "mine"), **parts)


@pytest.mark.parametrize(
    "shown",
    [
        Estimate("mean wait", 90.0, 80.0, 100.0, "s"),
        Estimate("mean wait", math.nan, math.nan, math.nan, "s"),
        Figure("squares", "line", POINTS, "x", "y", "a curve"),
        Cluster.uniform(2, 8),
        Policy(order="sjf"),
        Policy(order="sjf", estimate=[60.0, 90.0], weights=[1.0, 2.0]),
        Scenario.of("builtin:300", load=2.0),
        Study.of(Scenario.of("builtin:300").vary(order=["fifo", "sjf"]), seeds=2),
        fleetlab.Speed.default(),
        fleetlab.solve("M/M/c", lam=7.2, mu=1, c=8),
        result(),
    ],
    ids=lambda shown: type(shown).__name__,
)
def test_a_cell_is_whole_html_without_scripts_or_addresses(shown):
    html = shown._repr_html_()
    assert Outline(html).open == []
    assert not re.search(r"<script|<style|<link|src=|href=|url\(h", html)


def test_a_cell_says_first_of_which_jobs_it_speaks_and_then_what_was_found(run):
    first, second = Outline(run._repr_html_()).texts["li"][:2]
    assert first == run.coverage.line
    assert second == run.findings[0]


def test_numbers_of_a_cell_have_their_units_and_intervals():
    texts = Outline(Estimate("mean wait", 7200.0, 3600.0, 10_800.0, "s")._repr_html_()).texts
    assert texts["td"] == ["mean wait", "2.0 h", "1.0 to 3.0"]


def test_counts_have_no_column_for_an_interval():
    assert Outline(Estimate.exact("jobs", 3)._repr_html_()).texts["th"] == ["metric", "value"]


def test_a_cell_stays_small_whatever_the_result_has(run):
    long = pl.DataFrame({f"c{k}": range(100_000) for k in range(40)})
    curve = pl.DataFrame({"x": range(100_000), "y": [math.sin(k) for k in range(100_000)]})
    figures = {f"f{k}": Figure(f"f{k}", "line", curve, "x", "y", "noise") for k in range(20)}
    html = result(
        findings=("much",) * 500, frames={f"t{k}": long for k in range(50)}, charts=figures, notes=("n",) * 500
    )._repr_html_()
    assert len(html) < 400_000
    assert "not shown: " in html
    assert len(run._repr_html_()) < 100_000


def test_two_figures_of_a_notebook_do_not_share_the_names_of_their_parts():
    one = Figure("squares", "line", POINTS, "x", "y", "a curve")._repr_html_()
    other = Figure("cubes", "line", POINTS * 2, "x", "y", "a curve")._repr_html_()
    first, second = (set(re.findall(r' id="([^"]+)"', html)) for html in (one, other))
    assert first
    assert not first & second


def test_names_from_a_log_are_shown_as_text():
    html = result(findings=("<img src=x onerror=alert(1)>",))._repr_html_()
    assert "<img" not in html


@pytest.mark.parametrize(("table", "rows"), [(None, 300), ("jobs", 300), ("ledger", 300), ("allocation", 5)])
def test_a_simulation_hands_over_its_tables(run, table, rows):
    assert run.to_polars(table).height == rows


def test_the_jobs_of_a_simulation_have_the_mean_wait_of_its_summary(run):
    summary = run.to_polars("summary")
    assert run.to_polars()["wait"].mean() == pytest.approx(summary.filter(metric="mean wait")["value"][0])


def test_a_trace_hands_over_jobs_and_nodes(run):
    trace = run.scenario.trace
    assert trace.to_polars().equals(trace.workload.frame)
    assert trace.to_polars("nodes").equals(trace.cluster.frame)


def test_a_table_that_is_not_there_is_refused_with_those_that_are(run):
    with pytest.raises(fleetlab.WorkloadError, match="no table by that name: `job`; did you mean jobs") as e:
        run.to_polars("job")
    assert "ledger" in e.value.hint


def test_pandas_gets_the_same_numbers(run):
    pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    frame = run.to_pandas()
    assert list(frame.columns) == run.jobs.columns
    assert frame["wait"].sum() == pytest.approx(run.jobs["wait"].sum())


def test_without_pandas_the_error_says_what_to_install():
    code = (
        "import sys; sys.modules['pandas'] = None; import fleetlab\n"
        "try: fleetlab.Cluster.uniform(1, 1).to_pandas()\n"
        "except fleetlab.FleetlabError as e: print(e, '|', e.hint)"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.startswith("a table for pandas needs `pandas`, which is not installed | pip install 'fleetlab[pandas]'")


def test_long_headings_and_names_wrap_and_numbers_do_not():
    frame = pl.DataFrame({"policy": ["fifo/greedy, placement worst_fit"], "mean wait change of these jobs": [1.0]})
    text = result(frames={"policies": frame})._repr_html_()
    headings, cells = re.findall(r'<th [^>]*style="([^"]*)"', text), re.findall(r'<td style="([^"]*)"', text)
    assert all("white-space:normal" in style for style in (*headings, cells[0]))
    assert "white-space:nowrap" in cells[1]
