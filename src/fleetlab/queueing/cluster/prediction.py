"""Predicted waits of a pool: a GI/G/m of equal work, hour by hour.

A job of n servers for X seconds brings work nX. Work and variability decide the wait at high load, whatever the sizes
(Grosof, Harchol-Balter and Scheller-Wolf 2022 for orders that keep servers filled), so the pool is taken for m servers
that each have the n of the usual server second, with jobs of the same work. Whitt's GI/G/m gives their wait. Over a
day it is evaluated at the modified offered load of each hour. The probability of waiting of a class, relative to the
pool, is proportional to its blocking probability by Kaufman and Roberts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fleetlab.queueing.arrivals import DAY, blocks_of
from fleetlab.queueing.cluster.pools import PoolJobs
from fleetlab.queueing.distributions import Floats
from fleetlab.queueing.formulas.ggm import whitt_factor
from fleetlab.queueing.formulas.infinite import carried
from fleetlab.queueing.formulas.loss import occupancy
from fleetlab.queueing.formulas.mmc import erlang_c

UNITS = 2000  # into which a pool is divided to see who does not fit
FINEST = 0.05  # servers
SHORTEST = 1e-3  # seconds that are a wait
RATIO = 1.1  # between needs that are told apart


class OfferedLoad(NamedTuple):
    """What the jobs of a pool ask for; first of the whole log, then of each draw of its blocks."""

    rate: Floats  # jobs a second
    time: Floats  # mean runtime
    load: Floats  # servers that would be busy if nobody waited
    scv: Floats  # of a job's work
    usual: Floats  # servers that the job behind a busy server holds


class Day(NamedTuple):
    """Loads over the day, as parts of the mean, and the share of arrivals that sees each."""

    load: Floats
    weight: Floats


class WaitDistribution(NamedTuple):
    """Chance to wait and mean wait: draws × hours; and how often each hour is seen."""

    chance: Floats
    mean: Floats
    weight: Floats


STEADY = Day(np.ones(1), np.ones(1))


def demand(part: PoolJobs, span: float) -> OfferedLoad:
    """Add up, block by block."""
    blocks = blocks_of(part.submit, span)

    def summed(values: Floats) -> Floats:
        return blocks.totals(blocks.sums(values))

    count, work = summed(np.ones(len(part.submit))), summed(part.work)
    with np.errstate(invalid="ignore", divide="ignore"):
        time = summed(part.service) / count
        scv = summed(part.work**2) * count / work**2 - 1
        usual = summed(part.need * part.work) / work
    return OfferedLoad(count / span, time, work / span, scv, usual)


def day(part: PoolJobs, rates: Floats | None) -> Day:
    """How the load would follow the arrivals over a day, if nobody waited."""
    if rates is None or not part.work.any():
        return STEADY
    need = part.need.mean()
    share = part.need / need

    def transform(omega: Floats) -> NDArray[np.complex128]:
        return np.array([np.mean(share * np.exp(-1j * w * part.service)) for w in omega])

    load = np.maximum(carried(rates * need, DAY, float(part.work.mean() / need), transform), 0.0)
    return Day(load / load.mean(), rates / rates.sum())


def predict(offered: OfferedLoad, servers: float, ca2: Floats, over: Day) -> WaitDistribution:
    """The pool's waits, by draw and hour; infinite where the load is not below the servers."""
    m = servers_of(offered, servers)
    rho = (offered.load / servers)[:, None] * over.load
    chance = erlang_c(m, rho * m)
    factor = np.array([_variability(r, m, a, s) for r, a, s in zip(rho, ca2, offered.scv, strict=True)])
    with np.errstate(invalid="ignore", divide="ignore"):
        time = offered.load / servers * m / offered.rate  # of jobs of equal work that hold a server each
        steady = chance * time[:, None] / (m * (1 - rho))
        waits = np.where(rho < 1, steady * factor, math.inf)
    idle = (offered.load == 0)[:, None]
    return WaitDistribution(np.where(idle, 0.0, chance), np.where(idle, 0.0, waits), over.weight)


def servers_of(offered: OfferedLoad, servers: float) -> int:
    """How many servers of the usual size a pool has."""
    return max(1, round(servers / offered.usual[0])) if offered.usual[0] > 0 else 1


