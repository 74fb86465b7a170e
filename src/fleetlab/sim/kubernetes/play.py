"""Play a world by kube-scheduler: jobs are pods, and the schedule is handed back as by every loop."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from fleetlab.core import Cluster, Progress
from fleetlab.core.kubernetes import (
    ASSUMED,
    CPU,
    HOSTNAME,
    JOB_BACKOFF,
    MEMORY,
    KubeScheduler,
    Requirement,
    SchedulingNode,
    SchedulingPod,
    Selector,
)
from fleetlab.core.progress import silent
from fleetlab.sim.kubernetes.creations import creations
from fleetlab.sim.kubernetes.loop import Loop, Placed, PodRun, Site
from fleetlab.sim.kubernetes.owners import Owners
from fleetlab.sim.kubernetes.specs import Specs
from fleetlab.sim.layout import DONE, RUNNING, WAITING, Floats, Ints
from fleetlab.sim.schedule import Played, Segments
from fleetlab.sim.world import World

CLASS, GPU_MEMORY = "fleetlab/class", "fleetlab/gpu-memory-mib"  # labels: what jobs tell nodes apart by
NODE_SLOTS = "fleetlab/node"  # a resource of which a pod takes one, and one that wants a node of its own all
SLOTS = 1 << 20
PODS = 110  # that a kubelet runs at most, by default
MIB = 2**20
RESOURCES = {CPU: ("cpu", 1), MEMORY: ("memory", MIB), "ephemeral-storage": ("disk", MIB), "rdma/hca": ("rdma", 1)}
GPU = "nvidia.com/gpu"


def play(
    world: World, profile: KubeScheduler, cluster: Cluster, *, specs: Specs | None = None, seed: int = 0,
    until: float | None = None, progress: Progress | None = None,
) -> Played:  # fmt: skip
    """Play a world of jobs of one instance each by kube-scheduler; `specs` is what the trace carries of its pods."""
    known = specs or Specs()
    created = creations(world, pods_of(world), profile, known)
    nodes = known.on_nodes(nodes_of(world, cluster))
    site = Site(nodes, profile, profile.budgets, controller=True)
    loop = Loop(site, created.pods, world.runtime.tolist(), seed)
    # The owner of an evicted pod makes a new one, unless the job says that it is not to run again.
    loop.comes_again = world.frame["requeue"].fill_null(value=True).to_list()
    if profile.admission.quotas:
        loop.owners = Owners(
            profile.admission.quotas, created.asked, world.frame["parent"].to_list(), JOB_BACKOFF[profile.release]
        )
    stop = math.inf if until is None else float(until)
    submit = np.where(created.refused > 0, math.inf, world.submit).tolist()
    placed = loop.play(submit, stop, progress or silent)
    return replace(_played(world, placed, until, created.refused), admitted=_admitted(world, loop))


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


# -- the schedule ------------------------------------------------------------------------------------------------------


def _played(world: World, placed: Placed, until: float | None, refused: Ints) -> Played:
    stop = math.inf if until is None else float(until)
    count, requests = len(world.submit), world.shapes.gpus[world.shape]
    runs = [run for run in placed.runs if run.begin < stop]
    bits = gpu_bits(runs, requests, world)
    start, end, last = _numbers(placed.start), np.full(count, np.nan), np.full(count, -1)
    preemptions, lost, cut = np.zeros(count, np.int64), np.zeros(count), np.zeros(count, np.int64)
    for k, run in enumerate(runs):
        if last[run.pod] >= 0:  # it was evicted, and came again
            before = runs[last[run.pod]]
            preemptions[run.pod] += 1
            lost[run.pod] += before.end - before.begin
        last[run.pod] = k
    for pod in np.flatnonzero(last >= 0).tolist():
        run = runs[last[pod]]
        if run.end <= stop:
            gone = placed.preempted[pod] < run.end or run.end - run.begin < world.runtime[pod]
            end[pod], cut[pod] = run.end, int(gone)
    status = np.where(~np.isnan(end), DONE, np.where(last >= 0, RUNNING, WAITING))
    where = np.array([runs[k].node if k >= 0 else -1 for k in last], np.int64)
    got = np.array([bits[k] if k >= 0 else 0 for k in last], np.int64)
    stopped = None
    if not (status[refused == 0] == DONE).all():
        stopped = float(until) if until is not None else max((run.end for run in runs), default=0.0)
    return Played(
        start=start, end=end, status=status, where=where, got=got, preemptions=preemptions,
        failures=np.zeros(count, np.int64), lost=lost, cut=cut if cut.any() else None, until=stopped,
        refused=refused if refused.any() else None,
        segments=_segments(runs, bits, stopped) if preemptions.any() else None,
    )  # fmt: skip


def _numbers(times: list[float]) -> Floats:
    found = np.array(times, np.float64)
    return np.where(np.isinf(found), np.nan, found)


def _segments(runs: list[PodRun], bits: Ints, stopped: float | None) -> Segments:
    latest = math.inf if stopped is None else stopped
    order = np.lexsort(([run.begin for run in runs], [run.pod for run in runs]))
    mine = [runs[k] for k in order]
    return Segments(
        np.array([run.pod for run in mine], np.int64), np.array([run.begin for run in mine]),
        np.array([min(run.end, latest) for run in mine]), np.arange(len(mine) + 1),
        np.array([run.node for run in mine], np.int64), bits[order],
    )  # fmt: skip


def gpu_bits(runs: list[PodRun], requests: Ints, world: World) -> Ints:
    """Return which GPUs of its node each run has: the first that are free."""
    free = [(1 << int(gpus)) - 1 for gpus in world.nodes.idle_gpus]
    bits = np.zeros(len(runs), np.int64)
    # At one moment runs end before others begin; those that take no time keep nothing from others.
    ends = [(run.end, 0, k) for k, run in enumerate(runs) if run.end > run.begin]
    for _, begins, k in sorted([*ends, *((run.begin, 1, k) for k, run in enumerate(runs))]):
        run = runs[k]
        if not begins:
            free[run.node] |= int(bits[k])
            continue
        mine, left = 0, free[run.node]
        for _ in range(int(requests[run.pod])):
            lowest = left & -left
            mine, left = mine | lowest, left ^ lowest
        bits[k] = mine
        if run.end > run.begin:
            free[run.node] = left
    return bits
