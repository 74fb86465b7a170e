"""Poisson arrivals and exponential service times: Erlang's formulas, exact."""

from __future__ import annotations

import math
from typing import TypeVar

import numpy as np

from fleetlab.core import Estimate
from fleetlab.queueing.distributions import Floats
from fleetlab.queueing.formulas.output import QUANTILES, FormulaOutput, quantiles, stable, waits

Load = TypeVar("Load", float, Floats)


def erlang_b(c: int, a: Load) -> Load:
    """The chance that all of c servers are taken, at an offered load of a, where nobody waits.

    >>> round(erlang_b(8, 7.2), 6)
    0.190313
    """
    taken = a * 0.0 + 1.0
    for n in range(1, c + 1):
        taken = a * taken / (n + a * taken)
    return taken


def erlang_c(c: int, a: Load) -> Load:
    """The probability of waiting; 1 where the load is not below c.

    >>> round(erlang_c(8, 7.2), 6)
    0.701533
    """
    taken, rho = erlang_b(c, a), a / c
    below = np.where(rho < 1, taken / np.where(rho < 1, 1 - rho * (1 - taken), 1.0), 1.0)
    return below if isinstance(a, np.ndarray) else float(below)


def mmc_wait(lam: float, mu: float, c: int) -> float:
    """The mean wait; infinite where the load is not below 1."""
    return erlang_c(c, lam / mu) / (c * mu - lam) if lam < c * mu else math.inf


def mm1(lam: float, mu: float) -> FormulaOutput:
    """One server."""
    return mmc(lam, mu, 1)


def mmc(lam: float, mu: float, c: int) -> FormulaOutput:
    """Servers alike, one line, first come first served."""
    rho, wait = lam / (c * mu), mmc_wait(lam, mu, c)
    chance = erlang_c(c, lam / mu)
    metrics = waits(rho=rho, wait=wait, mean=1 / mu, lam=lam)
    metrics.insert(1, Estimate.exact("probability of waiting", chance))
    metrics += quantiles(chance, wait)
    if c == 1:
        metrics += [
            Estimate.exact(f"P{100 * q:.0f} response", (wait + 1 / mu) * -math.log(1 - q), "s") for q in QUANTILES
        ]
    return FormulaOutput(metrics, notes=stable(rho))


def blocked(a: float, c: int) -> FormulaOutput:
    """Erlang B: a job that finds all servers busy is lost."""
    chance = erlang_b(c, a)
    busy = a * (1 - chance)
    return FormulaOutput(
        [
            Estimate.exact("blocking probability", chance),
            Estimate.exact("mean busy servers", busy),
            Estimate.exact("utilization", busy / c),
        ]
    )


def delayed(a: float, c: int) -> FormulaOutput:
    """Erlang C: a job that finds all servers busy waits."""
    metrics = [Estimate.exact("probability of waiting", erlang_c(c, a)), Estimate.exact("utilization", min(a / c, 1.0))]
    return FormulaOutput(metrics, notes=stable(a / c))
