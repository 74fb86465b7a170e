"""Models of lagged values: regression and boosted trees."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any, Self

import numpy as np

from fleetlab.forecast.demand import DAY, Floats, Ints, Panel, targets

LAGS = 6  # steps, each by itself
SUMS = (12, 36, 144)  # and together so many
WEEK = 7 * DAY
SLOW = 0.1  # of the variance is in a step: neighbours are correlated by 0.95 or more


def persistent(values: Floats) -> Floats:
    """1 for a series that hardly moves from step to step, and is told by its changes; 0 for one that returns."""
    return np.asarray(np.diff(values, axis=0).var(axis=0) < SLOW * values.var(axis=0), dtype=np.float64)


def flows(panel: Panel, changes: Floats) -> Floats:
    """Each series as it is or as its changes, then what stands beside it: [steps, series, kinds]."""
    moved = np.diff(panel.values, axis=0, prepend=panel.values[:1])
    own = np.where(changes > 0, moved, panel.values)
    return np.stack((own, *np.split(panel.beside, panel.beside.shape[1] // panel.width, axis=1)), axis=2)


def features(flow: Floats, panel: Panel, at: Ints) -> Floats:
    """What is known at each origin of one series, from its flows [steps, kinds]: [origins, features]."""
    # A step that has not been is as if nothing had come.
    padded = np.concatenate((np.zeros((LAGS, flow.shape[1])), flow))
    single = [padded[at + LAGS - lag] for lag in range(1, LAGS + 1)]
    sums = np.concatenate((np.zeros((1, flow.shape[1])), np.cumsum(flow, axis=0)))
    several = [sums[at] - sums[np.maximum(at - window, 0)] for window in SUMS]
    return np.concatenate((*single, *several, calendar(panel, at)), axis=1)


def calendar(panel: Panel, at: Ints) -> Floats:
    """Where in the day an origin is, and in the week, as points on a circle: no clock is needed for that."""
    turns = [at * panel.every / length for length in (DAY, WEEK)]
    return np.stack([wave(2 * np.pi * turn) for turn in turns for wave in (np.sin, np.cos)], axis=1)


def aims(panel: Panel, changes: Floats, at: Ints, horizon: int) -> Floats:
    """What is learnt at each origin: the steps to come, or how far they are from the last value."""
    return targets(panel.values, at, horizon) - from_last(panel, changes, at)


def from_last(panel: Panel, changes: Floats, at: Ints) -> Floats:
    """What is added to an aim to have a value: [origins, 1, series]."""
    return (panel.values[at - 1] * changes)[:, None, :]


ORDERS = (1, 2, 3, 6, 12, 24)
SHRINKAGES = (0.01, 0.1, 1.0, 10.0, 1e6)  # the last leaves nothing but the mean
HELD_BACK = 0.25  # of the past, to choose by


@dataclass
class Autoregression:
    """ARIMA(p, d, 0): changes (d = 1) or values on their last p, by least squares.

    p has the least AIC; d is 1 for a series that hardly moves from step to step. Steps further ahead are
    forecast from those before them.
    """

    name: str = "ar"

    def fit(self, past: Panel, *, horizon: int, seed: int) -> Self:
        """Order and weights of each series."""
        self.changes_ = persistent(past.values)
        each = _differenced(past.values, self.changes_)
        most = max([p for p in ORDERS if p <= len(past) // 10] or [1])
        self.weights_ = [_best(each[:, k], most) for k in range(past.width)]
        return self

    def predict(self, panel: Panel, at: Ints, *, horizon: int) -> Floats:
        """One step after the other; changes are added up."""
        each = _differenced(panel.values, self.changes_)
        forecasts = np.empty((len(at), horizon, panel.width))
        for k, weights in enumerate(self.weights_):
            late = _before(each[:, k], at, len(weights) - 1)
            for h in range(horizon):
                forecasts[:, h, k] = weights[0] + late @ weights[1:]
                late = np.concatenate((forecasts[:, h, k][:, None], late[:, :-1]), axis=1)
        summed = np.where(self.changes_ > 0, np.cumsum(forecasts, axis=1), forecasts)
        return np.asarray(summed + from_last(panel, self.changes_, at))


def _differenced(values: Floats, changes: Floats) -> Floats:
    return np.where(changes > 0, np.diff(values, axis=0, prepend=values[:1]), values)


def _before(series: Floats, at: Ints, count: int) -> Floats:
    """The last `count` values before each origin, the newest first; zeros before the beginning."""
    padded = np.concatenate((np.zeros(count), series))
    return np.asarray(padded[at[:, None] + count - 1 - np.arange(count)[None, :]])


def _best(series: Floats, most: int) -> Floats:
    """Constant and weights of the order with the least AIC, all from the same steps."""
    at = np.arange(most, len(series))
    late, aim = _before(series, at, most), series[at]
    forecasts_by_series = []
    for order in [p for p in ORDERS if p <= most] or [1]:
        rows = np.column_stack((np.ones(len(at)), late[:, :order]))
        weights = np.linalg.lstsq(rows, aim, rcond=None)[0]
        spread = float(((aim - rows @ weights) ** 2).mean())
        forecasts_by_series.append((len(at) * np.log(max(spread, 1e-300)) + 2 * order, order, weights))
    return np.asarray(min(forecasts_by_series, key=lambda one: one[:2])[2])


@dataclass
class Ridge:
    """Every step ahead on late flows, sums of them and the calendar; shrunk as was best on the end of the past."""

    name: str = "ridge"

    def fit(self, past: Panel, *, horizon: int, seed: int) -> Self:
        """Scales, weights and how far they are shrunk, for each series."""
        self.changes_ = persistent(past.values)
        series, at = flows(past, self.changes_), np.arange(min(max(SUMS), len(past) // 4), len(past) - horizon + 1)
        aim = aims(past, self.changes_, at, horizon)
        self.fits_ = [_shrunk(features(series[:, k], past, at), aim[:, :, k], horizon) for k in range(past.width)]
        return self

    def predict(self, panel: Panel, at: Ints, *, horizon: int) -> Floats:
        """Each step by its own weights."""
        series = flows(panel, self.changes_)
        forecasts_by_series = [_apply(fit, features(series[:, k], panel, at)) for k, fit in enumerate(self.fits_)]
        return np.stack(forecasts_by_series, axis=2) + from_last(panel, self.changes_, at)


Fit = tuple[Floats, Floats, Floats, Floats]  # centre and scale of the features, weights, constants


def _shrunk(rows: Floats, aim: Floats, gap: int) -> Fit:
    cut = int(len(rows) * (1 - HELD_BACK))
    first = _solutions(rows[: max(1, cut - gap)], aim[: max(1, cut - gap)])
    missed = [float(((aim[cut:] - _apply(fit, rows[cut:])) ** 2).mean()) for fit in first]
    return _solutions(rows, aim)[int(np.argmin(missed))]


def _solutions(rows: Floats, aim: Floats) -> list[Fit]:
    """One for each shrinkage."""
    centre, scale, constant = rows.mean(axis=0), rows.std(axis=0), aim.mean(axis=0)
    scale = np.where(scale > 0, scale, 1.0)
    scaled = (rows - centre) / scale
    gram, cross = scaled.T @ scaled / len(rows), scaled.T @ (aim - constant) / len(rows)
    eye = np.eye(len(gram))
    return [(centre, scale, np.linalg.solve(gram + s * eye, cross), constant) for s in SHRINKAGES]


def _apply(fit: Fit, rows: Floats) -> Floats:
    centre, scale, weights, constant = fit
    return np.asarray((rows - centre) / scale @ weights + constant)


STOPPING_SHARE = 0.2  # of the past, to see when to stop
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
        series, at = flows(past, self.changes_), np.arange(min(max(SUMS), len(past) // 4), len(past) - horizon + 1)
        aim = aims(past, self.changes_, at, horizon)
        self.trees_ = [
            [self._grown(rows, aim[:, step - 1, k], horizon, seed) for step in self.steps_]
            for k, rows in enumerate(features(series[:, k], past, at) for k in range(past.width))
        ]
        return self

    def predict(self, seen: Panel, at: Ints, *, horizon: int) -> Floats:
        """What the trees say, and what lies between their steps."""
        series, predictions = flows(seen, self.changes_), np.empty((len(at), horizon, seen.width))
        for k, trees in enumerate(self.trees_):
            rows = features(series[:, k], seen, at)
            forecasts = np.stack([_predict(tree, rows) for tree in trees], axis=1)
            for h in range(horizon):
                predictions[:, h, k] = _between(forecasts, self.steps_, h + 1)
        return predictions + from_last(seen, self.changes_, at)

    def _grown(self, rows: Floats, aim: Floats, gap: int, seed: int) -> tuple[Any, float, float]:
        """Trees, and the centre and scale of what they tell."""
        lightgbm = import_module("lightgbm")
        cut = int(len(rows) * (1 - STOPPING_SHARE))
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
