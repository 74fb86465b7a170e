"""How long a group runs before others may take its place: KAI's plugin minruntime, against groups that take turns.

Within a queue the first of it and the queues above that sets preemptMinRuntime counts. Between queues it is that of the
lost group's queue just below where the two part, or of the first above that sets reclaimMinRuntime.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fleetlab.core.kai import Kai, KaiQueue
from fleetlab.sim.gangs.tasks import Job, Status
from fleetlab.sim.kai.solver import Outcome


class MinRuntime:
    """The least run times of a site."""

    def __init__(self, site: Kai) -> None:
        self._site = site
        self._queues: Mapping[str, KaiQueue] = {queue.name: queue for queue in site.queues}
        self._known: dict[tuple[str, str], float] = {}

    @property
    def longest(self) -> tuple[float, ...]:
        """All that are set: when one of them is over, a decision may change."""
        own = [one for queue in self._site.queues for one in (queue.preempt_min_runtime, queue.reclaim_min_runtime)]
        found = {self._site.preempt_min_runtime, self._site.reclaim_min_runtime, *(one for one in own if one)}
        return tuple(sorted(one for one in found if one))

    def against(self, taker: str, giver: str) -> float:
        """Seconds that groups of one queue run before those of another, or of the same, may take their place."""
        if (taker, giver) not in self._known:
            self._known[taker, giver] = self._against(taker, giver)
        return self._known[taker, giver]

    def _against(self, taker: str, giver: str) -> float:
        path = self._path(giver)
        if taker == giver:
            set_ = (self._queues[name].preempt_min_runtime for name in reversed(path))
            return next((one for one in set_ if one is not None), self._site.preempt_min_runtime)
        other = self._path(taker)
        common = next((k for k, pair in enumerate(zip(path, other, strict=False)) if pair[0] != pair[1]), len(other))
        reach = path[: common + 1]
        set_ = (self._queues[name].reclaim_min_runtime for name in reversed(reach))
        return next((one for one in set_ if one is not None), self._site.reclaim_min_runtime)

    def _path(self, name: str) -> list[str]:
        path = [name]
        while above := self._queues[path[0]].parent:
            path.insert(0, above)
        return path

    def protects(self, one: Job, taker: str, now: float) -> bool:
        """Whether a group has not run long enough yet."""
        return now < one.started + self.against(taker, one.group.queue)

    def candidates(self, those: Iterable[Job], taker: str, now: float) -> list[Job]:
        """Groups that may be asked; one with more pods than it needs may lose those at any time."""
        return [one for one in those if _is_elastic(one) or not self.protects(one, taker, now)]

    def allows(self, outcome: Outcome, taker: str, now: float) -> bool:
        """Whether groups that have not run long enough keep the pods they need."""
        elastic = {task.job for task in outcome.victims if _is_elastic(task.job)}
        return all(
            len(one.those(Status.RUNNING)) >= one.group.min_member for one in elastic if self.protects(one, taker, now)
        )


def _is_elastic(job: Job) -> bool:
    return len(job.group.pods) > job.group.min_member
