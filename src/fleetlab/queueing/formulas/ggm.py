"""Arrivals and service times with two known moments: approximations and a bound.

Formulas take the load as a number or as an array, so that a day of loads is one call.
"""

from __future__ import annotations

import math

import numpy as np

from fleetlab.core import Estimate, WorkloadError
from fleetlab.queueing.formulas.mmc import Load, erlang_c, mmc_wait
from fleetlab.queueing.formulas.output import FormulaOutput, quantiles, stable, waits


def allen_cunneen(lam: float, mu: float, c: int, ca2: float, cs2: float) -> FormulaOutput:
    """M/M/c's wait, scaled by the mean of both SCVs."""
    return _about(lam, mu, c, mmc_wait(lam, mu, c) * (ca2 + cs2) / 2)


def kraemer_langenbach_belz(lam: float, mu: float, ca2: float, cs2: float) -> FormulaOutput:
    """One server: Allen–Cunneen, less where arrivals are more regular than Poisson's."""
    rho = lam / mu
    less = 1.0
    if ca2 < 1 and rho < 1 and ca2 + cs2 > 0:
        less = math.exp(-2 * (1 - rho) * (1 - ca2) ** 2 / (3 * rho * (ca2 + cs2)))
    return _about(lam, mu, 1, mmc_wait(lam, mu, 1) * (ca2 + cs2) / 2 * less)


def kingman(lam: float, mu: float, ca2: float, cs2: float) -> FormulaOutput:
    """One server: no wait is longer, on average, than this."""
    rho = lam / mu
    bound = lam * (ca2 / lam**2 + cs2 / mu**2) / (2 * (1 - rho)) if rho < 1 else math.inf
    metrics = [
        Estimate.exact("utilization", min(rho, 1.0)),
        Estimate("mean wait, at most", bound, 0.0, bound, "s"),
        Estimate("mean response, at most", bound + 1 / mu, 1 / mu, bound + 1 / mu, "s"),
    ]
    return FormulaOutput(metrics, notes=stable(rho))


def cosmetatos(lam: float, mu: float, c: int) -> FormulaOutput:
    """Constant runtimes."""
    return _about(lam, mu, c, _mdc_wait(lam, mu, c))


def bjorklund_elldin(lam: float, mu: float, c: int, cs2: float) -> FormulaOutput:
    """Poisson arrivals: between constant and exponential service times, in proportion."""
    if cs2 > 1:
        msg = f"Björklund–Elldin lies between constant and exponential service times: cs2 is at most 1, not: {cs2}"
        raise WorkloadError(msg, hint="Whitt GI/G/m takes any cs2")
    return _about(lam, mu, c, cs2 * mmc_wait(lam, mu, c) + (1 - cs2) * _mdc_wait(lam, mu, c))


def whitt(lam: float, mu: float, c: int, ca2: float, cs2: float) -> FormulaOutput:
    """Whitt's GI/G/m, with his corrections for few servers and for light load."""
    return _about(lam, mu, c, whitt_wait(lam, mu, c, ca2, cs2))


def whitt_wait(lam: float, mu: float, c: int, ca2: float, cs2: float) -> float:
    """The mean wait by Whitt's GI/G/m; infinite where the load is not below 1."""
    rho = lam / (c * mu)
    if rho >= 1:
        return math.inf
    return mmc_wait(lam, mu, c) * (ca2 + cs2) / 2 * whitt_factor(rho, c, ca2, cs2)


def whitt_factor(rho: Load, c: int, ca2: float, cs2: float) -> Load:
    """Whitt's φ: what M/M/m's wait times the mean SCV is to be multiplied with."""
    if ca2 + cs2 == 0:
        return rho * 0.0 + 1.0
    gamma = np.minimum(0.24, _cosmetatos(rho, c))
    one, three = 1 + gamma, (1 - 4 * gamma) * np.exp(-2 * (1 - rho) / (3 * rho))
    mean = (ca2 + cs2) / 2
    psi = 1.0 if mean >= 1 else np.minimum(1.0, (one + three) / 2) ** (2 * (1 - mean))
    if ca2 >= cs2:
        factor = (4 * (ca2 - cs2) * one + cs2 * psi) / (4 * ca2 - 3 * cs2)
    else:
        factor = ((cs2 - ca2) * three + (cs2 + 3 * ca2) * psi) / (2 * (ca2 + cs2))
    return factor if isinstance(rho, np.ndarray) else float(factor)


def _cosmetatos(rho: Load, c: int) -> Load:
    return (1 - rho) * (c - 1) * (math.sqrt(4 + 5 * c) - 2) / (16 * c * rho)


def _mdc_wait(lam: float, mu: float, c: int) -> float:
    rho = lam / (c * mu)
    return mmc_wait(lam, mu, c) / 2 * (1 + _cosmetatos(rho, c)) if rho < 1 else math.inf


def _about(lam: float, mu: float, c: int, wait: float) -> FormulaOutput:
    """An approximate mean wait; quantiles assume that a positive wait is exponential."""
    rho = lam / (c * mu)
    chance = erlang_c(c, lam / mu)
    metrics = waits(rho=rho, wait=wait, mean=1 / mu, lam=lam)
    return FormulaOutput(
        [metrics[0], Estimate.exact("probability of waiting", chance), *metrics[1:], *quantiles(chance, wait)],
        {},
        stable(rho),
    )
