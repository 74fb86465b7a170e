"""A description as a whole: what it promises of every trace, good, poor or empty."""

import json

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import fleetlab
from fleetlab.core import as_json
from fleetlab.describe import SECTIONS
from fleetlab.describe.published import published_values

MOST_POINTS = 2000  # of one curve or series; a page must stay small


@pytest.fixture(scope="module")
def built_in():
    return fleetlab.synthesize("pai2020", jobs=5000, days=10)


@pytest.fixture(scope="module")
def found(built_in):
    return fleetlab.describe(built_in)


def test_every_section_says_something_or_why_not(found):
    assert [s.name for s in found.sections] == list(SECTIONS)
    for section in found.sections:
        assert section.estimates or section.missing


def test_what_is_missing_is_named_with_its_reason(found):
    rows = {what: why for _, what, why in found.missing.iter_rows()}
    assert rows["locality"] == "placements are not in the trace"
    assert "services" in rows


def test_every_number_said_first_lies_in_its_interval(found):
    for e in found.summary():
        assert not e.low > e.value, e
        assert not e.high < e.value, e


def test_figures_are_thin_and_speak_to_those_who_cannot_see_them(found):
    for name, figure in found.figures().items():
        assert figure.alt, name
        assert figure.frame.height <= MOST_POINTS * max(
            1, figure.frame["series"].n_unique() if "series" in figure.frame else 1
        )
        assert not figure.log_x or figure.frame["x"].min() > 0, name


def test_bands_hold_their_curves(found):
    for name, figure in found.figures().items():
        if {"low", "high"} <= set(figure.frame.columns):
            frame = figure.frame.drop_nulls(["low", "high"])
            outside = frame.filter((pl.col("low") > pl.col("y") + 1e-9) | (pl.col("high") < pl.col("y") - 1e-9))
            assert outside.is_empty(), name


def test_it_comes_back_from_its_json(found, tmp_path):
    (tmp_path / "found.json").write_text(as_json(found))
    back = fleetlab.SavedResult.load(tmp_path / "found.json")
    assert [e.metric for e in back.summary()] == [e.metric for e in found.summary()]
    assert back.tables().keys() >= found.tables().keys() - {"notes"}
    assert back.figures().keys() == found.figures().keys()


def test_the_same_seed_gives_the_same_description(built_in, found):
    assert as_json(fleetlab.describe(built_in)) == as_json(found)


def test_sections_can_be_asked_for_alone(built_in):
    assert [s.name for s in fleetlab.describe(built_in, only=["sharing", "arrivals"]).sections] == [
        "arrivals",
        "sharing",
    ]


def test_a_section_that_is_not_there_is_refused_with_those_that_are(built_in):
    with pytest.raises(fleetlab.WorkloadError, match="did you mean requests") as e:
        fleetlab.describe(built_in, only=["request"])
    assert "recurrence" in e.value.hint


def test_progress_is_told_by_section(built_in):
    heard = []
    fleetlab.describe(built_in, only=["arrivals", "requests"], progress=lambda *words: heard.append(words))
    assert [share for _, _, share in heard] == [0, 0.5, 1]


def test_an_empty_trace_is_refused(traced):
    with pytest.raises(fleetlab.WorkloadError, match="has no job"):
        fleetlab.describe(traced(submit=pl.Series([], dtype=pl.Float64)))


POOR = {
    "one job": {"submit": [0.0]},
    "one job that ran": {"submit": [0.0], "start": [0.0], "runtime": [1.0], "gpu_milli": [500], "user": ["a"]},
    "no times": {"submit": [0.0] * 300, "gpu_milli": [500] * 300, "cpu_milli": [1] * 300},
    "no GPUs": {"submit": [0.0, 9e5], "runtime": [5.0, 6.0], "cpu_milli": [1000, 0]},
    "no runtime above 0": {"submit": [0.0, 4000.0], "start": [0.0, 4000.0], "runtime": [0.0, 0.0], "gpu_milli": [1, 1]},
    "nobody started": {"submit": [0.0, 1.0], "status": ["waiting", "waiting"], "gpu_milli": [8000, 0]},
    "started as they came": {"submit": [0.0, 9.0], "start": [0.0, 9.0], "runtime": [3.0, 4.0]},
    "all run": {"submit": [0.0, 1.0], "start": [0.0, 1.0], "status": ["running", "running"]},
}


@pytest.mark.parametrize("clock", [None, 1.6e9])
@pytest.mark.parametrize("columns", POOR.values(), ids=POOR)
def test_a_poor_trace_is_described_without_a_stumble(traced, columns, clock):
    trace = traced(**columns, epoch=clock, cluster=fleetlab.Cluster.uniform(1, 0))
    found = fleetlab.describe(trace, against=trace)
    assert found.missing.height
    json.loads(as_json(found))


numbers = st.one_of(st.none(), st.floats(0, 1e7))
jobs = st.tuples(
    st.floats(0, 3e6), numbers, numbers, st.sampled_from([0, 1, 250, 999, 1000, 8000]), st.integers(1, 9),
    st.sampled_from([None, "a", "<script>", "{}", "ü" * 300, "\x00\u202e"]),
    st.sampled_from(["running", "waiting", "failed"]),
)  # fmt: skip


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(jobs, min_size=1, max_size=12))
def test_no_trace_that_can_be_is_a_stumble(traced, rows):
    first = min(row[0] for row in rows)
    columns = list(zip(*rows, strict=True))
    trace = traced(
        submit=[x - first for x in columns[0]],
        start=[None if w is None else s - first + w for s, w in zip(columns[0], columns[1], strict=True)],
        runtime=list(columns[2]), gpu_milli=list(columns[3]), instances=list(columns[4]), user=list(columns[5]),
        group=list(columns[5]), app=list(columns[5]), gpu_types=[[u] if u else [] for u in columns[5]],
        status=list(columns[6]), source="csv:{}",
        cluster=fleetlab.Cluster.uniform(2, 8, gpu_type="{}"),
    )  # fmt: skip
    found = fleetlab.describe(trace, against=trace)
    json.loads(as_json(found))


def test_names_stay_text(traced):
    trace = traced(submit=[0.0, 1.0], gpu_milli=[500, 500], gpu_types=[["<script>"], ["{}"]], start=[5.0, 9.0])
    series = fleetlab.describe(trace, only=["runtimes"]).figures()["wait by GPU type"].frame["series"].unique()
    assert set(series) == {"<script>", "{}"}


def test_what_was_published_has_a_source_each():
    told = published_values()
    sources = [c["source"] for figure in told["curves"].values() for c in figure.values()]
    sources += [x["source"] for part in ("hours", "numbers") for x in told[part].values()]
    assert all("NSDI'22" in s or "cluster-trace-gpu-v20" in s for s in sources)
    for figure in told["curves"].values():
        for c in figure.values():
            x, y = zip(*c["points"], strict=True)
            assert list(x) == sorted(x)
            assert list(y) == sorted(y)
            assert y[-1] <= 100
