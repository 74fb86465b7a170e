"""Tables as people read them: intervals in one column, durations in a readable unit, job numbers as names."""

import math

import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fleetlab._screen import table
from fleetlab.core import Estimate, say
from fleetlab.core.display import display_columns, text_of


def cells(**columns):
    return {column.name: list(column.texts) for column in display_columns(pl.DataFrame(columns, strict=False))}


def test_a_number_and_its_limits_are_two_columns_in_one_unit():
    found = cells(policy=["a", "b"], wait=[7200.0, 30.0], low=[3600.0, None], high=[10_800.0, None])
    assert found == {"policy": ["a", "b"], "wait": ["120 min", "0.5 min"], "95 % CI": ["60 to 180 min", "–"]}


def test_durations_of_a_column_have_the_unit_of_their_median():
    assert cells(wait=[0.0, 30.0, 8000.0, 9000.0])["wait"] == ["0 h", "0.00833 h", "2.22 h", "2.5 h"]
    assert cells(wait=[10.0, 20.0, 90_000.0])["wait"] == ["10 s", "20 s", "90,000 s"]


def test_rows_of_different_metrics_keep_their_own_units():
    found = cells(metric=["wait", "JCT"], value=[30.0, 7200.0], unit=["s", "s"])
    assert found["value"] == ["30 s", "2 h"]


def test_limits_belong_to_the_number_that_they_name_and_to_no_other():
    found = cells(of=["jobs"], mean=[3.0], largest=[90.0], **{"mean low": [1.0], "mean high": [5.0]})
    assert found["largest"] == ["90"]
    assert "95 % CI" not in found


def test_limits_belong_to_the_number_beside_them():
    names = [
        column.name
        for column in display_columns(pl.DataFrame({"x": [1.0], "P90": [2.0], "P90 low": [1.0], "P90 high": [3.0]}))
    ]
    assert names == ["x", "P90", "95 % CI"]


def test_a_number_that_is_known_exactly_has_no_interval():
    assert cells(value=[3.0], low=[3.0], high=[3.0])["95 % CI"] == ["–"]


def test_a_table_has_the_digits_and_the_unit_of_the_summary():
    for numbers in ((589.3, 512.8, 954.1), (-90.0, -130.0, -50.0), (0.0, 0.0, 41.2)):
        frame = pl.DataFrame([numbers], ["wait", "low", "high"], orient="row")
        value, interval = (column.texts[0] for column in display_columns(frame))
        assert say(Estimate("wait", *numbers, "s")).startswith(f"wait {value} (95 % CI {interval.rpartition(' ')[0]}")


def test_a_table_with_units_shows_each_row_in_its_own():
    found = cells(value=[5400.0, 12.0], low=[3600.0, 10.0], high=[7200.0, 14.0], unit=["s", "%"])
    assert found == {"value": ["90 min", "12.0 %"], "95 % CI": ["60 to 120 min", "10.0 to 14.0 %"]}


def test_jobs_are_named_by_numbers_without_separators():
    assert cells(job=[1234567], jobs=[1234567]) == {"job": ["1234567"], "jobs": ["1,234,567"]}


@pytest.mark.parametrize(
    ("value", "unit", "said"),
    [(-90.0, "s", "−90 s"), (math.inf, "s", "∞"), (math.nan, "s", "–"), (True, "", "yes"), (0.125, "share", "12.5 %")],
)
def test_a_value_is_said(value, unit, said):
    assert text_of(value, unit) == said


def test_headings_of_a_wide_table_are_broken_at_their_spaces(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    frame = pl.DataFrame({"policy": ["fifo/greedy"], "jobs that are left out": [12], "preemptions": [3]})
    heads = [line.split() for line in table(frame).split("\n")[:2]]
    assert heads == [["jobs", "that"], ["policy", "are", "left", "out", "preemptions"]]
    monkeypatch.setenv("COLUMNS", "200")
    assert "jobs that are left out" in table(pl.DataFrame({"jobs that are left out": [12]}))


def test_a_wide_interval_makes_no_zero_of_a_number():
    waits = [(38.0, 35.0, 41.0), (40.0, 0.4, 83_330.0), (83_330.0, 70_000.0, 90_000.0)]
    found = cells(P=[w[0] for w in waits], low=[w[1] for w in waits], high=[w[2] for w in waits])
    assert found["P"] == ["38.0", "40", "83,000"]
    assert found["95 % CI"][1] == "0.40 to 83,000"


@given(st.lists(st.tuples(*[st.floats(0.001, 1e6)] * 3), min_size=2, max_size=6))
@example([(110.5, 0.5, 0.001), (110.5, 0.001, 0.001)])
def test_numbers_are_shown_in_their_order_however_wide_their_intervals_are(rows):
    numbers = sorted((value, value / (1 + low), value * (1 + high)) for value, low, high in rows)
    found = cells(wait=[n[0] for n in numbers], low=[n[1] for n in numbers], high=[n[2] for n in numbers])
    shown = [float(text.partition(" ")[0].replace(",", "")) for text in found["wait"]]
    assert shown == sorted(shown)
    assert all(shown)


def test_a_number_that_rounds_up_has_no_exponent():
    assert text_of(9999.7) == "10,000"
