"""Series side by side on one clock, and what a model of them must be able to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

DAY = 86_400.0


@dataclass(frozen=True, slots=True, eq=False)
class Panel:
    """What is forecast, and what else is known of the same steps."""

    values: Floats  # [steps, series]
    beside: Floats  # [steps, kinds * series]: for each kind of flow (asked for, let go) one column a series
    names: tuple[str, ...]
    every: float  # seconds in a step

    def __len__(self) -> int:
        return len(self.values)

    @property
    def width(self) -> int:
        """How many series there are."""
        return int(self.values.shape[1])

    @property
    def day(self) -> int:
        """Steps in a day, at least one."""
        return max(1, round(DAY / self.every))

    def until(self, step: int) -> Panel:
        """All before a step, as a copy: whoever learns from it cannot reach the rest."""
        return Panel(self.values[:step].copy(), self.beside[:step].copy(), self.names, self.every)


class Forecaster(Protocol):
    """A model: settings in the constructor, learning in `fit`, and no look ahead.

    Intervals are not its business: they are made the same way for every model, from its own past misses (`conformal`).
    """

    name: str

    def fit(self, past: Panel, *, horizon: int, seed: int) -> Self:
        """Learn from the past, all of it and nothing else; scales too are learnt here."""

    def predict(self, seen: Panel, at: Ints, *, horizon: int) -> Floats:
        """What is expected at each origin of `at`, as [origins, horizon, series].

        The forecast of origin `t` is of the steps `t`, `t + 1`, …; it may use the steps before `t` of `seen`, no other.
        """


def targets(values: Floats, at: Ints, horizon: int) -> Floats:
    """What came in the steps from each origin on: [origins, horizon, series].

    >>> targets(np.arange(5.0)[:, None], np.array([1, 3]), 2)[:, :, 0]
    array([[1., 2.],
           [3., 4.]])
    """
    return np.asarray(values[at[:, None] + np.arange(horizon)])
