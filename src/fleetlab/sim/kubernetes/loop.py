"""Simulate kube-scheduler on pods: one attempt after the other, each pod on its own."""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from fleetlab.core.kubernetes import DisruptionBudget, KubeScheduler, SchedulingNode, SchedulingPod
from fleetlab.sim.kubernetes.decide import decide
from fleetlab.sim.kubernetes.filters import feasible
from fleetlab.sim.kubernetes.preemption import best_candidates
from fleetlab.sim.kubernetes.queue import Queue, Waiting
from fleetlab.sim.kubernetes.state import Cache, Ints

END, ARRIVE = 0, 1  # at one moment pods leave before others come


@dataclass(frozen=True)
class Site:
    """A cluster and its scheduler; `cycle` is what an attempt takes, `grace` what a victim takes to leave."""

    nodes: Sequence[SchedulingNode]
    profile: KubeScheduler = field(default_factory=KubeScheduler)
    budgets: Sequence[DisruptionBudget] = ()
    cycle: float = 0.0
    grace: float = 30.0


@dataclass
class Placed:
    """What became of each pod: infinity and -1 where it never started; `preempted` when it was asked to go."""

    start: list[float]
    end: list[float]
    node: list[int]
    attempts: list[int]
    preempted: list[float]


def play(site: Site, pods: Sequence[SchedulingPod], submit: Sequence[float], run: Sequence[float], seed: int) -> Placed:
    """Simulate pods that come at their times and run for theirs; a preempted pod is gone, as a bare pod is."""
    return Loop(site, pods, run, seed).play(submit)


class Loop:
    """The state of a simulation."""

    def __init__(self, site: Site, pods: Sequence[SchedulingPod], run: Sequence[float], seed: int) -> None:
        self.site, self.pods, self.run = site, pods, run
        self.cache, self.queue = Cache(site.nodes), Queue(site.profile)
        self.number = {pod.name: k for k, pod in enumerate(pods)}
        self.events: list[tuple[float, int, int]] = []
        self.now, self.changed, self._next_node = 0.0, 0.0, 0
        self._draw = np.random.default_rng(seed)
        never = [math.inf] * len(pods)
        self.placed = Placed(never.copy(), never.copy(), [-1] * len(pods), [0] * len(pods), never.copy())

    def play(self, submit: Sequence[float]) -> Placed:
        """Run until nothing can change any more."""
        self.events = [(at, ARRIVE, k) for k, at in enumerate(submit)]
        heapq.heapify(self.events)
        while True:
            self._happen()
            if self.queue.active:
                self._attempt(self.queue.pop())
                self.now += self.site.cycle
            elif self._is_over():
                return self.placed
            else:
                self.now = min(self.events[0][0] if self.events else math.inf, self.queue.next_tick(self.now))
                self.queue.tick(self.now)

    def _is_over(self) -> bool:
        """Whether nobody comes or leaves any more, and all that wait have been tried since somebody last did."""
        waiting = [*self.queue.unschedulable.values(), *(one for *_, one in self.queue.backing_off)]
        return not self.events and all(one.since >= self.changed for one in waiting)

    def _happen(self) -> None:
        while self.events and self.events[0][0] <= self.now:
            at, kind, pod = heapq.heappop(self.events)
            self.changed = self.now
            if kind == ARRIVE:
                self.queue.add(Waiting(pod, self.pods[pod].priority, at))
            elif self.pods[pod].name in self.cache and self.placed.end[pod] == at:
                self.cache.remove(self.pods[pod].name)
                self.queue.something_left(self.now)

    def _attempt(self, one: Waiting) -> None:
        pod = self.pods[one.pod]
        self.placed.attempts[one.pod] = one.attempts
        best = decide(self.cache, pod, self.site.profile, self._looked_at(pod)).best
        if len(best):
            self._start(one.pod, pod, int(self._draw.choice(best)))
        else:
            self._preempt(pod)
            self.queue.failed(one, self.now)

    def _looked_at(self, pod: SchedulingPod) -> Ints | None:
        """The nodes that are looked at: from where the last search ended, until enough fit."""
        count = len(self.site.nodes)
        enough = self.site.profile.nodes_to_find(count)
        if enough >= count:
            return None
        ring = (np.arange(count) + self._next_node) % count
        found = np.cumsum(feasible(self.cache, pod)[ring])
        looked = int(np.searchsorted(found, enough) + 1) if found[-1] >= enough else count
        self._next_node = (self._next_node + looked) % count
        return ring[:looked]

    def _start(self, number: int, pod: SchedulingPod, node: int) -> None:
        self.cache.nominated.pop(pod.name, None)
        self.cache.add(pod, node)
        self.cache.started[pod.name] = math.floor(self.now)
        self.placed.start[number], self.placed.node[number] = self.now, node
        self._end(number, self.now + self.run[number])

    def _end(self, number: int, at: float) -> None:
        self.placed.end[number] = at
        heapq.heappush(self.events, (at, END, number))

    def _preempt(self, pod: SchedulingPod) -> None:
        found = best_candidates(self.cache, pod, self.site.budgets, self.now)
        if not found:
            return
        chosen = found[int(self._draw.integers(len(found)))]
        for victim in chosen.victims:
            self._evict(victim)
        for name, (other, node) in list(self.cache.nominated.items()):
            if node == chosen.node and other.priority < pod.priority:
                del self.cache.nominated[name]
        self.cache.nominated[pod.name] = (pod, chosen.node)

    def _evict(self, victim: SchedulingPod) -> None:
        number = self.number[victim.name]
        if victim.name not in self.cache.terminating:
            self.cache.terminate(victim.name)
            self.placed.preempted[number] = self.now
            self._end(number, min(self.placed.end[number], self.now + self.site.grace))
