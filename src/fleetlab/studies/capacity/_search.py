"""The smallest size that meets a goal: steps out from a first guess, then a narrowing, on one growing curve."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from fleetlab.core import WorkloadError

STEP = 1.25  # from one size to the next, as long as all of them do, or none does
FINE = 0.005  # of a size: closer than that it is not looked for, but for one node
FARTHEST = 16  # times the larger of the guess and what is there
AROUND = (0.8, 0.9, 1.1, 1.25)  # of the answer: what else a curve shows


class Point(NamedTuple):
    """One size, simulated."""

    size: int
    value: float
    low: float  # nan, as the other end, where there are too few jobs for an interval
    high: float
    nodes: int  # of those that are scaled: each kind is rounded up
    gpus: int  # in all
    never: int  # jobs that do not fit at all
    reason: str  # what they waited for most
    between: tuple[float, float]  # the least and the largest value of its runs
    ever: bool  # whether more nodes may make it sure: not where too many fit on none


Try = Callable[[Sequence[int]], list[Point]]


@dataclass
class Curve:
    """All sizes that were simulated, and the limit."""

    limit: float
    attempt: Try
    points: dict[int, Point] = field(default_factory=dict)

    def look(self, sizes: Sequence[int]) -> None:
        """Simulate those that are new."""
        fresh = sorted({s for s in sizes if s >= 1} - set(self.points))
        if fresh:
            self.points |= {p.size: p for p in self.attempt(fresh)}

    def bracket(self, end: str) -> tuple[int, int | None]:
        """The largest size that fails, 0 if none does, and the next larger one, which meets the goal."""
        failed = max((s for s, p in self.points.items() if not getattr(p, end) < self.limit), default=0)
        return failed, min((s for s in self.points if s > failed), default=None)

    def smallest(self, end: str, *, least: int = 1, most: int, at_once: int) -> Point | None:
        """The smallest size whose value (or an end of its interval) is below the limit; none up to `most`: none."""
        while True:
            low, high = self.bracket(end)
            if high is None:
                if low >= most:
                    return None
                self.look([min(most, math.ceil(low * STEP**k) + 1) for k in range(1, at_once + 1)])
            elif high - low <= max(1, int(FINE * high)) or (not low and high <= least):
                return self.points[high]
            elif not low:
                self.look([max(least, int(high / STEP**k)) for k in range(1, at_once + 1)])
            else:
                self.look([low + ((high - low) * k // (at_once + 1) or 1) for k in range(1, at_once + 1)])

    def around(self, size: int) -> None:
        """Simulate what lies around an answer."""
        self.look([max(1, round(size * share)) for share in AROUND])

    def refusal(self) -> WorkloadError:
        """What to say where no size meets the goal."""
        p = self.points[max(self.points)]
        stuck = f"; {p.never:,} jobs do not fit at all" if p.never else f"; they wait for `{p.reason}` most"
        msg = f"no number of nodes up to {p.nodes:,} meets the goal: it is {p.value:,.4g} there{stuck}"
        hint = "another pool, a backfill that lets others pass (skip, easy), or a wider goal"
        return WorkloadError(msg, hint=hint)


def rows(points: Mapping[int, Point], limit: float) -> list[dict[str, object]]:
    """The curve as rows, smallest first."""
    clusters = {p.nodes: p for p in points.values()}  # several sizes may round up to one
    return [
        {
            "nodes": p.nodes, "GPUs": p.gpus, "value": p.value, "low": p.low, "high": p.high,
            "meets": _meets(p, limit), "never fit": p.never,
        }
        for _, p in sorted(clusters.items())
    ]  # fmt: skip


def _meets(p: Point, limit: float) -> str:
    """Where no interval is known, only waiting for ever is sure."""
    if math.isnan(p.high):
        return "not sure" if math.isfinite(p.value) else "no"
    return "yes" if p.high < limit else "not sure" if p.low < limit else "no"
