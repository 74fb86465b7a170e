"""Poisson arrivals, any service time distribution, one server: exact means by queue order."""

from __future__ import annotations

import math

import numpy as np

from fleetlab.core import Estimate, WorkloadError
from fleetlab.queueing.distributions import Discrete, Distribution, Floats, Service, Smooth
from fleetlab.queueing.formulas.output import FormulaOutput, stable, waits


def pollaczek_khinchine(lam: float, service: Service) -> float:
    """The mean wait, first come first served."""
    rho = lam * service.moment(1)
    return lam * service.moment(2) / (2 * (1 - rho)) if rho < 1 else math.inf


def fcfs(lam: float, service: Service) -> FormulaOutput:
    """First come first served, or any order that does not look at runtimes."""
    wait, rho = pollaczek_khinchine(lam, service), lam * service.moment(1)
    metrics = waits(rho=rho, wait=wait, mean=service.moment(1), lam=lam)
    metrics.insert(1, Estimate.exact("probability of waiting", min(rho, 1.0)))
    if rho < 1 and math.isfinite(service.moment(3)):
        # The second moment of the wait is 2W² + λE[S³]/(3(1-ρ)), by Takács' recursion.
        variance = wait**2 + lam * service.moment(3) / (3 * (1 - rho))
        metrics.append(Estimate.exact("standard deviation of wait", math.sqrt(variance), "s"))
    return FormulaOutput(metrics, notes=stable(rho))


def ps(lam: float, service: Service) -> FormulaOutput:
    """All at once, each with an equal part of the server: a response is that many times the runtime, on average."""
    mean = service.moment(1)
    rho = lam * mean
    slowdown = 1 / (1 - rho) if rho < 1 else math.inf
    metrics = [
        Estimate.exact("utilization", min(rho, 1.0)),
        Estimate.exact("mean response", mean * slowdown, "s"),
        Estimate.exact("mean slowdown", slowdown),
        Estimate.exact("mean number in system", rho * slowdown),
    ]
    return FormulaOutput(metrics, notes=stable(rho))


def sjf(lam: float, service: Service) -> FormulaOutput:
    """Shortest job first, without preemption."""
    law = _whole(service)
    mean, rho = law.moment(1), lam * law.moment(1)
    if rho >= 1:
        return FormulaOutput(waits(rho=rho, wait=math.inf, mean=mean, lam=lam), notes=stable(rho))
    first = lam * law.moment(2) / 2
    if isinstance(law, Discrete):
        less, more = _loads(lam, law)
        wait = first * float(np.dot(np.array(law.chances), 1 / ((1 - less) * (1 - more))))
    else:
        x, dx = law.grid()
        wait = first * float(np.sum(law.density(x) * dx / (1 - lam * law.below(1, x)) ** 2))
    return FormulaOutput(waits(rho=rho, wait=wait, mean=mean, lam=lam))


def srpt(lam: float, service: Service) -> FormulaOutput:
    """Shortest remaining processing time first, preemptive resume."""
    law = _whole(service)
    rho = lam * law.moment(1)
    response = math.inf
    if rho < 1:
        response = _srpt_discrete(lam, law) if isinstance(law, Discrete) else _srpt_smooth(lam, law)
    metrics = [
        Estimate.exact("utilization", min(rho, 1.0)),
        Estimate.exact("mean response", response, "s"),
        Estimate.exact("mean number in system", lam * response),
    ]
    return FormulaOutput(metrics, notes=stable(rho))


def _srpt_smooth(lam: float, law: Smooth) -> float:
    x, dx = law.grid()
    room, above = 1 - lam * law.below(1, x), law.above(x)
    until_begun = lam * (law.below(2, x) + x * x * above) / (2 * room**2)
    # With the integrals swapped: a runtime passes each t below it, in 1/(1-ρ(t)) seconds a second.
    return float(np.sum(law.density(x) * until_begun * dx) + np.sum(above / room * dx) + x[0])


def _srpt_discrete(lam: float, law: Discrete) -> float:
    value, chance = np.array(law.values), np.array(law.chances)
    less, more = _loads(lam, law)
    second = np.cumsum(chance * value**2) + value**2 * (1 - np.cumsum(chance))
    until_begun = lam * second / (2 * (1 - less) * (1 - more))
    residence = np.cumsum(np.diff(value, prepend=0.0) / (1 - less))
    return float(np.dot(chance, until_begun + residence))


def _loads(lam: float, law: Discrete) -> tuple[Floats, Floats]:
    """The load of those that take less than each value, and of those that take no more."""
    part = lam * np.array(law.chances) * np.array(law.values)
    more = np.cumsum(part)
    return more - part, more


def _whole(service: Service) -> Smooth | Discrete:
    if not isinstance(service, Distribution):
        msg = "SJF and SRPT need the full service time distribution, not two moments"
        raise WorkloadError(
            msg, hint="use a distribution: exponential:1, lognormal:1:10, pareto:1.1:10:600000 or others"
        )
    return service  # type: ignore[return-value]
