"""Play a world by kube-scheduler: jobs are pods, and the schedule is handed back as by every loop."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fleetlab.core import Cluster, Progress
from fleetlab.core.events import Event, Recovery
from fleetlab.core.progress import silent
from fleetlab.schedulers.kubernetes.config import (
    ASSUMED,
    CPU,
    GPU,
    HOSTNAME,
    JOB_BACKOFF,
    MEMORY,
    KubeScheduler,
    Requirement,
    SchedulingNode,
    SchedulingPod,
    Selector,
)
from fleetlab.schedulers.kubernetes.creations import creations
from fleetlab.schedulers.kubernetes.loop import Loop, Site
from fleetlab.schedulers.kubernetes.quota import Owners
from fleetlab.schedulers.kubernetes.specs import Specs
from fleetlab.sim.kernel.service import NodeService
from fleetlab.sim.kernel.work import Checkpoints
from fleetlab.sim.layout import Floats
from fleetlab.sim.schedule import Schedule
from fleetlab.sim.world import World

CLASS, GPU_MEMORY = "fleetlab/class", "fleetlab/gpu-memory-mib"  # labels: what jobs tell nodes apart by
NODE_SLOTS = "fleetlab/node"  # a resource of which a pod takes one, and one that wants a node of its own all
SLOTS = 1 << 20
PODS = 110  # that a kubelet runs at most, by default
MIB = 2**20
RESOURCES = {CPU: ("cpu", 1), MEMORY: ("memory", MIB), "ephemeral-storage": ("disk", MIB), "rdma/hca": ("rdma", 1)}


def play(
    world: World, profile: KubeScheduler, cluster: Cluster, *, specs: Specs | None = None, events: Sequence[Event] = (),
    recovery: Recovery | None = None, seed: int = 0, until: float | None = None, progress: Progress | None = None,
) -> Schedule:  # fmt: skip
    """Play a world of jobs of one instance each by kube-scheduler; `specs` is what the trace carries of its pods."""
    known, rules = specs or Specs(), Checkpoints.of(recovery)
    created = creations(world, pods_of(world), profile, known)
    nodes = known.on_nodes(nodes_of(world, cluster))
    site = Site(nodes, profile, profile.budgets, controller=True)
    service = NodeService(world, cluster, events, title=profile.title, save=rules.save, seed=seed)
    loop = Loop(site, created.pods, world.runtime.tolist(), seed, service, rules)
    loop.bound = {pod: int(place.node[0]) for pod, place in world.places().items()}
    # The owner of an evicted pod makes a new one, unless the job says that it is not to run again.
    loop.requeues = world.frame["requeue"].fill_null(value=True).to_list()
    if profile.admission.quotas:
        loop.owners = Owners(
            profile.admission.quotas, created.asked, world.frame["parent"].to_list(), JOB_BACKOFF[profile.release]
        )
    submit = np.where(created.refused > 0, math.inf, world.submit).tolist()
    placed = loop.play(submit, math.inf if until is None else float(until), progress or silent)
    return loop.log.finish(
        world, loop.work, rules, end=np.where(placed.done, placed.end, np.nan), until=until, service=service,
        admitted=_admitted(world, loop), cut=np.array(placed.cut, np.int64) if any(placed.cut) else None,
        refused=created.refused if created.refused.any() else None,
    )  # fmt: skip


def _admitted(world: World, loop: Loop) -> Floats | None:
    """Since when each pod is there, where some were refused at first: until then it waits for quota."""
    if loop.owners is None or not any(loop.owners.refusals):
        return None
    found = world.submit.astype(np.float64)
    for pod, at in loop.placed.created.items():
        found[pod] = at
    found[loop.owners.waiting()] = math.inf
    return found


# -- pods and nodes ----------------------------------------------------------------------------------------------------


def nodes_of(world: World, cluster: Cluster) -> list[SchedulingNode]:
    """Return the nodes as kube-scheduler sees them; a label says which jobs may use them."""
    limits = _app_limits(world)
    names, memory = cluster.frame["node"].to_list(), cluster.frame["gpu_memory_mib"].to_list()
    has = {name: (world.nodes[f"free_{column}"] * unit).tolist() for name, (column, unit) in RESOURCES.items()}
    has[GPU] = world.nodes.idle_gpus.tolist()
    classes = world.nodes.node_class.tolist()
    return [
        SchedulingNode(
            name,
            {resource: amounts[k] for resource, amounts in has.items()} | limits | {"pods": PODS, NODE_SLOTS: SLOTS},
            {HOSTNAME: name, CLASS: str(classes[k]), GPU_MEMORY: str(memory[k])},
        )
        for k, name in enumerate(names)
    ]


def _app_limits(world: World) -> dict[str, int]:
    """Return how many pods of an app a node may have, as amounts of a resource."""
    limits: dict[str, int] = {}
    for limit, app in zip(world.shapes.per_node.tolist(), world.shapes.app.tolist(), strict=True):
        if limit > 0:
            limits[_app(app)] = min(limit, limits.get(_app(app), limit))
    return limits


def _app(number: int) -> str:
    return f"fleetlab/app-{number}"


def pods_of(world: World) -> list[SchedulingPod]:
    """Return the jobs as pods; those of one shape and priority ask for the same."""
    templates: dict[tuple[int, int], SchedulingPod] = {}
    classes = sorted({int(bit) for bit in world.nodes.node_class})
    frame = world.frame
    pods = []
    for shape, priority in zip(world.shape.tolist(), world.priority.tolist(), strict=True):
        if (shape, priority) not in templates:
            templates[shape, priority] = _pod(world.shapes[shape], priority, classes)
        pods.append(templates[shape, priority])
    users, apps = frame["user"].cast(str).fill_null("default").to_list(), frame["app"].to_list()
    return [
        replace(pod, name=str(k), namespace=users[k], labels={"app": apps[k]} if apps[k] else {})
        for k, pod in enumerate(pods)
    ]


def _pod(shape: np.record, priority: int, classes: list[int]) -> SchedulingPod:
    requests = {name: int(shape[column]) * unit for name, (column, unit) in RESOURCES.items() if shape[column]}
    if shape["gpus"]:
        requests[GPU] = int(shape["gpus"])
    requests[NODE_SLOTS] = SLOTS if shape["exclusive"] else 1
    if shape["per_node"] > 0:
        requests[_app(int(shape["app"]))] = 1
    mine = [str(bit) for bit in classes if bit & int(shape["types"])]
    conditions = [Requirement(CLASS, "In", tuple(mine))] if len(mine) < len(classes) else []
    if shape["gpu_memory"]:
        conditions.append(Requirement(GPU_MEMORY, "Gt", (str(int(shape["gpu_memory"]) - 1),)))
    return SchedulingPod(
        "", priority=priority, requests=requests,
        scored={name: requests.get(name, least) for name, least in ASSUMED.items()},
        selector=Selector(tuple(conditions)),
    )  # fmt: skip
