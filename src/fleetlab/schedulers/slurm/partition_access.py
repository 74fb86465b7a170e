"""Which jobs a partition takes, and which wait in it for ever: its state, its limits, accounts and classes of service.

A partition that is drained or inactive takes no jobs. A job that a partition does not allow because of its account or
QOS, or that is above MaxTime or outside the numbers of nodes, is taken and waits; with EnforcePartLimits it is refused.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl

from fleetlab.core.catalog.reasons import CLOSED_PARTITION, REFUSALS
from fleetlab.schedulers.slurm.config import Partition
from fleetlab.schedulers.slurm.config import Slurm as Site
from fleetlab.sim.layout import Ints, Records
from fleetlab.sim.world import World

TAKES_JOBS = ("up", "down")
REFUSED = REFUSALS.index(CLOSED_PARTITION)


class Limited(NamedTuple):
    """What a partition looks at, of one job; a plain tuple, since fields of records are slow to read."""

    first_partition: int
    partitions: int
    qos: int
    limit: float
    instances: int
    distinct: int


def _limited(jobs: Records) -> list[Limited]:
    return [Limited(*values) for values in zip(*(jobs[name].tolist() for name in Limited._fields), strict=True)]


def open_partitions(world: World, site: Site, jobs: Records, parts: list[Partition], named: Ints) -> Ints:
    """Return for each partition that a job names whether it may run there."""
    flags = _flags(site, jobs)
    rows = [
        admits(parts[p], site, account, job) and fits(parts[p], job, mine)
        for job, account, mine in zip(_limited(jobs), _accounts(world), flags, strict=True)
        for p in named[job.first_partition : job.first_partition + job.partitions]
    ]
    return np.array(rows, dtype=np.int64)


def refused_at_submission(world: World, site: Site, jobs: Records, parts: list[Partition], named: Ints) -> Ints:
    """Return which jobs no partition takes."""
    flags = _flags(site, jobs)
    refused = np.zeros(len(jobs), np.int64)
    for t, (job, account, mine) in enumerate(zip(_limited(jobs), _accounts(world), flags, strict=True)):
        its = [parts[p] for p in named[job.first_partition : job.first_partition + job.partitions]]
        taken = [p.state in TAKES_JOBS for p in its]
        within = [p.state in TAKES_JOBS and admits(p, site, account, job) and fits(p, job, mine) for p in its]
        enough = {"no": any(taken), "any": any(within), "all": all(within)}[site.enforce_partitions]
        refused[t] = 0 if enough else REFUSED
    return refused


def admits(part: Partition, site: Site, account: str, job: Limited) -> bool:
    """Return whether a partition allows a job's account and class of service."""
    qos = site.qos[job.qos].name if job.qos >= 0 else ""
    return (
        (not part.allow_accounts or account in part.allow_accounts)
        and account not in part.deny_accounts
        and (not part.allow_qos or qos in part.allow_qos)
        and qos not in part.deny_qos
    )


def fits(part: Partition, job: Limited, flags: frozenset[str]) -> bool:
    """Return whether a job's time limit and number of nodes are within a partition's, or its class lifts them."""
    nodes = job.instances
    return (
        (job.limit <= part.max_time or "partitiontimelimit" in flags)
        and (not job.distinct or nodes <= part.max_nodes or "partitionmaxnodes" in flags)
        and (not job.distinct or nodes >= part.min_nodes or "partitionminnodes" in flags)
    )


def _accounts(world: World) -> list[str]:
    return world.frame["queue"].cast(pl.String).fill_null("").to_list()


def _flags(site: Site, jobs: Records) -> list[frozenset[str]]:
    of = [*(frozenset(flag.lower() for flag in q.flags) for q in site.qos), frozenset[str]()]
    return [of[q] for q in jobs.qos]
