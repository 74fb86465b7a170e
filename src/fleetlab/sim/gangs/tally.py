"""Sums over the groups of each queue, kept from one cycle to the next: only groups that have changed are counted anew.

Amounts are whole numbers, so that what is added and taken away again leaves no trace of rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from fleetlab.core.pod_groups import Amounts
from fleetlab.sim.gangs.tasks import Job

Parts = Callable[[Job], tuple[Amounts, ...]]


class Tally:
    """What the groups of each queue have together, of each part."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._counted: dict[Job, tuple[Amounts, ...]] = {}
        self.sums: dict[str, tuple[dict[str, float], ...]] = {}

    def update(self, changes: Mapping[Job, bool]) -> None:
        """Count groups anew that have changed, and no more those that are gone."""
        for job, is_there in changes.items():
            if (before := self._counted.pop(job, None)) is not None:
                self._add(job, before, -1)
            if is_there:
                self._counted[job] = now = self._parts(job)
                self._add(job, now, 1)

    def _add(self, job: Job, parts: tuple[Amounts, ...], sign: int) -> None:
        if job.group.queue not in self.sums:
            self.sums[job.group.queue] = tuple({} for _ in parts)
        for total, part in zip(self.sums[job.group.queue], parts, strict=True):
            for name, amount in part.items():
                total[name] = total.get(name, 0) + sign * amount
