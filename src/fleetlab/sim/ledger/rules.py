"""What a site's Slurm keeps jobs waiting for beside resources: limits, partitions, advance reservations and epilogs.

These follow from the schedule too, as it is replayed: what runs counts in limits, and a node completes for as long as
the epilog takes after each run. Only who was looked at when is told by the loops (`Looks`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fleetlab.sim.codes import BY_ADVANCE, BY_COMPLETING, BY_LIMIT, BY_PARTITION, BY_PARTITION_DOWN
from fleetlab.sim.jit import inner
from fleetlab.sim.layout import Floats, Ints, Records
from fleetlab.sim.limits import (
    BILLING,
    GROUP,
    JOB_MINUTES,
    KIND,
    NODE,
    OVER_TIME,
    RESOURCE,
    SUBMITTED,
    LimitGroups,
    blocks_start,
    count_running,
)

OPEN, FITS = -1, -2  # no rule of the first kind applies; nothing keeps it from nodes on which it fits


@dataclass(frozen=True, slots=True, eq=False)
class Looks:
    """When jobs could start, and when a loop last looked at them and left them waiting; -inf: none did."""

    eligible: Floats  # [runs]: before each run, in the order of `Schedule.runs`
    looked: Floats  # [runs]
    last_eligible: Floats  # [jobs]: of those that wait when the loop stops
    last_looked: Floats  # [jobs]
    skipped: Ints  # [runs]: which limit kept the loop from looking at it since, as a reason; 0: none
    last_skipped: Ints  # [jobs]
    limited_since: Floats  # [jobs]: when a loop first found it at a limit on minutes; inf: none did
    limited_until: Floats  # [jobs]: and last


class SiteRules(NamedTuple):
    """A site's rules, and what changes of them while runs begin and end."""

    groups: LimitGroups  # limits
    profile: Ints  # [entries of `partition_of`]: its limits there
    run_profile: Ints  # [jobs]: limits that it counts in while it runs
    amounts: Floats  # [jobs, resources]: with which it counts
    array: Ints  # [jobs]; -1: none
    array_limit: Ints  # [jobs]: tasks of its array that run at once; 0: any number
    array_running: Ints  # [arrays]
    first_partition: Ints  # [jobs + 1]: entries of `partition_of`
    partition_of: Ints  # those that a job names and that take it
    several: Ints  # [jobs]: it names more than one
    in_partition: Ints  # [partitions, nodes]
    reservation: Ints  # [jobs]: the group of its own; -1: none
    limit: Floats  # [jobs]: time limit, s
    kept_begin: Floats  # [reservations]
    kept_end: Floats
    kept_known: Floats  # since when it is there
    kept_group: Ints  # [reservations]: those of one name
    flex: Ints  # [reservations]: jobs may start before it, and on other nodes too
    reserved: Ints  # [reservations, nodes]
    marks: Floats  # when an advance reservation begins to keep nodes from some job, or ceases to
    epilog: float  # s
    completing: Ints  # [nodes]: runs whose epilog is not over
    of_group: Ints  # [waiting groups]: one of its jobs, as they are all alike
    sizes: Ints  # [1]: nodes that complete


@inner
def count_run(rules: SiteRules, t: int, sign: int) -> None:
    """Count a run that begins, or with `sign` -1 one that ends."""
    count_running(rules.groups, rules.run_profile[t], rules.amounts[t], sign)
    if rules.array[t] >= 0:
        rules.array_running[rules.array[t]] += sign


@inner
def complete_node(rules: SiteRules, n: int, change: int) -> None:
    """Let an epilog begin (1) or end (-1) on a node."""
    rules.sizes[0] -= rules.completing[n] > 0
    rules.completing[n] += change
    rules.sizes[0] += rules.completing[n] > 0


@inner
def at_limit(rules: SiteRules, t: int) -> bool:
    """Return whether a limit keeps a job from starting in each of its partitions.

    Limits on minutes change while nothing begins or ends: the loops tell when a job is at one (`Looks`).
    """
    g = rules.groups
    for j in range(rules.first_partition[t], rules.first_partition[t + 1]):
        blocked = False
        for k in range(g.first_rule[rules.profile[j]], g.first_rule[rules.profile[j] + 1]):
            rule = g.rules[k]
            on_nodes = rule[RESOURCE] == NODE and rule[GROUP] >= 0 and g.counts_nodes
            if rule[KIND] in OVER_TIME or rule[KIND] == SUBMITTED or rule[RESOURCE] == BILLING or on_nodes:
                continue
            asks = g.requests[t, rule[RESOURCE]]
            blocked = blocked or blocks_start(g, rule, asks, g.requests[t, NODE], g.minutes[t], 0.0)
        if not blocked:
            return False
    return True


@inner
def rule_of(rules: SiteRules, t: int, now: float) -> int:
    """Return which rule keeps a job waiting whatever is free, `OPEN`: none."""
    if rules.first_partition[t] == rules.first_partition[t + 1]:
        return BY_PARTITION_DOWN
    if rules.array[t] >= 0 and 0 < rules.array_limit[t] <= rules.array_running[rules.array[t]]:
        return BY_LIMIT
    if at_limit(rules, t):
        return BY_LIMIT
    if rules.reservation[t] >= 0 and not has_begun(rules, rules.reservation[t], now):
        return BY_ADVANCE
    return OPEN


