"""What a regression may look at before a step: late values, sums of them, and the time of day and week."""

from __future__ import annotations

import numpy as np

from fleetlab.forecast.panel import DAY, Floats, Ints, Panel, targets

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
