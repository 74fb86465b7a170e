"""Walking forward: nobody sees the future, and one who does is caught."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pytest

from fleetlab.core import WorkloadError
from fleetlab.forecast import Panel, check_forecaster
from fleetlab.forecast.backtest import HELD_OUT, splits, walk
from fleetlab.forecast.demand import targets
from fleetlab.forecast.models.simple import HistoricalMean, LastValue, flat


@dataclass
class Peeking(LastValue):
    """Says what comes."""

    name: str = "peeking"

    def predict(self, seen, at, *, horizon):
        return targets(seen.values, at, horizon)


@dataclass
class Centred(LastValue):
    """An average around the origin, as a careless smoother would take it: half of it has not been."""

    name: str = "centred"

    def predict(self, seen, at, *, horizon):
        near = np.clip(at[:, None] + np.arange(-3, 3), 0, len(seen) - 1)
        return flat(seen.values[near].mean(axis=1), horizon)


@dataclass
class ScaledByAll(LastValue):
    """Scales by the mean of all it is shown, also of what comes later: the commonest leak."""

    name: str = "scaled_by_all"

    def predict(self, seen, at, *, horizon):
        return flat(np.tile(seen.values.mean(axis=0), (len(at), 1)), horizon)


@dataclass
class BesideAhead(LastValue):
    """Looks ahead not in the series but in what stands beside it."""

    name: str = "beside_ahead"

    def predict(self, seen, at, *, horizon):
        return flat(seen.beside[at, : seen.width], horizon)


LEAKS = [Peeking, Centred, ScaledByAll, BesideAhead]


@pytest.mark.parametrize("leak", LEAKS)
def test_a_planted_leak_is_caught(leak, noise):
    with pytest.raises(WorkloadError, match=f"`{leak().name}` looks ahead"):
        walk(leak(), noise, splits(len(noise), 4, gap=4, folds=3), 4, seed=0)


@pytest.mark.parametrize("leak", LEAKS)
def test_the_contract_catches_a_leak_too(leak):
    with pytest.raises(WorkloadError, match="looks ahead"):
        check_forecaster(leak)


def test_what_a_model_learns_from_ends_a_gap_before_its_first_origin(noise):
    shown = []

    @dataclass
    class Remembers(HistoricalMean):
        def fit(self, past, *, horizon, seed):
            shown.append(past.values.copy())
            return super().fit(past, horizon=horizon, seed=seed)

    cuts = splits(len(noise), 4, gap=7, folds=3)
    walk(Remembers(), noise, cuts, 4, seed=0)
    assert [len(past) for past in shown] == [cut.at[0] - 7 for cut in cuts]
    assert all(np.array_equal(past, noise.values[: len(past)]) for past in shown)


def test_scales_are_learnt_inside_a_fold(noise):
    """What comes after the first fold may be anything: what is said in it stays the same."""
    from fleetlab.forecast.models.regression import Ridge

    cuts = splits(len(noise), 4, gap=4, folds=3)
    later = noise.values.copy()
    later[cuts[1].at[0] :] *= 1000
    other = Panel(later, noise.beside, noise.names, noise.every)
    first = [walk(Ridge(), panel, cuts[:1], 4, seed=0).forecasts[0] for panel in (noise, other)]
    assert np.array_equal(*first)


@pytest.mark.parametrize(("steps", "horizon", "folds"), [(100, 2, 4), (240, 12, 2), (8925, 12, 4), (1000, 1, 7)])
def test_no_origin_is_asked_about_steps_of_the_next_split(steps, horizon, folds):
    cuts = splits(steps, horizon, gap=horizon, folds=folds)
    for now, then in pairwise(cuts):
        assert now.at[-1] + horizon <= then.at[0]
        assert now.learn == now.at[0] - horizon
    assert cuts[-1].at[-1] + horizon == steps
    assert cuts[-1].at[0] == round((1 - HELD_OUT) * steps)


@pytest.mark.parametrize("gap", [0, 5, 31])
@pytest.mark.parametrize("folds", [1, 2, 4])
@pytest.mark.parametrize("horizon", [1, 7, 20, 31, 60])
def test_where_splits_are_made_every_kind_of_model_can_learn_and_the_hint_tells_when(horizon, folds, gap):
    from fleetlab.forecast.models.regression import Ridge

    with pytest.raises(WorkloadError, match="too few steps") as refused:
        splits(90, horizon, gap=gap, folds=folds)
    enough = int(refused.value.hint.split("about ")[1].split()[0].replace(",", ""))
    made = []
    for steps in range(enough - 40, enough + 1, 5):
        try:
            made.append((steps, splits(steps, horizon, gap=gap, folds=folds)))
        except WorkloadError:
            continue
    assert made[-1][0] == enough
    steps, cuts = made[0]
    draws = np.random.default_rng(0).gamma(2.0, 5.0, (steps, 1))
    forecasts = walk(Ridge(), Panel(draws, draws, ("cpu",), 3600.0), cuts, horizon, seed=0).forecasts
    assert all(len(s) >= 2 for s in forecasts)


def test_a_series_too_short_is_refused_with_what_would_do():
    with pytest.raises(WorkloadError, match="too few steps") as refused:
        splits(99, 4, gap=4, folds=4)
    assert "steps" in refused.value.hint


def test_nobody_asks_for_less_than_nothing(noise):
    @dataclass
    class Below(LastValue):
        name: str = "below"

        def predict(self, seen, at, *, horizon):
            return super().predict(seen, at, horizon=horizon) - 1e6

    forecasts = walk(Below(), noise, splits(len(noise), 4, gap=4, folds=3), 4, seed=0).forecasts
    assert min(float(s.min()) for s in forecasts) == 0.0


def test_what_is_not_a_number_is_refused(noise):
    @dataclass
    class Nan(LastValue):
        name: str = "nan"

        def predict(self, seen, at, *, horizon):
            return super().predict(seen, at, horizon=horizon) * np.nan

    with pytest.raises(WorkloadError, match="`nan` returned non-finite values"):
        walk(Nan(), noise, splits(len(noise), 4, gap=4, folds=3), 4, seed=0)


def test_a_model_that_draws_lots_of_its_own_breaks_the_contract():
    draw = np.random.default_rng(0)

    @dataclass
    class Lots(HistoricalMean):
        name: str = "lots"

        def fit(self, past, *, horizon, seed):
            super().fit(past, horizon=horizon, seed=seed)
            self.mean_ = self.mean_ + draw.normal()
            return self

    with pytest.raises(WorkloadError, match="not deterministic"):
        check_forecaster(Lots)


def test_where_folds_are_too_many_the_hint_says_how_many_would_do():
    with pytest.raises(WorkloadError, match="50 folds") as refused:
        splits(300, 12, gap=12, folds=50)
    most = int(refused.value.hint.split(" --folds at most")[0])
    assert len(splits(300, 12, gap=12, folds=most)) == most + 1
    with pytest.raises(WorkloadError):
        splits(300, 12, gap=12, folds=most + 1)
