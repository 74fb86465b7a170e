"""The smallest size that meets a goal: steps from a first guess, then bisection, on one curve of simulated sizes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from fleetlab.core import WorkloadError
from fleetlab.core.durations import plural

STEP = 1.25  # from one size to the next, as long as all of them meet the goal, or none does
FINE = 0.005  # of a size: the precision of the search, but at least one node
FARTHEST = 16  # times the larger of the guess and the cluster
AROUND = (0.8, 0.9, 1.1, 1.25)  # of the answer: the other sizes of the curve


class SizePoint(NamedTuple):
    """One simulated size."""

    size: int
    value: float
    low: float  # NaN, as the other limit, where there are too few jobs for an interval
    high: float
    nodes: int  # of those that are scaled: each kind is rounded up
    gpus: int  # in total
    never: int  # jobs that never run: they fit nowhere, or a rule keeps them waiting
    reason: str  # the main wait reason
    jobs: int  # that were replayed and measured
    between: tuple[float, float]  # the lowest and the highest value of its runs
    can_meet: bool  # whether more nodes can bring the upper limit below the goal


Ends = tuple[SizePoint, SizePoint, SizePoint | None]  # whose value, lower and upper limit meet the goal


@dataclass
class SizeCurve:
    """All simulated sizes, and the limit of the goal."""

    limit: float
    simulate: Callable[[Sequence[int]], list[SizePoint]]
    points: dict[int, SizePoint] = field(default_factory=dict)

    def add(self, sizes: Sequence[int]) -> None:
        """Simulate the sizes that are new."""
        if new := sorted({s for s in sizes if s >= 1} - set(self.points)):
            self.points |= {p.size: p for p in self.simulate(new)}

    def bracket(self, end: str) -> tuple[int, int | None]:
        """Return the largest size that misses the goal, 0 if none does, and the next larger one, which meets it."""
        failed = max((s for s, p in self.points.items() if not getattr(p, end) < self.limit), default=0)
        return failed, min((s for s in self.points if s > failed), default=None)

    def smallest(self, end: str, *, least: int = 1, most: int, at_once: int) -> SizePoint | None:
        """Return the smallest size whose value (or limit of its interval) meets the goal; None if none up to `most`."""
        while True:
            low, high = self.bracket(end)
            if high is None:
                if low >= most:
                    return None
                self.add([min(most, math.ceil(low * STEP**k) + 1) for k in range(1, at_once + 1)])
            elif high - low <= max(1, int(FINE * high)) or (not low and high <= least):
                return self.points[high]
            elif not low:
                self.add([max(least, int(high / STEP**k)) for k in range(1, at_once + 1)])
            else:
                self.add([low + ((high - low) * k // (at_once + 1) or 1) for k in range(1, at_once + 1)])

    def answer(self, *, most: int, at_once: int) -> Ends:
        """Return the smallest sizes, from which on no simulated one misses the goal, and simulate sizes around them.

        Waits do not fall with every node: a size around an answer may miss the goal again.
        """
        found = self._ends(most, at_once)
        while True:
            self.around(found[0].size)
            if (again := self._ends(most, at_once)) == found:
                return found
            found = again

    def _ends(self, most: int, at_once: int) -> Ends:
        """Return the smallest size that meets the goal, and those whose lower and whose upper limit does."""
        at = self.smallest("value", most=most, at_once=at_once)
        if at is None:
            raise self.refusal()
        if math.isnan(at.high):
            return at, at, None
        # Far below the answer, the exact size at which the lower limit meets the goal is of no interest.
        low = self.smallest("low", least=max(1, at.size // 2), most=most, at_once=at_once) or at
        return at, low, self.smallest("high", most=most, at_once=at_once) if at.can_meet else None

    def around(self, size: int) -> None:
        """Simulate sizes around an answer."""
        self.add([max(1, round(size * share)) for share in AROUND])

    def refusal(self) -> WorkloadError:
        """Return the error for a goal that no size meets."""
        p = self.points[max(self.points)]
        why = f"; {plural(p.never, 'job')} never {'runs' if p.never == 1 else 'run'}" if p.never else ""
        there = "no value" if math.isinf(p.value) else f"{p.value:,.4g}"
        msg = f"no number of nodes up to {p.nodes:,} meets the goal: it is {there} there{why}; the main wait reason is"
        msg = f"{msg} `{p.reason}`"
        return WorkloadError(msg, hint="scale another pool, choose backfill greedy or easy, or raise the limit")


def rows(points: Mapping[int, SizePoint], limit: float, goal: str) -> list[dict[str, object]]:
    """Return the curve as rows, the smallest size first."""
    clusters = {p.nodes: p for p in points.values()}  # several sizes may round up to one
    return [
        {
            "nodes": p.nodes, "GPUs": p.gpus, goal: p.value, "low": p.low, "high": p.high,
            "meets the goal": _meets(p, limit), "jobs that never run": p.never,
        }
        for _, p in sorted(clusters.items())
    ]  # fmt: skip


def _meets(p: SizePoint, limit: float) -> str:
    """Return whether the value meets the goal, and whether the whole interval says the same."""
    if math.isinf(p.value) or p.low >= limit:
        return "no"
    if p.high < limit:
        return "yes"
    return f"{'yes' if p.value < limit else 'no'}, not significantly"
