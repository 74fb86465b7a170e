"""Jobs of a trace as Kueue's workloads: through which queue they come, and what counts against quota.

A job's `queue` is the LocalQueue it names, as NAMESPACE/NAME or by its name, which is looked for in the namespace that
is its group or user and then anywhere, if no other has that name; or a ClusterQueue by its name. A job without a queue
takes the LocalQueue of the namespace that is its group or user, `default` if there are several, or the ClusterQueue of
that name. Where there is a single ClusterQueue, a job that names nothing known takes that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import polars as pl

from fleetlab.core import Cluster, PolicyError, Scenario
from fleetlab.schedulers.kubernetes.config import (
    CPU,
    GPU,
    HOSTNAME,
    MEMORY,
    Requirement,
    SchedulingNode,
    SchedulingPod,
    Selector,
)
from fleetlab.schedulers.kubernetes.specs import Specs
from fleetlab.schedulers.kubernetes.state import Bools
from fleetlab.schedulers.kueue.config import ClusterQueue, Kueue, LocalQueue
from fleetlab.schedulers.kueue.loop import KueueSite
from fleetlab.schedulers.kueue.topology import Forest, Forests
from fleetlab.schedulers.kueue.workload import KueueWorkload, PodSet, TopologyRequest
from fleetlab.sim.world import World

MIB = 2**20
FLAVOR = "fleetlab/flavor"  # a label that says of which flavor a node is
AMOUNTS = {CPU: ("cpu", 1), MEMORY: ("memory", MIB), "ephemeral-storage": ("disk", MIB), "rdma/hca": ("rdma", 1)}


def queue_of(site: Kueue, queue: str | None, owners: Iterable[str | None]) -> str | None:
    """The ClusterQueue that a job comes to, by the queue it names and by its group and user; None: no queue is its."""
    namespaces = [name for name in owners if name]
    local = _local_queue(site, queue, namespaces)
    if local is not None:
        return local.cluster_queue
    named = [name for name in (queue, *namespaces) if name in site.cluster_queues]
    if named:
        return named[0]
    return next(iter(site.cluster_queues)) if len(site.cluster_queues) == 1 else None


def _local_queue(site: Kueue, queue: str | None, namespaces: list[str]) -> LocalQueue | None:
    queues = site.local_queues
    if queue is not None:
        keys = [queue, *(f"{namespace}/{queue}" for namespace in namespaces)]
        found = next((queues[key] for key in keys if key in queues), None)
        alike = [one for one in queues.values() if one.name == queue]
        return found or (alike[0] if len(alike) == 1 else None)
    for namespace in namespaces:
        own = [one for one in queues.values() if one.namespace == namespace]
        default = [one for one in own if one.name == "default"]
        if len(own) == 1 or default:
            return (default or own)[0]
    return None


def queues_of(site: Kueue, frame: pl.DataFrame) -> list[str | None]:
    """The ClusterQueue of each job; None: it is refused."""
    columns = [frame[name].cast(pl.String).to_list() for name in ("queue", "group", "user")]
    known: dict[tuple[str | None, ...], str | None] = {}
    found = []
    for row in zip(*columns, strict=True):
        if row not in known:
            known[row] = queue_of(site, row[0], row[1:])
        found.append(known[row])
    return found


def flavor_nodes(site: Kueue, cluster: Cluster) -> dict[str, Bools]:
    """Which nodes each flavor has: those with all its labels that the cluster knows of at all."""
    rows = cluster.frame.select("features", "gpu_type").rows()
    found = {}
    for flavor in {name for queue in site.cluster_queues.values() for group in queue.groups for name in group.flavors}:
        labels = site.flavor(flavor).labels.items()
        known = [label for label in labels if any(_about(features, kind, label[0]) for features, kind in rows)]
        meets = [all(_has(features, kind, *label) for label in known) for features, kind in rows]
        found[flavor] = np.array(meets, dtype=bool)
    return found


def _is_model(key: str) -> bool:
    return "gpu" in key.lower() or "accelerator" in key.lower()


def _about(features: list[str], gpu_type: str | None, key: str) -> bool:
    """Whether a node tells anything of a label."""
    return any(one.startswith(f"{key}=") for one in features) or (gpu_type is not None and _is_model(key))


def _has(features: list[str], gpu_type: str | None, key: str, value: str) -> bool:
    model = gpu_type is not None and _is_model(key) and gpu_type.lower() in value.lower()
    return f"{key}={value}" in features or model


def workloads_of(world: World, site: Kueue, nodes: dict[str, Bools], queues: list[str | None]) -> list[KueueWorkload]:
    """The jobs as workloads of one set of pods each; those without a queue are given any, and never submitted."""
    sets: dict[tuple[int, int, str], PodSet] = {}
    if not site.cluster_queues:
        msg = "a configuration of Kueue without a ClusterQueue admits no job"
        raise PolicyError(msg, hint="`kubectl get clusterqueues,resourceflavors,localqueues -A -o json` has them")
    made = []
    other = next(iter(site.cluster_queues))
    for k, name in enumerate(queues):
        queue = site.cluster_queues[name or other]
        key = (int(world.shape[k]), int(world.instances[k]), queue.name)
        if key not in sets:
            sets[key] = _pod_set(world, queue, nodes, key[0], key[1])
        made.append(KueueWorkload(str(k), queue.name, (sets[key],), int(world.priority[k])))
    return made


def with_least(workloads: list[KueueWorkload], world: World, specs: Specs) -> list[KueueWorkload]:
    """Return workloads with the least number of pods that will do, where the trace tells it."""
    made = list(workloads)
    for k, job in enumerate(world.frame["job"].to_list() if specs.parallelism else ()):
        if (given := specs.parallelism.get(job)) is not None and given.count == world.instances[k]:
            sets = [replace(one, min_count=given.least, completions=given.completions) for one in made[k].pod_sets]
            made[k] = replace(made[k], pod_sets=tuple(sets))
    return made


def _pod_set(world: World, queue: ClusterQueue, nodes: dict[str, Bools], shape: int, count: int) -> PodSet:
    row = world.shapes[shape]
    covered = [resource for group in queue.groups for resource in group.covered]
    requests = {name: int(row[column]) * unit for name, (column, unit) in AMOUNTS.items() if name in covered}
    if row["gpus"]:
        requests[gpu_resource(covered)] = int(row["gpus"])
    mine = (world.nodes.node_class & int(row["types"])) > 0
    names = [name for group in queue.groups for name in group.flavors]
    usable = [name for name in names if (nodes[name] & mine).any()]
    selector = Selector() if len(usable) == len(names) else Selector((Requirement(FLAVOR, "In", tuple(usable)),))
    return PodSet("main", count, {name: amount for name, amount in requests.items() if amount}, selector=selector)


def gpu_resource(covered: list[str]) -> str:
    """The name under which a ClusterQueue counts GPUs."""
    return next((name for name in covered if name.endswith("/gpu")), GPU)


# -- topologies on the nodes of a cluster: where nodes lie by their labels, and how close jobs ask to lie --------------
# Labels of nodes are features `key=value` of the cluster, or those that the trace carries of its nodes. What a job asks
# for is in the annotations of its pods, where the trace carries those.


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
            mine = [k for k, has in enumerate(mask) if has]
            forest = Forest.of(topology, self.kueue.flavor(name), [self.node_in(name, k) for k in mine])
            if forest.levels[-1]:
                made[name] = forest
        return Forests(made, self.profile)

    def node_in(self, flavor: str, node: int) -> SchedulingNode:
        """Return a node as a flavor has it."""
        return replace(self.nodes[node], labels={**self.nodes[node].labels, FLAVOR: flavor})


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
