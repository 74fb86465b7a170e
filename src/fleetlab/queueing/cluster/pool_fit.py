"""The model of one pool: its jobs, fitted parameters, and predicted waits."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from fleetlab.queueing import arrivals
from fleetlab.queueing.arrivals import Dispersion, blocks_of
from fleetlab.queueing.cluster import prediction
from fleetlab.queueing.cluster.pools import CLASSES, GpuPool, PoolJobs
from fleetlab.queueing.cluster.prediction import STEADY, Day, OfferedLoad, WaitDistribution
from fleetlab.queueing.distributions import Floats

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
    rates = arrivals.pattern(part.submit, span, begins)
    windows = arrivals.dispersions(part.submit, span, begins)
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
    gaps = arrivals.gaps_scv(part.submit)
    return np.full(len(time), gaps if math.isfinite(gaps) else 1.0)
