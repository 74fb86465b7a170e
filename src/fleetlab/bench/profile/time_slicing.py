"""How fast works are that take turns on a card, from how busy each keeps a card of its own.

`FairShare` shares the card out evenly and hands on what one does not need, as if each always had work in line. But a
work that rests between its steps has none in line while it waits for one to end. `Turns` knows that: a closed network
of one processor that all share and a place where they rest, solved exactly by mean value analysis (Reiser and
Lavenberg, JACM 27(2), 1980), but for the cost of switching.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Self

from fleetlab.bench.profile.pairs import Table


@dataclass
class FairShare:
    """Each has its fair share of the card, and what one does not need goes to the others; switching costs a part."""

    def fit(self, table: Table) -> Self:
        """The part that switching costs."""
        self.busy_ = table.busy
        self.cost_ = _fitted(table, lambda cost, pair: fair_share(pair, cost))
        return self

    def predict(self, workload: str, neighbour: str) -> float:
        """From how busy each keeps a card of its own."""
        return fair_share((self.busy_[workload], self.busy_[neighbour]), self.cost_)


@dataclass
class Turns:
    """Each rests, then shares the card with whoever is there; switching costs a part."""

    def fit(self, table: Table) -> Self:
        """The part that switching costs."""
        self.busy_ = table.busy
        self.cost_ = _fitted(table, lambda cost, pair: turns(pair, cost))
        return self

    def predict(self, workload: str, neighbour: str) -> float:
        """From how busy each keeps a card of its own."""
        return self.among(workload, (neighbour,))

    def among(self, workload: str, others: Sequence[str]) -> float:
        """The speed of one among several."""
        return turns((self.busy_[workload], *(self.busy_[other] for other in others)), self.cost_)


def fair_share(busy: Sequence[float], cost: float) -> float:
    """The speed of the first of several, if the card is shared out evenly and nothing is left unused.

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


def turns(busy: Sequence[float], cost: float) -> float:
    """The speed of the first of several that rest and come back to share the card.

    By the arrival theorem one that comes finds the card as the others alone would have it. While it is not alone there
    switching takes a part of the card.

    >>> [round(turns(busy, cost), 3) for busy, cost in (((1.0, 1.0), 0.0), ((0.5, 0.5), 0.0), ((1.0, 1.0), 0.1))]
    [0.5, 0.8, 0.45]
    """
    kinds = sorted(set(busy))
    return _speeds(tuple(kinds), tuple(list(busy).count(kind) for kind in kinds), cost)[kinds.index(busy[0])][0]


@lru_cache(maxsize=4096)
def _speeds(kinds: tuple[float, ...], crowd: tuple[int, ...], cost: float) -> tuple[tuple[float, float], ...]:
    """The speed of one of each kind, and how many of them are at the card on the mean."""
    found = []
    for k, need in enumerate(kinds):
        if not crowd[k]:
            found.append((1.0, 0.0))
            continue
        others = (*crowd[:k], crowd[k] - 1, *crowd[k + 1 :])
        there = sum(at for _, at in _speeds(kinds, others, cost)) if any(others) else 0.0
        stay = need * (1 + there) / (1 - cost * min(1.0, there))
        found.append((1 / (1 - need + stay), crowd[k] * stay / (1 - need + stay)))
    return tuple(found)


def _fitted(table: Table, speed: Callable[[float, tuple[float, float]], float]) -> float:
    """The cost that leaves the least squares of log(speed), by golden section."""

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
