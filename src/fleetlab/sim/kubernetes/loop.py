"""Simulate kube-scheduler on pods: one attempt after the other, each pod on its own."""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from fleetlab.core.kubernetes import DisruptionBudget, KubeScheduler, SchedulingNode, SchedulingPod
from fleetlab.core.progress import Progress, silent
from fleetlab.sim.kubernetes.budgets import Protected
from fleetlab.sim.kubernetes.decide import decide
from fleetlab.sim.kubernetes.filters import feasible
from fleetlab.sim.kubernetes.hopeless import Hopeless
from fleetlab.sim.kubernetes.owners import Owners
from fleetlab.sim.kubernetes.preemption import best_candidates
from fleetlab.sim.kubernetes.queue import Queue, Waiting
from fleetlab.sim.kubernetes.state import Cache, Ints

END, CHANGED, ARRIVE = range(3)  # at one moment pods leave before others come
REPORT = 2_000  # attempts between two reports of progress


@dataclass(frozen=True)
class Site:
    """A cluster and its scheduler; `cycle` is what an attempt takes, `grace` what every victim takes to leave.

    `patch` is the time from an attempt that failed until the scheduler learns that it changed the pod's status. With
    a `controller`, budgets follow the pods that run; without, they stand as they are.
    """

    nodes: Sequence[SchedulingNode]
    profile: KubeScheduler = field(default_factory=KubeScheduler)
    budgets: Sequence[DisruptionBudget] = ()
    cycle: float = 0.0
    grace: float | None = None  # None: what each pod says itself
    patch: float = 0.0
    controller: bool = False


@dataclass(frozen=True)
class PodRun:
    """A pod on a node, from its binding until it left; `end` is infinity while it is there."""

    pod: int
    node: int
    begin: float
    end: float = math.inf


@dataclass
class Placed:
    """What became of each pod: infinity and -1 where it never started; `preempted` when it was last asked to go.

    `runs` are all stays on nodes in the order in which they began, `run_of` the latest of each pod.
    """

    start: list[float]
    end: list[float]
    node: list[int]
    attempts: list[int]
    preempted: list[float]
    runs: list[PodRun] = field(default_factory=list)
    run_of: dict[int, int] = field(default_factory=dict)
    created: dict[int, float] = field(default_factory=dict)  # when pods were admitted that had been refused


def play(site: Site, pods: Sequence[SchedulingPod], submit: Sequence[float], run: Sequence[float], seed: int) -> Placed:
    """Simulate pods with given submission and run times; a preempted pod is deleted, as a bare pod is."""
    return Loop(site, pods, run, seed).play(submit)


