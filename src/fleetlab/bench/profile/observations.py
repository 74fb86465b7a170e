"""Measured rates on one GPU by mode, workload and neighbors."""

from __future__ import annotations

import math
from collections.abc import Container
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from fleetlab.bench.plans import STRESSORS
from fleetlab.bench.profile.groups import Group
from fleetlab.bench.profile.pairs import SpeedTable
from fleetlab.stats import Interval, student_quantile

BASELINE_MODE = "time-slicing"  # alone in this mode a workload has the whole GPU
TENTHS = 10  # parts of a window
PROBES = frozenset(STRESSORS)  # used to fit the models, but not part of a profile


class Colocation(NamedTuple):
    """A workload beside others in a mode."""

    mode: str
    workload: str
    beside: tuple[str, ...]


class RateSample(NamedTuple):
    """The logarithm of a rate, and its standard error within the window."""

    log: float
    wobble: float


@dataclass(frozen=True, slots=True)
class Observations:
    """Rates by co-location, and utilization of each workload alone."""

    device: str
    works: dict[str, dict[str, Any]]  # settings of each
    rates: dict[Colocation, list[RateSample]]  # one per cell
    busy: dict[str, float] = field(default_factory=dict)  # GPU utilization alone
    memory: dict[str, float] = field(default_factory=dict)  # memory utilization alone
    curve: dict[str, dict[int, float]] = field(default_factory=dict)  # SMs of an MPS client -> rate
    notes: tuple[str, ...] = ()

    def modes(self) -> list[str]:
        """Modes with co-locations."""
        return list(dict.fromkeys(met.mode for met in self.rates if met.beside))

    def table(self, mode: str, works: Container[str] | None = None) -> SpeedTable:
        """Pairs of a mode, of all workloads or of some and the stressors."""
        here = {
            met: self.speed(met).value
            for met in self.rates
            if met.mode == mode and all(works is None or w in works or w in PROBES for w in (met[1], *met.beside))
        }
        pairs = {(met.workload, met.beside[0]): speed for met, speed in here.items() if len(met.beside) == 1}
        # Without a measurement alone in this mode the speed is assumed to be that without MPS.
        alone = {a: 1.0 for a, _ in pairs} | {met.workload: speed for met, speed in here.items() if not met.beside}
        return SpeedTable(pairs, alone, self.busy)

    def groups(self, mode: str) -> dict[Group, float]:
        """Speeds beside two or more others."""
        many = [met for met in self.rates if met.mode == mode and len(met.beside) > 1]
        return {(met.workload, met.beside): self.speed(met).value for met in many}

    def alone(self, workload: str) -> Interval:
        """Rate alone on a whole GPU: the median, because disturbances only slow a run."""
        runs = self.rates[Colocation(BASELINE_MODE, workload, ())]
        middle = float(np.median([run.log for run in runs]))
        half = self._half(BASELINE_MODE, workload, len(runs))
        half *= math.sqrt(math.pi / 2) if len(runs) > 2 else 1.0  # standard error of a median relative to a mean
        return _around(middle, half)

    def speed(self, met: Colocation) -> Interval:
        """Speed relative to alone without MPS; the interval includes the uncertainty of the baseline."""
        runs, alone = self.rates[met], self.alone(met.workload)
        doubt = math.log(alone.high / alone.value)
        if not met.beside and met.mode == BASELINE_MODE:
            return _around(0.0, doubt)
        middle = sum(run.log for run in runs) / len(runs) - math.log(alone.value)
        return _around(middle, math.hypot(self._half(met.mode, met.workload, len(runs)), doubt))

    def _half(self, mode: str, workload: str, runs: int) -> float:
        """Half width of the 95 % interval of the mean of so many runs, from the variation between equal runs.

        Noise differs between workloads by a factor of fifty, so it is estimated for each over all co-locations. Without
        repetitions the tenths of each window are used, which do not include variation between runs.
        """
        groups = [g for met, g in self.rates.items() if (met.mode, met.workload) == (mode, workload)]
        logs = [np.array([run.log for run in g]) for g in groups]
        freedom = sum(x.size - 1 for x in logs)
        if not freedom:
            inside = [run.wobble**2 for g in groups for run in g]
            return student_quantile(0.975, TENTHS - 1) * math.sqrt(sum(inside) / len(inside) / runs)
        noise = sum(float(((x - x.mean()) ** 2).sum()) for x in logs) / freedom
        return student_quantile(0.975, freedom) * math.sqrt(noise / runs)


def _around(middle: float, half: float) -> Interval:
    return Interval(math.exp(middle), math.exp(middle - half), math.exp(middle + half))
