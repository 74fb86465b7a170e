"""Models of time slicing from the utilization of each workload alone.

`FairShareModel` splits the GPU evenly and redistributes unused shares, as if workloads always had queued work. A
workload with pauses between steps has none while a step waits. `TimeSlicingModel` accounts for that: a closed
queueing network of a shared processor and think times, solved by mean value analysis (Reiser and
Lavenberg, JACM 27(2), 1980), plus the overhead of context switches.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Self

from fleetlab.bench.profile.pairs import SpeedTable


@dataclass
class FairShareModel:
    """Max-min fair shares of the GPU, with a relative switching overhead."""

    def fit(self, table: SpeedTable) -> Self:
        """Fit the switching overhead."""
        self.busy_ = table.busy
        self.cost_ = _fitted(table, lambda cost, pair: fair_share(pair, cost))
        return self

    def predict(self, workload: str, neighbour: str) -> float:
        """Predict from the utilization of both."""
        return fair_share((self.busy_[workload], self.busy_[neighbour]), self.cost_)


@dataclass
class TimeSlicingModel:
    """Workloads alternate between pauses and the shared GPU, with a relative switching overhead."""

    def fit(self, table: SpeedTable) -> Self:
        """Fit the switching overhead."""
        self.busy_ = table.busy
        self.cost_ = _fitted(table, lambda cost, pair: mva_speed(pair, cost))
        return self

    def predict(self, workload: str, neighbour: str) -> float:
        """Predict from the utilization of both."""
        return self.among(workload, (neighbour,))

    def among(self, workload: str, others: Sequence[str]) -> float:
        """Speed of a workload among several others."""
        return mva_speed((self.busy_[workload], *(self.busy_[other] for other in others)), self.cost_)


def fair_share(busy: Sequence[float], cost: float) -> float:
    """Speed of the first of several with max-min fair shares.

    >>> fair_share((1.0, 0.2), 0.0), fair_share((0.2, 1.0), 0.0), fair_share((1.0, 1.0), 0.1)
    (0.8, 1.0, 0.45)
    """
    left, others = 1.0 - cost * (len(busy) > 1), sorted(busy)
    for k, need in enumerate(others):
        share = left / (len(others) - k)
        if need > share:
            return min(1.0, share / busy[0]) if busy[0] > share else 1.0
        left -= need
    return 1.0


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


def _fitted(table: SpeedTable, speed: Callable[[float, tuple[float, float]], float]) -> float:
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
