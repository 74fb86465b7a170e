"""Results of packages as they are: their figures are drawn, and say what the results say."""

import numpy as np
import polars as pl
import pytest

import fleetlab
from fleetlab import Cluster, Workload, report
from fleetlab.core import SavedResult, as_json

from .conftest import Seen


def crowd(jobs=400, gap=20.0):
    """Jobs of one GPU and of two for ten minutes each: more than eight GPUs have room for."""
    rng = np.random.default_rng(0)
    columns = {
        "submit": np.append(0.0, rng.exponential(gap, jobs - 1).cumsum()),
        "runtime": np.full(jobs, 600.0),
        "gpu_milli": rng.choice([500, 1000, 2000], jobs),
    }
    return Workload.of(pl.DataFrame(columns), source="a crowd"), Cluster.uniform(4, 2)


@pytest.fixture(scope="module")
def played():
    return fleetlab.simulate(*crowd())


@pytest.fixture(scope="module")
def diagnosed():
    return fleetlab.diagnose(*crowd(), changes=("backfill", "nodes"), workers=0)


@pytest.mark.parametrize("room", ["played", "diagnosed"])
def test_the_figures_of_a_room_are_on_the_page_with_their_words(room, request, tmp_path):
    result = request.getfixturevalue(room)
    seen = Seen(report(result, tmp_path / "page.html").read_text("utf-8"))
    assert len(seen.all("figure")) == len(result.figures()) >= 3
    for figure in result.figures().values():
        assert figure.title in seen.text()
        assert figure.alt in seen.text()


@pytest.mark.parametrize("room", ["played", "diagnosed"])
def test_a_saved_result_is_drawn_as_the_result_itself(room, request, tmp_path):
    result = request.getfixturevalue(room)
    (tmp_path / "r.json").write_text(as_json(result), "utf-8")
    figures = SavedResult.load(tmp_path / "r.json").figures()
    assert list(figures) == list(result.figures())
    for name, figure in result.figures().items():
        assert figures[name].frame.select("y").equals(figure.frame.select(pl.col("y").cast(pl.Float64)))


def test_the_curve_of_waits_is_the_share_of_jobs_that_wait_no_longer(played):
    waits = played.jobs["wait"].to_numpy()
    frame = played.figures()["waits"].frame
    assert frame["y"].to_list() == pytest.approx([100 * np.mean(waits <= x) for x in frame["x"]])
    assert frame.filter((pl.col("low") > pl.col("y")) | (pl.col("high") < pl.col("y"))).is_empty()


def test_reasons_of_waiting_add_up_to_all_of_it(played, diagnosed):
    for result in (played, diagnosed):
        assert result.figures()["waiting by reason"].frame["y"].sum() == pytest.approx(100)


def test_no_more_gpus_are_drawn_as_held_than_there_are(played):
    held = played.figures()["allocation"].frame["y"]
    assert 0 <= held.min() <= held.max() <= 100
    assert held.max() > 50


def test_where_nobody_waits_nothing_is_drawn_of_waiting():
    empty = fleetlab.simulate(*crowd(jobs=1))
    assert set(empty.figures()) == {"waits", "mean wait by request", "allocation"}
    assert "waiting by reason" not in fleetlab.diagnose(*crowd(jobs=1), changes=("backfill",), workers=0).figures()


def test_what_was_refused_altogether_has_no_figure_of_waits():
    jobs = Workload.of(pl.DataFrame({"submit": [0.0], "runtime": [1.0], "gpu_milli": [8000]}), source="too large")
    assert "waits" not in fleetlab.simulate(jobs, Cluster.uniform(1, 2)).figures()