def _variability(rho: Floats, m: int, ca2: float, cs2: float) -> Floats:
    if not math.isfinite(ca2 + cs2):  # a draw without jobs
        return np.ones(len(rho))
    # At one server Pollaczek and Khinchine are exact for Poisson arrivals: the correction is for more.
    factor = np.ones(len(rho)) if m == 1 else whitt_factor(np.clip(rho, 1e-9, 1.0), m, ca2, max(cs2, 0.0))
    return np.asarray((ca2 + cs2) / 2 * factor)


def of_class(waits: WaitDistribution, ratio: float) -> WaitDistribution:
    """The waits of a class whose probability of waiting is `ratio` times that of the pool."""
    chance = np.minimum(1.0, waits.chance * ratio)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.where(waits.chance > 0, waits.mean * chance / waits.chance, waits.mean)
    return WaitDistribution(chance, mean, waits.weight)


def means(waits: WaitDistribution) -> Floats:
    """The mean wait of each draw; what is below a millisecond is none."""
    # An hour without arrivals may be as bad as it likes: nobody sees it.
    offered = np.asarray(np.where(waits.weight > 0, waits.mean, 0.0) @ waits.weight)
    return np.where(offered < SHORTEST, 0.0, offered)


def quantile(waits: WaitDistribution, q: float) -> Floats:
    """The time that a share q waits no longer than, by draw: waits of each hour are 0 or exponential."""
    with np.errstate(invalid="ignore", divide="ignore"):
        rate = np.where(waits.mean > 0, waits.chance / waits.mean, math.inf)

    def longer(t: Floats) -> Floats:
        with np.errstate(invalid="ignore"):
            left = np.where(np.isinf(rate), 0.0, waits.chance * np.exp(-rate * t[:, None]))
        return np.asarray(left @ waits.weight)

    low, high = np.zeros(len(rate)), np.ones(len(rate))
    for _ in range(60):  # as far as needed, at most 10¹⁸ s
        high = np.where(longer(high) > 1 - q, high * 2, high)
    for _ in range(60):
        middle = (low + high) / 2
        over = longer(middle) > 1 - q
        low, high = np.where(over, middle, low), np.where(over, high, middle)
    offered = np.where(longer(np.zeros(len(rate))) > 1 - q, high, 0.0)
    return np.where(np.isinf(means(waits)), math.inf, np.where(offered < SHORTEST, 0.0, offered))


def together(waits: Sequence[WaitDistribution], share: Sequence[float]) -> WaitDistribution:
    """The waits of several classes as of one, by the share that each has of the jobs."""
    if not waits:
        return WaitDistribution(np.zeros((1, 1)), np.zeros((1, 1)), np.ones(1))
    weight = np.concatenate([w.weight * part for w, part in zip(waits, share, strict=True)])
    return WaitDistribution(np.hstack([w.chance for w in waits]), np.hstack([w.mean for w in waits]), weight)


def ratios(part: PoolJobs, servers: float, offered: OfferedLoad, span: float) -> Floats:
    """For each job, how many times as likely it does not fit as one of the usual size."""
    if not 0 < offered.load[0] < servers:
        return np.ones(len(part.submit))
    unit = max(FINEST, servers / UNITS)
    c = max(1, math.floor(servers / unit))
    sizes = _units(part.need, unit, c)
    distinct, which = np.unique(sizes, return_inverse=True)
    busy = np.bincount(which, part.service) / span
    short = np.cumsum(occupancy(c, busy, tuple(distinct.tolist()))[::-1])  # the chance that fewer than n are free
    middle = short[int(_units(offered.usual[:1], unit, c)[0]) - 1]
    return short[distinct - 1][which] / middle if middle > 0 else np.ones(len(which))


def _units(need: Floats, unit: float, c: int) -> NDArray[np.int64]:
    """Needs in whole units; large ones that are nearly alike are taken together."""
    units = np.clip(np.ceil(need / unit - 1e-9), 1, c)
    steps = np.round(np.log(units) / math.log(RATIO))
    return np.where(units <= 8, units, np.clip(np.round(RATIO**steps), 8, c)).astype(np.int64)
