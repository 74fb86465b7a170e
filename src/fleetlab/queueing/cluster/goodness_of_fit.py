"""Kolmogorov–Smirnov distance to a fitted distribution, with a p-value.

The parameters come from the same values, so the standard tables do not hold: as in Lilliefors' test, the distance is
compared with those of random samples of the distribution, fitted in the same way.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from fleetlab.queueing.distributions import Floats

MOST = 1000  # values of a test: with millions every law is refuted, by however little
DRAWS = 400
FEW = 8  # values, below which nothing is tested


class Fit(NamedTuple):
    """How far values are from a law, and the chance that values of that law are as far."""

    distance: float
    p: float


def exponential_fit(values: Floats, rng: np.random.Generator) -> Fit:
    """Against the exponential law of the same mean."""
    return _fit(values, rng, lognormal=False)


def lognormal_fit(values: Floats, rng: np.random.Generator) -> Fit:
    """Against the lognormal law with the same mean and variance of the logarithm."""
    return _fit(values, rng, lognormal=True)


def _fit(values: Floats, rng: np.random.Generator, *, lognormal: bool) -> Fit:
    values = values[values > 0]
    if len(values) < FEW or values.min() == values.max():
        return Fit(math.nan, math.nan)
    some = rng.choice(values, min(len(values), MOST), replace=False)
    measure = _from_lognormal if lognormal else _from_exponential
    whole, part = measure(values[None, :])[0], measure(some[None, :])[0]
    chance = _by_chance(len(some), lognormal=lognormal)
    return Fit(float(whole), float((1 + (chance >= part).sum()) / (1 + len(chance))))


@lru_cache(maxsize=256)
def _by_chance(n: int, *, lognormal: bool) -> Floats:
    """Distances of n values from their own law; its parameters do not matter."""
    rng = np.random.default_rng(n)
    if lognormal:
        return _from_lognormal(np.exp(rng.standard_normal((DRAWS, n))))
    return _from_exponential(rng.exponential(1.0, (DRAWS, n)))


def _from_exponential(rows: Floats) -> Floats:
    rows = np.sort(rows, axis=1)
    return _distance(-np.expm1(-rows / rows.mean(axis=1, keepdims=True)))


def _from_lognormal(rows: Floats) -> Floats:
    logs = np.sort(np.log(rows), axis=1)
    z = (logs - logs.mean(axis=1, keepdims=True)) / logs.std(axis=1, ddof=1, keepdims=True)
    return _distance(_normal(z))


def _normal(z: Floats) -> Floats:
    """The normal law's distribution function, from a table: good to 10⁻⁷, and fast for millions."""
    x, y = _table()
    return np.asarray(np.interp(z, x, y))


@lru_cache(maxsize=1)
def _table() -> tuple[Floats, Floats]:
    x = np.linspace(-8.0, 8.0, 16_001)
    return x, np.array([0.5 * math.erfc(-v / math.sqrt(2)) for v in x.tolist()])


def _distance(law: Floats) -> Floats:
    n = law.shape[1]
    steps = np.arange(n + 1) / n
    return np.asarray(np.maximum((steps[1:] - law).max(axis=1), (law - steps[:-1]).max(axis=1)))
