"""Histograms of times with buckets that grow by 0.2 %, so that any time is kept to three digits.

Histograms can be summed without loss; percentiles cannot.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

LOWEST = 1e-6  # s
GROWTH = 1.002
LAST = int(np.ceil(np.log(3600 / LOWEST) / np.log(GROWTH)))  # an hour and beyond


@dataclass(frozen=True, slots=True)
class Histogram:
    """Bucket indexes in ascending order, and their counts."""

    buckets: NDArray[np.int64]
    counts: NDArray[np.int64]

    @classmethod
    def of(cls, seconds: Iterable[float]) -> Histogram:
        """Count times.

        >>> Histogram.of([0.010, 0.010, 0.5]).n
        3
        """
        times = np.asarray(list(seconds), dtype=float)
        if times.size and not (np.isfinite(times).all() and times.min() >= 0):
            msg = "a time that is negative or not a number"
            raise ValueError(msg)
        at = np.log(np.maximum(times, LOWEST) / LOWEST) / np.log(GROWTH)
        buckets, counts = np.unique(np.minimum(np.floor(at), LAST).astype(np.int64), return_counts=True)
        return cls(buckets, counts.astype(np.int64))

    @classmethod
    def sum(cls, many: Iterable[Histogram]) -> Histogram:
        """Sum histograms."""
        total = np.zeros(LAST + 1, np.int64)
        for one in many:
            total[one.buckets] += one.counts
        buckets = np.flatnonzero(total)
        return cls(buckets, total[buckets])

    @property
    def n(self) -> int:
        """Number of times."""
        return int(self.counts.sum())

    def at(self, rank: int) -> float:
        """The `rank`-th shortest time, from 1, to within 0.1 %."""
        if not 1 <= rank <= self.n:
            msg = f"rank {rank} of {self.n}"
            raise IndexError(msg)
        bucket = self.buckets[np.searchsorted(np.cumsum(self.counts), rank)]
        return float(LOWEST * GROWTH ** (float(bucket) + 0.5))

    def to_json(self) -> dict[str, Any]:
        """Differences of bucket indexes, and counts."""
        return {"gaps": np.diff(self.buckets, prepend=0).tolist(), "counts": self.counts.tolist()}

    @classmethod
    def from_json(cls, about: dict[str, Any]) -> Histogram:
        """Read `to_json`."""
        return cls(np.cumsum(np.asarray(about["gaps"], np.int64)), np.asarray(about["counts"], np.int64))
