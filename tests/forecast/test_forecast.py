"""The verb and its command: what they find, say and refuse."""

import inspect
import json
from dataclasses import dataclass

import numpy as np
import polars as pl
import pytest

import fleetlab
from fleetlab.commands import demand
from fleetlab.core import SavedResult, WorkloadError, as_json
from fleetlab.forecast import catalogue
from fleetlab.forecast.backtest import sentences
from fleetlab.forecast.catalogue import SIMPLE
from fleetlab.forecast.models.simple import LastValue, flat

QUICK = {"every": "1h", "horizon": 4, "models": ["simple", "ses", "ar", "ridge", "ensemble"]}


@pytest.fixture
def noisy(make):
    """One instance a step of a size that nobody can know: independent draws."""
    size = np.random.default_rng(0).gamma(2.0, 5000.0, 1500).astype(int) + 1
    return make(submit=np.arange(1500) * 60.0, cpu_milli=size)


def test_where_nothing_can_be_known_the_simple_one_is_taken(noisy):
    found = fleetlab.forecast(noisy, every="1m", horizon=4, models=["classic", "ensemble"])
    taken = found.tables()["chosen"]
    assert set(taken["model"]) <= set(SIMPLE)
    assert "the simple ones are used" in found.findings[-1]
    assert taken["NRMSE"].to_list() == pytest.approx([1 / np.sqrt(2)] * taken.height, rel=0.15)


def test_the_last_sentence_speaks_of_every_step_not_of_those_reported_alone(noisy):
    found = fleetlab.forecast(noisy, every="1m", horizon=8, models=["ses"])
    models = found.tables()["next"]["model"].to_list()
    models[4] = "ses"  # the fifth step ahead, of which the leaderboard does not tell
    forecasts = sentences(found.tables()["chosen"], pl.Series(models), 60.0)[-1]
    assert forecasts.startswith(
        "in 1 of 8 cases a model beat the simple ones significantly on past folds; none of them"
    )


def test_what_comes_is_drawn_one_step_after_what_was_seen(busy):
    for target in ("requests", "level"):
        found = fleetlab.forecast(busy, target=target, every="2h", horizon=4, models=["simple"])
        x = found.figures()["next, cpu"].frame["x"].to_numpy()
        assert np.allclose(np.diff(x), 2.0)


def test_a_daily_rhythm_is_found(busy):
    found = fleetlab.forecast(busy, target="level", every="1h", horizon=4, models=["classic"])
    rows = found.tables()["chosen"].filter(pl.col("steps ahead") == 4)
    assert set(rows["model"]) <= {"seasonal", "holt_winters", "ridge"}
    assert (rows["skill against last"] > 0.1).all()


def test_a_model_that_knows_the_process_beats_the_simple_ones_by_what_theory_says(make):
    """Where neighbours are correlated by a half, autoregression misses √0.75 of the spread, the mean all of it."""
    draw, y = np.random.default_rng(1), np.zeros(4000)
    for t in range(1, len(y)):
        y[t] = 0.5 * y[t - 1] + draw.normal()
    trace = make(submit=np.arange(4000) * 60.0, cpu_milli=(50_000 + 8000 * y).astype(int))
    found = fleetlab.forecast(trace, every="1m", horizon=2, models=["ar"]).tables()["chosen"]
    first = found.filter(pl.col("steps ahead") == 1).row(0, named=True)
    assert first["model"] == "ar"
    assert first["skill low"] <= 1 - np.sqrt(0.75) <= first["skill high"]
    assert first["skill low"] > 0


def test_intervals_hold_on_the_tail(noisy):
    board = fleetlab.forecast(noisy, every="1m", horizon=4, models=["ses", "ar"]).tables()["leaderboard"]
    assert board["covered 95%"].min() >= 0.93
    assert board["covered 95%"].max() <= 0.97
    assert board["covered 80%"].is_between(0.76, 0.84).all()


