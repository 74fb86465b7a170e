"""Settings of networks, searched at random by walk-forward on the steps before the first fold.

Folds and the held-out end come later, so nothing that a model is evaluated on has a part in the search. The budget is a
number of trials and not of seconds: the same seed then finds the same settings on any machine, however busy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np

from fleetlab.core import WorkloadError
from fleetlab.forecast.backtest import Split, splits
from fleetlab.forecast.demand import Floats, Panel, targets
from fleetlab.forecast.models.neural import Network

TRIALS = 8  # default budget, for each network
FOLDS = 2  # of walk-forward in a trial: the middle 40 % and the last 20 % of the steps

Settings = Mapping[str, Any]  # by name of a field of `Network`


@dataclass(frozen=True, slots=True)
class Trial:
    """One combination of settings, and what came of it."""

    settings: Settings
    error: float  # mean squared error over that of the first trial, mean over steps ahead and series
    epochs: int  # of training, over all folds


@dataclass(frozen=True, slots=True)
class Tuning:
    """What a search spent, and the network with the best settings, not yet fitted."""

    model: Network
    trials: tuple[Trial, ...]  # the first has the network's own settings; none where there are too few steps
    steps: int  # that the search saw

    @property
    def best(self) -> int:
        """Which trial has the smallest error; the first of several."""
        return int(np.argmin([trial.error for trial in self.trials]))


def tune(model: Network, past: Panel, *, horizon: int, gap: int, trials: int, seed: int) -> Tuning:
    """Try so many settings, each on every fold with one network, and take the best.

    The first trial has the settings that the network comes with, so the search never does worse on its folds.
    """
    try:
        cuts = splits(len(past), horizon, gap=gap, folds=FOLDS - 1)  # the last one is added there
    except WorkloadError:  # too short to be split again
        return Tuning(model, (), len(past))
    done: list[Trial] = []
    first: Floats | None = None
    for settings in candidates(model, trials, seed):
        squares, epochs = _try(replace(model, draws=1, **settings), past, cuts, horizon, seed)
        first = squares if first is None else first
        done.append(Trial(settings, _relative(squares, first), epochs))
    tuning = Tuning(model, tuple(done), len(past))
    return replace(tuning, model=replace(model, **done[tuning.best].settings)) if done else tuning


def candidates(model: Network, trials: int, seed: int) -> list[Settings]:
    """The network's own settings, then others from the grid of its options, at random and each once."""
    options = model.options()
    own = {name: getattr(model, name) for name in options}
    grid = [dict(zip(options, values, strict=True)) for values in product(*options.values())]
    others = (grid[k] for k in np.random.default_rng(seed).permutation(len(grid)))
    return [own, *(settings for settings in others if settings != own)][:trials]


def _try(model: Network, past: Panel, cuts: list[Split], horizon: int, seed: int) -> tuple[Floats, int]:
    """Mean squared error by step ahead and series, mean over folds, and the epochs of training."""
    squares, epochs = [], 0
    for cut in cuts:
        fitted = model.fit(past.until(cut.learn), horizon=horizon, seed=seed)
        forecast = np.maximum(fitted.predict(past, cut.at, horizon=horizon), 0.0)
        squares.append(((targets(past.values, cut.at, horizon) - forecast) ** 2).mean(axis=0))
        epochs += fitted.epochs_
    return np.mean(squares, axis=0), epochs


def _relative(squares: Floats, first: Floats) -> float:
    """Return the mean ratio, so that each series counts the same; one that never changes has no error to compare."""
    varies = first > 0
    return float((squares[varies] / first[varies]).mean()) if varies.any() else 1.0
