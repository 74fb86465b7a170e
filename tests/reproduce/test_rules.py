"""When a published number counts as reproduced, and what a row says of it."""

import polars as pl
import pytest

from fleetlab.core import Provenance
from fleetlab.reproduce.item import (
    DIFFERENT,
    FITTED,
    LOG,
    NOT_POSSIBLE,
    REPRODUCED,
    RULES,
    SYNTHETIC,
    UNDECIDED,
    UNEXPLAINED,
    Cell,
    Item,
    SourceTable,
    Value,
)
from fleetlab.reproduce.result import Material, Reproduction


def item(published, rule, unit="", **more):
    return Item("table 1", "something", published, "a paper", rule, unit, Cell("t", {"name": "a"}, "x"), **more)


def table(value, on=LOG, *, random=False, **columns):
    frame = pl.DataFrame({"name": ["a", "b"], "x": [value, 0.0]} | {k: [v, 0.0] for k, v in columns.items()})
    return {"t": SourceTable(frame, on, random)}


def row(one, value, on=LOG, *, random=False, **columns):
    return one.compare(table(value, on, random=random, **columns))


@pytest.mark.parametrize(
    ("published", "rule", "unit", "value", "agrees"),
    [
        ("1,897", "counted", "", 1897, True),
        ("1,897", "counted", "", 1898, False),
        ("0.683", "printed", "", 0.6834, True),
        ("0.683", "printed", "", 0.69, False),  # 1.02 %
        ("480.667", "printed", "", 485.4, True),  # 0.98 %
        ("100", "figure", "", 107.9, True),
        ("100", "figure", "", 108.6, False),
        ("50", "figure", "%", 51.0, True),  # points, not a part of the value
        ("50", "figure", "%", 51.6, False),
        ("9", "stated", "%", 10.9, True),
        ("9", "stated", "%", 11.1, False),
        ("0.45", "measured", "", 0.4549, True),
        ("0.45", "measured", "", 0.456, False),
        ("10", "at least", "", 9.99, False),
        ("10", "at most", "", 9.99, True),
        ("16 points", "curve", "", 0, True),
        ("16 points", "curve", "", 1, False),
        ("131 points", "packed curve", "", 0.99, True),
        ("131 points", "packed curve", "", 1.01, False),
    ],
)
def test_a_rule_accepts_what_it_says(published, rule, unit, value, agrees):
    assert item(published, rule, unit).agrees(Value(float(value))) is agrees


@pytest.mark.parametrize(
    ("low", "high", "agrees"),
    [
        (9.1, 10.9, True),
        (9.1, 11.1, None),  # a little of it is outside
        (10.9, 14.0, None),
        (11.1, 14.0, False),
        (5.0, 8.9, False),
        (0.0, 100.0, None),  # nearly everything
        (float("nan"), float("nan"), None),  # one run
    ],
)
def test_an_interval_of_random_runs_decides_only_if_all_of_it_is_inside_or_outside(low, high, agrees):
    assert item("10", "simulated").agrees(Value(10.0, low, high, random=True)) is agrees


@pytest.mark.parametrize("shift", [-30.0, -5.0, 0.0, 5.0, 30.0])
def test_no_interval_as_wide_as_the_tolerance_makes_a_success(shift):
    wide = Value(10.0 + shift, 10.0 + shift - 1.1, 10.0 + shift + 1.1, random=True)
    assert item("10", "simulated").agrees(wide) is not True


@pytest.mark.parametrize("rule", ["at least", "at most"])
def test_an_interval_that_reaches_across_a_bound_decides_nothing(rule):
    assert item("10", rule).agrees(Value(10.0, 9.0, 11.0, random=True)) is None


def test_an_interval_counts_where_ours_is_random_and_nowhere_else():
    assert item("10", "simulated").agrees(Value(10.0, 5.0, 15.0)) is True


def test_what_is_not_decided_says_what_would_be_near_enough():
    found = row(item("1.572", "simulated", why="never said"), 1.7, random=True, **{"x low": 1.6, "x high": 1.8})
    assert (found["verdict"], found["ours"]) == (UNDECIDED, "1.700 (1.600 to 1.800)")
    assert found["why"] == "the interval is too wide to tell: 1.415 to 1.729 would be near enough"


def test_only_a_decided_difference_fails():
    undecided, different = (
        Reproduction.of("a study", Material([item("10", "simulated")], found, "runs"), Provenance("reproduce", "runs"))
        for found in (table(10.0, random=True, **{"x low": low, "x high": 14.0}) for low in (9.0, 12.0))
    )
    assert undecided.passed
    assert not different.passed


def test_a_reader_is_told_how_to_decide():
    made = Material([item("10", "simulated")], table(10.0, random=True), "runs")
    quick = Reproduction.of("a study", made, Provenance("reproduce", "runs", {"quick": True}))
    assert "Run without --quick" in quick.findings[-1]


def test_what_agrees_is_reproduced_and_needs_no_reason():
    found = row(item("10", "counted", why="never said"), 10.0)
    assert (found["verdict"], found["why"], found["ours"]) == (REPRODUCED, "", "10")


def test_a_difference_without_a_reason_is_unexplained():
    assert row(item("10", "counted"), 11.0)["verdict"] == UNEXPLAINED
    assert row(item("10", "counted", why="a reason"), 11.0)["verdict"] == DIFFERENT


def test_what_the_built_in_trace_is_made_from_is_fitted_there_and_reproduced_by_the_log():
    fitted = item("10", "counted", fitted=True)
    assert row(fitted, 10.0, SYNTHETIC)["verdict"] == FITTED
    assert row(fitted, 10.0, LOG)["verdict"] == REPRODUCED


def test_a_reason_of_the_built_in_trace_does_not_explain_the_log():
    one = item("10", "counted", why="it is synthetic", why_on=SYNTHETIC)
    assert row(one, 11.0, SYNTHETIC)["verdict"] == DIFFERENT
    assert row(one, 11.0, LOG)["verdict"] == UNEXPLAINED


@pytest.mark.parametrize("missing", ["table", "row", "column", "number"])
def test_what_is_not_in_the_data_is_not_possible(missing):
    frame = pl.DataFrame({"name": ["a" if missing != "row" else "b"], "x" if missing != "column" else "y": [None]})
    found = item("10", "counted").compare({} if missing == "table" else {"t": SourceTable(frame)})
    assert (found["verdict"], found["ours"]) == (NOT_POSSIBLE, "")
    assert found["why"]


def test_the_interval_of_a_random_result_is_shown():
    assert (
        row(item("1.572", "simulated"), 1.691, random=True, **{"x low": 1.642, "x high": 1.739})["ours"]
        == "1.691 (1.642 to 1.739)"
    )


def test_a_cell_that_two_rows_have_is_no_cell():
    frame = pl.DataFrame({"name": ["a", "a"], "x": [1.0, 2.0]})
    assert Cell("t", {"name": "a"}, "x").read({"t": SourceTable(frame)}) is None


def test_every_rule_says_what_it_accepts():
    assert all(rule.words for rule in RULES.values())
