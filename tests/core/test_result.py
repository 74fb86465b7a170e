"""Numbers that know how sure they are, and how they are said."""

import json
import math
from types import MappingProxyType

import polars as pl
import pytest

from fleetlab.core import (
    Estimate,
    FleetlabError,
    Provenance,
    Result,
    SavedResult,
    TraceError,
    WorkloadError,
    as_json,
    say,
)


class Found(Result):
    """A result with every kind of value in it."""

    def __init__(self, value: object, number: float = 1.0) -> None:
        self.provenance = Provenance("try", "hand", {"value": value}, seed=3)
        self._frame = pl.DataFrame({"x": [value]}, strict=False)
        self._number = number

    def summary(self) -> list[Estimate]:
        return [Estimate("m", self._number, 0.0, math.inf, "s")]

    def tables(self) -> dict[str, pl.DataFrame]:
        return {"t": self._frame}


def strict(text: str) -> dict[str, object]:
    """As a reader sees it that knows no NaN."""

    def never(word: str) -> object:
        raise AssertionError(word)

    return json.loads(text, parse_constant=never)


NO_INTERVAL = "(no 95 % CI)"


@pytest.mark.parametrize(
    ("estimate", "said"),
    [
        (Estimate("wait", 0.8321, 0.6912, 0.9730, "s"), "wait 0.83 s (95 % CI 0.69 to 0.97)"),
        (Estimate("wait", 123456.7, 118456.0, 128456.0, "s"), "wait 34.3 h (95 % CI 32.9 to 35.7)"),
        (Estimate("wait", 12.0, 2.0, 22.0, "s"), "wait 12 s (95 % CI 2 to 22)"),
        (Estimate("share", 0.00012345, 0.000121, 0.000125, ""), "share 0.0001234 (95 % CI 0.0001210 to 0.0001250)"),
        (Estimate("wait", -1.5, -2.0, -1.0, "s"), "wait −1.50 s (95 % CI −2.00 to −1.00)"),
        (Estimate("wait", 5.0, math.nan, math.nan, "s"), f"wait 5 s {NO_INTERVAL}"),
        (Estimate("wait", 123456.7, math.nan, math.nan, "s"), f"wait 34.29 h {NO_INTERVAL}"),
        (Estimate("rate", 123456.7, math.nan, math.nan, ""), f"rate 123,457 {NO_INTERVAL}"),
        (Estimate("nodes", 12345, math.nan, math.nan, ""), f"nodes 12,345 {NO_INTERVAL}"),
        (Estimate("nodes", 1446, 1418, 1834, ""), "nodes 1,446 (95 % CI 1,418 to 1,834)"),
        (Estimate("nodes", 405, 405, 406, ""), "nodes 405 (95 % CI 405 to 406)"),
        (Estimate("wait", 5.25, 0.0, math.inf, "s"), "wait 5.25 s (95 % CI 0 to ∞)"),
        (Estimate("wait", math.nan, math.nan, math.nan, "s"), "wait –"),
        (Estimate.exact("jobs", 1260920), "jobs 1,260,920"),
        (Estimate.exact("span", 61.23456, "days"), "span 61.23 days"),
        (Estimate.exact("span", 123456.78, "s"), "span 34.29 h"),
        (Estimate.exact("ratio", math.inf), "ratio ∞"),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_a_number_is_said_with_the_digits_it_has_earned(estimate, said):
    assert say(estimate) == said


def test_the_narrowest_interval_there_is_can_be_said():
    assert say(Estimate("x", 0.0, 0.0, 5e-324, "")).startswith("x 0.000")


def test_an_interval_of_rounding_errors_is_none():
    value = 43.02284188668051
    assert say(Estimate("x", value, value - 7e-15, value + 7e-15, "%")) == "x 43.02 %"


@pytest.mark.parametrize("value", [math.nan, math.inf, [1.0, math.nan], {"a": math.nan}, [{"a": [math.inf]}]], ids=str)
def test_json_has_no_word_for_what_is_no_number(value):
    found = strict(as_json(Found(value, number=math.nan)))
    assert found["summary"] == [{"metric": "m", "value": None, "low": 0.0, "high": "inf", "unit": "s"}]


def test_what_has_no_end_is_told_apart_from_what_is_not_known_and_comes_back(tmp_path):
    class Overloaded(Found):
        def tables(self):
            waits = pl.DataFrame(
                {"wait": [1.0, math.inf, None, -math.inf], "whole": [1, 2, 3, 4], "app": ["inf", "b", "c", "d"]}
            )
            return {"waits": waits, "ends": pl.DataFrame({"x": [math.inf]})}

    (tmp_path / "saved.json").write_text(as_json(Overloaded(1, number=math.inf)), "utf-8")
    again = SavedResult.load(tmp_path / "saved.json")
    assert again.tables()["waits"].equals(Overloaded(1).tables()["waits"])
    assert again.tables()["ends"]["x"].to_list() == [math.inf]
    assert say(again.summary()[0]) == "m ∞ (95 % CI 0 to ∞)"


def test_json_has_provenance_summary_and_tables():
    found = strict(as_json(Found("é")))
    assert (list(found), found["tables"]) == (
        ["provenance", "coverage", "findings", "records", "summary", "tables", "notes", "figures"],
        {"t": [{"x": "é"}]},
    )


@pytest.mark.parametrize("settings", [{}, {"a": [1, "b", None]}, MappingProxyType({"a": 1})], ids=str)
def test_provenance_comes_back_as_it_went(settings):
    went = Provenance("read", "hand", settings, seed=7)
    assert Provenance.from_json(json.loads(json.dumps(went.to_json()))) == Provenance("read", "hand", dict(settings), 7)


@pytest.mark.parametrize("kind", [TraceError, WorkloadError])
def test_an_error_carries_what_to_do_next(kind):
    error = kind("what", hint="do this")
    assert (isinstance(error, FleetlabError), str(error), error.hint) == (True, "what", "do this")
