"""Gradient boosting: many small trees on late flows, sums of them and the calendar."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any, Self

import numpy as np

from fleetlab.forecast.models.lags import SUMS, aims, features, flows, from_last, persistent
from fleetlab.forecast.panel import Floats, Ints, Panel

HELD_BACK = 0.2  # of the past, to see when to stop
ROUNDS, PATIENCE = 200, 15


@dataclass
class Boosted:
    """LightGBM, one model for each series and for four of the steps ahead; steps between them lie between them.

    Trees are few, small and shrunk, and stop where the end of the past is no longer missed less. None may be best:
    then it is the mean.
    """

    name: str = "boosted"
    leaves: int = 8
    rate: float = 0.05

    def fit(self, past: Panel, *, horizon: int, seed: int) -> Self:
        """The trees of each series and step."""
        self.changes_ = persistent(past.values)
        self.steps_ = reported(horizon)
        known, at = flows(past, self.changes_), np.arange(min(max(SUMS), len(past) // 4), len(past) - horizon + 1)
        aim = aims(past, self.changes_, at, horizon)
        self.trees_ = [
            [self._grown(rows, aim[:, step - 1, k], horizon, seed) for step in self.steps_]
            for k, rows in enumerate(features(known[:, k], past, at) for k in range(past.width))
        ]
        return self

    def predict(self, seen: Panel, at: Ints, *, horizon: int) -> Floats:
        """What the trees say, and what lies between their steps."""
        known, found = flows(seen, self.changes_), np.empty((len(at), horizon, seen.width))
        for k, trees in enumerate(self.trees_):
            rows = features(known[:, k], seen, at)
            forecasts = np.stack([_predict(tree, rows) for tree in trees], axis=1)
            for h in range(horizon):
                found[:, h, k] = _between(forecasts, self.steps_, h + 1)
        return found + from_last(seen, self.changes_, at)

    def _grown(self, rows: Floats, aim: Floats, gap: int, seed: int) -> tuple[Any, float, float]:
        """Trees, and the centre and scale of what they tell."""
        lightgbm = import_module("lightgbm")
        cut = int(len(rows) * (1 - HELD_BACK))
        learn = slice(0, max(1, cut - gap))
        centre, scale = float(aim[learn].mean()), float(aim[learn].std()) or 1.0
        aim = (aim - centre) / scale
        settings = {
            "objective": "l2",
            "learning_rate": self.rate,
            "num_leaves": self.leaves,
            "min_data_in_leaf": max(5, len(rows) // 100),
            "lambda_l2": 10.0,
            "feature_fraction": 0.5,
            "num_threads": 1,  # two on a busy machine took seventy times as long
            "deterministic": True,
            "seed": seed,
            "verbose": -1,
        }
        data = lightgbm.Dataset(rows[learn], label=aim[learn])
        late = lightgbm.Dataset(rows[cut:], label=aim[cut:], reference=data)
        stop = lightgbm.early_stopping(PATIENCE, verbose=False)
        trees = lightgbm.train(settings, data, ROUNDS, valid_sets=[late], callbacks=[stop])
        best, nothing = trees.best_score["valid_0"]["l2"], float((aim[cut:] ** 2).mean())
        return (trees if best < nothing else None), centre, scale


def reported(horizon: int) -> tuple[int, ...]:
    """The steps ahead that are looked at one by one: the first, a quarter, half and all of the horizon.

    >>> reported(12), reported(2), reported(1)
    ((1, 3, 6, 12), (1, 2), (1,))
    """
    return tuple(sorted({1, max(1, horizon // 4), max(1, horizon // 2), horizon}))


def _predict(tree: tuple[Any, float, float], rows: Floats) -> Floats:
    trees, centre, scale = tree
    return np.full(len(rows), centre) if trees is None else centre + scale * trees.predict(rows, num_threads=1)


def _between(forecasts: Floats, steps: tuple[int, ...], step: int) -> Floats:
    after = int(np.searchsorted(steps, step))
    if steps[after] == step:
        return forecasts[:, after]
    low, high = steps[after - 1], steps[after]
    share = (step - low) / (high - low)
    return np.asarray((1 - share) * forecasts[:, after - 1] + share * forecasts[:, after])
