"""Models of the speed of a workload beside another, fitted on measured pairs.

`WaitModel` adds a wait to each step: 1/speed = 1/alone + s·p, with a sensitivity s of the workload and a pressure p of
its neighbor. It is additive in log(1/speed - 1/alone), while the usual log-additive model is additive in log(speed);
unlike that one it never predicts a speed-up.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, Self

import numpy as np

from fleetlab.stats import Floats

Pair = tuple[str, str]  # workload, neighbor
RIDGE = 1e-3  # of squared logs: determines what the pairs leave open
CRUSHED = 0.1  # of the speed alone
IDLE = 0.01  # minimum utilization


@dataclass(frozen=True, slots=True)
class SpeedTable:
    """Speeds of one mode: pairs, alone in that mode, and utilization alone."""

    speed: dict[Pair, float]
    alone: dict[str, float]
    busy: dict[str, float]

    def without(self, gone: Iterable[Pair]) -> SpeedTable:
        """Without these pairs, in either order."""
        lost = {frozenset(pair) for pair in gone}
        return replace(self, speed={k: v for k, v in self.speed.items() if frozenset(k) not in lost})

    def but(self, names: Container[str]) -> SpeedTable:
        """Without all pairs of these workloads."""
        return replace(self, speed={k: v for k, v in self.speed.items() if k[0] not in names and k[1] not in names})

    def gentle(self, probes: Container[str]) -> SpeedTable:
        """Without pairs with a stressor that nearly stop one of the two, which say nothing about sensitivity.

        A stressor that stops every workload does not separate them.
        """
        crushed = [
            (a, b)
            for a, b in self.speed
            if (a in probes or b in probes) and min(self.speed[a, b], self.speed.get((b, a), 1.0)) < CRUSHED
        ]
        return self.without(crushed)


class PairModel(Protocol):
    """A model of the speed of a workload beside another."""

    def fit(self, table: SpeedTable) -> Self:
        """Fit on pairs."""

    def predict(self, workload: str, neighbour: str) -> float:
        """Predict the speed of a workload beside a neighbor."""


@dataclass
class MeanModel:
    """The mean speed of all pairs: the baseline."""

    def fit(self, table: SpeedTable) -> Self:
        """Compute the mean."""
        self.mean_ = float(np.mean(list(table.speed.values())))
        return self

    def predict(self, workload: str, neighbour: str) -> float:
        """Return the mean."""
        return self.mean_


@dataclass
class _AdditiveFit:
    """Intercept, sensitivities and pressures; 0 for unknown workloads."""

    names: list[str]
    level: float = 0.0
    slowed: dict[str, float] = field(default_factory=dict)
    slows: dict[str, float] = field(default_factory=dict)

    def at(self, workload: str, neighbour: str) -> float:
        return self.level + self.slowed.get(workload, 0.0) + self.slows.get(neighbour, 0.0)

    def design(self, pairs: Sequence[Pair]) -> Floats:
        n, rows = len(self.names), np.zeros((len(pairs), 1 + 2 * len(self.names)))
        for row, (workload, neighbour) in zip(rows, pairs, strict=True):
            row[0] = row[1 + self.names.index(workload)] = row[1 + n + self.names.index(neighbour)] = 1
        return rows

    def take(self, found: Floats) -> None:
        n = len(self.names)
        self.level = float(found[0])
        self.slowed = dict(zip(self.names, map(float, found[1 : 1 + n]), strict=True))
        self.slows = dict(zip(self.names, map(float, found[1 + n :]), strict=True))


def _names(table: SpeedTable) -> list[str]:
    return sorted({name for pair in table.speed for name in pair})


@dataclass
class LogAdditiveModel:
    """log(speed) = intercept + s + p: the model of published tables of pairs."""

    def fit(self, table: SpeedTable) -> Self:
        """Fit by least squares."""
        self.rows_ = _AdditiveFit(_names(table))
        pairs = list(table.speed)
        design = self.rows_.design(pairs)
        keep = np.sqrt(RIDGE) * np.eye(design.shape[1])[1:]
        logs = np.log([table.speed[pair] for pair in pairs])
        self.rows_.take(np.linalg.lstsq(np.vstack([design, keep]), np.append(logs, np.zeros(len(keep))))[0])
        return self

    def predict(self, workload: str, neighbour: str) -> float:
        """For an unknown workload: the mean of all."""
        return math.exp(self.rows_.at(workload, neighbour))


@dataclass
class WaitModel:
    """1/speed = 1/alone + s·p: the wait of a step is its sensitivity times the neighbor's pressure.

    Both are proportional to utilization alone: s = s′·busy, p = p′·busy. This does not change the fit of known
    workloads, but predicts unknown ones, whose s′ and p′ are the means, from their utilization.
    """

    def fit(self, table: SpeedTable) -> Self:
        """Fit log(speed) by least squares (Levenberg–Marquardt)."""
        self.rows_, self.table_ = _AdditiveFit(_names(table)), table
        pairs = list(table.speed)
        base = np.array([1 / table.alone[workload] for workload, _ in pairs])
        busy = np.array([self._busy(*pair) for pair in pairs])
        logs = np.log([table.speed[pair] for pair in pairs])
        self.rows_.take(_least_squares(self.rows_.design(pairs), base, busy, logs))
        return self

    def predict(self, workload: str, neighbour: str) -> float:
        """For an unknown workload: the mean of all, scaled by its utilization."""
        wait = math.exp(self._busy(workload, neighbour) + self.rows_.at(workload, neighbour))
        return 1 / (1 / self.table_.alone[workload] + wait)

    def _busy(self, workload: str, neighbour: str) -> float:
        return sum(math.log(max(self.table_.busy[name], IDLE)) for name in (workload, neighbour))


def _least_squares(design: Floats, base: Floats, busy: Floats, logs: Floats) -> Floats:
    keep = np.sqrt(RIDGE) * np.eye(design.shape[1])[1:]
    at, damping = np.zeros(design.shape[1]), 1e-2

    def waits(x: Floats) -> Floats:
        values: Floats = np.exp(busy + design @ x)
        return values

    def misses(x: Floats) -> Floats:
        return np.append(-np.log(base + waits(x)) - logs, keep @ x)

    missed = misses(at)
    for _ in range(100):
        slope = np.vstack([-(waits(at) / (base + waits(at)))[:, None] * design, keep])
        step = np.linalg.solve(slope.T @ slope + damping * np.eye(len(at)), -slope.T @ missed)
        there = np.clip(at + step, -20, 20)
        tried = misses(there)
        if (gain := float(missed @ missed - tried @ tried)) < 0:
            damping *= 4
            continue
        at, missed, damping = there, tried, max(damping / 4, 1e-9)
        if gain < 1e-12:
            break
    return at
