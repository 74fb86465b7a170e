"""Distributions fitted to the jobs of a pool, how well they fit, and which assumptions the jobs violate.

The parameters come from the same values, so the standard tables do not hold: as in Lilliefors' test, the distance is
compared with those of random samples of the distribution, fitted in the same way.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from fleetlab.core.job_classes import NO_GPU
from fleetlab.queueing.cluster import prediction
from fleetlab.queueing.cluster.prediction import (
    CLASSES,
    STEADY,
    Day,
    Dispersion,
    GpuPool,
    OfferedLoad,
    PoolJobs,
    WaitDistribution,
    blocks_of,
)
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
    # The normal law's distribution function, from a table: good to 10⁻⁷, and fast for millions
    x, y = _table()
    return _distance(np.asarray(np.interp(z, x, y)))


@lru_cache(maxsize=1)
def _table() -> tuple[Floats, Floats]:
    x = np.linspace(-8.0, 8.0, 16_001)
    return x, np.array([0.5 * math.erfc(-v / math.sqrt(2)) for v in x.tolist()])


def _distance(law: Floats) -> Floats:
    n = law.shape[1]
    steps = np.arange(n + 1) / n
    return np.asarray(np.maximum((steps[1:] - law).max(axis=1), (law - steps[:-1]).max(axis=1)))


GANG = CLASSES.index("gang")


@dataclass(frozen=True, slots=True)
class PoolFit:
    """One pool; `waits` are of each of the `kinds` of its jobs."""

    pool: GpuPool
    part: PoolJobs
    demand: OfferedLoad
    rates: Floats | None  # jobs a second by hour of the day
    dispersions: list[Dispersion]
    ca2: Floats
    day: Day
    kinds: tuple[int, ...]
    waits: tuple[WaitDistribution, ...]

    @property
    def load(self) -> float:
        """Servers that would be busy if nobody waited."""
        return float(self.demand.load[0])

    @property
    def utilization(self) -> float:
        """The load as a part of the pool."""
        return self.load / self.pool.servers if self.pool.servers else math.nan

    @property
    def crowded(self) -> bool:
        """Is it below its servers on average, but not in every hour?"""
        return self.utilization < 1 <= self.utilization * float(self.day.load.max())

    @property
    def model(self) -> str:
        """Which model told the waits."""
        if not self.load:
            return "no jobs"
        if self.utilization >= 1:
            return "none: overload"
        m = prediction.servers_of(self.demand, self.pool.servers)
        return f"GI/G/{m}" + ("" if self.crowded or self.day is STEADY else " by hour")

    @property
    def every(self) -> WaitDistribution:
        """The waits of all jobs together."""
        share = [float((self.part.kind == k).mean()) for k in self.kinds]
        return prediction.together(self.waits, share)

    @property
    def gangs(self) -> float:
        """The share of the work that gangs bring."""
        work = self.part.work
        return float(work[self.part.kind == GANG].sum() / work.sum()) if work.any() else 0.0

    @property
    def cpu(self) -> float:
        """The share of the pool's CPUs that its jobs would hold."""
        if not self.load or not self.pool.cores:
            return 0.0
        time = float((self.part.cores * self.part.service).sum())
        return time / float(self.part.work.sum()) * self.load / self.pool.cores

    def scv(self, kind: int) -> float:
        """The SCV of runtimes of a class."""
        service = self.part.service[self.part.kind == kind]
        return float(service.var() / service.mean() ** 2) if service.any() else 0.0


