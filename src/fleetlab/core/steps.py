"""A level that changes at certain times, such as the GPUs in use: what is there from a begin to an end, added up."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fleetlab.core.censoring import Floats


@dataclass(frozen=True, slots=True, eq=False)
class Steps:
    """A level that changes at certain times; 0 before the first."""

    times: Floats
    levels: Floats

    @classmethod
    def of(cls, begin: Floats, end: Floats, amount: Floats) -> Steps:
        """Add up amounts that are there from `begin` to before `end`.

        >>> gpus = Steps.of(np.array([0.0, 1.0]), np.array([3.0, 2.0]), np.array([4.0, 1.0]))
        >>> gpus.at(np.array([0.5, 1.0, 2.0, 3.0])).tolist(), gpus.peak
        ([4.0, 5.0, 4.0, 0.0], 5.0)
        """
        times, where = np.unique(np.concatenate((begin, end)), return_inverse=True)
        change = np.bincount(where, weights=np.concatenate((amount, -amount)), minlength=len(times))
        return cls(times, np.cumsum(change))

    def at(self, times: Floats) -> Floats:
        """Return the level at some times, changes at that time included."""
        index = np.searchsorted(self.times, times, side="right")
        return np.concatenate(([0.0], self.levels))[index]

    @property
    def peak(self) -> float:
        """The highest level."""
        return float(self.levels.max(initial=0.0))
