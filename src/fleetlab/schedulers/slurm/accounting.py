"""What Slurm keeps accounts of: limits, usage and priorities."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fleetlab.schedulers.slurm.cores import MILLI
from fleetlab.schedulers.slurm.fair_share import begin_fair_share, end_fair_share, fair_share
from fleetlab.schedulers.slurm.priority import PriorityRules, Request, basic_priority, total_priority, weighted_factors
from fleetlab.schedulers.slurm.state import Slurm
from fleetlab.schedulers.slurm.usage import (
    Billing,
    Charge,
    Usage,
    UsageRules,
    billing_of,
    charge,
    charge_start,
    decay_usage,
    seconds_ahead,
)
from fleetlab.sim.associations import Associations
from fleetlab.sim.jit import inner, inner_loop
from fleetlab.sim.layout import Floats, Ints
from fleetlab.sim.limits import (
    BILLING,
    CPU,
    GPU,
    GROUP,
    JOB_MINUTES,
    KIND,
    MINUTE,
    MOST,
    NODE,
    OVER_TIME,
    REFUSED,
    RESOURCE,
    SPENT,
    SUBMITTED,
    TAKEN,
    TYPES,
    UNKNOWN_NODES,
    WALL,
    WITHIN,
    LimitGroups,
    blocks_start,
    count_ahead,
    count_node,
    count_running,
    count_submitted,
    is_above,
    too_many,
)


class Accounting(NamedTuple):
    """Limits, usage, and what priorities are computed from."""

    groups: LimitGroups
    multifactor: int  # else by submission alone
    period: float  # s between two passes over usage
    always: int  # ACCRUE_ALWAYS
    pass_at: Floats  # [2]: the next pass, and one that all others are whole periods away from
    lowest: Ints  # [1]: of the priorities given by submission
    associations: Associations
    usage: Usage
    usage_rules: UsageRules
    billing: Billing
    rules: PriorityRules
    amounts: Floats  # [jobs, resources]: what each job requests; since it started, what it holds
    cpus: Floats  # [jobs]
    nodes: Floats  # [jobs]
    association: Ints  # [jobs]: row
    qos_row: Ints  # [jobs]: row of usage, -1: none
    partition_row: Ints  # [partitions]: row of usage of its QOS, -1: none
    factor: Floats  # [jobs]: UsageFactor
    rate: Floats  # [jobs]: billing; -1: not computed yet


@inner
def set_priority(s: Slurm, a: Accounting, t: int) -> None:
    """Give a job its priority, one in each of its partitions."""
    job = s.jobs[t]
    if not a.multifactor:
        job.priority, a.lowest[0] = basic_priority(a.lowest[0], job.nice)
        for k in range(job.first_partition, job.first_partition + job.partitions):
            s.entry_priority[k] = job.priority
        return
    row = a.association[t]
    share = fair_share(a.associations, a.usage, a.usage_rules, a.rules.dampening, row)
    accrue = job.submit if a.always else job.accrue
    request = Request(row, job.qos, accrue, a.cpus[t], a.nodes[t], job.limit, float(job.nice), 0.0)
    job.priority = 0.0
    for k in range(job.first_partition, job.first_partition + job.partitions):
        p = s.partition_of[k]
        factors = weighted_factors(a.rules, request, a.amounts[t], p, share, s.clock.now)
        s.entry_priority[k] = total_priority(a.rules, factors, job.partitions > 1, int(s.entry_priority[k]))
        job.priority = max(job.priority, s.entry_priority[k])


@inner
def charge_of(s: Slurm, a: Accounting, t: int) -> Charge:
    """Return what a running job is charged to, at which rate; the rate of its first run stays."""
    job = s.jobs[t]
    if a.rate[t] < 0:
        a.rate[t] = billing_of(a.billing, job.part, a.amounts[t], a.cpus[t])
    other = a.partition_row[job.part]
    other = -1 if other == a.qos_row[t] else other
    return Charge(a.association[t], a.qos_row[t], other, a.rate[t], a.factor[t], job.start, job.limit)


@inner
def charge_begin(s: Slurm, a: Accounting, t: int) -> None:
    """A job starts: it counts in its groups, and its time limit in the limits of running minutes."""
    profile, amounts = profile_of(s, a, t, s.jobs[t].part), a.amounts[t]
    if s.jobs[t].whole:
        count_whole(s, a, t)
    count_types(s, a, t)
    charged = charge_of(s, a, t)
    amounts[BILLING] = np.floor(a.rate[t])
    count_running(a.groups, profile, amounts, 1)
    count_nodes(s, a, t, profile, 1)
    count_ahead(a.groups, profile, np.floor(np.floor(charged.limit) * charged.factor), amounts)
    if a.multifactor:
        charge_start(a.associations, a.usage, a.usage_rules, charged, amounts)


@inner
def charge_end(s: Slurm, a: Accounting, t: int) -> None:
    """A job ends: it leaves its groups, and is charged what it used since the last pass."""
    profile, amounts, charged = profile_of(s, a, t, s.jobs[t].part), a.amounts[t], charge_of(s, a, t)
    count_running(a.groups, profile, amounts, -1)
    count_nodes(s, a, t, profile, -1)
    seconds = np.floor(np.floor(charged.limit) * charged.factor)
    if a.multifactor:
        seconds = seconds_ahead(charged, max(a.usage.clock[0], np.floor(charged.start)), s.clock.second, 1)
    count_ahead(a.groups, profile, -seconds, amounts)
    if a.multifactor:
        charge(a.associations, a.usage, a.usage_rules, charged, amounts, s.clock.second, 1)


@inner
def count_types(s: Slurm, a: Accounting, t: int) -> None:
    """Write down of which types the GPUs are that a job got."""
    job, amounts = s.jobs[t], a.amounts[t]
    for r in range(TYPES, len(amounts)):
        amounts[r] = 0.0
    for k in range(job.first_slot, job.first_slot + job.slots):
        of = a.groups.node_type[s.slot_node[k]]
        if of >= 0:
            amounts[of] += s.nodes[s.slot_node[k]].gpus if job.whole else s.slot_count[k] * job.gpus


@inner
def count_whole(s: Slurm, a: Accounting, t: int) -> None:
    """Let a job that has its nodes to itself count with all that is on them."""
    job, cpus, gpus = s.jobs[t], 0.0, 0.0
    for k in range(job.first_slot, job.first_slot + job.slots):
        cpus += s.nodes[s.slot_node[k]].cpu / MILLI
        gpus += s.nodes[s.slot_node[k]].gpus
    a.amounts[t, CPU], a.amounts[t, GPU], a.cpus[t] = cpus, gpus, cpus


@inner
def count_trial(s: Slurm, a: Accounting, t: int, p: int, nodes: int) -> None:
    """Count a job as if it started in a partition on the nodes in `chosen`; `copy_counts` takes it back."""
    g, profile, job = a.groups, profile_of(s, a, t, p), s.jobs[t]
    amounts = g.kept.amounts
    for r in range(len(amounts)):
        amounts[r] = g.requests[t, r] if r < TYPES else 0.0
    amounts[BILLING] = np.floor(billing_of(a.billing, p, g.requests[t], a.cpus[t]))
    for j in range(nodes):
        n = s.chosen[j]
        if g.node_type[n] >= 0:
            amounts[g.node_type[n]] += s.share[j] * job.gpus
        if g.counts_nodes:
            count_node(g, profile, n, 1)
    count_running(g, profile, amounts, 1)
    count_ahead(g, profile, np.floor(np.floor(job.limit) * a.factor[t]), amounts)


@inner
def count_nodes(s: Slurm, a: Accounting, t: int, profile: int, sign: int) -> None:
    """Count the nodes that a job takes or leaves."""
    job = s.jobs[t]
    if a.groups.counts_nodes:
        for k in range(job.first_slot, job.first_slot + job.slots):
            count_node(a.groups, profile, s.slot_node[k], sign)


# -- limits ------------------------------------------------------------------------------------------------------------


@inner
def profile_of(s: Slurm, a: Accounting, t: int, p: int) -> int:
    """Return which rules a job has in a partition."""
    job = s.jobs[t]
    for k in range(job.first_partition, job.first_partition + job.partitions):
        if s.partition_of[k] == p:
            return int(a.groups.profile[k])
    return int(a.groups.profile[job.first_partition])


@inner
def limit_at(s: Slurm, a: Accounting, t: int, p: int, nodes: int) -> int:
    """Return the first rule that keeps a job from starting in a partition now, WITHIN: none does.

    A limit on nodes counts those that the job adds to its group's: `nodes` of them are in `chosen`, 0: none was found.
    """
    g, profile, minutes = a.groups, profile_of(s, a, t, p), a.groups.minutes[t]
    for k in range(g.first_rule[profile], g.first_rule[profile + 1]):
        rule = g.rules[k]
        if rule[KIND] == SUBMITTED:
            continue
        asks, spent = g.requests[t, rule[RESOURCE]], 0.0
        if rule[RESOURCE] == BILLING:
            asks = np.floor(billing_of(a.billing, p, g.requests[t], a.cpus[t]))
        if rule[KIND] in (SPENT, WALL):
            row = g.row[rule[GROUP]]
            spent = a.usage.wall[row] if rule[KIND] == WALL else a.usage.amounts[row, rule[RESOURCE]]
        if rule[RESOURCE] == NODE and rule[GROUP] >= 0 and g.counts_nodes:
            if nodes == UNKNOWN_NODES:
                continue
            for j in range(nodes):
                asks -= g.on_node[rule[GROUP], s.chosen[j]] > 0
        if blocks_start(g, rule, asks, g.requests[t, NODE], minutes, spent):
            return k
    return WITHIN


@inner
def within_limits(s: Slurm, a: Accounting, t: int, p: int, nodes: int) -> bool:
    """Return whether no limit keeps a job from starting in a partition now; `nodes` as for `limit_at`."""
    k = limit_at(s, a, t, p, nodes)
    if k == WITHIN:
        return True
    if a.groups.rules[k, KIND] in OVER_TIME or a.groups.rules[k, RESOURCE] == BILLING:
        job = s.jobs[t]
        job.limited_since, job.limited_until = min(job.limited_since, s.clock.second), s.clock.second
    return False


@inner
def may_submit(s: Slurm, a: Accounting, t: int) -> bool:
    """Return whether a job is taken: not above a limit on submitted jobs, nor with DenyOnLimit above any; counts it."""
    job, g = s.jobs[t], a.groups
    array = job.array
    if array < 0 or g.array_fate[array] not in (TAKEN, REFUSED):
        tasks = 1 if array < 0 else g.array_size[array]
        refused = False
        for k in range(job.first_partition, job.first_partition + job.partitions):
            refused = refused or too_many(g, g.profile[k], tasks)
            refused = refused or (g.deny[g.profile[k]] == 1 and never_starts(s, a, t, k))
        if array >= 0:
            g.array_fate[array] = REFUSED if refused else TAKEN
        if refused:
            return False
    elif g.array_fate[array] == REFUSED:
        return False
    count_submitted(g, g.profile[job.first_partition], 1)
    return True


@inner
def never_starts(s: Slurm, a: Accounting, t: int, entry: int) -> bool:
    """Return whether a job by itself is above a limit in one of its partitions."""
    g, profile = a.groups, a.groups.profile[entry]
    for k in range(g.first_rule[profile], g.first_rule[profile + 1]):
        rule = g.rules[k]
        asks = g.requests[t, rule[RESOURCE]]
        if rule[RESOURCE] == BILLING:
            asks = np.floor(billing_of(a.billing, s.partition_of[entry], g.requests[t], a.cpus[t]))
        if rule[KIND] != SUBMITTED and is_above(g, rule, asks, g.requests[t, NODE], g.minutes[t]):
            return True
    return False


@inner
def leave(s: Slurm, a: Accounting, t: int) -> None:
    """A job is over: it counts as submitted no more."""
    count_submitted(a.groups, a.groups.profile[s.jobs[t].first_partition], -1)


@inner
def usage_may_fall(a: Accounting) -> bool:
    """Return whether a job may wait for usage that decays: some is left in a group that limits it."""
    g = a.groups
    if not a.multifactor or a.usage_rules.decay == 1.0:
        return False
    for k in range(len(g.rules)):
        rule = g.rules[k]
        if rule[KIND] in (SPENT, WALL) and a.usage.decays[g.row[rule[GROUP]]]:
            row = g.row[rule[GROUP]]
            spent = a.usage.wall[row] if rule[KIND] == WALL else a.usage.amounts[row, rule[RESOURCE]]
            if spent >= MINUTE:
                return True
    return False


@inner
def minutes_are_used(s: Slurm, a: Accounting, t: int) -> bool:
    """Return whether a running job is to end because a group of its has used its minutes."""
    g, profile, job = a.groups, profile_of(s, a, t, s.jobs[t].part), s.jobs[t]
    ran = np.floor((s.clock.second - job.start) / MINUTE)
    for k in range(g.first_rule[profile], g.first_rule[profile + 1]):
        rule = g.rules[k]
        if rule[KIND] in (SPENT, WALL):
            row = g.row[rule[GROUP]]
            spent = a.usage.wall[row] if rule[KIND] == WALL else a.usage.amounts[row, rule[RESOURCE]]
            holds = rule[KIND] == WALL or a.amounts[t, rule[RESOURCE]] > 0
            if holds and np.floor(spent / MINUTE) >= rule[MOST]:
                return True
        elif rule[KIND] == JOB_MINUTES and ran * a.amounts[t, rule[RESOURCE]] + 1.0 > rule[MOST]:
            return True
    return False


@inner_loop
def pass_over_usage(s: Slurm, a: Accounting) -> None:
    """Decay usage, charge running jobs, rank the associations, and give all pending jobs new priorities."""
    now = s.clock.second
    begin_fair_share(a.associations, a.usage, a.usage_rules)
    decay_usage(a.usage, a.usage_rules, now)
    for k in range(s.clock.running):
        t = s.running[k]
        charged = charge_of(s, a, t)
        ahead = seconds_ahead(charged, max(a.usage.clock[0], np.floor(charged.start)), now, 0)
        count_ahead(a.groups, profile_of(s, a, t, s.jobs[t].part), -ahead, a.amounts[t])
        charge(a.associations, a.usage, a.usage_rules, charged, a.amounts[t], now, 0)
    end_fair_share(a.associations, a.usage, a.usage_rules, now)
    for k in range(s.clock.pending):
        set_priority(s, a, s.pending[k])
    first = a.pass_at[1]
    a.pass_at[0] = first + (np.floor((np.floor(s.clock.now) - first) / a.period) + 1.0) * a.period
    if s.clock.running:
        s.clock.changed = now
