"""Simulate kube-scheduler on pods: one attempt after the other, each pod on its own."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

import numpy as np

from fleetlab.core.progress import Progress, silent
from fleetlab.schedulers.kubernetes.config import GPU, DisruptionBudget, KubeScheduler, SchedulingNode, SchedulingPod
from fleetlab.schedulers.kubernetes.filters import feasible, fitting
from fleetlab.schedulers.kubernetes.preemption import Protected, best_candidates
from fleetlab.schedulers.kubernetes.queue import Queue, Waiting
from fleetlab.schedulers.kubernetes.quota import Owners
from fleetlab.schedulers.kubernetes.reasons import UnschedulableCache
from fleetlab.schedulers.kubernetes.scores import decide
from fleetlab.schedulers.kubernetes.state import Cache, Ints
from fleetlab.sim.events import BACK, DRAIN, RECLAIM
from fleetlab.sim.kernel.events import EventQueue
from fleetlab.sim.kernel.run_log import RunLog, Stay
from fleetlab.sim.kernel.service import REPLACED_AFTER, NodeService
from fleetlab.sim.kernel.work import Checkpoints, JobWork

NODE, END, REPLACED, CHANGED, ARRIVE = range(5)  # at one moment pods leave before others come
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


@dataclass
class Placed:
    """What became of each pod: infinity and -1 where it never started; `preempted` when it was last asked to go."""

    start: list[float]
    end: list[float]  # when it leaves its node, as far as is known; when it was done
    node: list[int]
    attempts: list[int]
    preempted: list[float]
    done: list[bool]  # it ended
    cut: list[bool]  # it was ended for good before its time
    created: dict[int, float] = field(default_factory=dict)  # when pods were admitted that had been refused

    @classmethod
    def of(cls, count: int) -> Self:
        """Return that none has started."""
        start, end, preempted = ([math.inf] * count for _ in range(3))
        return cls(start, end, [-1] * count, [0] * count, preempted, [False] * count, [False] * count)


def play(site: Site, pods: Sequence[SchedulingPod], submit: Sequence[float], run: Sequence[float], seed: int) -> Placed:
    """Simulate pods with given submission and run times; a preempted pod is deleted, as a bare pod is."""
    return Loop(site, pods, run, seed).play(submit)


class Loop:
    """The state of a simulation."""

    def __init__(
        self, site: Site, pods: Sequence[SchedulingPod], run: Sequence[float], seed: int,
        service: NodeService | None = None, rules: Checkpoints | None = None,
    ) -> None:  # fmt: skip
        self.site, self.pods, self.service, self.rules = site, pods, service, rules or Checkpoints()
        self.work = [JobWork(seconds) for seconds in run]
        self.cache, self.queue = Cache(site.nodes), Queue(site.profile)
        self.number = {pod.name: k for k, pod in enumerate(pods)}
        self.requeues = [False] * len(pods)  # whose owner makes a new pod once it was evicted
        self.bound: Mapping[int, int] = {}  # the node of each pod that runs when it comes
        self.events, self.log = EventQueue(), RunLog()
        self.now, self.changed, self._next_node = 0.0, 0.0, 0
        self._draw = np.random.default_rng(seed)
        self._unschedulable = UnschedulableCache(pods)
        self._said: dict[int, str] = {}  # why a pod fitted nowhere when it was last tried
        self._managed: dict[int, set[str]] = {}  # the fields of a pod's status that the scheduler has written
        self._followers = any(pod.affinity for pod in pods)
        self._moved = False
        self._open = 0  # pods that are not done
        self._stays: dict[int, Stay] = {}
        self._lost: dict[int, tuple[int, list[int]]] = {}  # by failure: the node, and the pods that were on it
        self.owners: Owners | None = None  # None: every pod is admitted when it comes
        self._protected = Protected(site.budgets, pods) if site.controller and site.budgets else None
        self.placed = Placed.of(len(pods))

    def play(self, submit: Sequence[float], until: float = math.inf, progress: Progress = silent) -> Placed:
        """Run until nothing can change any more, or until a time."""
        struck = [] if self.service is None else self.service.events(NODE)
        self.events = EventQueue([*((at, ARRIVE, k, 0) for k, at in enumerate(submit)), *struck])
        self._open = sum(at < math.inf for at in submit)
        self.now, attempts = min((0.0, *submit)), 0
        while self.now < until:
            self._happen()
            self.queue.tick(self.now)
            if self.queue.active:
                attempts += 1
                if attempts % REPORT == 0:
                    done = sum(self.placed.done)
                    progress("scheduling pods", done, done / len(self.pods))
                self._attempt(self.queue.pop())
            elif not self._open or self._is_over():
                return self.placed
            else:
                self.now = min(self._next_event(), self.queue.next_tick(self.now))
        self.now = until
        self._happen()  # who ends when the simulation does, has ended
        return self.placed

    def _is_over(self) -> bool:
        """Whether nobody comes or leaves any more, and all that wait have been tried since somebody last did."""
        if self.events or self._quota_may_free():
            return False
        waiting = [*self.queue.unschedulable.values(), *self.queue.backing_off.values()]
        return all(one.since >= self.changed for one in waiting)

    def _next_event(self) -> float:
        retry = math.inf if self.owners is None else self.owners.next_try()
        return min(self.events.next_time, retry)

    def _quota_may_free(self) -> bool:
        """Whether a pod that was refused may be admitted: room became free since it was last tried."""
        return self.owners is not None and self.owners.may_admit()

    def _happen(self) -> None:
        while self.events.next_time <= self.now:
            at, kind, numbers = self.events.pop_alike()
            if kind == CHANGED:
                for pod in numbers:
                    self._learn_of_patch(pod)
                continue
            self.changed = self.now
            if kind == ARRIVE:
                self._come(numbers if self.owners is None else self.owners.want(numbers, self.now), at)
            elif kind == END:
                for pod in numbers:
                    if self.log.running(pod) and self.placed.end[pod] == at:
                        self._end(pod, at)
            else:
                for number in numbers:
                    self._strike(number, at) if kind == NODE else self._replace(number, at)
        if self.owners is not None and self.owners.next_try() <= self.now:
            self._come(self.owners.try_again(self.now), self.now)

    def _come(self, pods: list[int], at: float) -> None:
        """Put pods into the queue that the API server admitted."""
        for pod in pods:
            self.changed = self.now
            if self.owners is not None and self.owners.refusals[pod]:
                self.placed.created[pod] = at
            if self._protected is not None:
                self._protected.came(pod)
            if not self._starts_bound(pod):
                self.queue.add(Waiting(pod, self.pods[pod].priority, at))

    def _end(self, pod: int, at: float) -> None:
        """Let a pod leave that has run, or that was asked to go."""
        work, placed = self.work[pod], self.placed
        self._stop(pod, at)
        self._delete(pod)
        evicted = placed.preempted[pod] <= at
        if evicted and self.requeues[pod]:
            saves = self.rules.on_signal and self._grace(self.pods[pod]) >= self.rules.save
            work.interrupt(at, self.rules, saved=saves)
            if work.work > 0:
                work.preemptions += 1
                self._come_again(pod, at)
                return
        elif not evicted:
            work.finish(self.rules)
        self._done(pod, at, cut=evicted and not self.requeues[pod])

    def _stop(self, pod: int, at: float) -> None:
        """End the run of a pod."""
        self.log.end(pod, at)
        self._stays.pop(pod).end = at

    def _delete(self, pod: int) -> None:
        """Remove a pod from its node: others may fit there."""
        self.cache.remove(self.pods[pod].name)
        self._unschedulable.left(self.pods[pod])
        if self._protected is not None:
            self._protected.left(pod)
        self.queue.move_all(self.now)
        self._moved = True
        if self.owners is not None:
            self.owners.gone(pod)
            self._come(self.owners.changed(pod, self.now), self.now)

    def _come_again(self, pod: int, at: float) -> None:
        """Let the owner of a pod that is gone make a new one."""
        self.placed.preempted[pod], self.placed.end[pod] = math.inf, math.inf
        self.events.push(at, ARRIVE, pod)

    def _done(self, pod: int, at: float, *, cut: bool) -> None:
        self.placed.end[pod], self.placed.done[pod], self.placed.cut[pod] = at, True, cut
        self._open -= 1

    # -- nodes -------------------------------------------------------------------------------------------------------

    def _strike(self, number: int, at: float) -> None:
        """Let a node fail, be reclaimed or drained, or come back: its taints change, and all that wait are tried."""
        assert self.service is not None  # which the event is of
        node, what = self.service.apply_event(number, at)
        if what == BACK:
            for failure in [failure for failure, (where, _) in self._lost.items() if where == node]:
                self._replace(failure, at)
        elif what != DRAIN:
            pods = [pod for name in self.cache.pods[node] if self.log.running(pod := self.number[name])]
            for pod in pods:
                self._stop(pod, at)
                self.work[pod].interrupt(at, self.rules, saved=what == RECLAIM)
                self.work[pod].failures += 1
                self.placed.end[pod] = math.inf
                if not self.requeues[pod]:
                    self._done(pod, at, cut=True)
            self._lost[number] = node, pods
            # A kubelet that has notice ends its pods itself.
            self.events.push(at if what == RECLAIM else at + REPLACED_AFTER, REPLACED, number)
        self.cache.set_service(node, self.service.state[node])
        self._unschedulable.change()
        self.queue.move_all(self.now)
        self._moved = True

    def _replace(self, failure: int, at: float) -> None:
        """Delete the pods that a failure ended, unless that was done; their owners make new ones."""
        for pod in self._lost.pop(failure, (-1, []))[1]:
            self._delete(pod)
            if self.requeues[pod]:
                self._come_again(pod, at)

    def _starts_bound(self, pod: int) -> bool:
        """Start a pod that comes for the first time where it is bound already, if that node is there."""
        node = self.bound.get(pod, -1)
        if node < 0 or self.placed.node[pod] >= 0 or node in self.cache.closed:
            return False
        if not fitting(self.cache, self.pods[pod])[node]:
            return False
        self._start(pod, self.pods[pod], node)
        return True

    # -- attempts ----------------------------------------------------------------------------------------------------

    def _attempt(self, one: Waiting) -> None:
        pod = self.pods[one.pod]
        self.placed.attempts[one.pod] = one.attempts
        if self._unschedulable.fits_nowhere(one.pod, nominated=pod.name in self.cache.nominated):
            best = np.zeros(0, np.int64)
        else:
            best = decide(self.cache, pod, self.site.profile, self._looked_at(pod)).best
        if len(best):
            self._start(one.pod, pod, int(self._draw.choice(best)))
            self.now += self.site.cycle
            return
        why = self._unschedulable.failed(one.pod, self.cache, pod)
        nominated = self._preempt(one.pod, pod)
        self.now, self._moved = self.now + self.site.cycle, nominated  # its victims are told to go during the attempt
        self._happen()
        self.queue.failed(one, self.now, moved=self._moved)
        if nominated or self._said.get(one.pod) != why:
            self._said[one.pod] = why
            self.events.push(self.now + self.site.patch, CHANGED, one.pod)

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
        self._unschedulable.started(pod)
        self._said.pop(number, None)
        if self._followers:  # who wants to be near it may fit now
            waiting = self.queue.unschedulable.values()
            self.queue.move([w for w in waiting if any(t.matches(pod) for t in self.pods[w.pod].affinity)], self.now)
        placed, work = self.placed, self.work[number]
        placed.start[number], placed.node[number] = min(placed.start[number], self.now), node
        self._stays[number] = self.log.bind(number, node, pod.requests.get(GPU, 0), self.now)
        self.log.begin(number, self.now, [self._stays[number]])
        self._ends_at(number, self.now + work.begin(self.now, self.rules))
        if self.owners is not None:
            self._come(self.owners.changed(number, self.now), self.now)

    def _ends_at(self, number: int, at: float) -> None:
        self.placed.end[number] = at
        self.events.push(at, END, number)

    def _grace(self, pod: SchedulingPod) -> float:
        return pod.grace if self.site.grace is None else self.site.grace

    def _preempt(self, number: int, pod: SchedulingPod) -> bool:
        """Evict others for a pod; return whether it was nominated to their node."""
        if self._unschedulable.preempts_nobody(number, pod):
            return False
        budgets = self.site.budgets if self._protected is None else self._protected.now(self.cache)
        found = best_candidates(self.cache, pod, budgets, self.now)
        if not found:
            self._unschedulable.found_no_victims(number)
            return False
        chosen = found[int(self._draw.integers(len(found)))]
        for victim in chosen.victims:
            self._evict(victim)
        for name, (other, node) in list(self.cache.nominated.items()):
            if node == chosen.node and other.priority < pod.priority:
                del self.cache.nominated[name]
        self.cache.nominated[pod.name] = (pod, chosen.node)
        self._unschedulable.change()
        return True

    def _evict(self, victim: SchedulingPod) -> None:
        number = self.number[victim.name]
        if victim.name not in self.cache.terminating:
            self.cache.terminate(victim.name)
            self.placed.preempted[number] = self.now
            self._ends_at(number, min(self.placed.end[number], self.now + self._grace(victim)))
