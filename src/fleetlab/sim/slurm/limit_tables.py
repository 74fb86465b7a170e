"""The groups of jobs that limits hold for, from a site's classes of service and accounts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import polars as pl

from fleetlab.core.queues import Limits
from fleetlab.core.slurm import Slurm as Site
from fleetlab.sim.layout import Ints, Records
from fleetlab.sim.slurm.limits import Groups
from fleetlab.sim.world import World

RESOURCES = ("jobs", "gpu", "cpu", "memory", "node")
UNITS = {"cpu": 1000}  # milli
Key = tuple[str, ...]


def groups_of(world: World, site: Site, jobs: Records) -> Groups:
    """Return the groups with a limit, and those of each job."""
    enforced = not site.enforce or "limits" in site.enforce or "safe" in site.enforce
    frame = world.frame.select(pl.col("user", "queue", "qos").cast(pl.String).fill_null(""))
    numbers: dict[Key, int] = {}
    most: list[list[int]] = []
    of: list[list[int]] = []
    qos_of = [q.name for q in site.qos]
    for (user, account, _), qos in zip(frame.iter_rows(), jobs.qos.tolist(), strict=True):
        mine = []
        name = qos_of[qos] if 0 <= qos < len(qos_of) else ""
        for key, limits in _limits(site, user, account, name) if enforced else ():
            if key not in numbers:
                numbers[key] = len(most)
                most.append(_amounts(limits))
            mine.append(numbers[key])
        of.append(mine)
    first = np.append(0, np.cumsum([len(mine) for mine in of])).astype(np.int64)
    return Groups(
        first=first, of=np.array([g for mine in of for g in mine], dtype=np.int64), asks=_asks(jobs),
        used=np.zeros((max(1, len(most)), len(RESOURCES)), dtype=np.int64),
        most=np.array(most or [[-1] * len(RESOURCES)], dtype=np.int64), in_partition=np.zeros((1, 2), dtype=np.int64),
    )  # fmt: skip


def _limits(site: Site, user: str, account: str, qos: str) -> Iterator[tuple[Key, Limits]]:
    """Yield the groups of a job that have a limit."""
    for q in site.qos:
        if q.name == qos:
            yield from _known((("qos", qos), q.limits), (("qos user", qos, user), q.per_user))
            yield from _known((("qos account", qos, account), q.per_account))
    queue = site.queues.of(account, user)
    for level in site.queues.path(queue.name) if queue else ():
        yield from _known((("queue", level.name), level.limits), (("queue user", level.name, user), level.per_user))


def _known(*pairs: tuple[Key, Limits]) -> Iterator[tuple[Key, Limits]]:
    return ((key, limits) for key, limits in pairs if limits.jobs is not None or limits.resources)


def _amounts(limits: Limits) -> list[int]:
    given: Mapping[str, float] = dict(limits.resources) | ({} if limits.jobs is None else {"jobs": limits.jobs})
    return [round(given[name] * UNITS.get(name, 1)) if name in given else -1 for name in RESOURCES]


def _asks(jobs: Records) -> Ints:
    nodes = np.where(jobs.distinct == 1, jobs.instances, 1)
    columns = (1, jobs.instances * jobs.gpus, jobs.instances * jobs.cpu, jobs.instances * jobs.memory, nodes)
    return np.stack([np.broadcast_to(column, len(jobs)) for column in columns], axis=1).astype(np.int64)
