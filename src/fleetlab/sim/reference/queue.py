"""The waiting jobs; what users have allocated; runtime estimates."""

from __future__ import annotations

from fleetlab.sim.jit import inner
from fleetlab.sim.layout import WAITING, WHOLE, Record, Records
from fleetlab.sim.quota import charge, is_barred
from fleetlab.sim.reference.state import Rules, Simulation
from fleetlab.sim.site_view import charge_accounts


@inner
def ranks_after(jobs: Records, a: int, b: int) -> bool:
    """Return whether job `a` comes after job `b`, by their keys."""
    return jobs[a].key > jobs[b].key or (jobs[a].key == jobs[b].key and a > b)


@inner
def enter(sim: Simulation, t: int) -> None:
    """Let a job wait."""
    clock, jobs, job = sim.clock, sim.jobs, sim.jobs[t]
    group = sim.groups[job.group]
    if group.length == 0:
        sim.waiting[clock.waiting], group.slot = job.group, clock.waiting
        clock.waiting += 1
        group.is_new, group.delays, group.over_quota, group.newest = 1, 0, 0, -1
    job.status, job.next, job.previous = WAITING, group.newest, -1
    if group.newest >= 0:
        jobs[group.newest].previous = t
    group.newest = t
    group.length += 1
    if clock.head >= 0 and ranks_after(jobs, clock.head, t):
        clock.outranked = 1


@inner
def leave(sim: Simulation, t: int) -> None:
    """Let a job wait no more."""
    clock, jobs, job = sim.clock, sim.jobs, sim.jobs[t]
    group = sim.groups[job.group]
    if job.previous >= 0:
        jobs[job.previous].next = job.next
    else:
        group.newest = job.next
    if job.next >= 0:
        jobs[job.next].previous = job.previous
    group.length -= 1
    if group.length == 0:
        clock.waiting -= 1
        last = sim.waiting[clock.waiting]
        sim.waiting[group.slot] = last
        sim.groups[last].slot = group.slot


# -- partitions ------------------------------------------------------------------------------------------------------


@inner
def open_partitions(sim: Simulation) -> None:
    """Begin a pass: no partition is blocked."""
    for p in range(len(sim.partitions)):
        sim.partitions[p].blocked = 0


@inner
def block(sim: Simulation, rules: Rules, q: int) -> None:
    """Let the jobs behind one of queue `q` wait in its partitions."""
    for p in rules.queues[q]:
        if p >= 0:
            sim.partitions[p].blocked = 1


@inner
def open_classes(sim: Simulation, rules: Rules, q: int) -> int:
    """Return the node classes of the partitions of queue `q` that are not blocked, as bits; 0: all are."""
    classes = 0
    for p in rules.queues[q]:
        if p >= 0 and not sim.partitions[p].blocked:
            classes |= sim.partitions[p].classes
    return classes


# -- users -----------------------------------------------------------------------------------------------------------


@inner
def charge_user(sim: Simulation, rules: Rules, job: Record, sign: int) -> None:
    """Add what a job has allocated to its user and queues (1), or subtract it (-1)."""
    user, shape, count = sim.users[job.user], rules.shapes[job.shape_id], sign * job.instances
    user.cpu += count * shape.cpu
    user.memory += count * shape.memory
    user.gpu += count * shape.gpus * shape.milli
    share = max(user.gpu / rules.gpu, user.cpu / rules.cpu)
    sim.usage[job.user] = max(share, user.memory / rules.memory)
    charge(sim.quotas, sim.groups[job.group].member, sign)
    if len(sim.accounts):
        charge_accounts(sim.accounts, job.account, sign * job.gpu_milli / WHOLE, rules.decay, sim.clock.now)


@inner
def over_quota(sim: Simulation, g: int) -> bool:
    """Return whether a job of group `g` would take its user or queue above a quota."""
    return is_barred(sim.quotas, sim.groups[g].member)


# -- estimates -------------------------------------------------------------------------------------------------------


@inner
def estimate(sim: Simulation, t: int) -> None:
    """Estimate the runtime of a job that arrives: the mean of finished jobs of its learner, or of all."""
    learners, of = sim.learners, sim.jobs[t].learner
    if of >= 0:
        sim.estimate[t] = learners[of if learners[of].count else len(learners) - 1].average


@inner
def learn(learners: Records, job: Record) -> None:
    """Remember the runtime of a finished job."""
    if job.learner >= 0:
        for of in (job.learner, len(learners) - 1):
            learner = learners[of]
            learner.count += 1
            learner.average += (job.runtime - learner.average) / learner.count
