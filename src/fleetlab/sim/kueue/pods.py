"""Kueue with nodes: kube-scheduler places the pods of what is admitted, one by one, and a job begins with its last."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from fleetlab.core.kubernetes import Requirement, SchedulingNode, SchedulingPod, Selector
from fleetlab.core.kueue_workload import KueueWorkload
from fleetlab.sim.kubernetes.decide import decide
from fleetlab.sim.kubernetes.play import pods_of
from fleetlab.sim.kubernetes.state import Cache
from fleetlab.sim.kueue.loop import Loop, WorkloadRun
from fleetlab.sim.kueue.site_topology import NodeSite
from fleetlab.sim.kueue.submissions import FLAVOR
from fleetlab.sim.layout import TICK
from fleetlab.sim.world import World

Labels = tuple[Requirement, ...]


@dataclass
class BoundPods:
    """The nodes of a job's pods in one run, and since when it has each."""

    run: WorkloadRun
    nodes: list[int] = field(default_factory=list)
    since: list[float] = field(default_factory=list)


class PodLoop(Loop):
    """A simulation in which pods need nodes; those that find none are tried again when others leave theirs."""

    def __init__(
        self, site: NodeSite, workloads: list[KueueWorkload], world: World, graces: list[float], seed: int
    ) -> None:
        super().__init__(site, workloads, world.runtime.tolist(), seed)
        self.profile = site.kueue.pods
        self.cache = Cache(_labelled(site))
        self.pods = pods_of(world)
        self.latency = world.latency.tolist()
        self.graces = graces  # of each job: how long its pods take to leave
        self.bound: dict[int, BoundPods] = {}
        self.history: list[BoundPods] = []  # all of them, in the order in which they were admitted
        self._without_nodes: list[int] = []
        self._freed = False
        self._draw = np.random.default_rng(seed)

    def begin(self, k: int) -> None:
        """Place the pods; the job begins once all have a node."""
        self.bound[k] = BoundPods(self.holding[k][1])
        self.history.append(self.bound[k])
        self._bind(k)

    def seconds(self, k: int, stretch: float) -> float:
        """How long a job runs: to start takes as long with fewer pods."""
        return float(self.latency[k] + round((self.run[k] - self.latency[k]) * stretch / TICK) * TICK)

    def grace(self, k: int) -> float:
        """How long the pods of a job take to leave: none at all where none has a node."""
        return self.graces[k] if k in self.bound and self.bound[k].nodes else 0.0

    def left(self, k: int) -> None:
        """Take the pods off their nodes."""
        if k in self._without_nodes:
            self._without_nodes.remove(k)
        if k in self.bound:
            for number in range(len(self.bound.pop(k).nodes)):
                self.cache.remove(f"{k}/{number}")
        self._freed = True

    def _schedule(self) -> None:
        if self._freed:
            self._freed = False
            waiting, self._without_nodes = sorted(self._without_nodes, key=self._order), []
            for k in waiting:
                if not self.holding[k][0].evicted:  # its pods are deleted, and those without a node go at once
                    self._bind(k)
        super()._schedule()

    def _order(self, k: int) -> tuple[int, float]:
        return (-self.workloads[k].priority, self.bound[k].run.admitted)

    def _bind(self, k: int) -> None:
        mine = self.bound[k]
        places = self._places(k)
        while len(mine.nodes) < mine.run.count:
            pod = replace(self._pod(k, places[len(mine.nodes)]), name=f"{k}/{len(mine.nodes)}")
            best = decide(self.cache, pod, self.profile).best
            if not len(best):
                self._without_nodes.append(k)
                return
            node = int(self._draw.choice(best))
            self.cache.add(pod, node)
            mine.nodes.append(node)
            mine.since.append(self.now)
        super().begin(k)

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
