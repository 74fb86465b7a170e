"""Priority classes, the first one highest: with and without preemption."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from fleetlab.core import Estimate
from fleetlab.queueing.distributions import Service, scv
from fleetlab.queueing.formulas.ggm import whitt_wait
from fleetlab.queueing.formulas.mmc import erlang_c, mmc_wait
from fleetlab.queueing.formulas.output import FormulaOutput, alike, classes, stable


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
    left = [max(0.0, 1 - sum(load[:k])) for k in range(len(load))]
    return [min(part, room) for part, room in zip(load, left, strict=True)]


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
