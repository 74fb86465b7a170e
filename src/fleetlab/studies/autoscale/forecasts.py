"""Nodes to have ready at each step: an expected level, and how far above it one must go for a chosen risk."""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass

import numpy as np

from fleetlab.forecast import Forecaster, Panel
from fleetlab.studies.autoscale._demand import Asked, Floats, Ints

WINDOW = 7  # days of misses that a margin is taken from
LEAST = 100  # misses: with fewer, no margin is known


@dataclass(frozen=True, slots=True, eq=False)
class Forecasts:
    """What one model expected of each step, when nodes for it had to be ordered; nan before it had learnt."""

    name: str
    expected: Floats  # [steps]
    level: Floats  # [steps]: what came
    lead: int  # steps between the last one seen and the one that is forecast
    day: int  # steps

    def upper(self, risk: float) -> Floats:
        """A level that is exceeded in about one step of `1 / risk`: by the misses of the days before, as conformal.

        A step's margin comes from misses that were known when its nodes had to be ordered, and from no others.
        """
        missed = self.level - self.expected
        found = np.full(len(self.level), np.nan)
        for t in np.flatnonzero(np.isfinite(self.expected)):
            known = missed[max(0, t - self.lead - WINDOW * self.day) : max(0, t - self.lead + 1)]
            known = known[np.isfinite(known)]
            if len(known) >= LEAST:
                found[t] = self.expected[t] + _quantile(known, risk)
        return found

    def pinball(self, risk: float, at: Ints) -> float:
        """The loss that the true quantile makes smallest, over some steps; infinite where it knows none of them."""
        over = self.level[at] - self.upper(risk)[at]
        over = over[np.isfinite(over)]
        return float(np.maximum((1 - risk) * over, -risk * over).mean()) if len(over) else math.inf


def _quantile(values: Floats, risk: float) -> float:
    """The conformal quantile: so high that the next one exceeds it with at most that risk, if it is like these."""
    rank = min(len(values), math.ceil((len(values) + 1) * (1 - risk)))
    return float(np.partition(values, rank - 1)[rank - 1])


def forecasts(models: Sequence[Forecaster], asked: Asked, *, lead: int, learn: int) -> list[Forecasts]:
    """What each model expects of every step from `learn` on, having learnt from those before.

    A step's forecast is made `lead` steps before the one ahead of it ends: it sees what came before that.
    """
    level = asked.level
    panel = Panel(level[:, None], asked.flows, ("nodes",), asked.every)
    origins = np.arange(learn, len(level) - lead)
    found = []
    for model in models:
        fitted = deepcopy(model).fit(panel.until(learn), horizon=lead + 1, seed=0)
        expected = np.full(len(level), np.nan)
        if len(origins):
            expected[origins + lead] = fitted.predict(panel, origins, horizon=lead + 1)[:, lead, 0]
        found.append(Forecasts(model.name, expected, level, lead + 1, panel.day))
    return found


def best(found: Sequence[Forecasts], risk: float, before: int) -> Forecasts:
    """The model that did best at this risk in the steps before, which are not those that count."""
    at = np.arange(before)
    return min(found, key=lambda f: (f.pinball(risk, at), f.name))


def held(ready: Ints, steps: int) -> Ints:
    """Nodes that stay for so many steps after the last one that asked for them.

    >>> held(np.array([1, 4, 2, 1, 1, 3]), 2)
    array([1, 4, 4, 4, 2, 3])
    """
    padded = np.concatenate((np.full(steps, ready[0]), ready)) if len(ready) else ready
    return np.asarray(np.lib.stride_tricks.sliding_window_view(padded, steps + 1).max(axis=1)) if steps else ready
