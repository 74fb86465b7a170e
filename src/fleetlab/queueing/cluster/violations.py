"""What a model assumes and a log does not do, in words, with the figure that says so."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from fleetlab.queueing.cluster.pool_fit import Fitted
from fleetlab.queueing.cluster.pools import CLASSES, NO_GPU

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


def violations(f: Fitted, others: Sequence[Fitted]) -> list[Violation]:
    """All that speak against the model of one pool: of all its classes, then of each."""
    if not f.load:
        return []
    rho, cpu, ca2 = f.utilisation, f.cpu, float(f.ca2[0])
    gpu, gangs, bound = f.pool.name != NO_GPU, f.gangs, float(f.part.bound.mean())
    easiest = min((o.utilisation for o in others if o.load and o.pool.name != NO_GPU), default=math.inf)
    late = "not followed: the busiest hours are above the servers" if f.crowded else "followed hour by hour"
    told = [
        (rho >= 1, "overload", f"load {rho:.0%} of the pool", "waits grow without end"),
        (ca2 > TWICE, "bursts", f"dispersion {ca2:.3g} about the daily pattern", "taken for gaps of that SCV"),
        (f.day.load.max() > QUARTER, "daily pattern", f"highest hour {f.day.load.max():.2f} of the mean load", late),
        (gangs > TENTH, "gangs", f"{gangs:.0%} of the work", "all must fit at once: fragments and idling are left out"),
        (gpu and bound >= HALF and easiest < rho / 2, "type-bound", f"{bound:.0%} may run here only",
         "blocked here while other pools have room"),
        (gpu and cpu > rho, "CPU first", f"{cpu:.0%} of CPUs, {rho:.0%} of GPUs", "CPUs run out before GPUs do"),
        (not gpu, "CPUs of others", "GPU jobs hold CPUs too", "their CPUs are taken for free"),
    ]  # fmt: skip
    found = [Violation(f.pool.name, EVERY, *words) for holds, *words in told if holds]
    tails = ((k, f.scv(k)) for k in f.kinds)
    meaning = "two moments do not fix the wait"
    return found + [
        Violation(f.pool.name, CLASSES[k], "heavy tail", f"SCV of run times {scv:.3g}", meaning)
        for k, scv in tails
        if scv > TWICE
    ]
