"""Usage that decays: what a site's accounts, users and classes of service have used, as Slurm counts it.

Every PriorityCalcPeriod a pass decays all usage by the whole seconds since the last pass, then adds what each running
job has used since then; a job that ends adds the rest at once. All times are seconds, of which Slurm knows whole ones.

Rows are those of the associations, then one for each class of service: a job is charged to its association, to all
accounts above it, to its own class of service and to that of its partition.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fleetlab.core.queues import Qos
from fleetlab.schedulers.slurm.config import Priority, Slurm
from fleetlab.sim.associations import Associations
from fleetlab.sim.jit import inner, step
from fleetlab.sim.layout import Floats, Ints

SMALLEST = 2.2250738585072014e-308  # of normal floats: a decay is never less
NEVER = -np.inf  # before the first pass
OF_NODES = ("cpu", "memory", "node", "gpu")


class Usage(NamedTuple):
    """What has been used, and what fair share makes of it."""

    clock: Floats  # [1]: when the last pass was, NEVER
    billing: Floats  # [rows]: sshare's RawUsage, decayed billing-seconds
    wall: Floats  # [rows]: decayed seconds of all jobs, for GrpWall
    amounts: Floats  # [rows, resources]: decayed resource-seconds, for GrpTRESMins
    ahead: Floats  # [rows, resources]: resource-seconds that running jobs have left to their limits, for GrpTRESRunMins
    decays: Ints  # [rows]: 0: a QOS with NoDecay
    norm: Floats  # [associations]: NormUsage
    effective: Floats  # [associations]: EffectvUsage; nan: not computed since the last pass (without Fair Tree)
    level_fs: Floats  # [associations]: LevelFS
    factor: Floats  # [associations]: FairShare, of users
    ranking: Ints  # the children of the tree, each level by falling LevelFS
    stack: Ints  # [associations, 3]: scratch


class UsageRules(NamedTuple):
    """How usage is counted."""

    decay: float  # that is left of usage after a second
    limits: int  # AccountingStorageEnforce has `limits`: else what a job used since the last pass is lost when it ends
    fair_tree: int
    depth_oblivious: int


class Charge(NamedTuple):
    """What one job is charged to, and at which rate."""

    association: int
    qos: int  # row: associations + its number; -1: none
    partition_qos: int  # row of the QOS of its partition; -1: none, or the same
    billing: float  # `billing_of`
    factor: float  # UsageFactor of its QOS; 1 without
    start: float
    limit: float  # s: its time limit


class Billing(NamedTuple):
    """TRESBillingWeights, by partition."""

    weights: Floats  # [partitions, resources]
    weighted: Ints  # [partitions]: 0: a job is charged its CPUs
    largest: Ints  # [resources]: 1: of these the largest alone counts (MAX_TRES), 0: the sum of all


def usage_rules(priority: Priority, enforce: Sequence[str]) -> UsageRules:
    """Return how a site counts usage; `enforce` is its AccountingStorageEnforce."""
    decay = 1.0 - 0.693 / priority.half_life if priority.half_life > 0 else 1.0  # Slurm's own ln 2
    flags = {flag.upper() for flag in priority.flags}
    limits = not {"limits", "safe", "all"}.isdisjoint(word.lower() for word in enforce)
    oblivious = "DEPTH_OBLIVIOUS" in flags
    return UsageRules(decay, int(limits), int(not oblivious and "NO_FAIR_TREE" not in flags), int(oblivious))


def new_usage(associations: Associations, qos: Sequence[Qos], resources: int, billing: Floats) -> Usage:
    """Return the usage at the beginning; `billing` is that of each association (`usage_of`)."""
    size, rows = len(billing), len(billing) + len(qos)
    decays = [1] * size + [int("nodecay" not in {flag.lower() for flag in q.flags}) for q in qos]
    usage = Usage(
        clock=np.full(1, NEVER),
        billing=np.concatenate([billing, np.zeros(len(qos))]),
        wall=np.zeros(rows),
        amounts=np.zeros((rows, resources)),
        ahead=np.zeros((rows, resources)),
        decays=np.array(decays, np.int64),
        norm=np.zeros(size),
        effective=np.zeros(size),
        level_fs=np.zeros(size),
        factor=np.zeros(size),
        ranking=associations.children.copy(),
        stack=np.zeros((size, 3), np.int64),
    )
    usage.effective[0] = 1.0
    return usage


def billing_rules(slurm: Slurm, resources: Sequence[str]) -> Billing:
    """Return what a job is charged a second in each of a site's partitions."""
    largest_only = "MAX_TRES" in {flag.upper() for flag in slurm.priority.flags}
    rows = [[p.billing.get(name, 0.0) for name in resources] for p in slurm.partitions]
    return Billing(
        np.array(rows, np.float64).reshape(len(rows), len(resources)),
        np.array([bool(p.billing) for p in slurm.partitions], np.int64),
        np.array([largest_only and name.split(":")[0] in OF_NODES for name in resources], np.int64),
    )


