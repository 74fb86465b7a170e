"""The scheduling queue: active, backing off, and unschedulable pods, as kube-scheduler 1.20 moves them.

The active queue is by priority, then by when a pod came into it first or last failed. A pod that failed is
unschedulable until a pod ends; then it is active again, or backs off if its last attempt was too recent: a second after
the first, twice as long after each further one, up to `max_backoff`. Who has backed off becomes active at the next
whole second, and who was left unschedulable for a minute at the next half minute.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass, field

from fleetlab.core.kubernetes import KubeScheduler

BACKOFF_TICK, LEFT_TICK, LEFT_FOR = 1.0, 30.0, 60.0


@dataclass
class Waiting:
    """A pod in the queue."""

    pod: int
    priority: int
    since: float  # when it came, or last failed
    attempts: int = 0


@dataclass
class Queue:
    """Pods that wait, each in one of three places."""

    profile: KubeScheduler
    active: list[tuple[int, float, int, Waiting]] = field(default_factory=list)
    backing_off: list[tuple[float, int, Waiting]] = field(default_factory=list)
    unschedulable: dict[int, Waiting] = field(default_factory=dict)

    def add(self, one: Waiting) -> None:
        """Make a pod active."""
        heapq.heappush(self.active, (-one.priority, one.since, one.pod, one))

    def pop(self) -> Waiting:
        """Take the pod that is next; this is one more attempt."""
        one = heapq.heappop(self.active)[3]
        one.attempts += 1
        return one

    def failed(self, one: Waiting, now: float) -> None:
        """Put a pod back that fits nowhere."""
        one.since = now
        self.unschedulable[one.pod] = one

    def backoff_end(self, one: Waiting) -> float:
        """When a pod may be tried again."""
        doubled = 2.0 ** min(one.attempts - 1, 60)
        return one.since + min(self.profile.max_backoff, self.profile.initial_backoff * doubled)

    def something_left(self, now: float) -> None:
        """A pod left its node: whoever was unschedulable may fit."""
        self._move(list(self.unschedulable.values()), now)

    def tick(self, now: float) -> None:
        """Move who has backed off, and who was left for long."""
        while self.backing_off and self.backing_off[0][0] <= now:
            self.add(heapq.heappop(self.backing_off)[2])
        if now % LEFT_TICK == 0:
            self._move([one for one in self.unschedulable.values() if now - one.since > LEFT_FOR], now)

    def next_tick(self, now: float) -> float:
        """When the queue changes by itself; infinity: never."""
        soonest = math.inf
        if self.backing_off:
            soonest = _next(max(now, self.backing_off[0][0]), BACKOFF_TICK, now)
        if self.unschedulable:
            oldest = min(one.since for one in self.unschedulable.values())
            soonest = min(soonest, _next(max(now, oldest + LEFT_FOR), LEFT_TICK, now))
        return soonest

    def _move(self, pods: list[Waiting], now: float) -> None:
        for one in pods:
            del self.unschedulable[one.pod]
            if self.backoff_end(one) > now:
                heapq.heappush(self.backing_off, (self.backoff_end(one), one.pod, one))
            else:
                self.add(one)


def _next(moment: float, tick: float, now: float) -> float:
    """The first tick at a moment or later, and after now."""
    found = math.ceil(moment / tick) * tick
    return found if found > now else found + tick