def test_what_is_taken_does_not_depend_on_the_tail(busy):
    frame = busy.workload.frame
    cut = 0.81 * frame["submit"].max()
    other = frame.with_columns(
        cpu_milli=pl.when(pl.col("submit") > cut).then(pl.col("cpu_milli") * 50).otherwise("cpu_milli")
    )
    both = [
        fleetlab.forecast(fleetlab.Trace(fleetlab.Workload.of(f, source="x"), busy.provenance), **QUICK)
        for f in (frame, other)
    ]
    taken = [f.tables()["chosen"].filter(pl.col("resource") == "cpu")["model"].to_list() for f in both]
    assert taken[0] == taken[1]


def test_the_same_seed_gives_the_same_forecast(busy):
    first, second = (fleetlab.forecast(busy, seed=4, **QUICK) for _ in range(2))
    assert as_json(first) == as_json(second)


def test_a_model_of_ones_own_stands_beside_the_others(busy):
    @dataclass
    class Three(LastValue):
        name: str = "three"

        def predict(self, seen, at, *, horizon):
            return flat(np.full((len(at), seen.width), 3.0), horizon)

    board = fleetlab.forecast(busy, every="1h", horizon=4, models=[Three()]).tables()["leaderboard"]
    assert board.filter(pl.col("model") == "three")["family"].unique().to_list() == ["own"]


def test_roles_are_forecast_apart(busy):
    found = fleetlab.forecast(busy, by="role", **QUICK)
    assert set(found.tables()["next"]["part"]) == {"CN", "HN"}
    assert found.tables()["next"].height == 2 * 2 * 4


def test_forecasts_lie_inside_their_intervals_and_the_wider_holds_the_narrower(busy):
    rows = fleetlab.forecast(busy, **QUICK).tables()["next"]
    order = ["low 95%", "low 80%", "forecast", "high 80%", "high 95%"]
    values = rows.select(order).to_numpy()
    assert (np.diff(values, axis=1) >= 0).all()
    assert (values >= 0).all()


def test_requests_out_of_the_blue_are_told(make):
    # Every request of app a is announced by one of the same app in the hour before; app b comes once, in the tail.
    submit = [*(k * 600.0 for k in range(1000)), 560_000.0]
    trace = make(submit=submit, app=["a"] * 1000 + ["b"], cpu_milli=[1000] * 1000 + [99_000])
    rows = fleetlab.forecast(trace, every="10m", horizon=2, models=["ses"]).tables()["unannounced"]
    tail = 999 - 799
    assert rows["share of requests"].item() == pytest.approx(99 / (99 + tail))
    # The mean of what was unannounced before is one instance, the first, over 799 steps.
    left = np.sqrt(((99 - 1 / 799) ** 2 + (tail - 1) * (1 / 799) ** 2) / tail)
    assert rows["NRMSE if all else were known"].item() == pytest.approx(left / ((99 + tail) / tail), rel=1e-6)


def test_forecasts_of_the_tail_can_be_checked_by_anybody(busy):
    found = fleetlab.forecast(busy, **QUICK)
    first = found.held_out.filter(pl.col("resource") == "cpu", pl.col("steps ahead") == 1)
    error = np.sqrt(((first["forecast"] - first["actual"]) ** 2).mean()) / first["actual"].mean()
    told = found.tables()["chosen"].filter(pl.col("resource") == "cpu", pl.col("steps ahead") == 1).row(0, named=True)
    assert error == pytest.approx(told["NRMSE"])
    inside = first["actual"].is_between(first["low 95%"], first["high 95%"]).mean()
    assert inside == pytest.approx(told["covered 95%"])


def test_demand_that_never_was_before_or_ceased_is_told_without_a_number(make):
    steps = np.arange(300)
    trace = make(submit=steps * 60.0, cpu_milli=(steps < 20) * 1000, gpu_milli=(steps >= 270) * 1000)
    found = fleetlab.forecast(trace, every="1m", horizon=2, models=["classic", "ensemble"])
    assert found.findings[0] == "cpu, 1 min ahead: unknown: no demand in the held-out period"
    rows = found.tables()["chosen"].filter(pl.col("resource") == "gpu")
    assert rows["NRMSE"].is_finite().all()


def test_a_series_that_never_changes_is_known(make):
    trace = make(submit=np.arange(300) * 60.0, cpu_milli=[1000] * 300)
    found = fleetlab.forecast(trace, every="1m", horizon=2, models=["classic", "ensemble"])
    assert found.tables()["chosen"]["NRMSE"].to_list() == [0.0, 0.0]
    assert found.tables()["next"]["forecast"].to_list() == [1.0, 1.0]


