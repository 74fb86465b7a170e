"""How sure is a number of one run? Waits hang together, so neighbours are taken together before they are compared."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from fleetlab.core import Estimate
from fleetlab.sim.layout import Floats

BATCHES = 20
LEAST = 10 * BATCHES  # values: with fewer, no interval is given
STUDENT = 2.093  # of 19 degrees of freedom: the half-width of a 95 % interval in standard errors
QUANTILES = (0.5, 0.9, 0.99)
NAMES = ("mean", *(f"P{100 * q:.0f}" for q in QUANTILES))
DRAWS = 400  # of a bootstrap


def spread(name: str, values: Floats, *, unit: str = "", least: float = 0.0) -> list[Estimate]:
    """Mean, P50, P90 and P99 of values in order of arrival, each with its interval from batch means."""
    if not len(values):
        return []
    found = _stats(values)
    half = np.full(len(found), np.nan)
    if len(values) >= LEAST:
        half = half_width(np.array([_stats(part) for part in np.array_split(values, BATCHES)]))
    return [
        # `max` keeps its first where that is nan: no interval stays none.
        Estimate(f"{what} {name}", value, max(value - h, least), value + h, unit)
        for what, value, h in zip(NAMES, found.tolist(), half.tolist(), strict=True)
    ]


def mean_between(values: Floats) -> tuple[float | None, float | None]:
    """The 95 % interval of the mean of values in order of arrival, from batch means; none where there are few."""
    if len(values) < LEAST:
        return None, None
    half = float(half_width(np.array([part.mean() for part in np.array_split(values, BATCHES)])))
    return max(0.0, float(values.mean()) - half), float(values.mean()) + half


def half_width(batches: Floats) -> Floats:
    """Of the 95 % interval of a mean, from one value (or a row of values) for each of `BATCHES` batches."""
    return np.asarray(STUDENT * batches.std(axis=0, ddof=1) / BATCHES**0.5)


def _stats(values: Floats) -> Floats:
    # Sorted once: asking numpy for one quantile after the other costs several times as much.
    ranked = np.sort(values)
    found = [float(values.mean())]
    for q in QUANTILES:
        at = q * (len(ranked) - 1)
        low, high = float(ranked[math.floor(at)]), float(ranked[math.ceil(at)])
        found.append(low + (at - math.floor(at)) * (high - low))
    return np.array(found)


def jain(values: Sequence[float] | Floats) -> float:
    """Jain's index of fairness: 1 where all have the same, 1/n where one of n has it all.

    >>> jain([1.0, 1.0, 1.0]), jain([3.0, 0.0, 0.0])
    (1.0, 0.3333333333333333)
    """
    x = np.asarray(values, dtype=np.float64)
    square = float((x * x).sum())
    return float(x.sum()) ** 2 / (len(x) * square) if square else 1.0


def fairness(metric: str, values: Floats) -> Estimate:
    """Jain's index over users, and the interval in which it lies if other users like these had come."""
    found = jain(values)
    if len(values) < BATCHES:
        return Estimate(metric, found, float("nan"), float("nan"), "")
    rng = np.random.default_rng(0)
    drawn = [jain(values[rng.integers(len(values), size=len(values))]) for _ in range(DRAWS)]
    low, high = np.quantile(drawn, [0.025, 0.975]).tolist()
    return Estimate(metric, found, min(low, found), max(high, found), "")