class Loop:
    """The state of a simulation."""

    def __init__(self, site: Site, pods: Sequence[SchedulingPod], run: Sequence[float], seed: int) -> None:
        self.site, self.pods, self.run = site, pods, run
        self.cache, self.queue = Cache(site.nodes), Queue(site.profile)
        self.number = {pod.name: k for k, pod in enumerate(pods)}
        self.comes_again = [False] * len(pods)  # whose owner makes a new pod once it was evicted
        self.events: list[tuple[float, int, int]] = []
        self.now, self.changed, self._next_node = 0.0, 0.0, 0
        self._draw = np.random.default_rng(seed)
        self._hopeless = Hopeless(pods)
        self._said: dict[int, str] = {}  # why a pod fitted nowhere when it was last tried
        self._managed: dict[int, set[str]] = {}  # the fields of a pod's status that the scheduler has written
        self._followers = any(pod.affinity for pod in pods)
        self._moved = False
        self.owners: Owners | None = None  # None: every pod is admitted when it comes
        self._protected = Protected(site.budgets, pods) if site.controller and site.budgets else None
        never = [math.inf] * len(pods)
        self.placed = Placed(never.copy(), never.copy(), [-1] * len(pods), [0] * len(pods), never.copy())

    def play(self, submit: Sequence[float], until: float = math.inf, progress: Progress = silent) -> Placed:
        """Run until nothing can change any more, or until a time."""
        self.events = [(at, ARRIVE, k) for k, at in enumerate(submit) if at < math.inf]
        heapq.heapify(self.events)
        self.now, attempts = min((0.0, *submit)), 0
        while self.now < until:
            self._happen()
            self.queue.tick(self.now)
            if self.queue.active:
                attempts += 1
                if attempts % REPORT == 0:
                    done = len(self.placed.run_of)
                    progress("scheduling pods", done, done / len(self.pods))
                self._attempt(self.queue.pop())
            elif self._is_over():
                break
            else:
                self.now = min(self._next_event(), self.queue.next_tick(self.now))
        return self.placed

    def _is_over(self) -> bool:
        """Whether nobody comes or leaves any more, and all that wait have been tried since somebody last did."""
        if self.events or self._quota_may_free():
            return False
        waiting = [*self.queue.unschedulable.values(), *self.queue.backing_off.values()]
        return all(one.since >= self.changed for one in waiting)

    def _next_event(self) -> float:
        retry = math.inf if self.owners is None else self.owners.next_try()
        return min(self.events[0][0] if self.events else math.inf, retry)

    def _quota_may_free(self) -> bool:
        """Whether a pod that was refused may be admitted: room became free since it was last tried."""
        return self.owners is not None and self.owners.may_admit()

    def _happen(self) -> None:
        while self.events and self.events[0][0] <= self.now:
            at, kind, pod = heapq.heappop(self.events)
            if kind == CHANGED:
                self._learn_of_patch(pod)
                continue
            self.changed = self.now
            if kind == ARRIVE:
                pods = [pod, *self._others_at(at)]
                self._come(pods if self.owners is None else self.owners.want(pods, self.now), at)
            elif self.pods[pod].name in self.cache and self.placed.end[pod] == at:
                self._leave(pod, at)
        if self.owners is not None and self.owners.next_try() <= self.now:
            self._come(self.owners.try_again(self.now), self.now)

    def _others_at(self, at: float) -> list[int]:
        """Take the other pods that are created at the same time."""
        found = []
        while self.events and self.events[0][:2] == (at, ARRIVE):
            found.append(heapq.heappop(self.events)[2])
        return found

    def _come(self, pods: list[int], at: float) -> None:
        """Put pods into the queue that the API server admitted."""
        for pod in pods:
            self.changed = self.now
            if self.owners is not None and self.owners.refusals[pod]:
                self.placed.created[pod] = at
            if self._protected is not None:
                self._protected.came(pod)
            self.queue.add(Waiting(pod, self.pods[pod].priority, at))

    def _leave(self, pod: int, at: float) -> None:
        self.cache.remove(self.pods[pod].name)
        self._hopeless.left(self.pods[pod])
        if self._protected is not None:
            self._protected.left(pod)
        self.queue.something_left(self.now)
        self._moved = True
        if self.owners is not None:
            self.owners.gone(pod)
            self._come(self.owners.changed(pod, self.now), self.now)
        if self.comes_again[pod] and self.placed.preempted[pod] <= at:
            self.placed.preempted[pod], self.placed.end[pod] = math.inf, math.inf
            heapq.heappush(self.events, (at, ARRIVE, pod))

    def _attempt(self, one: Waiting) -> None:
        pod = self.pods[one.pod]
        self.placed.attempts[one.pod] = one.attempts
        if self._hopeless.fits_nowhere(one.pod, nominated=pod.name in self.cache.nominated):
            best = np.zeros(0, np.int64)
        else:
            best = decide(self.cache, pod, self.site.profile, self._looked_at(pod)).best
        if len(best):
            self._start(one.pod, pod, int(self._draw.choice(best)))
            self.now += self.site.cycle
            return
        why = self._hopeless.failed(one.pod, self.cache, pod)
        nominated = self._preempt(one.pod, pod)
        self.now, self._moved = self.now + self.site.cycle, nominated  # its victims are told to go during the attempt
        self._happen()
        self.queue.failed(one, self.now, moved=self._moved)
        if nominated or self._said.get(one.pod) != why:
            self._said[one.pod] = why
            heapq.heappush(self.events, (self.now + self.site.patch, CHANGED, one.pod))

    def _learn_of_patch(self, pod: int) -> None:
        written = self._managed.setdefault(pod, set())
        fields = {"conditions", *(["nominatedNodeName"] if self.pods[pod].name in self.cache.nominated else [])}
        self.queue.changed(pod, more_than_status=not fields <= written)
        written |= fields

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
        self._hopeless.started(pod)
        self._said.pop(number, None)
        if self._followers:  # who wants to be near it may fit now
            waiting = self.queue.unschedulable.values()
            self.queue.move([w for w in waiting if any(t.matches(pod) for t in self.pods[w.pod].affinity)], self.now)
        placed = self.placed
        placed.start[number], placed.node[number] = min(placed.start[number], self.now), node
        placed.run_of[number] = len(placed.runs)
        placed.runs.append(PodRun(number, node, self.now))
        self._end(number, self.now + self.run[number])
        if self.owners is not None:
            self._come(self.owners.changed(number, self.now), self.now)

    def _end(self, number: int, at: float) -> None:
        placed = self.placed
        placed.end[number] = at
        run = placed.runs[placed.run_of[number]]
        placed.runs[placed.run_of[number]] = PodRun(run.pod, run.node, run.begin, at)
        heapq.heappush(self.events, (at, END, number))

    def _preempt(self, number: int, pod: SchedulingPod) -> bool:
        """Evict others for a pod; return whether it was nominated to their node."""
        if self._hopeless.preempts_nobody(number, pod):
            return False
        budgets = self.site.budgets if self._protected is None else self._protected.now(self.cache)
        found = best_candidates(self.cache, pod, budgets, self.now)
        if not found:
            self._hopeless.found_no_victims(number)
            return False
        chosen = found[int(self._draw.integers(len(found)))]
        for victim in chosen.victims:
            self._evict(victim)
        for name, (other, node) in list(self.cache.nominated.items()):
            if node == chosen.node and other.priority < pod.priority:
                del self.cache.nominated[name]
        self.cache.nominated[pod.name] = (pod, chosen.node)
        self._hopeless.change()
        return True

    def _evict(self, victim: SchedulingPod) -> None:
        number = self.number[victim.name]
        if victim.name not in self.cache.terminating:
            self.cache.terminate(victim.name)
            self.placed.preempted[number] = self.now
            grace = victim.grace if self.site.grace is None else self.site.grace
            self._end(number, min(self.placed.end[number], self.now + grace))
