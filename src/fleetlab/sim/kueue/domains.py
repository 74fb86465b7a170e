"""Domains of a topology, and pods that are placed in them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from fleetlab.core.kubernetes import HOSTNAME, SchedulingNode, Taint
from fleetlab.core.kueue import ResourceFlavor, Topology
from fleetlab.core.kueue_workload import PodSet

MIXED, BEST_FIT, LEAST_FREE = "Mixed", "BestFit", "LeastFreeCapacity"
KEEPS_OFF = ("NoSchedule", "NoExecute")


@dataclass(frozen=True)
class TopologyNeed:
    """Pods that are to be placed in a flavor."""

    flavor: str
    pod_set: PodSet
    count: int


@dataclass(frozen=True)
class Seats:
    """Pods of a set in one domain."""

    flavor: str
    domain: tuple[str, ...]
    requests: Mapping[str, int]  # of each pod
    count: int


Placement = tuple[Seats, ...]


@dataclass(frozen=True)
class PlacementResult:
    """Where pods go, or why they do not fit."""

    placement: Placement | None
    reason: str = ""


@dataclass(eq=False)
class Domain:
    """A place, with its room while pods are being placed: in pods, and in slices of several."""

    values: tuple[str, ...]
    children: list[Domain] = field(default_factory=list)
    capacity: dict[str, int] = field(default_factory=dict)  # of a narrowest domain
    used: dict[str, int] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)  # of a node
    taints: tuple[Taint, ...] = ()
    pods: int = 0
    slices: int = 0


class DoesNotFit(Exception):
    """Pods cannot be placed; the message says why."""


@dataclass
class Forest:
    """The domains of one flavor."""

    topology: Topology
    flavor: ResourceFlavor
    levels: list[dict[tuple[str, ...], Domain]]

    @classmethod
    def of(cls, topology: Topology, flavor: ResourceFlavor, nodes: Iterable[SchedulingNode]) -> Forest:
        """Build the domains of the nodes that have the flavor's labels, and all labels of the topology."""
        made = cls(topology, flavor, [{} for _ in topology.levels])
        for node in nodes:
            wanted = {**dict.fromkeys(topology.levels), **flavor.labels}
            if node.cordoned or any(
                node.labels.get(k) is None or (v and node.labels[k] != v) for k, v in wanted.items()
            ):
                continue
            made._add(node)
        return made

    @property
    def ends_at_nodes(self) -> bool:
        """Whether the narrowest level is the node."""
        return self.topology.levels[-1] == HOSTNAME

    def _add(self, node: SchedulingNode) -> None:
        values = tuple(node.labels[key] for key in self.topology.levels)
        for depth, level in enumerate(self.levels):
            if values[: depth + 1] not in level:
                level[values[: depth + 1]] = Domain(values[: depth + 1])
                if depth:
                    self.levels[depth - 1][values[:depth]].children.append(level[values[: depth + 1]])
        leaf = self.levels[-1][values]
        for name, amount in node.allocatable.items():
            leaf.capacity[name] = leaf.capacity.get(name, 0) + amount
        if self.ends_at_nodes:
            leaf.labels, leaf.taints = node.labels, node.taints
