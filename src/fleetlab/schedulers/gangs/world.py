"""Simulate a world by Volcano or KAI: a job is a pod group, its instances are a gang.

A job waits in the first queue that its columns name: queue, group, user; one that names none in the default queue.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fleetlab.core import Progress, Scenario
from fleetlab.core.catalog.reasons import EVICTED_WITHOUT_END, NO_GANG_QUEUE, REFUSALS
from fleetlab.core.progress import silent
from fleetlab.schedulers.gangs.config import GangScheduler
from fleetlab.schedulers.gangs.pod_groups import NON_PREEMPTIBLE, PodGroup, add
from fleetlab.schedulers.gangs.tasks import OUR_OWN
from fleetlab.schedulers.kubernetes.play import nodes_of, pods_of
from fleetlab.schedulers.kubernetes.specs import Specs
from fleetlab.sim.kernel.service import NodeService
from fleetlab.sim.kernel.work import Checkpoints
from fleetlab.sim.layout import Ints
from fleetlab.sim.quota import Quotas, quota_tables
from fleetlab.sim.schedule import Schedule
from fleetlab.sim.world import World


def play(world: World, site: GangScheduler, s: Scenario, progress: Progress | None = None) -> Schedule:
    """Simulate a world."""
    loop = site.loop(nodes_of(world, s.cluster), s.seed)
    queues, graces = site.queues_of(world.frame), Specs.of(s).graces(world.frame["job"])
    groups = [replace(one, grace=grace) for one, grace in zip(groups_of(world, queues), graces, strict=True)]
    reason = site.refusals(loop.board.total)
    refused = np.array([REFUSALS.index(reason(one) if one.queue else NO_GANG_QUEUE) for one in groups], np.int64)
    submit = np.where(refused > 0, math.inf, world.submit).tolist()
    loop.rules = Checkpoints.of(s.policy.recovery)
    loop.service = NodeService(world, s.cluster, s.node_events, title=site.title, save=loop.rules.save, seed=s.seed)
    loop.bound = {k: place.node.tolist() for k, place in world.places().items()}
    until = math.inf if s.until is None else s.until
    placed = loop.play(groups, submit, world.runtime.tolist(), until, progress or silent)
    refused[sorted(placed.withdrawn)] = REFUSALS.index(EVICTED_WITHOUT_END)
    quotas, member = _limits(world, site, queues)
    end = np.array(placed.end, np.float64)
    return loop.log.finish(
        world, placed.work, loop.rules, end=np.where(np.isinf(end), np.nan, end), until=s.until, service=loop.service,
        refused=refused if refused.any() else None, quotas=quotas, member=member,
    )  # fmt: skip


def _limits(world: World, site: GangScheduler, queues: list[str]) -> tuple[Quotas, Ints]:
    """Return the most GPUs that each queue may hold, and the queue of each job, for the reasons of waits."""
    most, parents = site.limited_gpus(), {one.name: one.parent for one in site.queues}
    numbers, paths = {name: number for number, name in enumerate(most)}, list[list[int]]()
    for name in most:
        at, path = name, list[int]()
        while at in numbers:
            path.append(numbers[at])
            at = parents[at]
        paths.append(path)
    tenant = np.array([numbers.get(queue, 0) for queue in queues], np.int64)  # one that names none never waits
    return quota_tables(world.gpu_milli, tenant, paths, list(most.values()))


def groups_of(world: World, queues: Sequence[str]) -> list[PodGroup]:
    """The jobs as pod groups."""
    groups = []
    for k, (pod, instances) in enumerate(zip(pods_of(world), world.instances.tolist(), strict=True)):
        pods = tuple(replace(pod, name=f"{k}/{n}") for n in range(instances))
        asks = add(*(one.requests for one in pods))
        groups.append(
            PodGroup(
                str(k),
                queues[k],
                pods,
                instances,
                priority=pod.priority,
                min_resources={name: amount for name, amount in asks.items() if not name.startswith(OUR_OWN)},
                preemptible=pod.priority < NON_PREEMPTIBLE,
            )
        )
    return groups
