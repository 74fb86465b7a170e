"""Topologies on the nodes of a cluster: where nodes lie by their labels, and how close jobs ask to lie.

Labels of nodes are features `key=value` of the cluster, or those that the trace carries of its nodes. What a job asks
for is in the annotations of its pods, where the trace carries those.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from fleetlab.core import Cluster, Scenario
from fleetlab.core.kubernetes import HOSTNAME, SchedulingNode, SchedulingPod, Selector
from fleetlab.core.kueue import Kueue
from fleetlab.core.kueue_workload import KueueWorkload, PodSet, TopologyRequest
from fleetlab.sim.kubernetes.specs import Specs
from fleetlab.sim.kubernetes.state import Bools
from fleetlab.sim.kueue.domains import Forest
from fleetlab.sim.kueue.loop import KueueSite
from fleetlab.sim.kueue.submissions import FLAVOR
from fleetlab.sim.kueue.topology import Forests
from fleetlab.sim.world import World


@dataclass(frozen=True)
class NodeSite(KueueSite):
    """A site on the nodes of a cluster, each of which may be of several flavors."""

    of_flavor: Mapping[str, Bools] = field(default_factory=dict)

    def forests(self) -> Forests:
        """The topologies with all nodes empty; one whose labels no node has is passed over."""
        made = {}
        for name, mask in self.of_flavor.items():
            topology = self.kueue.topologies.get(self.kueue.flavor(name).topology or "")
            if topology is None:
                continue
            mine = [node for node, has in zip(self.nodes, mask, strict=True) if has]
            labelled = [replace(node, labels={**node.labels, FLAVOR: name}) for node in mine]
            forest = Forest.of(topology, self.kueue.flavor(name), labelled)
            if forest.levels[-1]:
                made[name] = forest
        return Forests(made, self.profile)


def _labels(cluster: Cluster, specs: Specs, keys: set[str]) -> list[dict[str, str]]:
    """The labels of each node, of those that topologies name."""
    found = []
    for name, features in cluster.frame.select("node", "features").iter_rows():
        told = {key: value for key, sign, value in (one.partition("=") for one in features) if sign}
        own = specs.nodes[name].labels if name in specs.nodes else {}
        found.append({key: value for key, value in {HOSTNAME: name, **told, **own}.items() if key in keys})
    return found


def with_levels(
    nodes: Sequence[SchedulingNode], site: Kueue, cluster: Cluster, specs: Specs
) -> Sequence[SchedulingNode]:
    """Return nodes with the labels that topologies name."""
    keys = {key for topology in site.topologies.values() for key in topology.levels}
    if not keys:
        return nodes
    labels = _labels(cluster, specs, keys)
    return [replace(node, labels={**node.labels, **more}) for node, more in zip(nodes, labels, strict=True)]


def requests_of(world: World, specs: Specs) -> dict[int, TopologyRequest]:
    """What the pods of each job ask for, by its row; jobs that ask for nothing are left out."""
    asked = [TopologyRequest.of_annotations(created.annotations) for _, created in specs.pods]
    if not any(asked):
        return {}
    found = {}
    for k, job in enumerate(world.frame["job"].to_list()):
        if job in specs.of_job and (one := asked[specs.of_job[job]]) is not None:
            found[k] = one
    return found


def with_requests(
    workloads: Sequence[KueueWorkload], pods: Sequence[SchedulingPod], asked: Mapping[int, TopologyRequest]
) -> list[KueueWorkload]:
    """Return workloads with how close they ask to lie, which nodes they may use and what they take there."""

    def placed(k: int, one: PodSet) -> PodSet:
        selector = Selector((*one.selector.labels, *pods[k].selector.labels), pods[k].selector.fields)
        return replace(one, selector=selector, topology=asked.get(k), on_node=pods[k].requests)

    return [
        replace(one, pod_sets=tuple(placed(k, pod_set) for pod_set in one.pod_sets)) for k, one in enumerate(workloads)
    ]


def topology_notes(site: Kueue, s: Scenario) -> list[str]:
    """Say which flavors have a topology that is nowhere, so that pods go where kube-scheduler puts them."""
    notes = []
    for flavor in site.flavors.values():
        if flavor.topology is None:
            continue
        topology = site.topologies.get(flavor.topology)
        if topology is None:
            notes.append(f"Topology {flavor.topology} of flavor {flavor.name} is not there: it is simulated without")
        elif not any(set(topology.levels) <= one.keys() for one in _labels(s.cluster, Specs.of(s), {*topology.levels})):
            levels = ", ".join(topology.levels)
            notes.append(f"no node has all labels of Topology {topology.name} ({levels}): it is simulated without")
    return notes
