"""Limits of accounts, users, classes of service and partitions: what jobs may hold, use and submit together.

A *group* is whatever has a limit: all jobs of a class of service, those of one user in it, an account with all below
it. A job counts in each of its groups. Its *rules* are the limits that hold for it in one partition, in the order in
which Slurm looks at them (`limit_tables`): the first that does not let it start is the reason why it waits.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fleetlab.sim.jit import inner
from fleetlab.sim.layout import Floats, Ints

# Resources are columns; GPUs of one type come after these.
CPU, MEMORY, NODE, GPU, BILLING, TYPES = range(6)
# Kinds of rules: on a group's running jobs, the resources they hold, the resource-minutes to their time limits, the
# resource-minutes and minutes used, and submitted jobs; on one job's resources, of all its nodes and of each, its
# least resources, its resource-minutes and minutes.
JOBS, HELD, AHEAD, SPENT, WALL, SUBMITTED, PER_JOB, PER_NODE, AT_LEAST, JOB_MINUTES, JOB_WALL = range(11)
KIND, GROUP, RESOURCE, MOST = range(4)  # columns of a rule
OVER_TIME = (AHEAD, SPENT, WALL)  # they change while nothing begins or ends
WITHIN = -1  # no rule keeps a job from starting
MINUTE = 60.0
UNKNOWN_NODES = -1  # where it would start: limits on nodes are not looked at


class Kept(NamedTuple):
    """What groups have, kept while the parts of a heterogeneous job are tried."""

    running: Ints
    held: Floats
    ahead: Floats
    on_node: Ints
    amounts: Floats  # [resources]: of the part that is tried


class LimitGroups(NamedTuple):
    """Groups of jobs, what they have, and the rules of jobs."""

    profile: Ints  # [entries of `partition_of`]: which rules a job has in each of its partitions
    first: Ints  # [profiles + 1]: entries of `of`
    of: Ints  # the groups that jobs with these rules count in
    first_rule: Ints  # [profiles + 1]: entries of `rules`
    rules: Ints  # [rules, 4]: KIND, GROUP, RESOURCE, MOST
    deny: Ints  # [profiles]: DenyOnLimit: what can never start is refused
    row: Ints  # [groups]: row of the usage, -1: none
    running: Ints  # [groups]: jobs
    submitted: Ints  # [groups]: jobs pending or running
    held: Floats  # [groups, resources]
    ahead: Floats  # [groups, resources]: resource-seconds that running jobs have left to their limits
    on_node: Ints  # [groups, nodes]: jobs on each node; [1, 1] where no limit counts nodes
    counts_nodes: int
    safe: int  # AccountingStorageEnforce: a job starts only if it can end within the minutes
    kills: int  # running jobs end where a group has used its minutes
    minutes: Floats  # [jobs]: of the time limit, times UsageFactor with the flag UsageFactorSafe
    requests: Floats  # [jobs, resources]: of BILLING nothing: it depends on the partition
    node_type: Ints  # [nodes]: column of its GPUs' type, -1: none
    array_size: Ints  # [arrays]: tasks
    array_fate: Ints  # [arrays]: whether an array was submitted: NOT_YET, TAKEN or REFUSED
    kept: Kept


NOT_YET, TAKEN, REFUSED = range(3)


@inner
def is_above(g: LimitGroups, rule: Ints, asks: float, nodes: float, minutes: float) -> bool:
    """Return whether a job by itself is above a limit, so that it can never start."""
    kind, most = rule[KIND], rule[MOST]
    if kind in (HELD, PER_JOB):
        return asks > most
    if kind == PER_NODE:
        return np.floor(asks / max(nodes, 1.0)) > most
    if kind == AT_LEAST:
        return asks < most
    if kind in (AHEAD, SPENT, JOB_MINUTES):
        return asks * minutes > most
    return kind in (WALL, JOB_WALL) and minutes > most


@inner
def is_reached(g: LimitGroups, rule: Ints, asks: float, minutes: float, spent: float) -> bool:
    """Return whether a job that starts now would take its group above a limit; `spent` are seconds used by now."""
    kind, group, most = rule[KIND], rule[GROUP], rule[MOST]
    if kind == JOBS:
        return g.running[group] >= most
    if kind == HELD:
        return asks > 0 and g.held[group, rule[RESOURCE]] + asks > most
    if kind == WALL:
        used = np.floor(spent / MINUTE)
        return used >= most or (g.safe == 1 and used + minutes > most)
    if asks <= 0:
        return False
    ahead = np.floor(g.ahead[group, rule[RESOURCE]] / MINUTE) if kind in (AHEAD, SPENT) else 0.0
    if kind == AHEAD:
        return asks * minutes + ahead > most
    if kind == SPENT:
        used = np.floor(spent / MINUTE)
        return used >= most or (g.safe == 1 and asks * minutes + ahead > most - used)
    return False


@inner
def blocks_start(g: LimitGroups, rule: Ints, asks: float, nodes: float, minutes: float, spent: float) -> bool:
    """Return whether a rule keeps a job from starting now."""
    kind = rule[KIND]
    if kind in (SPENT, WALL) and not g.safe:
        return is_reached(g, rule, asks, minutes, spent)
    return is_above(g, rule, asks, nodes, minutes) or is_reached(g, rule, asks, minutes, spent)


@inner
def count_running(g: LimitGroups, profile: int, amounts: Floats, sign: int) -> None:
    """Count a job that starts, or with `sign` -1 one that ends; nodes are counted by `count_nodes`."""
    for k in range(g.first[profile], g.first[profile + 1]):
        group = g.of[k]
        g.running[group] += sign
        for r in range(g.held.shape[1]):
            if r != NODE or not g.counts_nodes:
                g.held[group, r] += sign * amounts[r]


@inner
def count_node(g: LimitGroups, profile: int, n: int, sign: int) -> None:
    """Count a node that a job takes or leaves: a group holds a node once, however many of its jobs are there."""
    for k in range(g.first[profile], g.first[profile + 1]):
        group = g.of[k]
        before = g.on_node[group, n]
        g.on_node[group, n] = before + sign
        if (before == 0) != (before + sign == 0):
            g.held[group, NODE] += sign


@inner
def count_ahead(g: LimitGroups, profile: int, seconds: float, amounts: Floats) -> None:
    """Count the seconds that a running job has left to its limit; negative: they are over."""
    for k in range(g.first[profile], g.first[profile + 1]):
        for r in range(g.ahead.shape[1]):
            g.ahead[g.of[k], r] = max(g.ahead[g.of[k], r] + seconds * amounts[r], 0.0)


@inner
def copy_counts(source: LimitGroups | Kept, target: LimitGroups | Kept) -> None:
    """Keep what groups have, or give it back to them; one by one, as compiled loops cannot take memory."""
    for group in range(len(source.running)):
        target.running[group] = source.running[group]
        for r in range(source.held.shape[1]):
            target.held[group, r], target.ahead[group, r] = source.held[group, r], source.ahead[group, r]
    for group in range(source.on_node.shape[0]):
        for n in range(source.on_node.shape[1]):
            target.on_node[group, n] = source.on_node[group, n]


@inner
def count_submitted(g: LimitGroups, profile: int, sign: int) -> None:
    """Count a job that is submitted, or with `sign` -1 one that has left."""
    for k in range(g.first[profile], g.first[profile + 1]):
        g.submitted[g.of[k]] += sign


@inner
def too_many(g: LimitGroups, profile: int, tasks: int) -> bool:
    """Return whether a submission of so many jobs is above a limit on submitted jobs."""
    for k in range(g.first_rule[profile], g.first_rule[profile + 1]):
        rule = g.rules[k]
        if rule[KIND] == SUBMITTED and g.submitted[rule[GROUP]] + tasks > rule[MOST]:
            return True
    return False
