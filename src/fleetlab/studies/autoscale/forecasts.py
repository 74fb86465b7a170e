"""Forecasts of demand at each step, with a margin for a risk: how often demand may exceed the nodes that are ready."""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass

import numpy as np

from fleetlab.forecast import Forecaster, Panel
from fleetlab.stats import Floats, Ints
from fleetlab.studies.autoscale.demand import PoolDemand

WINDOW = 7  # days of errors that a margin is taken from
LEAST = 100  # errors: with fewer, there is no margin


@dataclass(frozen=True, slots=True, eq=False)
class DemandForecast:
    """What one model expected of each step, when nodes for it had to be ordered; NaN before it was trained."""

    name: str
    expected: Floats  # [steps]
    level: Floats  # [steps]: the actual demand
    lead: int  # steps from the last known one to the one that is forecast
    day: int  # steps

    def upper(self, risk: float) -> Floats:
        """Return a level that demand exceeds with probability `risk`: conformal, by the errors of the days before.

        The margin of a step comes from errors that were known when its nodes had to be ordered.
        """
        errors = self.level - self.expected
        limits = np.full(len(self.level), np.nan)
        for t in np.flatnonzero(np.isfinite(self.expected)):
            known = errors[max(0, t - self.lead - WINDOW * self.day) : max(0, t - self.lead + 1)]
            known = known[np.isfinite(known)]
            if len(known) >= LEAST:
                limits[t] = self.expected[t] + _quantile(known, risk)
        return limits

    def pinball(self, risk: float, at: Ints) -> float:
        """Return the pinball loss over some steps; infinite where there is no forecast for any of them."""
        over = self.level[at] - self.upper(risk)[at]
        over = over[np.isfinite(over)]
        return float(np.maximum((1 - risk) * over, -risk * over).mean()) if len(over) else math.inf


def _quantile(values: Floats, risk: float) -> float:
    """Return the conformal quantile: an exchangeable next value exceeds it with at most that risk."""
    rank = min(len(values), math.ceil((len(values) + 1) * (1 - risk)))
    return float(np.partition(values, rank - 1)[rank - 1])


def forecasts(models: Sequence[Forecaster], demand: PoolDemand, *, lead: int, train: int) -> list[DemandForecast]:
    """Return what each model expects of every step from `train` on, trained on those before.

    The forecast of a step is made `lead` steps before the previous one ends, from the steps before that.
    """
    level = demand.level
    panel = Panel(level[:, None], demand.flows, ("nodes",), demand.every)
    origins = np.arange(train, len(level) - lead)
    made = []
    for model in models:
        fitted = deepcopy(model).fit(panel.until(train), horizon=lead + 1, seed=0)
        expected = np.full(len(level), np.nan)
        if len(origins):
            expected[origins + lead] = fitted.predict(panel, origins, horizon=lead + 1)[:, lead, 0]
        made.append(DemandForecast(model.name, expected, level, lead + 1, panel.day))
    return made


def best(candidates: Sequence[DemandForecast], risk: float, before: int) -> DemandForecast:
    """Return the model with the lowest loss at this risk in the steps before, which do not count."""
    at = np.arange(before)
    return min(candidates, key=lambda f: (f.pinball(risk, at), f.name))


def sustain(ready: Ints, steps: int) -> Ints:
    """Keep nodes for so many steps after the last one that needs them.

    >>> sustain(np.array([1, 4, 2, 1, 1, 3]), 2)
    array([1, 4, 4, 4, 2, 3])
    """
    padded = np.concatenate((np.full(steps, ready[0]), ready)) if len(ready) else ready
    return np.asarray(np.lib.stride_tricks.sliding_window_view(padded, steps + 1).max(axis=1)) if steps else ready
