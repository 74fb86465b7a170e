"""Play a world by Kueue: jobs are workloads, and the schedule is handed back as by every loop."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from fleetlab.core import Cluster, Progress
from fleetlab.core.catalog.reasons import ABOVE_CLUSTER_QUEUE, EVICTED_WITHOUT_END, NO_QUEUE, REFUSALS
from fleetlab.core.kueue import Kueue
from fleetlab.core.kueue_workload import KueueWorkload
from fleetlab.core.progress import silent
from fleetlab.sim.kubernetes.loop import PodRun
from fleetlab.sim.kubernetes.play import gpu_bits, nodes_of, pods_of
from fleetlab.sim.kubernetes.specs import Specs
from fleetlab.sim.kueue.assignment import Mode
from fleetlab.sim.kueue.flavors import FlavorAssigner
from fleetlab.sim.kueue.pods import BoundPods, PodLoop
from fleetlab.sim.kueue.site_topology import NodeSite, requests_of, with_levels, with_requests
from fleetlab.sim.kueue.state import Snapshot
from fleetlab.sim.kueue.submissions import FLAVOR, flavor_nodes, queues_of, with_least, workloads_of
from fleetlab.sim.layout import DONE, RUNNING, WAITING, Floats, Ints
from fleetlab.sim.schedule import Played, Segments
from fleetlab.sim.world import World


def play(
    world: World, site: Kueue, cluster: Cluster, *, specs: Specs | None = None, seed: int = 0,
    until: float | None = None, progress: Progress | None = None,
) -> Played:  # fmt: skip
    """Play a world of jobs by Kueue, on the nodes of a cluster; `specs` is what the trace carries of its pods."""
    known, queues, of_flavor = specs or Specs(), queues_of(site, world.frame), flavor_nodes(site, cluster)
    nodes = with_levels(nodes_of(world, cluster), site, cluster, known)
    on_nodes = NodeSite(with_flavor_names(site), nodes, of_flavor=of_flavor)
    workloads = workloads_of(world, site, of_flavor, queues)
    workloads = with_least(workloads, world, known)
    asked = requests_of(world, known)
    if asked or any(flavor.topology for flavor in site.flavors.values()):
        workloads = with_requests(workloads, pods_of(world), asked)
    refused = _refused(on_nodes, workloads, queues)
    loop = PodLoop(on_nodes, workloads, world, known.graces(world.frame["job"]), seed)
    submit = np.where(refused > 0, math.inf, world.submit).tolist()
    loop.play(submit, math.inf if until is None else float(until), progress or silent)
    refused[sorted(loop.played.withdrawn)] = REFUSALS.index(EVICTED_WITHOUT_END)
    return _played(world, loop, refused, until)


def with_flavor_names(site: Kueue) -> Kueue:
    """The site with flavors that are told apart by name: which of them a job may use is known from its nodes."""
    names = {name for queue in site.cluster_queues.values() for group in queue.groups for name in group.flavors}
    flavors = {n: replace(site.flavor(n), labels={FLAVOR: n}, taints=()) for n in sorted(names)}
    return replace(site, flavors=flavors)


def _refused(site: NodeSite, workloads: list[KueueWorkload], queues: list[str | None]) -> Ints:
    """Which jobs can never be admitted: the number of the reason, 0 for the others."""
    empty = Snapshot.of(site.kueue, forests=site.forests())
    known: dict[tuple[str, str], int] = {}
    found = np.zeros(len(workloads), np.int64)
    for k, (one, queue) in enumerate(zip(workloads, queues, strict=True)):
        if queue is None:
            found[k] = REFUSALS.index(NO_QUEUE)
            continue
        if (one.shape, queue) not in known:
            least = [each.count if each.min_count is None else each.min_count for each in one.pod_sets]
            fits = FlavorAssigner(empty, one, 0.0).assign(least).mode == Mode.FIT
            known[one.shape, queue] = 0 if fits else REFUSALS.index(ABOVE_CLUSTER_QUEUE)
        found[k] = known[one.shape, queue]
    return found


# -- the schedule ------------------------------------------------------------------------------------------------------


def _played(world: World, loop: PodLoop, refused: Ints, until: float | None) -> Played:
    count, stop = len(world.submit), math.inf if until is None else float(until)
    runs = [each for each in loop.history if each.run.begin <= stop and len(each.nodes) == each.run.count]
    runs.sort(key=lambda each: (each.run.workload, each.run.begin))
    held, bits = _held(world, loop, runs)
    start, end = (_numbers(times, stop) for times in (loop.played.start, loop.played.end))
    lost, where, got = np.zeros(count), np.full(world.first[-1], -1), np.zeros(world.first[-1], np.int64)
    for number, each in enumerate(runs):
        k, run = each.run.workload, each.run
        mine, own = slice(held[number], held[number + 1]), slice(world.first[k], world.first[k + 1])
        where[own], got[own] = -1, 0  # an earlier run may have had more pods
        own = slice(world.first[k], world.first[k] + run.count)
        where[own], got[own] = each.nodes, bits[mine]
        if run.preempted and run.end <= stop and run.end != loop.played.end[k]:
            lost[k] += run.end - run.begin
    status = np.where(~np.isnan(end), DONE, np.where([_runs_on(loop, k, stop) for k in range(count)], RUNNING, WAITING))
    stopped = None
    if not (status[refused == 0] == DONE).all():
        stopped = float(until) if until is not None else max((each.run.end for each in runs), default=0.0)
    preemptions = np.array(loop.played.evictions, np.int64)
    part = any(each.run.count < world.instances[each.run.workload] for each in runs)
    return Played(
        start=start, end=end, status=status, where=where, got=got, preemptions=preemptions,
        failures=np.zeros(count, np.int64), lost=lost, until=stopped, refused=refused if refused.any() else None,
        segments=_segments(world, runs, held, bits, stopped) if part or preemptions.any() else None,
        admitted=_admitted(loop, count),
    )  # fmt: skip


def _admitted(loop: PodLoop, count: int) -> Floats:
    """Since when each job has had quota for good: until then, it waits for that."""
    found = np.full(count, math.inf)
    for run in loop.played.runs:
        found[run.workload] = run.admitted
    return found


def _runs_on(loop: PodLoop, k: int, stop: float) -> bool:
    return k in loop.holding and loop.holding[k][1].begin <= stop


def _numbers(times: list[float], stop: float) -> Floats:
    found = np.array(times, np.float64)
    return np.where(np.isinf(found) | (found > stop), np.nan, found)


def _held(world: World, loop: PodLoop, runs: list[BoundPods]) -> tuple[Ints, Ints]:
    """Where the pods of each run begin in the list of all, and the GPUs of each; pods hold them from their binding."""
    first = np.concatenate([[0], np.cumsum([len(each.nodes) for each in runs])]).astype(np.int64)
    gpus = world.shapes.gpus[world.shape]
    pods = [
        PodRun(0, node, since, each.run.end)
        for each in runs
        for node, since in zip(each.nodes, each.since, strict=True)
    ]
    pods = [replace(pod, pod=number) for number, pod in enumerate(pods)]
    requests = np.array([gpus[each.run.workload] for each in runs for _ in each.nodes], np.int64)
    return first, gpu_bits(pods, requests, world)


def _segments(world: World, runs: list[BoundPods], first: Ints, bits: Ints, stopped: float | None) -> Segments:
    latest = math.inf if stopped is None else stopped
    return Segments(
        np.array([each.run.workload for each in runs], np.int64), np.array([each.run.begin for each in runs]),
        np.array([min(each.run.end, latest) for each in runs]), first,
        np.array([node for each in runs for node in each.nodes], np.int64), bits,
    )  # fmt: skip
