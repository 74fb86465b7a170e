"""Models without training: last value, rolling and seasonal means, smoothing, and methods for intermittent demand.

Weights are those of a grid that missed the next step least in the past, for each series. The state runs through the
series once, from the left, so that the state of an origin knows the steps before it and no other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Self

import numpy as np

from fleetlab.forecast.demand import Floats, Ints, Panel


def flat(values: Floats, horizon: int) -> Floats:
    """The same for every step ahead: [origins, series] to [origins, horizon, series]."""
    return np.repeat(values[:, None, :], horizon, axis=1)


@dataclass
class LastValue:
    """It stays as it is."""

    name: str = "last"

    def fit(self, past: Panel, *, horizon: int, seed: int) -> Self:
        """Nothing to learn."""
        return self

    def predict(self, seen: Panel, at: Ints, *, horizon: int) -> Floats:
        """The last value before each origin."""
        return flat(seen.values[at - 1], horizon)


@dataclass
class HistoricalMean:
    """It is as it always was: the mean of all that was learnt from."""

    name: str = "mean"

    def fit(self, past: Panel, *, horizon: int, seed: int) -> Self:
        """The mean of each series."""
        self.mean_ = past.values.mean(axis=0)
        return self

    def predict(self, seen: Panel, at: Ints, *, horizon: int) -> Floats:
        """That mean, whatever came since."""
        return flat(np.tile(self.mean_, (len(at), 1)), horizon)


@dataclass
class Drift:
    """It goes on from where it is, by as much a step as it grew on average."""

    name: str = "drift"

    def fit(self, past: Panel, *, horizon: int, seed: int) -> Self:
        """The mean step of each series."""
        self.step_ = (past.values[-1] - past.values[0]) / max(1, len(past) - 1)
        return self

    def predict(self, seen: Panel, at: Ints, *, horizon: int) -> Floats:
        """The last value, and so many mean steps."""
        ahead = np.arange(1, horizon + 1)[None, :, None]
        return np.asarray(seen.values[at - 1][:, None, :] + ahead * self.step_)


@dataclass
class SeasonalNaive:
    """It is as it was a day ago."""

    name: str = "seasonal"

    def fit(self, past: Panel, *, horizon: int, seed: int) -> Self:
        """Nothing to learn."""
        return self

    def predict(self, seen: Panel, at: Ints, *, horizon: int) -> Floats:
        """The same step of the last day that is known."""
        ahead = np.arange(horizon)
        back = seen.day * (ahead // seen.day + 1) - ahead
        return np.asarray(seen.values[at[:, None] - back[None, :]])


@dataclass
class RollingMean:
    """It is as it was on average over the last hours."""

    name: str
    hours: float

    def fit(self, past: Panel, *, horizon: int, seed: int) -> Self:
        """Nothing to learn."""
        return self

    def predict(self, seen: Panel, at: Ints, *, horizon: int) -> Floats:
        """The mean of each series over its window, of one step at least."""
        return flat(window_mean(seen.values, at, max(1, round(self.hours * 3600 / seen.every))), horizon)


def window_mean(values: Floats, at: Ints, window: int) -> Floats:
    """The mean of the `window` steps before each origin, or of as many as there are.

    >>> window_mean(np.array([[1.0], [2.0], [6.0]]), np.array([1, 2, 3]), 2).ravel()
    array([1. , 1.5, 4. ])
    """
    sums = np.concatenate((np.zeros((1, values.shape[1])), np.cumsum(values, axis=0)))
    first = np.maximum(at - window, 0)
    return np.asarray((sums[at] - sums[first]) / (at - first)[:, None])


RATES = (0.005, 0.01, 0.03, 0.1, 0.2, 0.4)


@dataclass
class Croston:
    """The usual amount over the usual distance between two (Croston 1972), with Syntetos and Boylan's correction."""

    name: str = "croston"

    def fit(self, past: Panel, *, horizon: int, seed: int) -> Self:
        """The weight that missed the next step least, for each series."""
        missed = [((past.values - self._rates(past.values, a)[:-1]) ** 2).mean(axis=0) for a in RATES]
        self.alpha_ = np.array(RATES)[np.argmin(missed, axis=0)]
        return self

    def predict(self, seen: Panel, at: Ints, *, horizon: int) -> Floats:
        """So much a step."""
        return flat(self._rates(seen.values, self.alpha_)[at], horizon)

    def _rates(self, values: Floats, alpha: Floats | float) -> Floats:
        """What is expected before each step, and after the last."""
        states = np.zeros((len(values) + 1, values.shape[1]))
        size, distance, since = np.zeros(values.shape[1]), np.ones(values.shape[1]), np.ones(values.shape[1])
        before = np.zeros(values.shape[1], dtype=bool)  # has there been any demand yet?
        for t, value in enumerate(values):
            came = value > 0
            size = np.where(came, np.where(before, size + alpha * (value - size), value), size)
            distance = np.where(came, np.where(before, distance + alpha * (since - distance), since), distance)
            since = np.where(came, 1.0, since + 1.0)
            before = before | came
            states[t + 1] = (1 - np.asarray(alpha) / 2) * size / distance
        return states


@dataclass
class TSB(Croston):
    """The usual amount times the chance that there is any, which fades while nothing comes.

    Teunter, Syntetos and Babai 2011.
    """

    name: str = "tsb"

    def _rates(self, values: Floats, alpha: Floats | float) -> Floats:
        states = np.zeros((len(values) + 1, values.shape[1]))
        size, chance = np.zeros(values.shape[1]), np.zeros(values.shape[1])
        before = np.zeros(values.shape[1], dtype=bool)
        for t, value in enumerate(values):
            came = value > 0
            size = np.where(came, np.where(before, size + alpha * (value - size), value), size)
            chance = np.where(before | ~came, chance + alpha * (came - chance), 1.0 / (t + 1))
            before = before | came
            states[t + 1] = size * chance
        return states


