"""Allocation over time: the exact mean over each interval."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fleetlab.describe.ecdf import Bools
from fleetlab.describe.trace_view import TraceView
from fleetlab.stats import Floats, Ints


@dataclass(frozen=True, slots=True, eq=False)
class Occupancy:
    """Boxes in time, each from `start` until `until`, and the stretches between edges in which they are added up."""

    start: Floats
    until: Floats
    edges: Floats
    after_start: Ints  # the first edge at or after it
    after_until: Ints

    @classmethod
    def of(cls, start: Floats, until: Floats, edges: Floats) -> Occupancy:
        """Boxes of which an end is not known hold nothing."""
        known = np.isfinite(start) & np.isfinite(until)
        begin, end = (np.where(known, x, edges[0]) for x in (start, until))
        return cls(begin, end, edges, np.searchsorted(edges, begin), np.searchsorted(edges, end))

    @classmethod
    def by_jobs(cls, view: TraceView, edges: Floats) -> Occupancy:
        """By jobs that started and let go at known times."""
        return cls.of(view.floats("start"), view.held_until, edges)

    def mean(self, amounts: Floats, where: Bools | None = None) -> Floats:
        """The mean amount held in each stretch: the area below the sum of boxes, over its length.

        >>> edges = np.array([0.0, 5.0, 10.0, 20.0])
        >>> boxes = Occupancy.of(np.array([0.0, 5.0, np.nan]), np.array([10.0, 10.0, 7.0]), edges)
        >>> boxes.mean(np.array([1.0, 2.0, 4.0]))
        array([1., 3., 0.])
        """
        allocated = amounts if where is None else np.where(where, amounts, 0.0)
        area = self._so_far(self.after_start, self.start, allocated) - self._so_far(
            self.after_until, self.until, allocated
        )
        return np.maximum(np.diff(area) / np.diff(self.edges), 0.0)

    def _so_far(self, after: Ints, when: Floats, amounts: Floats) -> Floats:
        """What would have been held up to each edge if everything stayed from `when` on."""
        size = len(self.edges) + 1
        sums, moments = (np.cumsum(np.bincount(after, weights=w, minlength=size)) for w in (amounts, amounts * when))
        return np.asarray(sums[:-1] * self.edges - moments[:-1])
