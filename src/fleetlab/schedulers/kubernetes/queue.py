"""The scheduling queue: active, backing off, and unschedulable pods, as kube-scheduler 1.20 moves them.

The active queue is by priority, then by when a pod came into it first or last failed. A pod that failed is
unschedulable until a pod ends; then it is active again, or backs off if its last attempt was too recent: a second after
the first, twice as long after each further one, up to `max_backoff`. If anything happened to a pod on a node during the
attempt itself, such as that it was asked to go, it backs off at once. Who has backed off becomes active at the next
whole second, and who was left unschedulable for a minute at the next half minute.

When the scheduler writes into the status of a pod why it fits nowhere, release 1.20 makes a pod that backs off active
again at once; and when it does so for the first time, one that is unschedulable too, because the API server then notes
who manages these fields, which is taken for a change of the pod.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass, field

from fleetlab.schedulers.kubernetes.config import KubeScheduler

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
    backing_off: dict[int, Waiting] = field(default_factory=dict)
    unschedulable: dict[int, Waiting] = field(default_factory=dict)
    _by_backoff: list[tuple[float, int]] = field(default_factory=list)  # when it ends, of pods that may be gone from it
    _left_looked: float = -math.inf

    def add(self, one: Waiting) -> None:
        """Make a pod active."""
        heapq.heappush(self.active, (-one.priority, one.since, one.pod, one))

    def pop(self) -> Waiting:
        """Take the pod that is next; this is one more attempt."""
        one = heapq.heappop(self.active)[3]
        one.attempts += 1
        return one

    def failed(self, one: Waiting, now: float, *, moved: bool = False) -> None:
        """Put a pod back that fits nowhere; `moved`: something happened to a pod on a node during the attempt."""
        one.since = now
        if moved:
            self._back_off(one)
        else:
            self.unschedulable[one.pod] = one

    def backoff_end(self, one: Waiting) -> float:
        """When a pod may be tried again."""
        doubled = 2.0 ** min(one.attempts - 1, 60)
        return one.since + min(self.profile.max_backoff, self.profile.initial_backoff * doubled)

    def move_all(self, now: float) -> None:
        """A pod left its node, or a node changed: whoever was unschedulable may fit."""
        self.move(list(self.unschedulable.values()), now)

    def changed(self, pod: int, *, more_than_status: bool) -> None:
        """A pod that waits was changed: it is active, unless it is left unschedulable and its status alone changed."""
        if pod in self.backing_off:
            self.add(self.backing_off.pop(pod))
        elif more_than_status and pod in self.unschedulable:
            self.add(self.unschedulable.pop(pod))

    def tick(self, now: float) -> None:
        """Move who had backed off when the queue last looked, at a whole second, and who was left for long."""
        while self._first_end() <= math.floor(now / BACKOFF_TICK) * BACKOFF_TICK:
            self.add(self.backing_off.pop(heapq.heappop(self._by_backoff)[1]))
        looked = math.floor(now / LEFT_TICK) * LEFT_TICK
        if looked > self._left_looked:
            self._left_looked = looked
            self.move([one for one in self.unschedulable.values() if looked - one.since > LEFT_FOR], now)

    def next_tick(self, now: float) -> float:
        """When the queue changes by itself; infinity: never."""
        soonest = math.inf
        if (end := self._first_end()) < math.inf:
            soonest = _next(max(now, end), BACKOFF_TICK, now)
        if self.unschedulable:
            oldest = next(iter(self.unschedulable.values())).since  # they failed in this order
            soonest = min(soonest, _next(max(now, oldest + LEFT_FOR), LEFT_TICK, now))
        return soonest

    def _first_end(self) -> float:
        """When the first backoff ends; pods that left the queue otherwise, or failed again since, are forgotten."""
        while self._by_backoff:
            end, pod = self._by_backoff[0]
            if pod in self.backing_off and self.backoff_end(self.backing_off[pod]) == end:
                return end
            heapq.heappop(self._by_backoff)
        return math.inf

    def _back_off(self, one: Waiting) -> None:
        self.backing_off[one.pod] = one
        heapq.heappush(self._by_backoff, (self.backoff_end(one), one.pod))

    def move(self, pods: list[Waiting], now: float) -> None:
        """Make unschedulable pods active, or let them back off."""
        for one in pods:
            del self.unschedulable[one.pod]
            if self.backoff_end(one) > now:
                self._back_off(one)
            else:
                self.add(one)


def _next(moment: float, tick: float, now: float) -> float:
    """The first tick at a moment or later, and after now."""
    found = math.ceil(moment / tick) * tick
    return found if found > now else found + tick