def test_a_result_comes_back_from_its_json(busy, tmp_path):
    found = fleetlab.forecast(busy, **QUICK)
    (tmp_path / "f.json").write_text(as_json(found), "utf-8")
    again = SavedResult.load(tmp_path / "f.json")
    assert [e.metric for e in again.summary()] == [e.metric for e in found.summary()]
    assert set(again.figures()) == set(found.figures())
    assert again.tables()["next"].height == found.tables()["next"].height


def test_a_model_that_is_not_installed_is_listed_with_what_to_install(busy, monkeypatch):
    monkeypatch.setattr(catalogue, "NEEDS", {"boosted": ("no_such_library", "forecast")})
    found = fleetlab.forecast(busy, every="1h", horizon=4, models=["boosted", "ses"])
    assert "boosted: not run: no_such_library is not installed: pip install 'fleetlab[forecast]'" in found.notes
    assert "ses" in set(found.tables()["leaderboard"]["model"])


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ({"target": "demand"}, "unknown target: `demand`"),
        ({"every": "often"}, "not a length of time: `often`"),
        ({"every": "0m"}, "not a length of time"),
        ({"every": float("nan")}, "not a length of time"),
        ({"horizon": 0}, "horizon is below 1: 0"),
        ({"folds": 0}, "folds is below 1: 0"),
        ({"gap": -1}, "gap is below 0: -1"),
        ({"models": ["prophet"]}, "no model or family by that name: `prophet`"),
        ({"by": "user"}, "cannot split demand by: `user`"),
        ({"every": "30d"}, "no demand in whole steps"),
        ({"every": "1h", "horizon": 100}, "too few steps"),
        ({"every": "1h", "horizon": 60, "folds": 1, "gap": 0}, "too few steps"),
        ({"every": "0.01s"}, "too many forecasts"),
        ({"seed": -1}, "seed is below 0: -1"),
    ],
)
def test_what_cannot_be_is_refused(busy, words, error):
    with pytest.raises(WorkloadError, match=error) as refused:
        fleetlab.forecast(busy, **words)
    assert refused.value.hint


@pytest.mark.parametrize(
    "columns",
    [{"submit": []}, {"submit": [0.0]}, {"submit": [0.0, 9e6]}, {"submit": [0.0, 8e6], "gpu_milli": [1000, 1000]}],
)
def test_traces_that_tell_nothing_are_refused(make, columns):
    with pytest.raises(WorkloadError) as refused:
        fleetlab.forecast(make(**columns), every="1d", horizon=1, models=["classic"])
    assert refused.value.hint


def test_the_default_models_are_all_but_the_networks_in_the_command_as_in_python():
    by_default = [inspect.signature(verb).parameters["models"].default for verb in (fleetlab.forecast, demand.forecast)]
    assert by_default == [catalogue.DEFAULT, ",".join(catalogue.DEFAULT)]
    names = {model.name for model in catalogue.models_of(catalogue.DEFAULT)[0]}
    assert names == set(catalogue.BY_NAME) - {model.name for model in catalogue.FAMILIES["neural"]}


def test_the_command_says_json_and_nothing_else(busy, tmp_path, command):
    busy.save(tmp_path / "t")
    done = command("forecast", tmp_path / "t", "--every", "1h", "--horizon", "4", "--models", "ses,ar", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert set(found) == {"provenance", "coverage", "summary", "tables", "findings", "records", "notes", "figures"}
    assert {row["model"] for row in found["tables"]["leaderboard"]} == {*SIMPLE, "ses", "ar"}


def test_the_command_ends_a_mistake_with_an_error_and_a_hint(tmp_path, busy, command):
    busy.save(tmp_path / "t")
    done = command("forecast", tmp_path / "t", "--every", "often")
    assert done.returncode == 2
    assert done.stderr.startswith("error: not a length of time")
    assert "hint:" in done.stderr


def test_help_has_examples(command):
    assert "fleetlab forecast" in command("forecast", "--help").stdout.split("Examples:")[1]