@step
def billing_of(billing: Billing, partition: int, amounts: Floats, cpus: float) -> float:
    """Return what a job with these amounts is charged a second; its `billing` amount is the whole part of that."""
    if not billing.weighted[partition]:
        return cpus
    most = total = 0.0
    for k in range(len(amounts)):
        value = amounts[k] * billing.weights[partition, k]
        if billing.largest[k]:
            most = max(most, value)
        else:
            total += value
    return most + total


@step
def decay_usage(usage: Usage, rules: UsageRules, now: float) -> None:
    """Begin a pass: what was used before counts less. Does not set the clock, which the charges need."""
    last = usage.clock[0]
    seconds = np.floor(now) - last
    if last == NEVER or seconds <= 0.0:
        return
    left = max(rules.decay**seconds, SMALLEST)
    if left == 1.0:
        return
    for row in range(len(usage.billing)):
        if usage.decays[row]:
            usage.billing[row] *= left
            usage.wall[row] *= left
            for k in range(usage.amounts.shape[1]):
                usage.amounts[row, k] *= left


@inner
def _charge_row(usage: Usage, row: int, factor: float, seconds: float, billing: float, amounts: Floats) -> None:
    usage.wall[row] += seconds * factor
    usage.billing[row] += seconds * billing * factor
    for k in range(len(amounts)):
        usage.amounts[row, k] += seconds * factor * amounts[k]


@inner
def _take_back(usage: Usage, row: int, seconds: float, amounts: Floats) -> None:
    for k in range(len(amounts)):
        usage.ahead[row, k] = max(usage.ahead[row, k] - seconds * amounts[k], 0.0)


@step
def charge_start(associations: Associations, usage: Usage, rules: UsageRules, job: Charge, amounts: Floats) -> None:
    """Count the resource-seconds to the time limit of a job that starts."""
    if not rules.limits:
        return
    seconds = np.floor(np.floor(job.limit) * job.factor)
    for row in (job.qos, job.partition_qos):
        if row >= 0:
            _take_back(usage, row, -seconds, amounts)
    row = job.association
    while row >= 0:
        _take_back(usage, row, -seconds, amounts)
        row = associations.parent[row]


@inner
def seconds_ahead(job: Charge, begin: float, end: float, ends: int) -> float:
    """Return how many of the seconds to its time limit a job gives back for the time from `begin` to `end`."""
    limit_ends = np.floor(job.start) + np.floor(job.limit)
    if begin >= limit_ends:
        return 0.0
    seconds = limit_ends - begin if ends else max(min(end, limit_ends) - begin, 0.0)
    return np.floor(seconds * job.factor)


@step
def charge(
    associations: Associations, usage: Usage, rules: UsageRules, job: Charge, amounts: Floats, now: float, ends: int
) -> None:
    """Add what a job has used since the last pass: in each pass after `decay_usage`, and when it `ends`.

    Suspended jobs are charged, too. `amounts` are what it holds, in the columns of the usage.
    """
    if ends and not rules.limits:
        return
    begin, end = max(usage.clock[0], np.floor(job.start)), np.floor(now)
    seconds = max(end - begin, 0.0)
    decayed = seconds * rules.decay**seconds
    ahead = seconds_ahead(job, begin, end, ends)
    for row in (job.qos, job.partition_qos):
        if row >= 0:
            _charge_row(usage, row, job.factor, decayed if usage.decays[row] else seconds, job.billing, amounts)
            _take_back(usage, row, ahead, amounts)
    row = job.association
    while row >= 0:
        _charge_row(usage, row, job.factor, decayed, job.billing, amounts)
        _take_back(usage, row, ahead, amounts)
        row = associations.parent[row]
