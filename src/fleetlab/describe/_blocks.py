"""How sure is a number of a trace? Its time is cut into blocks, a day each where there are enough, and drawn again.

Jobs hang together: a user submits a hundred at once, a busy hour delays everybody in it. So blocks of time are drawn
with replacement (Carlstein 1986), and what the draws give is stretched as Student's interval is for that many blocks.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fleetlab._student import student

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Told = tuple[float, float, float]  # a value, and the ends of its 95 % interval

DAY = 86_400.0
FEWEST, MOST = 20, 60  # blocks
LEAST = 200  # values: with fewer, blocks would be all but empty
DRAWS = 400
SURE = 0.95
NORMAL = 1.959964  # standard errors on either side of a 95 % interval
NOTHING: Told = (float("nan"),) * 3


@dataclass(frozen=True, slots=True, eq=False)
class Blocks:
    """Blocks of equal length, and how often each draw has each of them; none where a trace has no times."""

    span: float
    draws: Floats  # [DRAWS, blocks]

    @classmethod
    def cut(cls, span: float, *, seed: int = 0) -> Blocks:
        """Cut a time into blocks of the same length."""
        count = int(np.clip(span // DAY, FEWEST, MOST))
        drawn = np.random.default_rng(seed).multinomial(count, np.full(count, 1 / count), size=DRAWS)
        return cls(span, drawn.astype(np.float64))

    @property
    def count(self) -> int:
        """How many there are."""
        return int(self.draws.shape[1])

    def at(self, times: Floats) -> Ints:
        """In which block each time is."""
        share = times / self.span if self.span > 0 else np.zeros(len(times))
        return np.clip((share * self.count).astype(np.int64), 0, self.count - 1)

    def serve(self, values: int) -> bool:
        """Can they give an interval for so many values?"""
        return self.span > 0 and values >= LEAST

    def sums(self, at: Ints, values: Floats) -> Floats:
        """The sum over each block."""
        return np.bincount(at, weights=values, minlength=self.count).astype(np.float64)

    def ratio(self, top: Floats, below: Floats) -> Told:
        """The sum of one over the sum of the other, from what each block has of both."""
        if not (total := float(below.sum())):
            return NOTHING
        under = self.draws @ below
        drawn = np.divide(self.draws @ top, under, out=np.full(len(under), np.nan), where=under > 0)
        value = float(top.sum()) / total
        low, high = self.around(value, drawn[~np.isnan(drawn)])
        return value, max(low, 0.0) if top.min() >= 0 else low, high

    def around(self, value: float, drawn: Floats) -> tuple[float, float]:
        """The interval about a value, from what it is in each draw."""
        if not self.span or len(drawn) < DRAWS // 2:
            return float("nan"), float("nan")
        low, high = np.quantile(drawn, [(1 - SURE) / 2, (1 + SURE) / 2]).tolist()
        wider = self.stretch
        return min(value, value + wider * (low - value)), max(value, value + wider * (high - value))

    @property
    def stretch(self) -> float:
        """How much wider Student's interval is than the normal one, and the spread of draws too small."""
        return float(student(self.count - 1, SURE) / NORMAL * (self.count / (self.count - 1)) ** 0.5)


def plain_mean(values: Floats, weights: Floats) -> Told:
    """A mean of values that are taken to be independent, by Student."""
    total, size = float(weights.sum()), kish(weights)
    if not total:
        return NOTHING
    value = float(values @ weights) / total
    if size < 2:
        return value, float("nan"), float("nan")
    spread = float(((values - value) ** 2) @ weights) / total * size / (size - 1)
    half = student(max(1, int(size) - 1), SURE) * (spread / size) ** 0.5
    # A mean is not below what it is a mean of.
    return value, max(value - half, float(values.min())), min(value + half, float(values.max()))


def kish(weights: Floats) -> float:
    """How many equally weighted values would be as sure: the squared sum over the sum of squares (Kish 1965)."""
    squares = float((weights**2).sum())
    return float(weights.sum()) ** 2 / squares if squares else 0.0
