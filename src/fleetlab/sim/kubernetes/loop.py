"""Simulate kube-scheduler on pods: one attempt after the other, each pod on its own."""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from fleetlab.core.kubernetes import DisruptionBudget, KubeScheduler, SchedulingNode, SchedulingPod
from fleetlab.core.progress import Progress, silent
from fleetlab.sim.kubernetes.decide import decide
from fleetlab.sim.kubernetes.filters import feasible
from fleetlab.sim.kubernetes.preemption import best_candidates
from fleetlab.sim.kubernetes.queue import Queue, Waiting
from fleetlab.sim.kubernetes.state import Cache, Ints

END, ARRIVE = 0, 1  # at one moment pods leave before others come
REPORT = 2_000  # attempts between two reports of progress


@dataclass(frozen=True)
class Site:
    """A cluster and its scheduler; `cycle` is what an attempt takes, `grace` what a victim takes to leave."""

    nodes: Sequence[SchedulingNode]
    profile: KubeScheduler = field(default_factory=KubeScheduler)
    budgets: Sequence[DisruptionBudget] = ()
    cycle: float = 0.0
    grace: float = 30.0


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


def play(site: Site, pods: Sequence[SchedulingPod], submit: Sequence[float], run: Sequence[float], seed: int) -> Placed:
    """Simulate pods that come at their times and run for theirs; a preempted pod is gone, as a bare pod is."""
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
        self._hopeless = _Hopeless(pods)
        never = [math.inf] * len(pods)
        self.placed = Placed(never.copy(), never.copy(), [-1] * len(pods), [0] * len(pods), never.copy())

    def play(self, submit: Sequence[float], until: float = math.inf, progress: Progress = silent) -> Placed:
        """Run until nothing can change any more, or until a time."""
        self.events = [(at, ARRIVE, k) for k, at in enumerate(submit)]
        heapq.heapify(self.events)
        self.now, attempts = min((0.0, *submit)), 0
        while self.now < until:
            self._happen()
            if self.queue.active:
                attempts += 1
                if attempts % REPORT == 0:
                    done = len(self.placed.run_of)
                    progress("scheduling pods", done, done / len(self.pods))
                self._attempt(self.queue.pop())
                self.now += self.site.cycle
            elif self._is_over():
                break
            else:
                self.now = min(self.events[0][0] if self.events else math.inf, self.queue.next_tick(self.now))
                self.queue.tick(self.now)
        return self.placed

    def _is_over(self) -> bool:
        """Whether nobody comes or leaves any more, and all that wait have been tried since somebody last did."""
        if self.events:
            return False
        waiting = [*self.queue.unschedulable.values(), *(one for *_, one in self.queue.backing_off)]
        return all(one.since >= self.changed for one in waiting)

    def _happen(self) -> None:
        while self.events and self.events[0][0] <= self.now:
            at, kind, pod = heapq.heappop(self.events)
            self.changed = self.now
            if kind == ARRIVE:
                self.queue.add(Waiting(pod, self.pods[pod].priority, at))
            elif self.pods[pod].name in self.cache and self.placed.end[pod] == at:
                self._leave(pod, at)

    def _leave(self, pod: int, at: float) -> None:
        self.cache.remove(self.pods[pod].name)
        self._hopeless.left(self.pods[pod])
        self.queue.something_left(self.now)
        if self.comes_again[pod] and self.placed.preempted[pod] <= at:
            self.placed.preempted[pod], self.placed.end[pod] = math.inf, math.inf
            heapq.heappush(self.events, (at, ARRIVE, pod))

    def _attempt(self, one: Waiting) -> None:
        pod = self.pods[one.pod]
        self.placed.attempts[one.pod] = one.attempts
        if self._hopeless.fits_nowhere(one.pod, pod.name in self.cache.nominated):
            best = np.zeros(0, np.int64)
        else:
            best = decide(self.cache, pod, self.site.profile, self._looked_at(pod)).best
        if len(best):
            self._start(one.pod, pod, int(self._draw.choice(best)))
        else:
            self._hopeless.failed(one.pod)
            self._preempt(one.pod, pod)
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
        self._hopeless.started(pod)
        placed = self.placed
        placed.start[number], placed.node[number] = min(placed.start[number], self.now), node
        placed.run_of[number] = len(placed.runs)
        placed.runs.append(PodRun(number, node, self.now))
        self._end(number, self.now + self.run[number])

    def _end(self, number: int, at: float) -> None:
        placed = self.placed
        placed.end[number] = at
        run = placed.runs[placed.run_of[number]]
        placed.runs[placed.run_of[number]] = PodRun(run.pod, run.node, run.begin, at)
        heapq.heappush(self.events, (at, END, number))

    def _preempt(self, number: int, pod: SchedulingPod) -> None:
        if self._hopeless.preempts_nobody(number, pod):
            return
        found = best_candidates(self.cache, pod, self.site.budgets, self.now)
        if not found:
            self._hopeless.found_no_victims(number)
            return
        chosen = found[int(self._draw.integers(len(found)))]
        for victim in chosen.victims:
            self._evict(victim)
        for name, (other, node) in list(self.cache.nominated.items()):
            if node == chosen.node and other.priority < pod.priority:
                del self.cache.nominated[name]
        self.cache.nominated[pod.name] = (pod, chosen.node)
        self._hopeless.change()

    def _evict(self, victim: SchedulingPod) -> None:
        number = self.number[victim.name]
        if victim.name not in self.cache.terminating:
            self.cache.terminate(victim.name)
            self.placed.preempted[number] = self.now
            self._end(number, min(self.placed.end[number], self.now + self.site.grace))


class _Hopeless:
    """Pods that need no new search: one like it fitted nowhere, and nobody has left since.

    Those that ask for the same are alike; none is like a pod that looks at where others are.
    """

    def __init__(self, pods: Sequence[SchedulingPod]) -> None:
        kinds: dict[object, int] = {}
        self._kind = [-1 if pod.spread else kinds.setdefault(_asks(pod), len(kinds)) for pod in pods]
        self._freed, self._version = 0, 0
        self._failed = [-1] * len(kinds)
        self._no_victims = [-1] * len(kinds)
        self._running: Counter[int] = Counter()  # pods by priority

    def change(self) -> None:
        self._freed += 1
        self._version += 1

    def left(self, pod: SchedulingPod) -> None:
        self._running[pod.priority] -= 1
        if not self._running[pod.priority]:
            del self._running[pod.priority]
        self.change()

    def started(self, pod: SchedulingPod) -> None:
        self._running[pod.priority] += 1
        self._version += 1

    def failed(self, number: int) -> None:
        if self._kind[number] >= 0:
            self._failed[self._kind[number]] = self._freed

    def found_no_victims(self, number: int) -> None:
        if self._kind[number] >= 0:
            self._no_victims[self._kind[number]] = self._version

    def fits_nowhere(self, number: int, nominated: bool) -> bool:  # noqa: FBT001
        kind = self._kind[number]
        return kind >= 0 and not nominated and self._failed[kind] == self._freed

    def preempts_nobody(self, number: int, pod: SchedulingPod) -> bool:
        kind = self._kind[number]
        if not pod.preempts or min(self._running, default=pod.priority) >= pod.priority:
            return True
        return kind >= 0 and self._no_victims[kind] == self._version


def _asks(pod: SchedulingPod) -> object:
    requests = tuple(sorted(pod.requests.items()))
    return requests, pod.priority, pod.required, pod.selector, pod.tolerations, pod.preempts