@inner
def has_begun(rules: SiteRules, group: int, now: float) -> bool:
    """Return whether jobs of an advance reservation may start: it has begun, or is flexible, and has not ended."""
    for r in range(len(rules.kept_begin)):
        mine = rules.kept_group[r] == group and now < rules.kept_end[r]
        if mine and (rules.flex[r] or rules.kept_begin[r] <= now):
            return True
    return False


@inner
def is_reserved(rules: SiteRules, group: int, n: int, now: float) -> bool:
    """Return whether jobs of an advance reservation may use a node."""
    for r in range(len(rules.kept_begin)):
        mine = rules.kept_group[r] == group and now < rules.kept_end[r]
        if mine and (rules.flex[r] or (rules.kept_begin[r] <= now and rules.reserved[r, n])):
            return True
    return False


@inner
def is_kept(rules: SiteRules, t: int, n: int, now: float) -> bool:
    """Return whether an advance reservation keeps a node from a job until its time limit."""
    for r in range(len(rules.kept_begin)):
        # At the instant from which on the job would reach into it, it is kept.
        reaches = rules.kept_known[r] <= now and rules.kept_begin[r] <= now + rules.limit[t] and rules.kept_end[r] > now
        if reaches and rules.kept_group[r] != rules.reservation[t] and rules.reserved[r, n]:
            return True
    return False


@inner
def keeps_nothing(rules: SiteRules, t: int) -> bool:
    """Return whether a job that fits on its nodes fits in its partition too, and nothing keeps those nodes."""
    return not rules.several[t] and not rules.sizes[0] and not len(rules.kept_begin)


@inner
def keeper(rules: SiteRules, t: int, instances: int, slots: Ints, now: float) -> int:
    """Return what keeps a job from nodes on which it would fit, by the `slots` on each; `FITS`: nothing.

    It must fit into one of its partitions, where nothing keeps the nodes.
    """
    reason = BY_PARTITION
    for k in range(rules.first_partition[t], rules.first_partition[t + 1]):
        p, r = rules.partition_of[k], rules.reservation[t]
        every, not_kept, ready = 0, 0, 0
        for n in range(len(slots)):
            if not slots[n] or not rules.in_partition[p, n] or (r >= 0 and not is_reserved(rules, r, n, now)):
                continue
            every += slots[n]
            if not is_kept(rules, t, n, now):
                not_kept += slots[n]
                ready += slots[n] if rules.completing[n] == 0 else 0
        if ready >= instances:
            return FITS
        if not_kept >= instances:
            reason = BY_COMPLETING
        elif every >= instances and reason != BY_COMPLETING:
            reason = BY_ADVANCE
    return reason


def alike(rules: SiteRules) -> Ints:
    """Number jobs so that those of one number are kept waiting by the same rules."""
    numbers = dict[tuple[object, ...], int]()
    group = np.empty(len(rules.array), dtype=np.int64)
    by_limit = len(rules.kept_begin) or (rules.groups.rules[:, KIND] >= JOB_MINUTES).any()
    limit = rules.limit if by_limit else np.zeros(len(group))  # else it tells no jobs apart
    array, profile = np.where(rules.array_limit > 0, rules.array, -1), _same_limits(rules.groups)[rules.profile]
    columns = zip(array.tolist(), rules.reservation.tolist(), limit.tolist(), strict=True)
    for t, column in enumerate(columns):
        mine = slice(rules.first_partition[t], rules.first_partition[t + 1])
        key = (*column, rules.partition_of[mine].tobytes(), profile[mine].tobytes())
        group[t] = numbers.setdefault(key, len(numbers))
    return group


def _same_limits(groups: LimitGroups) -> Ints:
    """Number sets of limits by what they are: two users without any have the same."""
    numbers = dict[bytes, int]()
    bounds = zip(groups.first_rule[:-1].tolist(), groups.first_rule[1:].tolist(), strict=True)
    return np.array([numbers.setdefault(groups.rules[a:b].tobytes(), len(numbers)) for a, b in bounds], dtype=np.int64)


def anew(rules: SiteRules, waits: Records, groups: int) -> SiteRules:
    """Return rules before anything runs, with one job for each group that waits."""
    of_group = np.zeros(groups, dtype=np.int64)
    of_group[waits.group] = waits.job
    limits = rules.groups._replace(running=np.zeros_like(rules.groups.running), held=np.zeros_like(rules.groups.held))
    return rules._replace(
        groups=limits, array_running=np.zeros_like(rules.array_running), completing=np.zeros_like(rules.completing),
        of_group=of_group, sizes=np.zeros_like(rules.sizes),
    )  # fmt: skip


def first_after(looked: Floats, times: Floats) -> Floats:
    """Return when something was first freed after each look: from then on the scheduler has not looked."""
    times = np.append(np.sort(times), np.inf)
    return times[np.minimum(np.searchsorted(times, looked, side="right"), len(times) - 1)]
