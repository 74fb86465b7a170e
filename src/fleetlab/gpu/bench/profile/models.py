"""Models of the speed of a workload beside another, fitted on measured pairs, and rules for several neighbors.

`WaitModel` adds a wait to each step: 1/speed = 1/alone + s·p, with a sensitivity s of the workload and a pressure p of
its neighbor. It never predicts a speed-up. `TimeSlicingModel` needs the utilization of each workload alone: a closed
queueing network of a shared processor and think times, solved by mean value analysis (Reiser and Lavenberg, JACM 27(2),
1980), plus the overhead of context switches. `benchmarks/profile_models.py` compares them with others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from itertools import permutations
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
class AdditiveFit:
    """Intercept, sensitivities and pressures; 0 for unknown workloads."""

    names: list[str]
    level: float = 0.0
    slowed: dict[str, float] = field(default_factory=dict)
    slows: dict[str, float] = field(default_factory=dict)

    def at(self, workload: str, neighbour: str) -> float:
        """Return the sum for a pair."""
        return self.level + self.slowed.get(workload, 0.0) + self.slows.get(neighbour, 0.0)

    def design(self, pairs: Sequence[Pair]) -> Floats:
        """Return a row for each pair."""
        n, rows = len(self.names), np.zeros((len(pairs), 1 + 2 * len(self.names)))
        for row, (workload, neighbour) in zip(rows, pairs, strict=True):
            row[0] = row[1 + self.names.index(workload)] = row[1 + n + self.names.index(neighbour)] = 1
        return rows

    def take(self, values: Floats) -> None:
        """Take a solution apart."""
        n = len(self.names)
        self.level = float(values[0])
        self.slowed = dict(zip(self.names, map(float, values[1 : 1 + n]), strict=True))
        self.slows = dict(zip(self.names, map(float, values[1 + n :]), strict=True))


def names_of(table: SpeedTable) -> list[str]:
    """All workloads of a table."""
    return sorted({name for pair in table.speed for name in pair})


@dataclass
class WaitModel:
    """1/speed = 1/alone + s·p: the wait of a step is its sensitivity times the neighbor's pressure.

    Both are proportional to utilization alone: s = s′·busy, p = p′·busy. This does not change the fit of known
    workloads, but predicts unknown ones, whose s′ and p′ are the means, from their utilization.
    """

    def fit(self, table: SpeedTable) -> Self:
        """Fit log(speed) by least squares (Levenberg–Marquardt)."""
        self.rows_, self.table_ = AdditiveFit(names_of(table)), table
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


# --- models of time slicing from the utilization of each workload alone ----------------------------------------------


@dataclass
class TimeSlicingModel:
    """Workloads alternate between pauses and the shared GPU, with a relative switching overhead."""

    def fit(self, table: SpeedTable) -> Self:
        """Fit the switching overhead."""
        self.busy_ = table.busy
        self.cost_ = fitted_cost(table, lambda cost, pair: mva_speed(pair, cost))
        return self

    def predict(self, workload: str, neighbour: str) -> float:
        """Predict from the utilization of both."""
        return self.among(workload, (neighbour,))

    def among(self, workload: str, others: Sequence[str]) -> float:
        """Speed of a workload among several others."""
        return mva_speed((self.busy_[workload], *(self.busy_[other] for other in others)), self.cost_)


def mva_speed(busy: Sequence[float], cost: float) -> float:
    """Speed of the first of several in a closed network with think times.

    By the arrival theorem an arriving workload finds the GPU as the others alone leave it. While others are present
    switching takes a fraction of the GPU.

    >>> [round(mva_speed(busy, cost), 3) for busy, cost in (((1.0, 1.0), 0.0), ((0.5, 0.5), 0.0), ((1.0, 1.0), 0.1))]
    [0.5, 0.8, 0.45]
    """
    kinds = sorted(set(busy))
    return _speeds(tuple(kinds), tuple(list(busy).count(kind) for kind in kinds), cost)[kinds.index(busy[0])][0]


@lru_cache(maxsize=4096)
def _speeds(kinds: tuple[float, ...], crowd: tuple[int, ...], cost: float) -> tuple[tuple[float, float], ...]:
    """Speed and mean number at the GPU of each kind."""
    speeds = []
    for k, need in enumerate(kinds):
        if not crowd[k]:
            speeds.append((1.0, 0.0))
            continue
        others = (*crowd[:k], crowd[k] - 1, *crowd[k + 1 :])
        there = sum(at for _, at in _speeds(kinds, others, cost)) if any(others) else 0.0
        stay = need * (1 + there) / (1 - cost * min(1.0, there))
        speeds.append((1 / (1 - need + stay), crowd[k] * stay / (1 - need + stay)))
    return tuple(speeds)


def fitted_cost(table: SpeedTable, speed: Callable[[float, tuple[float, float]], float]) -> float:
    """Fit the overhead by least squares of log(speed), by golden-section search."""

    def missed(cost: float) -> float:
        return sum(
            math.log(speed(cost, (table.busy[a], table.busy[b])) / seen) ** 2 for (a, b), seen in table.speed.items()
        )

    golden = (math.sqrt(5) - 1) / 2
    low, high = 0.0, 0.6
    for _ in range(24):
        a, b = high - golden * (high - low), low + golden * (high - low)
        low, high = (low, b) if missed(a) < missed(b) else (a, high)
    return (low + high) / 2


# --- among several neighbors, from the speed beside each: rules ------------------------------------------------


Group = tuple[str, tuple[str, ...]]  # workload, neighbors
Speed = Callable[[str, Sequence[str]], float]


def growing_waits(table: SpeedTable) -> Speed:
    """Waits add up, and grow because neighbors with pauses spend more of their time at the GPU in company.

    By the arrival theorem a neighbor is found there as often as without the arriving one.
    """

    def there(work: str, speed: float) -> float:
        return 1 - (1 - min(table.busy[work], 1.0)) * speed  # pauses keep their length, but become rarer

    @cache
    def among(workload: str, others: tuple[str, ...]) -> float:
        alone = wait = 1 / table.alone[workload]
        for k, other in enumerate(others):
            grown = there(other, among(other, others[:k] + others[k + 1 :])) / there(other, table.alone[other])
            wait += (1 / table.speed[workload, other] - alone) * grown
        return 1 / wait

    return lambda workload, others: among(workload, tuple(sorted(others)))


def time_slicing(table: SpeedTable) -> Speed:
    """A closed queueing network of one processor, fitted on pairs."""
    return TimeSlicingModel().fit(table).among


def groups_of(table: SpeedTable, groups: dict[Group, float]) -> dict[Group, float]:
    """Groups of which every pair was measured, also of equal workloads."""
    return {
        (who, others): speed
        for (who, others), speed in groups.items()
        if len(others) > 1 and all(pair in table.speed for pair in permutations((who, *others), 2))
    }
