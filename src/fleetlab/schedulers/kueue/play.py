"""Play a world by Kueue: jobs are workloads, and the schedule is handed back as by every loop."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fleetlab.core import Cluster, Progress
from fleetlab.core.catalog.reasons import ABOVE_CLUSTER_QUEUE, EVICTED_WITHOUT_END, NO_QUEUE, REFUSALS
from fleetlab.core.events import Event, Recovery
from fleetlab.core.progress import silent
from fleetlab.schedulers.kubernetes.play import nodes_of, pods_of
from fleetlab.schedulers.kubernetes.specs import Specs
from fleetlab.schedulers.kueue.config import Kueue
from fleetlab.schedulers.kueue.flavors import FlavorAssigner, Mode
from fleetlab.schedulers.kueue.pods import PodLoop
from fleetlab.schedulers.kueue.state import Snapshot
from fleetlab.schedulers.kueue.submissions import (
    FLAVOR,
    NodeSite,
    flavor_nodes,
    queues_of,
    requests_of,
    with_least,
    with_levels,
    with_requests,
    workloads_of,
)
from fleetlab.schedulers.kueue.workload import KueueWorkload
from fleetlab.sim.kernel.service import NodeService
from fleetlab.sim.kernel.work import Checkpoints
from fleetlab.sim.layout import Floats, Ints
from fleetlab.sim.schedule import Schedule
from fleetlab.sim.world import World


def play(
    world: World, site: Kueue, cluster: Cluster, *, specs: Specs | None = None, events: Sequence[Event] = (),
    recovery: Recovery | None = None, seed: int = 0, until: float | None = None, progress: Progress | None = None,
) -> Schedule:  # fmt: skip
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
    rules = Checkpoints.of(recovery)
    service = NodeService(world, cluster, events, title=site.title, save=rules.save, seed=seed)
    loop = PodLoop(on_nodes, workloads, world, known.graces(world.frame["job"]), seed, service, rules)
    submit = np.where(refused > 0, math.inf, world.submit).tolist()
    for k, place in world.places().items():
        loop.run_on(k, place.node.tolist())
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


def _played(world: World, loop: PodLoop, refused: Ints, until: float | None) -> Schedule:
    runs = sorted(loop.log.runs, key=lambda run: (run.job, run.begin))
    ran = {id(stay): stay for run in runs for stay in run.stays}
    loop.log.stays = [*ran.values(), *(stay for stay in loop.log.stays if id(stay) not in ran)]
    end = np.array(loop.played.end, np.float64)
    return loop.log.finish(
        world, loop.work, loop.rules, end=np.where(np.isinf(end), np.nan, end), until=until, service=loop.service,
        admitted=_admitted(loop, len(end)), refused=refused if refused.any() else None,
    )  # fmt: skip


def _admitted(loop: PodLoop, count: int) -> Floats:
    """Since when each job has had quota for good: until then, it waits for that."""
    found = np.full(count, math.inf)
    for run in loop.played.runs:
        found[run.workload] = run.admitted
    return found
