"""Processor sharing of GPUs: jobs slow each other down, none waits."""

from __future__ import annotations

import math

from fleetlab.core import Estimate
from fleetlab.queueing.distributions import Service
from fleetlab.queueing.formulas.mmc import mmc_wait
from fleetlab.queueing.formulas.output import FormulaOutput, stable


def pooled(lam: float, service: Service, c: int) -> FormulaOutput:
    """Jobs that spread evenly over c GPUs at any moment: each runs at full speed, or at c/n with n of them."""
    mean = service.moment(1)
    # Cohen: the number in the system is that of M/M/c, whatever the law of runtimes.
    response = mmc_wait(lam, 1 / mean, c) + mean
    return _output(lam, mean, response, lam * mean / c)


def shared(lam: float, service: Service, speed: tuple[float, ...]) -> FormulaOutput:
    """One GPU that does `speed[n-1]` seconds of work a second with n jobs on it, in equal parts; the last for more."""
    mean = service.moment(1)
    a = lam * mean
    rho = a / speed[-1]
    if rho >= 1:
        return _output(lam, mean, math.inf, rho)
    weight, total, number = 1.0, 1.0, 0.0
    for n, s in enumerate(speed, start=1):
        weight *= a / s
        total, number = total + weight, number + n * weight
    # Beyond the last speed told it goes on as a geometric series.
    rest = weight * rho / (1 - rho)
    number += rest * (len(speed) + 1 / (1 - rho))
    return _output(lam, mean, number / (total + rest) / lam, rho, busy=1 - 1 / (total + rest))


def _output(lam: float, mean: float, response: float, rho: float, busy: float | None = None) -> FormulaOutput:
    metrics = [
        Estimate.exact("utilization", min(rho, 1.0) if busy is None else busy),
        Estimate.exact("mean response", response, "s"),
        Estimate.exact("mean slowdown", response / mean),
        Estimate.exact("mean number in system", lam * response),
    ]
    return FormulaOutput(metrics, notes=stable(rho))
