"""What Slurm keeps accounts of: limits, usage and priorities."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fleetlab.sim.jit import inner, inner_loop
from fleetlab.sim.layout import Floats, Ints
from fleetlab.sim.slurm.associations import Associations
from fleetlab.sim.slurm.fair_share import begin_fair_share, end_fair_share, fair_share
from fleetlab.sim.slurm.limits import Groups
from fleetlab.sim.slurm.priority import PriorityRules, Request, basic_priority, total_priority, weighted_factors
from fleetlab.sim.slurm.state import Slurm
from fleetlab.sim.slurm.usage import Billing, Charge, Usage, UsageRules, billing_of, charge, charge_start, decay_usage


class Accounting(NamedTuple):
    """Limits, usage, and what priorities are computed from."""

    groups: Groups
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
    amounts: Floats  # [jobs, resources]: what each job requests
    cpus: Floats  # [jobs]
    nodes: Floats  # [jobs]
    association: Ints  # [jobs]: row
    qos_row: Ints  # [jobs]: row of usage, -1: none
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
    return Charge(a.association[t], a.qos_row[t], -1, a.rate[t], a.factor[t], job.start, job.limit)


@inner
def charge_begin(s: Slurm, a: Accounting, t: int) -> None:
    """A job starts: its time limit counts in the limits of running minutes."""
    if a.multifactor:
        charge_start(a.associations, a.usage, a.usage_rules, charge_of(s, a, t), a.amounts[t])


@inner
def charge_end(s: Slurm, a: Accounting, t: int) -> None:
    """A job ends: charge what it used since the last pass."""
    if a.multifactor:
        charge(a.associations, a.usage, a.usage_rules, charge_of(s, a, t), a.amounts[t], s.clock.second, 1)


@inner_loop
def pass_over_usage(s: Slurm, a: Accounting) -> None:
    """Decay usage, charge running jobs, rank the associations, and give all pending jobs new priorities."""
    now = s.clock.second
    begin_fair_share(a.associations, a.usage, a.usage_rules)
    decay_usage(a.usage, a.usage_rules, now)
    for k in range(s.clock.running):
        t = s.running[k]
        charge(a.associations, a.usage, a.usage_rules, charge_of(s, a, t), a.amounts[t], now, 0)
    end_fair_share(a.associations, a.usage, a.usage_rules, now)
    for k in range(s.clock.pending):
        set_priority(s, a, s.pending[k])
    first = a.pass_at[1]
    a.pass_at[0] = first + (np.floor((np.floor(s.clock.now) - first) / a.period) + 1.0) * a.period
    if s.clock.running:
        s.clock.changed = now
