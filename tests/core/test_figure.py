"""Figures and results that go to disk and come back."""

import json
import math

import polars as pl
import pytest

from fleetlab import Estimate, Figure, FleetlabError, Provenance, Result, SavedResult
from fleetlab.core import as_json


class Found(Result):
    provenance = Provenance("try", "hand", {"a": 1}, seed=3)
    notes = ("one thing",)

    def summary(self):
        return [Estimate("m", 1.0, math.nan, math.inf, "s")]

    def tables(self):
        return {"t": pl.DataFrame({"x": [1, 2], "name": ["<script>", None]})}

    def figures(self):
        frame = pl.DataFrame({"x": [1.0, 2.0], "y": [0.5, 1.0], "series": ["a", "a"]})
        return {"cdf": Figure("waits", "line", frame, "wait, s", "share", "half wait below 1 s", log_x=True)}


def test_a_result_comes_back_from_its_json(tmp_path):
    (tmp_path / "r.json").write_text(as_json(Found()))
    back = SavedResult.load(tmp_path / "r.json")
    assert back.provenance == Found.provenance
    assert back.notes == ("one thing",)
    assert back.summary()[0].metric == "m"
    assert math.isnan(back.summary()[0].low)
    assert back.summary()[0].high == math.inf
    assert back.tables()["t"].rows() == [(1, "<script>"), (2, None)]
    assert back.figures()["cdf"].frame.equals(Found().figures()["cdf"].frame)
    assert back.figures()["cdf"].log_x
    again = json.loads(as_json(back))
    assert again["figures"] == json.loads(as_json(Found()))["figures"]


class Speaking(Found):
    findings = ("Half of the jobs wait.", "<b>One</b> does not.")


def test_sentences_come_back_from_json_as_they_were_said(tmp_path):
    (tmp_path / "r.json").write_text(as_json(Speaking()))
    assert SavedResult.load(tmp_path / "r.json").findings == Speaking.findings
    (tmp_path / "mute.json").write_text(as_json(Found()))
    assert SavedResult.load(tmp_path / "mute.json").findings == ()


def test_a_result_of_another_form_is_refused_in_one_sentence(tmp_path):
    about = json.loads(as_json(Found()))
    del about["findings"]
    (tmp_path / "old.json").write_text(json.dumps(about))
    with pytest.raises(FleetlabError, match=r"saved by fleetlab .* another form"):
        SavedResult.load(tmp_path / "old.json")


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"tables": {}, "provenance": {}, "summary": []}', "[" * 100_000])
def test_what_is_no_result_is_refused_with_a_hint(tmp_path, text):
    (tmp_path / "r.json").write_text(text)
    with pytest.raises(FleetlabError, match="not a saved result") as e:
        SavedResult.load(tmp_path / "r.json")
    assert "--json" in e.value.hint


def test_a_figure_without_its_axes_is_refused():
    with pytest.raises(FleetlabError, match="not a figure"):
        Figure("t", "heat", pl.DataFrame({"x": [1], "y": [2]}), "x", "y", "nothing")
    with pytest.raises(FleetlabError, match="not a figure"):
        Figure("t", "pie", pl.DataFrame({"x": [1], "y": [2]}), "x", "y", "nothing")
