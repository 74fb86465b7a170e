"""Values of rows that each last for some time on a node, as a matrix of nodes and hours."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fleetlab.stats import Floats, Ints

MOST_CELLS = 30_000_000
HOUR = 3600.0
SHORTEST = 1e-3  # seconds: below that, what is left of an area is rounding


@dataclass(frozen=True, slots=True, eq=False)
class NodeHours:
    """Rows with their node, start and end; stretches of time are an hour, or longer where the log is very long."""

    node: Ints
    start: Floats
    end: Floats
    nodes: int
    width: float
    count: int  # of stretches

    @classmethod
    def of(cls, node: Ints, start: Floats, end: Floats, nodes: int) -> NodeHours:
        """Of rows whose times are known; what lies before 0 is left out."""
        last = max(float(end.max(initial=0.0)), HOUR)
        width = HOUR * max(1.0, np.ceil(last / HOUR * nodes / MOST_CELLS))
        count = int(np.ceil(last / width))
        begin = np.clip(start, 0.0, count * width)
        return cls(node, begin, np.clip(end, begin, count * width), nodes, width, count)

    def area(self, values: Floats) -> Floats:
        """Return the sum over rows of value times seconds, by node and stretch.

        >>> rows = NodeHours.of(np.array([0, 1]), np.array([1800.0, 0.0]), np.array([7200.0, 900.0]), 2)
        >>> rows.area(np.array([2.0, 4.0])).tolist()
        [[3600.0, 7200.0], [3600.0, 0.0]]
        """
        first, last = ((x // self.width).astype(np.int64) for x in (self.start, self.end))
        # Whole stretches from the first to the last that a row touches, less what it leaves free of both.
        whole = self._sum(first, values * self.width) - self._sum(last + 1, values * self.width)
        whole = np.cumsum(whole, axis=1)
        whole -= self._sum(first, values * (self.start - first * self.width))
        whole -= self._sum(last, values * ((last + 1) * self.width - self.end))
        return np.asarray(np.maximum(whole[:, : self.count], 0.0))

    def _sum(self, at: Ints, values: Floats) -> Floats:
        columns = self.count + 2  # a row may end with the last stretch
        cells = np.bincount(self.node * columns + at, weights=values, minlength=self.nodes * columns)
        return cells.reshape(self.nodes, columns).astype(np.float64)

    def mean(self, values: Floats) -> Floats:
        """Return the mean of the rows by time, by node and stretch; NaN where there is no row."""
        seconds = self.area(np.ones(len(values)))
        means = np.full(seconds.shape, np.nan)
        return np.asarray(np.divide(self.area(values), seconds, out=means, where=seconds > SHORTEST))

    def total(self, values: Floats) -> Floats:
        """Return the sum of the rows, as a mean over each stretch; NaN where there is no row."""
        seen = self.area(np.ones(len(values))) > SHORTEST
        return np.asarray(np.where(seen, self.area(values) / self.width, np.nan))
