"""Play a world by Volcano or KAI: a job is a pod group, its instances are a gang.

A job waits in the first queue that its columns name: queue, group, user; one that names none in the default queue.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import polars as pl

from fleetlab.core import Cluster, Progress
from fleetlab.core.catalog.reasons import EVICTED_WITHOUT_END, NO_GANG_QUEUE, REFUSALS
from fleetlab.core.kai import GPU, NON_PREEMPTIBLE, Kai, KaiQueue
from fleetlab.core.pod_groups import Amounts, PodGroup
from fleetlab.core.progress import silent
from fleetlab.core.queue_rules import Queues
from fleetlab.core.queues import Limits, Queue, QueueTree
from fleetlab.core.volcano import Volcano, VolcanoQueue
from fleetlab.sim.gangs.amounts import add
from fleetlab.sim.gangs.loop import Placed, Stay
from fleetlab.sim.gangs.queues import queues_of
from fleetlab.sim.gangs.tasks import OUR_OWN
from fleetlab.sim.kai import play as kai
from fleetlab.sim.kubernetes.loop import PodRun
from fleetlab.sim.kubernetes.play import gpu_bits, nodes_of, pods_of
from fleetlab.sim.kubernetes.specs import Specs
from fleetlab.sim.layout import DONE, RUNNING, WAITING, Ints
from fleetlab.sim.queue_tables import JobQueues
from fleetlab.sim.quota import Quotas
from fleetlab.sim.schedule import Played, Segments
from fleetlab.sim.volcano import play as volcano
from fleetlab.sim.world import World


def play(
    world: World, site: Volcano | Kai, cluster: Cluster, *, specs: Specs | None = None, seed: int = 0,
    until: float | None = None, progress: Progress | None = None,
) -> Played:  # fmt: skip
    """Play a world; `specs` is what the trace carries of its pods."""
    nodes = nodes_of(world, cluster)
    loop = volcano.loop_of(nodes, site, seed) if isinstance(site, Volcano) else kai.loop_of(nodes, site, seed)
    stop = math.inf if until is None else float(until)
    queues = queues_of(site, world.frame)
    graces = (specs or Specs()).graces(world.frame["job"])
    groups = [replace(one, grace=grace) for one, grace in zip(groups_of(world, queues), graces, strict=True)]
    refused = refusals(groups, site, loop.board.total)
    submit = np.where(refused > 0, math.inf, world.submit).tolist()
    placed = loop.play(groups, submit, world.runtime.tolist(), stop, progress or silent)
    refused[sorted(placed.withdrawn)] = REFUSALS.index(EVICTED_WITHOUT_END)
    quotas, member = _limits(world, site, queues)
    played = replace(_played(world, placed, until, refused), quotas=quotas, member=member)
    return replace(played, refused=refused if refused.any() else None)


def refusals(groups: Sequence[PodGroup], site: Volcano | Kai, total: Amounts) -> Ints:
    """Which groups can never start: the number of the reason, 0 for the others."""
    never = volcano.Never(site, total) if isinstance(site, Volcano) else kai.Never(site)
    return np.array([REFUSALS.index(never.why(group) if group.queue else NO_GANG_QUEUE) for group in groups], np.int64)


def _limits(world: World, site: Volcano | Kai, queues: list[str]) -> tuple[Quotas, Ints]:
    """The most GPUs that each queue may hold, and the queue of each job, for the reasons of waits."""
    names = [queue.name for queue in site.queues]
    queues = [queue or names[0] for queue in queues]  # a job that names none never waits
    tree = QueueTree(
        Queue(one.name, one.parent if one.parent in names else None, limits=Limits(resources=_most(one)))
        for one in site.queues
    )
    frame = world.frame.with_columns(queue=pl.Series(queues, dtype=pl.String))
    return JobQueues(Queues(tree, rules="slurm", column="queue")).tables(frame)


def _most(queue: VolcanoQueue | KaiQueue) -> dict[str, float]:
    most = queue.capability.get(GPU, -1) if isinstance(queue, VolcanoQueue) else queue.quota(GPU).limit
    return {} if most < 0 else {"gpu": most}


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


# -- the schedule ------------------------------------------------------------------------------------------------------


def _played(world: World, placed: Placed, until: float | None, refused: Ints) -> Played:
    stop = math.inf if until is None else float(until)
    count = len(world.submit)
    stays = [stay for stay in placed.stays if stay.begin < stop]
    instance = [int(world.first[stay.group]) + stay.pod for stay in stays]
    runs = [PodRun(one, stay.node, stay.begin, stay.end) for one, stay in zip(instance, stays, strict=True)]
    bits = gpu_bits(runs, np.repeat(world.shapes.gpus[world.shape], world.instances), world)
    where, got = np.full(int(world.first[-1]), -1), np.zeros(int(world.first[-1]), np.int64)
    for k, run in enumerate(runs):  # the last run of each counts
        where[run.pod], got[run.pod] = run.node, bits[k]
    start, end = (np.array(times, np.float64) for times in (placed.start, placed.end))
    start, end = (np.where(np.isinf(times) | (times >= stop), np.nan, times) for times in (start, end))
    status = np.where(~np.isnan(end), DONE, np.where(np.isinf(placed.begin) | np.isnan(start), WAITING, RUNNING))
    stopped = None
    if not (status[refused == 0] == DONE).all():
        ends = [stay.end for stay in stays if not math.isinf(stay.end)]
        stopped = float(until) if until is not None else max(ends, default=0.0)
    evictions = np.array(placed.evictions, np.int64)
    return Played(
        start=start, end=end, status=status, where=where, got=got, preemptions=evictions,
        failures=np.zeros(count, np.int64), lost=np.array(placed.lost), until=stopped,
        segments=_segments(world, stays, bits, stopped) if evictions.any() else None,
    )  # fmt: skip


def _segments(world: World, stays: Sequence[Stay], bits: Ints, stopped: float | None) -> Segments:
    """The runs of groups: their pods come and go together."""
    latest = math.inf if stopped is None else stopped
    runs: dict[tuple[int, float], list[int]] = {}
    for k, stay in enumerate(stays):
        runs.setdefault((stay.group, stay.begin), []).append(k)
    mine = [sorted(runs[key], key=lambda k: stays[k].pod) for key in sorted(runs)]
    sizes = [len(one) for one in mine]
    flat = [k for one in mine for k in one]
    return Segments(
        np.array([stays[one[0]].group for one in mine], np.int64),
        np.array([stays[one[0]].begin for one in mine]),
        np.array([min(stays[one[0]].end, latest) for one in mine]),
        np.concatenate(([0], np.cumsum(sizes))).astype(np.int64),
        np.array([stays[k].node for k in flat], np.int64),
        bits[flat],
    )  # fmt: skip
