"""Settings of networks: searched before the first fold, within a budget, and the same for the same seed."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

import fleetlab
from fleetlab.core import as_json
from fleetlab.forecast import Panel
from fleetlab.forecast.backtest import splits
from fleetlab.forecast.catalogue import BY_NAME, FAMILIES
from fleetlab.forecast.models import neural
from fleetlab.forecast.study import study
from fleetlab.forecast.tuning import candidates, tune

pytest.importorskip("torch")
HOW = {"horizon": 2, "gap": 2, "seed": 3}


def small(name, **settings):
    """A network that learns for a moment."""
    return replace(BY_NAME[name], **{"epochs": 2, "draws": 1} | settings)


@pytest.fixture
def lagged():
    """A series that depends on the product of two lags of what stands beside it."""
    draw = np.random.default_rng(6)
    x = draw.uniform(-1, 1, (900, 1))
    values = 5 + 4 * np.roll(x, 1, axis=0) * np.roll(x, 2, axis=0) + draw.normal(0, 0.1, x.shape)
    return Panel(values, x, ("cpu",), 3600.0)


def searched(panel, model, trials=3):
    """The search as a study does it."""
    how = {"ensemble": False, "folds": 2, "trials": trials, "done": lambda: None} | HOW
    return study("all", panel, [BY_NAME["last"], model], **how)


def test_the_held_out_end_and_the_folds_have_no_part_in_the_search(lagged):
    first = splits(len(lagged), 2, gap=2, folds=2)[0].learn
    values, beside = lagged.values.copy(), lagged.beside.copy()
    values[first:], beside[first:] = values[first:][::-1] * 50, -beside[first:]
    both = [
        searched(panel, small("gru")).tunings["gru"]
        for panel in (lagged, Panel(values, beside, lagged.names, lagged.every))
    ]
    assert both[0] == both[1]
    assert both[0].steps == first


def test_the_network_that_is_evaluated_has_the_best_settings_and_all_its_draws(lagged):
    model = small("tcn", draws=2)
    found = searched(lagged, model)
    tuning = found.tunings["tcn"]
    best = min(tuning.trials, key=lambda trial: trial.error)
    assert found.models["tcn"] == replace(model, **best.settings)


def test_a_search_finds_the_setting_that_learns_what_there_is(lagged):
    """With a rate of nearly zero nothing is learnt: of the two, the search takes the other."""
    able = {"window": 4, "dropout": 0.0, "decay": 0.0, "epochs": 25, "patience": 25}

    class TwoRates(neural.Network):
        def options(self):
            return {"rate": (1e-7, 0.01)}

    tuning = tune(TwoRates("two", "gru", rate=1e-7, **able), lagged, trials=2, **HOW | {"horizon": 1})
    assert tuning.model.rate == 0.01
    assert tuning.trials[1].error < 0.5 * tuning.trials[0].error == 0.5


def test_what_is_reported_is_what_was_spent(lagged, monkeypatch):
    trained = []
    epoch = neural._epoch
    monkeypatch.setattr(neural, "_epoch", lambda *words: (trained.append(1), epoch(*words)))
    tuning = tune(small("gru"), lagged, trials=4, **HOW)
    assert len(tuning.trials) == 4
    assert sum(trial.epochs for trial in tuning.trials) == len(trained)
    assert len(trained) <= 4 * 2 * 2  # trials, folds, epochs


@pytest.mark.parametrize("name", [model.name for model in FAMILIES["neural"]])
def test_candidates_begin_with_the_networks_own_settings_and_are_different(name):
    model = BY_NAME[name]
    options, tried = model.options(), candidates(model, 8, 0)
    assert tried[0] == {word: getattr(model, word) for word in options}
    assert len({tuple(settings.values()) for settings in tried}) == 8
    assert all(settings[word] in options[word] for settings in tried for word in options)
    assert tried == candidates(model, 8, 0) != candidates(model, 8, 1)


def test_more_trials_than_combinations_try_each_once():
    combinations = np.prod([len(values) for values in BY_NAME["lstm"].options().values()])
    assert len(candidates(BY_NAME["lstm"], 10_000, 0)) == combinations


def test_too_few_steps_leave_the_settings_as_they_are():
    draws = np.random.default_rng(0).gamma(2.0, 5.0, (90, 1))
    model = small("lstm")
    tuning = tune(model, Panel(draws, draws, ("cpu",), 3600.0), trials=4, **HOW)
    assert tuning.model == model
    assert not tuning.trials


def test_a_series_that_never_changes_is_as_well_forecast_by_any_settings():
    flat = Panel(np.full((200, 1), 3.0), np.zeros((200, 1)), ("cpu",), 3600.0)
    tuning = tune(small("gru"), flat, trials=2, **HOW)
    assert [trial.error for trial in tuning.trials] == [1.0, 1.0]


def test_a_forecast_tells_what_the_search_spent_and_the_same_seed_finds_the_same(busy):
    how = {"every": "1h", "horizon": 2, "models": [small("gru"), small("transformer")], "trials": 2, "seed": 5}
    first, second = (fleetlab.forecast(busy, **how) for _ in range(2))
    assert as_json(first) == as_json(second)
    rows = first.tables()["tuning"]
    assert rows.group_by("model", maintain_order=True).len().rows() == [("gru", 2), ("transformer", 2)]
    assert rows.filter("selected").height == 2
    note = next(note for note in first.notes if note.startswith("networks:"))
    assert f"4 trials of settings, {rows['epochs'].sum()} epochs in total" in note
    assert first.provenance.settings["trials"] == 2


def test_without_trials_there_is_no_search(busy):
    found = fleetlab.forecast(busy, every="1h", horizon=2, models=[small("gru")], trials=0)
    assert found.tables().get("tuning", pl.DataFrame()).is_empty()
    assert not any("networks:" in note for note in found.notes)
