"""Poisson arrivals and exponential service times: Erlang's formulas, exact.

Under a rate that repeats, the offered load follows it late and smoothed. The rates are told at even steps of the period
and joined by the one wave of few frequencies that passes through all of them; that wave is carried through exactly.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import TypeVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fleetlab.core import Estimate, WorkloadError
from fleetlab.queueing.distributions import Distribution, Floats, Service

QUANTILES = (0.5, 0.9, 0.95, 0.99)


@dataclass(frozen=True, slots=True)
class FormulaOutput:
    """Numbers to say first, tables, and what a reader must know."""

    summary: Sequence[Estimate]
    tables: Mapping[str, pl.DataFrame] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def stable(rho: float) -> tuple[str, ...]:
    """The note that a queue without end deserves."""
    return () if rho < 1 else (f"{no_steady_state(rho)}: the queue grows without bound",)


def no_steady_state(rho: float) -> str:
    """Say that a load cannot be served.

    >>> no_steady_state(1.1234)
    'unstable: load 1.12 ≥ 1, no steady state'
    """
    return f"unstable: load {rho:.3g} ≥ 1, no steady state"


def waits(*, rho: float, wait: float, mean: float, lam: float) -> list[Estimate]:
    """Load, mean wait, mean response and, by Little's law, how many wait."""
    return [
        Estimate.exact("utilization", min(rho, 1.0)),
        Estimate.exact("mean wait", wait, "s"),
        Estimate.exact("mean response", wait + mean, "s"),
        Estimate.exact("mean number waiting", lam * wait),
    ]


def quantiles(chance: float, wait: float) -> list[Estimate]:
    """Of a wait that is 0, or else exponential: its mean and the chance that there is one say it all."""
    return [Estimate.exact(f"P{100 * q:.0f} wait", quantile(q, chance, wait), "s") for q in QUANTILES]


def quantile(q: float, chance: float, wait: float) -> float:
    """The time that a share q waits no longer than, where a wait is exponential if there is one at all."""
    if chance <= 1 - q:
        return 0.0
    return wait / chance * math.log(chance / (1 - q))


def classes(**columns: Sequence[float]) -> dict[str, pl.DataFrame]:
    """One row a class, counted from 1 as the theory does."""
    length = len(next(iter(columns.values())))
    return {"classes": pl.DataFrame({"class": range(1, length + 1), **columns})}


def alike(**lists: Sequence[object]) -> int:
    """How many classes there are; every list must say the same."""
    lengths = {name: len(values) for name, values in lists.items()}
    if len(set(lengths.values())) != 1:
        lengths_text = ", ".join(f"{name} {n}" for name, n in lengths.items())
        msg = f"different numbers of classes: {lengths_text}"
        raise WorkloadError(msg, hint="give one value per class, comma-separated: --lam 0.2,0.5")
    return next(iter(lengths.values()))


Load = TypeVar("Load", float, Floats)


def erlang_b(c: int, a: Load) -> Load:
    """The chance that all of c servers are taken, at an offered load of a, where nobody waits.

    >>> round(erlang_b(8, 7.2), 6)
    0.190313
    """
    blocking = a * 0.0 + 1.0
    for n in range(1, c + 1):
        blocking = a * blocking / (n + a * blocking)
    return blocking


def erlang_c(c: int, a: Load) -> Load:
    """The probability of waiting; 1 where the load is not below c.

    >>> round(erlang_c(8, 7.2), 6)
    0.701533
    """
    blocking, rho = erlang_b(c, a), a / c
    below = np.where(rho < 1, blocking / np.where(rho < 1, 1 - rho * (1 - blocking), 1.0), 1.0)
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


LARGE = 1e200


def occupancy(c: int, a: Floats, b: tuple[int, ...]) -> Floats:
    """The chance that 0, 1, … c servers are taken by classes of `b` servers a job and `a` jobs offered at once."""
    q = np.zeros(c + 1)
    q[0] = 1.0
    pull = [(float(load * need), need) for load, need in zip(a, b, strict=True)]
    for j in range(1, c + 1):
        q[j] = sum(w * q[j - need] for w, need in pull if need <= j) / j
        if q[j] > LARGE:  # only ratios count
            q[: j + 1] /= LARGE
    return np.asarray(q / q.sum())


def kaufman_roberts(a: tuple[float, ...], b: tuple[int, ...], c: int) -> FormulaOutput:
    """Who does not find `b` of `c` servers free goes away; the law of runtimes does not matter."""
    alike(a=a, b=b)
    if max(b) > c:
        raise WorkloadError(f"a job of {max(b)} servers can never run on: {c}", hint="b is at most c, for each class")
    q = occupancy(c, np.array(a), b)
    away = [float(q[c - need + 1 :].sum()) for need in b]
    busy = float(np.dot(q, np.arange(c + 1)))
    metrics = [Estimate.exact(f"blocking probability of class {k + 1}", p) for k, p in enumerate(away)]
    metrics += [Estimate.exact("mean busy servers", busy), Estimate.exact("utilization", busy / c)]
    return FormulaOutput(metrics, classes(offered=a, servers=b, **{"blocking": away}))


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


NORMAL = NormalDist()
MOST = 1_000_000  # servers


def delay(beta: float) -> float:
    """The probability of waiting with β square roots of the load to spare; 1 where there is nothing to spare.

    >>> round(delay(1.0), 4), delay(50.0)
    (0.2234, 0.0)
    """
    density = NORMAL.pdf(beta)  # 0 beyond 38
    return density / (density + beta * NORMAL.cdf(beta)) if beta > 0 else 1.0


def halfin_whitt(lam: float, mu: float, c: int) -> FormulaOutput:
    """The probability of waiting, and the mean wait, of many servers at a high load."""
    a = lam / mu
    beta = (c - a) / math.sqrt(a)
    chance = delay(beta)
    wait = chance / (c * mu - lam) if beta > 0 else math.inf
    metrics = waits(rho=a / c, wait=wait, mean=1 / mu, lam=lam)
    extra = [Estimate.exact("beta", beta), Estimate.exact("probability of waiting", chance)]
    return FormulaOutput([metrics[0], *extra, *metrics[1:]], notes=stable(a / c))


def square_root(lam: float, mu: float, chance: float) -> FormulaOutput:
    """The fewest servers so that no more than this chance is left to wait: by the rule, and by Erlang C."""
    a = lam / mu
    low, high = 0.0, 40.0
    for _ in range(80):  # the chance falls with β
        beta = (low + high) / 2
        low, high = (beta, high) if delay(beta) > chance else (low, beta)
    rule = math.ceil(a + high * math.sqrt(a))
    if rule > MOST:
        msg = f"these jobs need more servers than {MOST:,}: {rule:,}"
        raise WorkloadError(msg, hint="Halfin-Whitt gives the wait for a given number of servers")
    # The rule is never far off
    c = max(rule, math.floor(a) + 1)
    while erlang_c(c, a) > chance:
        c += 1
    while c - 1 > a and erlang_c(c - 1, a) <= chance:
        c -= 1
    exact = c
    metrics = [
        Estimate.exact("load", a),
        Estimate.exact("beta", high),
        Estimate.exact("servers by the square-root rule", rule),
        Estimate.exact("servers by Erlang C", exact),
        Estimate.exact("utilization", a / exact),
        Estimate.exact("mean wait", mmc_wait(lam, mu, exact), "s"),
    ]
    return FormulaOutput(metrics)


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
    spare = np.where(load < c, c - load, np.nan)
    waits = np.where(load < c, chance * service.moment(1) / np.where(load < c, spare, 1.0), math.inf)
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
