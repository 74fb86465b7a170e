"""Figures for a paper: files and matplotlib objects of every kind of figure."""

import sys

import polars as pl
import pytest

import fleetlab
from fleetlab.core import Figure, FleetlabError

POINTS = {"x": [1.0, 2.0, 3.0], "y": [1.0, 4.0, 9.0], "low": [0.5, 3.0, 8.0], "high": [2.0, 5.0, 9.5]}
NAMED = POINTS | {"x": ["a", "b", "c"]}
FRAMES = {
    "line": POINTS, "step": POINTS, "dots": POINTS, "bar": NAMED, "span": NAMED,
    "heat": {"x": ["a", "b"], "y": ["c", "d"], "value": [1.0, 2.0]},
}  # fmt: skip


def figure(kind, **options):
    return Figure(f"a {kind}", kind, pl.DataFrame(FRAMES[kind]), "jobs", "wait, s", "It rises.", **options)


@pytest.mark.parametrize("kind", FRAMES)
@pytest.mark.parametrize("ending", ["pdf", "png", "svg"])
def test_every_kind_of_figure_is_written(kind, ending, tmp_path):
    if ending != "svg":
        pytest.importorskip("matplotlib")
    begins = {"pdf": b"%PDF", "png": b"\x89PNG", "svg": b"<svg"}[ending]
    assert figure(kind).save(tmp_path / f"f.{ending}").read_bytes().startswith(begins)


def test_an_object_has_the_points_and_labels_of_the_figure():
    pytest.importorskip("matplotlib")
    (axes,) = figure("line", log_y=True).to_matplotlib().axes
    assert (axes.get_title(), axes.get_xlabel(), axes.get_ylabel(), axes.get_yscale()) == (
        "a line", "jobs", "wait, s", "log",
    )  # fmt: skip
    assert axes.lines[0].get_xydata().tolist() == [[1.0, 1.0], [2.0, 4.0], [3.0, 9.0]]


def test_all_figures_of_a_simulation_are_drawn():
    pytest.importorskip("matplotlib")
    for drawn in fleetlab.simulate("builtin:200", load=20).figures().values():
        assert drawn.to_matplotlib().axes


def test_without_matplotlib_an_error_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(FleetlabError) as caught:
        figure("line").save(tmp_path / "f.pdf")
    assert "fleetlab[plots]" in caught.value.hint


def test_a_kind_of_file_that_cannot_be_written_is_refused(tmp_path):
    pytest.importorskip("matplotlib")
    with pytest.raises(FleetlabError, match=r"f\.docx"):
        figure("line").save(tmp_path / "f.docx")
