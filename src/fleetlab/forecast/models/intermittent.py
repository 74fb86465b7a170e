"""Demand that comes now and then: how much when it comes, and how often, smoothed apart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from fleetlab.forecast.models.simple import flat
from fleetlab.forecast.panel import Floats, Ints, Panel

ALPHAS = (0.005, 0.01, 0.03, 0.1, 0.2, 0.4)


@dataclass
class Croston:
    """The usual amount over the usual distance between two (Croston 1972), with Syntetos and Boylan's correction."""

    name: str = "croston"

    def fit(self, past: Panel, *, horizon: int, seed: int) -> Self:
        """The weight that missed the next step least, for each series."""
        missed = [((past.values - self._rates(past.values, a)[:-1]) ** 2).mean(axis=0) for a in ALPHAS]
        self.alpha_ = np.array(ALPHAS)[np.argmin(missed, axis=0)]
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
