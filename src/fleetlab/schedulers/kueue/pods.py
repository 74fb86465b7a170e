"""Kueue with nodes: kube-scheduler places the pods of what is admitted, one by one, and a job begins with its last."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fleetlab.schedulers.kubernetes.config import GPU, Requirement, SchedulingNode, SchedulingPod, Selector
from fleetlab.schedulers.kubernetes.filters import fitting
from fleetlab.schedulers.kubernetes.play import pods_of
from fleetlab.schedulers.kubernetes.scores import decide
from fleetlab.schedulers.kubernetes.state import Cache
from fleetlab.schedulers.kueue.loop import GONE, NODE, REPLACED, Loop
from fleetlab.schedulers.kueue.submissions import FLAVOR, NodeSite
from fleetlab.schedulers.kueue.workload import KueueWorkload, PodSet
from fleetlab.sim.events import BACK, DRAIN, RECLAIM
from fleetlab.sim.kernel.run_log import Stay
from fleetlab.sim.kernel.service import IN_SERVICE, REPLACED_AFTER, NodeService
from fleetlab.sim.kernel.work import Checkpoints
from fleetlab.sim.layout import TICK
from fleetlab.sim.world import World

Labels = tuple[Requirement, ...]
Pods = list[Stay | None]  # where each pod of a job is; None: it has no node


class PodLoop(Loop):
    """A simulation in which pods need nodes; those that find none are tried again when others leave theirs.

    A workload of which a node fails keeps its quota, and its other pods their nodes, until the lost ones are evicted;
    then all its pods are made anew, as none goes on alone. One with a topology assignment, which names the node, is
    evicted then.
    """

    def __init__(
        self, site: NodeSite, workloads: list[KueueWorkload], world: World, graces: list[float], seed: int,
        service: NodeService, rules: Checkpoints,
    ) -> None:  # fmt: skip
        super().__init__(site, workloads, world.runtime.tolist(), seed, rules)
        self.profile, self.service, self.nodes = site.kueue.pods, service, site
        self.cache = Cache(_labelled(site))
        self.pods = pods_of(world)
        self.latency = world.latency.tolist()
        self.graces = graces  # of each job: how long its pods take to leave
        self.bound: dict[int, Pods] = {}  # of each job
        self._running: dict[int, tuple[list[int], tuple[PodSet, ...]]] = {}  # the nodes of jobs that run when they come
        self._without_nodes: list[int] = []
        self._lost: dict[int, tuple[int, dict[int, Pods]]] = {}  # by failure: the node, and the pods of its jobs
        self._freed = False
        self._draw = np.random.default_rng(seed)

    def run_on(self, k: int, nodes: list[int]) -> None:
        """Let a job run on these nodes when it comes; of its flavors it is given those that all of them have."""
        flavors = tuple(name for name, has in self.nodes.of_flavor.items() if has[nodes].all())
        one, wanted = self.workloads[k], (Requirement(FLAVOR, "In", flavors),) if flavors else ()
        sets = [
            replace(of, selector=Selector((*of.selector.labels, *wanted), of.selector.fields)) for of in one.pod_sets
        ]
        self._running[k] = nodes, one.pod_sets
        self.workloads[k] = replace(one, pod_sets=tuple(sets))

    def _admit(self, k: int, counts: list[int]) -> None:
        one = self.state.admitted[self.workloads[k].cluster_queue][self.workloads[k].name]
        if k in self._running and one.placement:  # count it in the domains of its nodes
            forests, each = self.state.forests, [seats for seats in one.placement for _ in range(seats.count)]
            forests.release(one.placement)
            one.placement = tuple(
                replace(seats, domain=forests.by_flavor[seats.flavor].domain_of(self.nodes.nodes[node]), count=1)
                for seats, node in zip(each, self._running[k][0], strict=False)
            )
            forests.use(one.placement)
        super()._admit(k, counts)

    def begin(self, k: int, stays: Sequence[Stay] = ()) -> None:
        """Place the pods; the job begins once all have a node."""
        self.bound[k] = [None] * self.holding[k][1].count
        self._bind(k)

    def seconds(self, k: int, length: float, stretch: float) -> float:
        """How long a job runs: to start takes as long with fewer pods."""
        latency = min(self.latency[k], length)
        return float(latency + round((length - latency) * stretch / TICK) * TICK)

    def grace(self, k: int) -> float:
        """How long the pods of a job take to leave: none at all where none has a node."""
        return self.graces[k] if any(self.bound.get(k, ())) else 0.0

    def left(self, k: int) -> None:
        """Take the pods off their nodes."""
        if k in self._without_nodes:
            self._without_nodes.remove(k)
        self._unbind(k, self.bound.pop(k, []))
        if k in self._running:  # from now on it may use all its flavors
            self.workloads[k] = replace(self.workloads[k], pod_sets=self._running.pop(k)[1])

    def _unbind(self, k: int, pods: Pods) -> None:
        for number, stay in enumerate(pods):
            if stay is not None:
                self.cache.remove(f"{k}/{number}")
                stay.end = min(stay.end, self.now)
        self._freed = True

    # -- nodes -------------------------------------------------------------------------------------------------------

    def strokes(self) -> list[tuple[float, int, int, int]]:
        """Return what strikes nodes."""
        return self.service.events(NODE)

    def apply_event(self, kind: int, number: int) -> None:
        """Let a node fail, be reclaimed or drained, or come back; or replace the pods that it had."""
        if kind == REPLACED:
            self._replace(number)
            return
        node, what = self.service.apply_event(number, self.now)
        if what == BACK:
            for failure in [failure for failure, (where, _) in self._lost.items() if where == node]:
                self._replace(failure)
        elif what != DRAIN:
            self._fail(number, node, saved=what == RECLAIM)
        state, was = self.service.state[node], node in self.cache.closed
        self.cache.set_service(node, state)
        if (node in self.cache.closed) != was:
            for flavor, forest in self.state.forests.by_flavor.items():
                if self.nodes.of_flavor[flavor][node]:
                    forest.count(self.nodes.node_in(flavor, node), 1 if was else -1)
        if state == IN_SERVICE:
            self._freed, self._known = True, {}
            for queue in self.queues.values():
                queue.retry()

    def _fail(self, failure: int, node: int, *, saved: bool) -> None:
        """End what runs on a node."""
        jobs = dict.fromkeys(int(name.partition("/")[0]) for name in self.cache.pods[node])
        for k in jobs:
            for stay in self.bound[k]:
                if stay is not None and stay.node == node:
                    stay.end = min(stay.end, self.now)
            if not self.log.running(k):
                continue
            self.interrupt(k, saved=saved)
            self.work[k].failures += 1
            run = self.holding[k][1]
            run.end = math.inf
            if run.preempted:  # it was leaving
                run.end = self.now
                self._at(self.now, GONE, k)
        self._lost[failure] = node, {k: self.bound[k] for k in jobs}
        self.events.push(self.now if saved else self.now + REPLACED_AFTER, REPLACED, failure)

    def _replace(self, failure: int) -> None:
        """Make the pods anew of jobs that a failure ended, unless they are gone."""
        for k, pods in self._lost.pop(failure, (-1, {}))[1].items():
            if self.bound.get(k) is not pods:
                continue
            admitted, run = self.holding[k]
            if run.placement and not run.preempted:
                admitted.evicted = run.preempted = run.failed = True
                run.end = self.now
                self._at(self.now, GONE, k)
            elif not run.preempted:
                self._unbind(k, pods)
                self.bound[k] = [None] * len(pods)
                self._without_nodes += [] if k in self._without_nodes else [k]

    # -- pods --------------------------------------------------------------------------------------------------------

    def _schedule(self) -> None:
        if self._freed:
            self._freed = False
            waiting, self._without_nodes = sorted(self._without_nodes, key=self._order), []
            for k in waiting:
                if not self.holding[k][0].evicted:  # its pods are deleted, and those without a node go at once
                    self._bind(k)
        super()._schedule()

    def _order(self, k: int) -> tuple[int, float]:
        return (-self.workloads[k].priority, self.holding[k][1].admitted)

    def _bind(self, k: int) -> None:
        mine, places = self.bound[k], self._places(k)
        for number, place in enumerate(places):
            if mine[number] is not None:
                continue
            pod = replace(self._pod(k, place), name=f"{k}/{number}")
            node = self._node(k, number, pod)
            if node < 0:
                self._without_nodes.append(k)
                return
            self.cache.add(pod, node)
            mine[number] = self.log.bind(k, node, pod.requests.get(GPU, 0), self.now)
        stays = [stay for stay in mine if stay is not None and stay.end > self.now]
        if len(stays) == len(mine):
            super().begin(k, stays)

    def _node(self, k: int, number: int, pod: SchedulingPod) -> int:
        """Return where a pod goes, or is if its job runs when it comes; -1: nowhere."""
        if k in self._running and fitting(self.cache, pod)[node := self._running[k][0][number]]:
            return node
        best = decide(self.cache, pod, self.profile).best
        return int(self._draw.choice(best)) if len(best) else -1

    def _places(self, k: int) -> list[Labels]:
        """The labels of the domain of each pod, where it has one: Kueue writes them into the pod's node selector."""
        found: list[Labels] = []
        for seats in self.holding[k][1].placement:
            levels = self.state.forests.by_flavor[seats.flavor].topology.levels
            domain = tuple(Requirement(key, "In", (at,)) for key, at in zip(levels, seats.domain, strict=True))
            found += [domain] * seats.count
        return found or [()] * self.holding[k][1].count

    def _pod(self, k: int, domain: Labels) -> SchedulingPod:
        """The pod of a job, which goes to nodes of the flavors it was given, and of its domain."""
        flavors = sorted({flavor for flavor, _ in self.holding[k][0].usage})
        wanted = tuple(Requirement(f"{FLAVOR}-{name}", "Exists") for name in flavors)
        pod = self.pods[k]
        return replace(pod, selector=Selector((*pod.selector.labels, *wanted, *domain), pod.selector.fields))


def _labelled(site: NodeSite) -> list[SchedulingNode]:
    def labels(k: int) -> dict[str, str]:
        return {f"{FLAVOR}-{name}": "" for name, has in site.of_flavor.items() if has[k]}

    return [replace(node, labels={**node.labels, **labels(k)}) for k, node in enumerate(site.nodes)]
