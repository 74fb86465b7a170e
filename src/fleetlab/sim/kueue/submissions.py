"""Jobs of a trace as Kueue's workloads: through which queue they come, and what counts against quota.

A job's `queue` is the LocalQueue it names, as NAMESPACE/NAME or by its name, which is looked for in the namespace that
is its group or user and then anywhere, if no other has that name; or a ClusterQueue by its name. A job without a queue
takes the LocalQueue of the namespace that is its group or user, `default` if there are several, or the ClusterQueue of
that name. Where there is a single ClusterQueue, a job that names nothing known takes that.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import polars as pl

from fleetlab.core import Cluster
from fleetlab.core.kubernetes import CPU, MEMORY, Requirement, Selector
from fleetlab.core.kueue import ClusterQueue, Kueue, LocalQueue
from fleetlab.core.kueue_workload import KueueWorkload, PodSet
from fleetlab.sim.kubernetes.specs import Specs
from fleetlab.sim.kubernetes.state import Bools
from fleetlab.sim.world import World

MIB = 2**20
GPU = "nvidia.com/gpu"
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
