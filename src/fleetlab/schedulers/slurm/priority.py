"""Job priority as priority/multifactor and priority/basic compute it.

A multifactor priority is a sum of weights times factors, each factor from 0 to 1, cut to a whole number and at least 1:
0 means held. It is computed when a job is submitted, released or changed, and for all pending jobs in every pass over
usage; between them it stays as it is, whatever happens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from fleetlab.core.queues import QueueTree
from fleetlab.schedulers.slurm.config import Slurm
from fleetlab.sim.associations import places
from fleetlab.sim.jit import inner, step
from fleetlab.sim.layout import Floats

HIGHEST = 0xFFFFFFFF
FIRST_BASIC = 0xFFFF0000  # one more than what the first job gets from priority/basic


class PriorityRules(NamedTuple):
    """Weights, and what factors are relative to."""

    age: float  # PriorityWeight…
    association: float
    fair_share: float
    job_size: float
    partition: float
    qos: float
    tres: Floats  # [resources]
    max_age: float  # s
    dampening: float  # FairShareDampeningFactor
    cpus: float  # of the cluster
    nodes: float
    favor_small: int
    relative_to_time: int  # SMALL_RELATIVE_TO_TIME
    increase_only: int  # INCR_ONLY
    absolute_tres: int  # NO_NORMAL_TRES
    of_partition: Floats  # [partitions]: its factor
    of_qos: Floats  # [QOS]
    of_association: Floats  # [associations]
    amounts: Floats  # [partitions, resources]: what each has


class Request(NamedTuple):
    """What the priority of a job depends on."""

    association: int
    qos: int  # number, not row; -1: none
    accrue: float  # when its age begins: it became eligible (or, ACCRUE_ALWAYS, was submitted); inf: not yet
    cpus: float
    nodes: float
    limit: float  # s: its time limit
    nice: float
    site: float  # site factor


class Factors(NamedTuple):
    """Weighted factors, as sprio prints them; the priority is their sum less `nice`."""

    age: float
    association: float
    fair_share: float
    job_size: float
    partition: float
    qos: float
    tres: float
    site: float
    nice: float


def priority_rules(
    slurm: Slurm, resources: Sequence[str], cluster: Mapping[str, float], partitions: Mapping[str, Mapping[str, float]]
) -> PriorityRules:
    """Return a site's rules.

    `cluster` has all `cpu` and `node`, of all nodes in the configuration; `partitions` what is in each. Columns are
    `resources`, rows are the partitions of `slurm`, its QOS, and its associations (`places`).
    """
    priority, weights = slurm.priority, slurm.priority.weights
    flags = {flag.upper() for flag in priority.flags}
    factors = [float(partition.factor) for partition in slurm.partitions]
    kinds = [float(qos.priority) for qos in slurm.qos]
    ranks = _association_priorities(slurm.queues)
    return PriorityRules(
        age=float(weights.age),
        association=float(weights.association),
        fair_share=float(weights.fair_share),
        job_size=float(weights.job_size),
        partition=float(weights.partition),
        qos=float(weights.qos),
        tres=np.array([weights.tres.get(name, 0.0) for name in resources], np.float64),
        max_age=float(priority.max_age),
        dampening=1.0,
        cpus=float(cluster["cpu"]),
        nodes=float(cluster["node"]),
        favor_small=int(priority.favor_small),
        relative_to_time=int("SMALL_RELATIVE_TO_TIME" in flags),
        increase_only=int("INCR_ONLY" in flags),
        absolute_tres=int(_absolute("TRES", flags)),
        of_partition=_normalized(factors, 1.0, absolute=_absolute("PART", flags)),
        of_qos=_normalized(kinds, 0.0, absolute=_absolute("QOS", flags)),
        of_association=_normalized(ranks, 0.0, absolute=_absolute("ASSOC", flags)),
        amounts=_table([partitions[p.name] for p in slurm.partitions], resources),
    )


def _table(rows: Sequence[Mapping[str, float]], resources: Sequence[str]) -> Floats:
    values = [[row.get(name, 0.0) for name in resources] for row in rows]
    return np.array(values, np.float64).reshape(len(rows), len(resources))


def _absolute(what: str, flags: set[str]) -> bool:
    return "NO_NORMAL_ALL" in flags or f"NO_NORMAL_{what}" in flags


def _normalized(values: Sequence[float], at_least: float, *, absolute: bool) -> Floats:
    most = 1.0 if absolute else max([*values, at_least])
    return np.array(values, np.float64) / most if most else np.zeros(len(values))


def _association_priorities(queues: QueueTree) -> list[float]:
    rows = places(queues)
    ranks = [0.0] * (max(rows.values(), default=0) + 1)
    for name, row in rows.items():
        ranks[row] = float(queues[name].priority)
    return ranks


@inner
def age_factor(rules: PriorityRules, accrue: float, now: float) -> float:
    """Return how long a job has been eligible, up to PriorityMaxAge."""
    if accrue == np.inf:
        return 0.0
    seconds = max(np.floor(now) - np.floor(accrue), 0.0)
    return seconds / rules.max_age if seconds < rules.max_age else 1.0


@inner
def size_factor(rules: PriorityRules, job: Request) -> float:
    """Return how large a job is: of the cluster's nodes and CPUs, or of its CPUs over its time limit in minutes."""
    if rules.relative_to_time:
        size = max(job.nodes * rules.cpus / rules.nodes, job.cpus) / (job.limit / 60.0) / rules.cpus
        size = 1.0 - size if rules.favor_small else size
    elif rules.favor_small:
        size = (rules.nodes - job.nodes) / rules.nodes
        if job.cpus:
            size = (size + (rules.cpus - job.cpus) / rules.cpus) / 2.0
    else:
        size = job.nodes / rules.nodes
        if job.cpus:
            size = (size + job.cpus / rules.cpus) / 2.0
    return min(max(size, 0.0), 1.0)


