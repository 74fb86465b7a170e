"""Models against what they must say by their own formulas, and against series of which the answer is known."""

from dataclasses import replace

import numpy as np
import pytest

from fleetlab.forecast import Panel, check_forecaster
from fleetlab.forecast.catalogue import BY_NAME, NEEDS
from fleetlab.forecast.models.regression import Autoregression, Ridge
from fleetlab.forecast.models.simple import (
    BETAS,
    DAMPINGS,
    TSB,
    Croston,
    Drift,
    HistoricalMean,
    HoltWinters,
    LastValue,
    RollingMean,
    SeasonalNaive,
    Smoothing,
    Theta,
)

NEURAL = [name for name in NEEDS if name != "boosted"]


def panel(values, every=3600.0):
    values = np.asarray(values, dtype=float).reshape(len(values), -1)
    return Panel(values, np.zeros_like(values), tuple("abcdef"[: values.shape[1]]), every)


def told(model, values, at, horizon=3, every=3600.0):
    shown = panel(values, every)
    return model.fit(shown, horizon=horizon, seed=0).predict(shown, np.array(at), horizon=horizon)[:, :, 0]


@pytest.mark.parametrize("name", [n for n in BY_NAME if n not in NEEDS])
def test_every_model_keeps_the_contract(name):
    check_forecaster(lambda: BY_NAME[name])


@pytest.mark.parametrize("name", ["boosted", *NEURAL])
def test_every_model_of_an_extra_keeps_the_contract(name):
    pytest.importorskip(NEEDS[name][0])
    check_forecaster(lambda: BY_NAME[name] if name == "boosted" else replace(BY_NAME[name], epochs=2))


def test_the_last_value_stays():
    assert told(LastValue(), [1, 5, 2, 7], [2, 4]).tolist() == [[5, 5, 5], [7, 7, 7]]


def test_the_mean_stays_whatever_came_since():
    model = HistoricalMean().fit(panel([1, 3]), horizon=1, seed=0)
    assert model.predict(panel([1, 3, 99]), np.array([3]), horizon=1).item() == 2


def test_a_drift_goes_on_by_the_mean_step():
    assert told(Drift(), [0, 1, 5, 6], [4]).tolist() == [[8, 10, 12]]


def test_a_season_comes_again_also_further_ahead_than_a_day():
    values = np.tile([1.0, 2.0, 3.0, 4.0], 5)
    assert told(SeasonalNaive(), values, [17], horizon=6, every=21_600.0).tolist() == [[2, 3, 4, 1, 2, 3]]


@pytest.mark.parametrize(("every", "mean"), [(3600.0, 6.0), (1800.0, 4.2), (5400.0, 7.0), (86_400.0, 8.0)])
def test_a_rolling_mean_is_of_so_many_hours_and_of_one_step_at_least(every, mean):
    assert np.allclose(told(RollingMean("mean_3h", 3.0), [1, 2, 4, 6, 8], [5], every=every), mean)


def test_simple_smoothing_of_a_walk_is_the_last_value():
    walk = np.cumsum(np.random.default_rng(1).normal(size=800))
    assert np.allclose(told(Smoothing(), walk, [500]), walk[499])


def test_smoothing_follows_its_recursion():
    model = Smoothing()
    model.alpha_, model.beta_, model.phi_ = np.array([0.5]), np.array([0.5]), np.array([1.0])
    # level 4, trend 0; then 8: level 6, trend 1; then 7: a miss of 0.
    forecasts = model.predict(panel([4, 8, 7]), np.array([2, 3]), horizon=2)[:, :, 0]
    assert forecasts.tolist() == [[7, 8], [8, 9]]


def test_holt_goes_on_along_a_straight_line():
    line = 10 + 3.0 * np.arange(300)
    assert np.allclose(told(Smoothing("holt", BETAS), line, [300]), [[910, 913, 916]], rtol=1e-3)


def test_a_damped_trend_falls_short_of_the_straight_line():
    line = 10 + 3.0 * np.arange(300)
    forecasts = told(Smoothing("damped", BETAS, DAMPINGS), line, [300], horizon=50)[0]
    assert forecasts[-1] < 907 + 3 * 50
    assert (np.diff(forecasts) > 0).all()


def test_theta_adds_half_the_slope_of_the_line_through_the_past():
    line = 3.0 * np.arange(300)
    forecasts = told(Theta(), line, [300])[0]
    assert np.allclose(np.diff(forecasts), 1.5)


def test_holt_winters_learns_a_daily_rhythm_that_smoothing_cannot():
    draw = np.random.default_rng(0)
    hours = np.arange(24 * 20)
    values = 50 + 20 * np.sin(hours / 24 * 2 * np.pi) + draw.normal(0, 1, len(hours))
    at = np.arange(24 * 15, 24 * 19)
    aim = values[at[:, None] + np.arange(6)]
    seasonal, plain = (np.sqrt(((told(m, values, at, 6) - aim) ** 2).mean()) for m in (HoltWinters(), Smoothing()))
    assert seasonal < 2 < 8 < plain


