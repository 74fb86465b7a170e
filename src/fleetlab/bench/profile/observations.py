"""What was measured on one card: who ran how fast beside whom, against the same work alone without MPS."""

from __future__ import annotations

import math
from collections.abc import Container
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from fleetlab.bench.plans import STRESSORS
from fleetlab.bench.profile.groups import Group
from fleetlab.bench.profile.pairs import Table
from fleetlab.stats import Interval, student_quantile

WITHOUT_MPS = "time-slicing"  # alone there is nobody to take turns with: the whole card
TENTHS = 10  # of a window, as workers tell them
PROBES = frozenset(STRESSORS)  # they are there to learn from, and are nobody's work


class Met(NamedTuple):
    """Who ran in which mode beside whom."""

    mode: str
    workload: str
    beside: tuple[str, ...]


class One(NamedTuple):
    """A cell's say: the logarithm of a rate, and how far it may be off by what was seen inside the window."""

    log: float
    wobble: float


@dataclass(frozen=True, slots=True)
class Seen:
    """Rates by who met whom, and what each work does to a card of its own."""

    device: str
    works: dict[str, dict[str, Any]]  # the settings of each
    rates: dict[Met, list[One]]  # one for each cell
    busy: dict[str, float] = field(default_factory=dict)  # part of the time that it keeps a card busy
    memory: dict[str, float] = field(default_factory=dict)  # part of the time that it keeps the card's memory busy
    curve: dict[str, dict[int, float]] = field(default_factory=dict)  # SMs that a client of MPS could use -> its rate
    notes: tuple[str, ...] = ()

    def modes(self) -> list[str]:
        """Modes in which somebody met somebody."""
        return list(dict.fromkeys(met.mode for met in self.rates if met.beside))

    def table(self, mode: str, works: Container[str] | None = None) -> Table:
        """The pairs of a mode, of all works or of some and the probes."""
        here = {
            met: self.speed(met).value
            for met in self.rates
            if met.mode == mode and all(works is None or w in works or w in PROBES for w in (met[1], *met.beside))
        }
        pairs = {(met.workload, met.beside[0]): speed for met, speed in here.items() if len(met.beside) == 1}
        # Who was not measured alone in this mode is taken to be as fast there as without it.
        alone = {a: 1.0 for a, _ in pairs} | {met.workload: speed for met, speed in here.items() if not met.beside}
        return Table(pairs, alone, self.busy)

    def groups(self, mode: str) -> dict[Group, float]:
        """Speeds among two and more others."""
        many = [met for met in self.rates if met.mode == mode and len(met.beside) > 1]
        return {(met.workload, met.beside): self.speed(met).value for met in many}

    def alone(self, workload: str) -> Interval:
        """Its rate on a whole card of its own: the median, because what disturbs a run only ever slows it."""
        runs = self.rates[Met(WITHOUT_MPS, workload, ())]
        middle = float(np.median([run.log for run in runs]))
        half = self._half(WITHOUT_MPS, workload, len(runs))
        half *= math.sqrt(math.pi / 2) if len(runs) > 2 else 1.0  # a median is that much less sure than a mean
        return _around(middle, half)

    def speed(self, met: Met) -> Interval:
        """Against alone without MPS; how unsure that is counts too."""
        runs, alone = self.rates[met], self.alone(met.workload)
        doubt = math.log(alone.high / alone.value)
        if not met.beside and met.mode == WITHOUT_MPS:
            return _around(0.0, doubt)
        middle = sum(run.log for run in runs) / len(runs) - math.log(alone.value)
        return _around(middle, math.hypot(self._half(met.mode, met.workload, len(runs)), doubt))

    def _half(self, mode: str, workload: str, runs: int) -> float:
        """Half of the 95 % interval of the mean of so many runs, from how runs that should be alike differ.

        Works differ in noise by a factor of fifty, so each has its own, over all whom it met. Where nothing was
        measured twice, the tenths of each window have to do; they do not know how one start differs from the next.
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
