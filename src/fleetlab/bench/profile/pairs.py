"""How fast a work is beside another, where nobody measured that: models of pairs, each fitted on the pairs that were.

`Waits` says that a step takes its own time and waits besides: 1/speed = 1/alone + s·p, with a sensitivity s for the
one that waits and a pressure p for the one it waits for. That is additive in log(1/speed - 1/alone), where the usual
log-additive model is so in log(speed); unlike that one it never says that company makes a work faster.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, Self

import numpy as np

from fleetlab.stats import Floats

Pair = tuple[str, str]  # who is slowed, by whom
RIDGE = 1e-3  # of squared logs: holds still what the pairs leave open, and moves nothing else
CRUSHED = 0.1  # of the speed alone
IDLE = 0.01  # a work that is busy less counts as so busy


@dataclass(frozen=True, slots=True)
class Table:
    """The speeds of one mode: pairs, alone in that mode, and how busy each keeps a card of its own."""

    speed: dict[Pair, float]
    alone: dict[str, float]
    busy: dict[str, float]

    def without(self, gone: Iterable[Pair]) -> Table:
        """The same, but for these pairs, whichever is slowed."""
        lost = {frozenset(pair) for pair in gone}
        return replace(self, speed={k: v for k, v in self.speed.items() if frozenset(k) not in lost})

    def but(self, names: Container[str]) -> Table:
        """The same, but for all that these took part in."""
        return replace(self, speed={k: v for k, v in self.speed.items() if k[0] not in names and k[1] not in names})

    def gentle(self, probes: Container[str]) -> Table:
        """The same, but for meetings with a probe that left one of the two next to nothing.

        What stops everybody does not tell who minds more than others.
        """
        crushed = [
            (a, b)
            for a, b in self.speed
            if (a in probes or b in probes) and min(self.speed[a, b], self.speed.get((b, a), 1.0)) < CRUSHED
        ]
        return self.without(crushed)


class Model(Protocol):
    """What foretells the speed of a work beside another."""

    def fit(self, table: Table) -> Self:
        """Learn from pairs."""

    def predict(self, workload: str, neighbour: str) -> float:
        """The speed of the one beside the other."""


@dataclass
class Mean:
    """Everybody beside everybody is as fast as all were on the mean: the bar that any other must clear."""

    def fit(self, table: Table) -> Self:
        """The mean of all pairs."""
        self.mean_ = float(np.mean(list(table.speed.values())))
        return self

    def predict(self, workload: str, neighbour: str) -> float:
        """The same for all."""
        return self.mean_


@dataclass
class _Rows:
    """A level, a number for each that is slowed and one for each that slows; of strangers both are 0."""

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


def _names(table: Table) -> list[str]:
    return sorted({name for pair in table.speed for name in pair})


@dataclass
class LogAdditive:
    """log(speed) = level + s + p: the model that published tables of pairs were fitted with."""

    def fit(self, table: Table) -> Self:
        """Least squares."""
        self.rows_ = _Rows(_names(table))
        pairs = list(table.speed)
        design = self.rows_.design(pairs)
        keep = np.sqrt(RIDGE) * np.eye(design.shape[1])[1:]
        logs = np.log([table.speed[pair] for pair in pairs])
        self.rows_.take(np.linalg.lstsq(np.vstack([design, keep]), np.append(logs, np.zeros(len(keep))))[0])
        return self

    def predict(self, workload: str, neighbour: str) -> float:
        """Of a stranger: as of the mean of all."""
        return math.exp(self.rows_.at(workload, neighbour))


@dataclass
class Waits:
    """1/speed = 1/alone + s·p: a step waits as long as it minds waiting, times as long as the other keeps it so.

    Both grow with the part of the time that a work keeps a card of its own busy: s = s′·busy, p = p′·busy. For works
    that were seen that says nothing new; a stranger, whose s′ and p′ are the mean of all, is known that far.
    """

    def fit(self, table: Table) -> Self:
        """Least squares of log(speed), by Levenberg and Marquardt's steps."""
        self.rows_, self.table_ = _Rows(_names(table)), table
        pairs = list(table.speed)
        base = np.array([1 / table.alone[workload] for workload, _ in pairs])
        busy = np.array([self._busy(*pair) for pair in pairs])
        logs = np.log([table.speed[pair] for pair in pairs])
        self.rows_.take(_least_squares(self.rows_.design(pairs), base, busy, logs))
        return self

    def predict(self, workload: str, neighbour: str) -> float:
        """Of a stranger: as of the mean of all, by how busy it is."""
        wait = math.exp(self._busy(workload, neighbour) + self.rows_.at(workload, neighbour))
        return 1 / (1 / self.table_.alone[workload] + wait)

    def _busy(self, workload: str, neighbour: str) -> float:
        return sum(math.log(max(self.table_.busy[name], IDLE)) for name in (workload, neighbour))


def _least_squares(design: Floats, base: Floats, busy: Floats, logs: Floats) -> Floats:
    keep = np.sqrt(RIDGE) * np.eye(design.shape[1])[1:]
    at, damping = np.zeros(design.shape[1]), 1e-2

    def waits(x: Floats) -> Floats:
        found: Floats = np.exp(busy + design @ x)
        return found

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
