"""One cycle of kube-scheduler: the nodes that fit a pod, their scores, and the set of best ones it draws from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fleetlab.core.kubernetes import KubeScheduler, SchedulingPod
from fleetlab.sim.kubernetes.filters import feasible
from fleetlab.sim.kubernetes.scores import PLUGINS
from fleetlab.sim.kubernetes.state import Cache, Ints


@dataclass(frozen=True)
class Decision:
    """Nodes that fit, by number, and what each plugin gives them, times its weight."""

    nodes: Ints
    scores: dict[str, Ints]

    @property
    def total(self) -> Ints:
        """The sum of all scores of each node."""
        return sum(self.scores.values(), np.zeros(len(self.nodes), np.int64))

    @property
    def best(self) -> Ints:
        """The nodes with the highest sum: where there are several, kube-scheduler draws one."""
        return self.nodes[self.total == self.total.max()] if len(self.nodes) else self.nodes


def decide(cache: Cache, pod: SchedulingPod, profile: KubeScheduler, among: Ints | None = None) -> Decision:
    """Filter and score; `among` are the nodes that it looked at, where it did not look at all."""
    nodes = np.flatnonzero(feasible(cache, pod))
    if among is not None:
        nodes = np.intersect1d(nodes, among)
    if len(nodes) < 2:  # a single node is taken as it is
        return Decision(nodes, {})
    weights = {name: weight for name, weight in profile.weights.items() if name in PLUGINS}
    return Decision(nodes, {name: w * PLUGINS[name](cache, pod, nodes, profile) for name, w in weights.items()})
