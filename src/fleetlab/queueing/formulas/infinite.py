"""Infinite-server queues: the number of jobs in service, at a constant or a periodic rate.

Under a rate that repeats, the offered load follows it late and smoothed. The rates are told at even steps of the period
and joined by the one wave of few frequencies that passes through all of them; that wave is carried through exactly.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fleetlab.core import Estimate, WorkloadError
from fleetlab.queueing.distributions import Distribution, Floats, Service
from fleetlab.queueing.formulas.mmc import erlang_c
from fleetlab.queueing.formulas.output import QUANTILES, FormulaOutput

EXACT = 1e6  # a mean above which the Poisson law is as good as normal


def mg_inf(lam: float, service: Service) -> FormulaOutput:
    """The number in the system is Poisson's, whatever the law of runtimes."""
    mean = lam * service.moment(1)
    metrics = [Estimate.exact("mean number in system", mean), Estimate.exact("mean wait", 0.0, "s")]
    return FormulaOutput(
        metrics + [Estimate.exact(f"P{100 * q:.0f} number in system", poisson(q, mean)) for q in QUANTILES]
    )


def poisson(q: float, mean: float) -> int:
    """The quantile of a Poisson number: the least n that a share q does not exceed.

    >>> poisson(0.9, 20.0)
    26
    """
    if mean > EXACT:
        from statistics import NormalDist

        return math.ceil(mean + NormalDist().inv_cdf(q) * math.sqrt(mean))
    # From the middle outwards in logarithms: exp(-mean) alone would be 0.
    n = np.arange(max(0, math.floor(mean - 40 * math.sqrt(mean) - 40)), math.ceil(mean + 40 * math.sqrt(mean) + 40))
    log = n * math.log(mean) - np.array([math.lgamma(k + 1) for k in n.tolist()]) - mean
    return int(n[np.searchsorted(np.cumsum(np.exp(log)), q)])


def carried(rates: Floats, period: float, mean: float, transform: Callable[[Floats], NDArray[np.complex128]]) -> Floats:
    """The offered load at the same steps: each wave of the rate times the transform of what is left of a runtime."""
    waves = np.fft.rfft(rates)
    omega: Floats = 2 * math.pi * np.arange(1.0, len(waves)) / period
    waves[1:] *= (1 - transform(omega)) / (1j * omega)
    waves[0] *= mean
    return np.fft.irfft(waves, len(rates))


def mt_g_inf(lam: tuple[float, ...], period: float, service: Service) -> FormulaOutput:
    """The load over one period, if nobody had to wait."""
    load, notes = _over(lam, period, service)
    return FormulaOutput(_peak(lam, load, period), {"over time": _table(lam, load, period)}, notes)


def modified_offered_load(lam: tuple[float, ...], period: float, service: Service, c: int) -> FormulaOutput:
    """At each moment as M/M/c would be at the load that an endless number of servers would carry then."""
    load, notes = _over(lam, period, service)
    chance = erlang_c(c, load)
    room = np.where(load < c, c - load, np.nan)
    waits = np.where(load < c, chance * service.moment(1) / np.where(load < c, room, 1.0), math.inf)
    weight = np.array(lam) / sum(lam)
    if full := int((load >= c).sum()):
        notes = (
            *notes,
            f"at {full} of {len(lam)} steps the load is at or above the servers: waits there grow without bound",
        )
    metrics = [
        *_peak(lam, load, period),
        Estimate.exact("mean utilization", min(float(load.mean()) / c, 1.0)),
        Estimate.exact("probability of waiting", float(np.dot(weight, chance))),
        Estimate.exact("mean wait", float(np.dot(weight, waits)), "s"),
        Estimate.exact("longest mean wait", float(waits.max()), "s"),
    ]
    frame = _table(lam, load, period).with_columns(
        pl.Series("probability of waiting", chance), pl.Series("mean wait", waits)
    )
    return FormulaOutput(metrics, {"over time": frame}, notes)


def _over(lam: tuple[float, ...], period: float, service: Service) -> tuple[Floats, tuple[str, ...]]:
    if not isinstance(service, Distribution):
        msg = "the lag of the load needs the full service time distribution, not two moments"
        raise WorkloadError(msg, hint="use a distribution: exponential:1, lognormal:1:10 or others")
    load = carried(np.array(lam), period, service.moment(1), service.transform)
    if (load >= 0).all():
        return load, ()
    return np.maximum(load, 0.0), ("the interpolated load falls below 0: give rates at more time steps",)


def _peak(lam: tuple[float, ...], load: Floats, period: float) -> list[Estimate]:
    step = period / len(lam)
    late = (int(load.argmax()) - int(np.argmax(lam))) % len(lam) * step
    return [
        Estimate.exact("mean load", float(load.mean())),
        Estimate.exact("highest load", float(load.max())),
        Estimate.exact("lowest load", float(load.min())),
        Estimate.exact("lag of peak load behind peak rate", late, "s"),
    ]


def _table(lam: tuple[float, ...], load: Floats, period: float) -> pl.DataFrame:
    return pl.DataFrame({"time": np.arange(len(lam)) * period / len(lam), "lam": lam, "load": load})
