"""Poisson or general arrivals, any service times: means by queue order, number of servers and priority.

Formulas take the load as a number or as an array, so that a day of loads is one call.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from fleetlab.core import Estimate, WorkloadError
from fleetlab.queueing.distributions import Discrete, Distribution, Floats, Service, Smooth, scv
from fleetlab.queueing.formulas.mmc import (
    FormulaOutput,
    Load,
    alike,
    classes,
    erlang_c,
    mmc_wait,
    quantiles,
    stable,
    waits,
)


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
    idle, above = 1 - lam * law.below(1, x), law.above(x)
    until_begun = lam * (law.below(2, x) + x * x * above) / (2 * idle**2)
    # With the integrals swapped: a runtime passes each t below it, in 1/(1-ρ(t)) seconds a second.
    return float(np.sum(law.density(x) * until_begun * dx) + np.sum(above / idle * dx) + x[0])


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


def cobham(lam: tuple[float, ...], service: tuple[Service, ...]) -> FormulaOutput:
    """One server, without preemption."""
    alike(lam=lam, service=service)
    load = [rate * s.moment(1) for rate, s in zip(lam, service, strict=True)]
    first = sum(part * s.moment(2) / (2 * s.moment(1)) for part, s in zip(_served(load), service, strict=True))
    return _output(lam, load, _cobham(first, load), [s.moment(1) for s in service])


def preemptive(lam: tuple[float, ...], service: tuple[Service, ...]) -> FormulaOutput:
    """One server, preemptive resume."""
    alike(lam=lam, service=service)
    load = [rate * s.moment(1) for rate, s in zip(lam, service, strict=True)]
    waits, means, first = [], [s.moment(1) for s in service], 0.0
    for k, s in enumerate(service):
        before, upto = sum(load[:k]), sum(load[: k + 1])
        first += lam[k] * s.moment(2) / 2
        delay = first / ((1 - before) * (1 - upto)) if upto < 1 else math.inf
        waits.append(delay + (means[k] / (1 - before) - means[k] if before < 1 else math.inf))
    return _output(lam, load, waits, means)


def mmc_priority(lam: tuple[float, ...], mu: float, c: int) -> FormulaOutput:
    """Servers alike, runtimes of one exponential law; who has begun stays."""
    load = [rate / (c * mu) for rate in lam]
    first = erlang_c(c, sum(lam) / mu) / (c * mu)
    return _output(lam, load, _cobham(first, load), [1 / mu] * len(lam))


def mmc_preemptive(lam: tuple[float, ...], mu: float, c: int) -> FormulaOutput:
    """The first k classes together do not feel the others: their number, less that of the first k - 1, is class k's."""
    waits, before = [], 0.0
    for k, rate in enumerate(lam):
        total = sum(lam[: k + 1])
        number = total * (mmc_wait(total, mu, c) + 1 / mu)
        waits.append((number - before) / rate - 1 / mu if number < math.inf else math.inf)
        before = number
    return _output(lam, [rate / (c * mu) for rate in lam], waits, [1 / mu] * len(lam))


def bondi_buzen(lam: tuple[float, ...], service: tuple[Service, ...], c: int) -> FormulaOutput:
    """Several servers, runtimes of any law: each class waits as many times the common wait as at one fast server."""
    alike(lam=lam, service=service)
    total, whole = sum(lam), _Pooled(lam, service)
    load = [rate * s.moment(1) / c for rate, s in zip(lam, service, strict=True)]
    first = total * whole.moment(2) / (2 * c * c)  # of one server with c times the speed
    common = whitt_wait(total, 1 / whole.moment(1), c, 1.0, scv(whole))
    scale = common * (1 - sum(load)) / first if sum(load) < 1 else math.inf
    return _output(lam, load, [scale * w for w in _cobham(first, load)], [s.moment(1) for s in service])


@dataclass(frozen=True, slots=True)
class _Pooled:
    """The runtimes of all classes together."""

    lam: Sequence[float]
    service: Sequence[Service]

    def moment(self, k: int) -> float:
        return sum(rate * s.moment(k) for rate, s in zip(self.lam, self.service, strict=True)) / sum(self.lam)


def _served(load: Sequence[float]) -> list[float]:
    """What of each class's load is served: where all is too much, the first that does not fit gets what is left."""
    capacity = [max(0.0, 1 - sum(load[:k])) for k in range(len(load))]
    return [min(part, share) for part, share in zip(load, capacity, strict=True)]


def _cobham(first: float, load: Sequence[float]) -> list[float]:
    """W₀/((1-σ of those before)(1-σ up to it))."""
    upto = [sum(load[: k + 1]) for k in range(len(load))]
    return [first / ((1 - u + part) * (1 - u)) if u < 1 else math.inf for u, part in zip(upto, load, strict=True)]


def _output(
    lam: Sequence[float], load: Sequence[float], waits: Sequence[float], means: Sequence[float]
) -> FormulaOutput:
    rho, total = sum(load), sum(lam)
    wait = sum(rate * w for rate, w in zip(lam, waits, strict=True)) / total
    mean = sum(rate * m for rate, m in zip(lam, means, strict=True)) / total
    metrics = [
        Estimate.exact("utilization", min(rho, 1.0)),
        *[Estimate.exact(f"mean wait of class {k + 1}", w, "s") for k, w in enumerate(waits)],
        Estimate.exact("mean wait", wait, "s"),
        Estimate.exact("mean response", wait + mean, "s"),
    ]
    response = [w + m for w, m in zip(waits, means, strict=True)]
    tables: dict[str, pl.DataFrame] = classes(lam=lam, load=load, wait=waits, response=response)
    return FormulaOutput(metrics, tables, stable(rho))
