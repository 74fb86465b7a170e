"""Assumptions of the model that the log violates, with the value that shows it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from fleetlab.core.job_classes import NO_GPU
from fleetlab.queueing.cluster.pool_fit import PoolFit
from fleetlab.queueing.cluster.pools import CLASSES

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