@inner
def tres_factor(rules: PriorityRules, amounts: Floats, partition: int) -> float:
    """Return the weighted sum of what a job requests of a partition's resources."""
    total = 0.0
    for k in range(len(rules.tres)):
        if rules.absolute_tres:
            total += amounts[k] * rules.tres[k]
        elif amounts[k] and rules.amounts[partition, k]:
            total += amounts[k] / rules.amounts[partition, k] * rules.tres[k]
    return total


@step
def weighted_factors(
    rules: PriorityRules, job: Request, amounts: Floats, partition: int, fair_share: float, now: float
) -> Factors:
    """Return the weighted factors of a job in a partition; `amounts` are its request, `fair_share` its factor."""
    return Factors(
        age_factor(rules, job.accrue, now) * rules.age,
        rules.of_association[job.association] * rules.association,
        fair_share * rules.fair_share,
        size_factor(rules, job) * rules.job_size if rules.job_size else 0.0,
        rules.of_partition[partition] * rules.partition,
        rules.of_qos[job.qos] * rules.qos if job.qos >= 0 else 0.0,
        tres_factor(rules, amounts, partition),
        job.site,
        job.nice,
    )


@step
def total_priority(rules: PriorityRules, factors: Factors, several: int, before: int) -> int:
    """Return the priority of a job that had `before`.

    `several`: it names several partitions and has a priority in each, a sum in another order.
    """
    f = factors
    if several:
        total = f.partition + (f.age + f.association + f.fair_share + f.job_size + f.qos + f.tres + f.site - f.nice)
    else:
        total = f.age + f.association + f.fair_share + f.job_size + f.partition + f.qos + f.tres + f.site - f.nice
    new = int(min(max(total, 1.0), float(HIGHEST)))
    return max(new, before) if rules.increase_only else new


@step
def basic_priority(lowest: int, nice: int) -> tuple[int, int]:
    """Return the priority that priority/basic gives to the next job, and the lowest so far; begin with FIRST_BASIC.

    A job that is released from hold, or requeued because its node failed, gets a new one and so is last; one that is
    requeued otherwise, also by preemption, keeps its own.
    """
    new = lowest - 1 if lowest >= 2 else 1
    if nice <= 0 or new > nice + 1:
        new -= nice
    new = max(new, 1)
    return new, min(new + nice, lowest)