ALPHAS = (0.005, 0.01, 0.03, 0.1, 0.2, 0.4, 0.7, 1.0)  # how much of the newest miss goes into the level
BETAS = (0.001, 0.01, 0.05, 0.2)  # and of the level's into the trend
GAMMAS = (0.02, 0.1, 0.3)  # into the season
DAMPINGS = (0.8, 0.9, 0.98)


@dataclass
class Smoothing:
    """A level that follows misses by a share, and where asked for a trend, damped or not."""

    name: str = "ses"
    betas: Sequence[float] = (0.0,)
    dampings: Sequence[float] = (1.0,)

    def fit(self, past: Panel, *, horizon: int, seed: int) -> Self:
        """The weights that missed the next step least."""
        grid = np.array(list(product(ALPHAS, self.betas, self.dampings)))
        alpha, beta, phi = (grid[:, [k]] for k in range(3))
        missed, level, trend = 0.0, np.repeat(past.values[:1], len(grid), axis=0), np.zeros((len(grid), past.width))
        for value in past.values[1:]:
            miss = value - level - phi * trend
            missed = missed + miss * miss
            level, trend = level + phi * trend + alpha * miss, phi * trend + alpha * beta * miss
        self.alpha_, self.beta_, self.phi_ = grid[np.argmin(np.broadcast_to(missed, level.shape), axis=0)].T
        return self

    def predict(self, panel: Panel, at: Ints, *, horizon: int) -> Floats:
        """The level, and as much of the trend as is left of it at each step."""
        level, trend = self._states(panel.values)
        ahead = np.cumsum(self.phi_[None, :] ** np.arange(1, horizon + 1)[:, None], axis=0)
        return np.asarray(level[at][:, None, :] + trend[at][:, None, :] * ahead[None])

    def _states(self, values: Floats) -> tuple[Floats, Floats]:
        """Level and trend before each step, and after the last."""
        levels, trends = np.empty((len(values) + 1, values.shape[1])), np.zeros((len(values) + 1, values.shape[1]))
        levels[0] = level = values[0]
        trend = np.zeros(values.shape[1])
        for t, value in enumerate(values):
            miss = value - level - self.phi_ * trend
            level = level + self.phi_ * trend + self.alpha_ * miss
            trend = self.phi_ * trend + self.alpha_ * self.beta_ * miss
            levels[t + 1], trends[t + 1] = level, trend
        return levels, trends


@dataclass
class Theta(Smoothing):
    """Simple smoothing with half the slope of the straight line through the past.

    That is what the Theta method comes to (Hyndman and Billah 2003); it has no season here.
    """

    name: str = "theta"

    def fit(self, past: Panel, *, horizon: int, seed: int) -> Self:
        """The weights, and the slope by least squares."""
        super().fit(past, horizon=horizon, seed=seed)
        when = np.arange(len(past)) - (len(past) - 1) / 2
        self.slope_ = when @ past.values / max(1.0, float(when @ when))
        return self

    def predict(self, panel: Panel, at: Ints, *, horizon: int) -> Floats:
        """The level, and half the slope a step."""
        level, _ = self._states(panel.values)
        ahead = np.arange(1, horizon + 1)[None, :, None]
        return flat(level[at], horizon) + 0.5 * self.slope_ * ahead


@dataclass
class HoltWinters:
    """A level, and for each step of the day how far it is off, added."""

    name: str = "holt_winters"

    def fit(self, past: Panel, *, horizon: int, seed: int) -> Self:
        """The weights that missed the next step least, from the second day on."""
        grid = np.array(list(product(ALPHAS, GAMMAS)))
        alpha, gamma = grid[:, [0]], grid[:, [1]]
        day = past.day
        level, season = self._first(past.values[:day])
        level, season = np.repeat(level[None], len(grid), axis=0), np.repeat(season[:, None], len(grid), axis=1)
        missed = np.zeros_like(level)
        for t, value in enumerate(past.values[day:]):
            miss = value - level - season[t % day]
            missed += miss * miss
            level, season[t % day] = level + alpha * miss, season[t % day] + gamma * miss
        self.alpha_, self.gamma_ = grid[np.argmin(missed, axis=0)].T
        return self

    def predict(self, panel: Panel, at: Ints, *, horizon: int) -> Floats:
        """The level, and how far that step of the day is off."""
        day = panel.day
        forecasts = np.empty((len(at), horizon, panel.width))
        rows_of = {int(t): np.flatnonzero(at == t) for t in np.unique(at)}
        level, season = self._first(panel.values[:day])
        ahead = np.arange(horizon)
        for t in range(day, max(rows_of) + 1):
            if t in rows_of:
                forecasts[rows_of[t]] = level + season[(t + ahead) % day]
            if t < len(panel):
                miss = panel.values[t] - level - season[t % day]
                level, season[t % day] = level + self.alpha_ * miss, season[t % day] + self.gamma_ * miss
        return forecasts

    @staticmethod
    def _first(values: Floats) -> tuple[Floats, Floats]:
        """Level and season after the first day; a step's own luck is not yet its habit, so an hour around it is."""
        level = values.mean(axis=0)
        around = max(1, len(values) // 24)
        padded = np.concatenate((values[-around:], values, values[:around]))
        sums = np.cumsum(np.concatenate((np.zeros((1, values.shape[1])), padded)), axis=0)
        wide = 2 * around + 1
        return level, (sums[wide:] - sums[:-wide]) / wide - level