def test_autoregression_finds_the_weights_of_its_own_process():
    draw, y = np.random.default_rng(5), np.zeros(6000)
    for t in range(2, len(y)):
        y[t] = 1 + 0.6 * y[t - 1] - 0.3 * y[t - 2] + draw.normal()
    # The order may be larger than two, the weights beyond it are then small.
    weights = Autoregression().fit(panel(y), horizon=1, seed=0).weights_[0]
    assert np.allclose(weights[1:3], [0.6, -0.3], atol=0.05)
    assert np.abs(weights[3:]).max(initial=0) < 0.06


def test_autoregression_far_ahead_tends_to_the_mean():
    draw, y = np.random.default_rng(5), np.zeros(3000)
    for t in range(1, len(y)):
        y[t] = 2 + 0.8 * y[t - 1] + draw.normal()
    assert told(Autoregression(), y, [3000], horizon=60)[0, -1] == pytest.approx(y.mean(), abs=0.5)


def test_ridge_uses_what_stands_beside_a_series():
    draw = np.random.default_rng(2)
    before = draw.gamma(1.0, 1.0, (1500, 1))
    values = np.roll(before, 2, axis=0) * 10
    shown = Panel(values, before, ("a",), 3600.0)
    at = np.arange(1200, 1490)
    forecasts = Ridge().fit(shown.until(1100), horizon=2, seed=0).predict(shown, at, horizon=2)[:, 0, 0]
    assert np.corrcoef(forecasts, values[at, 0])[0, 1] > 0.95


def test_ridge_of_noise_is_all_but_the_mean(noise):
    forecasts = Ridge().fit(noise.until(700), horizon=2, seed=0).predict(noise, np.arange(710, 890), horizon=2)
    assert forecasts.std() < 0.25 * noise.values.std()


def test_croston_expects_the_amount_over_the_distance():
    # Six every third step: two a step, less the correction of half the weight.
    values = np.tile([0.0, 0.0, 6.0], 200)
    model = Croston().fit(panel(values), horizon=1, seed=0)
    forecasts = model.predict(panel(values), np.array([600]), horizon=1).item()
    assert forecasts == pytest.approx(2 * (1 - model.alpha_[0] / 2))


def test_tsb_forgets_demand_that_stops_and_croston_does_not():
    values = np.concatenate((np.random.default_rng(1).binomial(1, 0.3, 600) * 5.0, np.zeros(400)))
    forecasts = {}
    for model in (Croston(), TSB()):
        model.fit(panel(values[:600]), horizon=1, seed=0)
        model.alpha_ = np.array([0.1])
        forecasts[model.name] = model.predict(panel(values), np.array([600, 1000]), horizon=1).ravel()
    assert forecasts["croston"][1] == forecasts["croston"][0] > 1
    assert forecasts["tsb"][1] < 1e-6


def eager(name):
    """A network that is not held back, and looks no further than it must."""
    held_back = {"dropout": 0.0, "decay": 0.0, "rate": 0.01, "epochs": 30, "patience": 30, "window": 4, "draws": 1}
    return BY_NAME[name] if name == "boosted" else replace(BY_NAME[name], **held_back)


@pytest.mark.parametrize("name", ["boosted", *NEURAL])
def test_a_clever_model_learns_what_a_line_cannot(name):
    pytest.importorskip(NEEDS[name][0])
    draw = np.random.default_rng(4)
    x = draw.uniform(-1, 1, (1600, 1))
    values = 5 + 4 * np.roll(np.abs(x), 1, axis=0) + draw.normal(0, 0.1, x.shape)
    shown = Panel(values, x, ("a",), 3600.0)
    at = np.arange(1400, 1590)
    missed = {}
    for model in (eager(name), Ridge()):
        forecasts = model.fit(shown.until(1390), horizon=1, seed=0).predict(shown, at, horizon=1)[:, 0, 0]
        missed[model.name] = float(np.sqrt(((forecasts - values[at, 0]) ** 2).mean()))
    assert missed[name] < 0.7 * missed["ridge"]


@pytest.mark.parametrize("name", NEURAL)
def test_a_network_learns_a_product_of_lags_of_which_a_line_knows_nothing(name):
    pytest.importorskip("torch")
    draw = np.random.default_rng(6)
    x = draw.uniform(-1, 1, (2400, 1))
    values = 5 + 4 * np.roll(x, 1, axis=0) * np.roll(x, 2, axis=0) + draw.normal(0, 0.1, x.shape)
    shown, at = Panel(values, x, ("a",), 3600.0), np.arange(2110, 2390)

    def error(model):
        forecasts = model.fit(shown.until(2100), horizon=1, seed=0).predict(shown, at, horizon=1)[:, 0, 0]
        return float(np.sqrt(((forecasts - values[at, 0]) ** 2).mean()))

    network, ridge, mean = (error(model) for model in (eager(name), Ridge(), HistoricalMean()))
    assert ridge > 0.95 * mean
    assert network < 0.2 * mean


@pytest.mark.parametrize("name", NEURAL)
def test_a_network_leaves_torch_as_it_was(name):
    torch = pytest.importorskip("torch")
    threads, state = torch.get_num_threads(), torch.random.get_rng_state()
    replace(BY_NAME[name], epochs=1).fit(panel(np.arange(120.0)), horizon=2, seed=3)
    assert torch.get_num_threads() == threads
    assert torch.equal(torch.random.get_rng_state(), state)
