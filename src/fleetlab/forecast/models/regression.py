"""Least squares: a series on its own past, and on what stands beside it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from fleetlab.forecast.models.lags import SUMS, aims, features, flows, from_last, persistent
from fleetlab.forecast.panel import Floats, Ints, Panel

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
        known, at = flows(past, self.changes_), np.arange(min(max(SUMS), len(past) // 4), len(past) - horizon + 1)
        aim = aims(past, self.changes_, at, horizon)
        self.fits_ = [_shrunk(features(known[:, k], past, at), aim[:, :, k], horizon) for k in range(past.width)]
        return self

    def predict(self, panel: Panel, at: Ints, *, horizon: int) -> Floats:
        """Each step by its own weights."""
        known = flows(panel, self.changes_)
        forecasts_by_series = [_apply(fit, features(known[:, k], panel, at)) for k, fit in enumerate(self.fits_)]
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