def fit(pool: GpuPool, part: PoolJobs, span: float, begins: float) -> PoolFit:
    """Learn what there is to know of a pool's jobs, and tell their waits."""
    kinds = tuple(np.unique(part.kind).tolist())
    if span <= 0 or not len(part.submit):
        count = len(blocks_of(part.submit, 1.0).weights)
        nothing = OfferedLoad(*(np.zeros(count) for _ in OfferedLoad._fields))
        none = WaitDistribution(np.zeros((count, 1)), np.zeros((count, 1)), np.ones(1))
        return PoolFit(pool, part, nothing, None, [], np.ones(count), STEADY, kinds, (none,) * len(kinds))
    offered = prediction.demand(part, span)
    rates = prediction.pattern(part.submit, span, begins)
    windows = prediction.dispersions(part.submit, span, begins)
    ca2 = _ca2(part, windows, offered.time)
    day = prediction.day(part, rates)
    peak = offered.load[0] * day.load.max()
    # Above its servers in some hours there is no steady state to speak of then: the mean load is all that is left.
    over = STEADY if offered.load[0] < pool.servers <= peak else day
    waits = prediction.predict(offered, pool.servers, ca2, over)
    ratio = prediction.ratios(part, pool.servers, offered, span)
    classes = tuple(prediction.of_class(waits, float(ratio[part.kind == k].mean())) for k in kinds)
    return PoolFit(pool, part, offered, rates, windows, ca2, day, kinds, classes)


def _ca2(part: PoolJobs, windows: list[Dispersion], time: Floats) -> Floats:
    """How bursts count: as much as they are seen in windows about as long as a job runs."""
    if windows:
        return min(windows, key=lambda d: abs(math.log(d.window / max(float(time[0]), 1.0)))).around
    gaps = prediction.gaps_scv(part.submit)
    return np.full(len(time), gaps if math.isfinite(gaps) else 1.0)


# From here on an assumption is called violated: twice what it allows, a quarter above the mean, a tenth, a half.
TWICE, QUARTER, TENTH, HALF = 2.0, 1.25, 0.1, 0.5
EVERY = "all"


class Violation(NamedTuple):
    """An assumption that does not hold for a class of a pool, the figure, and what follows."""

    pool: str
    kind: str
    assumption: str
    figure: str
    meaning: str


def violations(f: PoolFit, others: Sequence[PoolFit]) -> list[Violation]:
    """All that speak against the model of one pool: of all its classes, then of each."""
    if not f.load:
        return []
    rho, cpu, ca2 = f.utilization, f.cpu, float(f.ca2[0])
    gpu, gangs, bound = f.pool.name != NO_GPU, f.gangs, float(f.part.bound.mean())
    easiest = min((o.utilization for o in others if o.load and o.pool.name != NO_GPU), default=math.inf)
    late = "not modelled: the busiest hours exceed the servers" if f.crowded else "modelled hour by hour"
    checks = [
        (rho >= 1, "overload", f"load {rho:.0%} of the pool", "waits grow without bound"),
        (ca2 > TWICE, "bursts", f"index of dispersion {ca2:.3g} around the daily pattern",
         "used as CV² of inter-arrival times"),
        (f.day.load.max() > QUARTER, "daily pattern", f"peak hour {f.day.load.max():.2f} times the mean load", late),
        (gangs > TENTH, "gangs", f"{gangs:.0%} of the work", "fragmentation and idle GPUs are not modelled"),
        (gpu and bound >= HALF and easiest < rho / 2, "type-bound", f"{bound:.0%} may run here only",
         "jobs wait here while other pools have free GPUs"),
        (gpu and cpu > rho, "CPU first", f"{cpu:.0%} of CPUs, {rho:.0%} of GPUs", "CPUs run out before GPUs do"),
        (not gpu, "CPUs of others", "GPU jobs use CPUs too", "their CPUs are counted as free"),
    ]  # fmt: skip
    violated = [Violation(f.pool.name, EVERY, *words) for holds, *words in checks if holds]
    tails = ((k, f.scv(k)) for k in f.kinds)
    meaning = "two moments do not determine the wait"
    return violated + [
        Violation(f.pool.name, CLASSES[k], "heavy tail", f"CV² of runtimes {scv:.3g}", meaning)
        for k, scv in tails
        if scv > TWICE
    ]
