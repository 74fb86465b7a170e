"""The simple models: the bar that any cleverer one must clear."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from fleetlab.forecast.panel import Floats, Ints, Panel

WINDOWS = (3, 6, 12, 36, 72, 144, 288)  # steps, among which a moving average chooses


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
class MovingAverage:
    """It is as it was on average of late; how long that is was best in the past."""

    name: str = "average"

    def fit(self, past: Panel, *, horizon: int, seed: int) -> Self:
        """The window of each series that missed the next step least."""
        windows = [w for w in WINDOWS if w <= len(past) // 3] or [1]
        at = np.arange(windows[-1], len(past))
        missed = [((past.values[at] - window_mean(past.values, at, w)) ** 2).mean(axis=0) for w in windows]
        self.window_ = np.array(windows)[np.argmin(missed, axis=0)]
        return self

    def predict(self, seen: Panel, at: Ints, *, horizon: int) -> Floats:
        """The mean of each series over its window."""
        each = [window_mean(seen.values[:, [k]], at, int(w)) for k, w in enumerate(self.window_)]
        return flat(np.concatenate(each, axis=1), horizon)


def window_mean(values: Floats, at: Ints, window: int) -> Floats:
    """The mean of the `window` steps before each origin, or of as many as there are.

    >>> window_mean(np.array([[1.0], [2.0], [6.0]]), np.array([1, 2, 3]), 2).ravel()
    array([1. , 1.5, 4. ])
    """
    sums = np.concatenate((np.zeros((1, values.shape[1])), np.cumsum(values, axis=0)))
    first = np.maximum(at - window, 0)
    return np.asarray((sums[at] - sums[first]) / (at - first)[:, None])
