"""Scheduling passes, one for each backfill rule: which waiting jobs start now."""

from __future__ import annotations

from fleetlab.sim.codes import NO_BACKFILL
from fleetlab.sim.jit import inner, inner_loop, value
from fleetlab.sim.layout import NodeView, Record
from fleetlab.sim.nodes import holds, node_slots
from fleetlab.sim.reference.allocation import fits, slots, start
from fleetlab.sim.reference.easy import Shadow, reserve, start_beside
from fleetlab.sim.reference.queue import over_quota
from fleetlab.sim.reference.ranking import next_job, rank_waiting
from fleetlab.sim.reference.state import Policies, Rules, Simulation
from fleetlab.sim.reference.work import estimated_length

# -- which groups are tried ------------------------------------------------------------------------------------------


@inner
def forget_freed(sim: Simulation) -> None:
    """End a pass: the next one counts freed nodes anew."""
    for k in range(sim.clock.freed):
        sim.nodes[sim.freed[k]].freed = 0
    sim.clock.freed = 0


@inner
def freed_slots(sim: Simulation, shape: Record, enough: int, now: NodeView) -> int:
    """Return how many instances the nodes freed since the last pass could hold, counted up to `enough`."""
    count = 0
    for k in range(sim.clock.freed):
        count += node_slots(shape, now.nodes[sim.freed[k]], now.gpus, now.apps)
        if count >= enough:
            break
    return count


@inner
def find_able(sim: Simulation, rules: Rules, now: NodeView) -> int:
    """Mark the groups that may fit where they did not before, and of these those that fit; return how many do.

    What fitted when a group was last counted, and what was freed since, bounds what fits now: few are counted again.
    """
    able = 0
    for k in range(sim.clock.waiting):
        g = sim.waiting[k]
        group, barred = sim.groups[g], over_quota(sim, g)
        shape, count = rules.shapes[group.shape_id], group.instances
        if group.is_new or group.over_quota or barred:
            group.fit_bound = count  # nothing is known
        more = freed_slots(sim, shape, max(1, count - group.fit_bound), now)
        group.retry = group.is_new or (group.over_quota and not barred) or more > 0
        group.able, group.fit_bound = 0, min(count, group.fit_bound + more)
        if not barred and (group.retry or group.delays) and group.fit_bound == count:
            group.fit_bound = slots(shape, count, now)
            group.able = group.fit_bound == count
            able += group.able
    forget_freed(sim)
    return able


@inner
def try_all(sim: Simulation) -> None:
    """Let every group be tried, but for those over their user's quota."""
    for k in range(sim.clock.waiting):
        sim.groups[sim.waiting[k]].tried = not over_quota(sim, sim.waiting[k])


@inner
def try_able(sim: Simulation) -> None:
    """Let the groups be tried that fit when the pass began: no other will fit in it."""
    for k in range(sim.clock.waiting):
        group = sim.groups[sim.waiting[k]]
        group.tried, group.held = group.able, 0


@inner
def end_pass(sim: Simulation, rules: Rules, now: NodeView) -> None:
    """Note of each waiting group whether it fits but may not start, and whether it is over its quota."""
    for k in range(sim.clock.waiting):
        group, barred = sim.groups[sim.waiting[k]], over_quota(sim, sim.waiting[k])
        anew = group.is_new or group.retry or group.delays or group.over_quota
        if anew and not barred and (rules.backfill != NO_BACKFILL or len(rules.queues) > 1):
            group.delays = group.able and fits(rules.shapes[group.shape_id], group.instances, now)
        group.over_quota = barred
        group.is_new = group.retry = 0


# -- no backfill -----------------------------------------------------------------------------------------------------


@inner
def still_blocked(sim: Simulation, rules: Rules, t: int, now: NodeView) -> bool:
    """Return whether `t` is the head that did not fit before, and no node freed since holds an instance of it."""
    if t != sim.clock.head:
        return False
    shape = rules.shapes[sim.jobs[t].shape_id]
    for k in range(sim.clock.freed):  # noqa: SIM110  compiled, a loop is quicker than a generator
        if holds(shape, now.nodes[sim.freed[k]], now.gpus, now.apps):
            return False
    return True


@value
def pass_none(sim: Simulation, now: NodeView, rules: Rules, policies: Policies) -> int:
    """Start jobs in order; all wait behind the first that does not fit."""
    clock, head = sim.clock, -1
    before = clock.head
    fixed = not (rules.moving or rules.quota or clock.outranked)
    if before >= 0 and fixed and still_blocked(sim, rules, before, now):
        forget_freed(sim)
        return 0
    try_all(sim)
    size = rank_waiting(sim, rules, policies)
    while size:
        t, size = next_job(sim, rules, size)
        job = sim.jobs[t]
        if over_quota(sim, job.group):
            continue
        if t == before and still_blocked(sim, rules, t, now):
            head = t
            break
        before = -1  # another job was tried: what is free may have changed
        if not fits(rules.shapes[job.shape_id], job.instances, now):
            head = t
            break
        start(sim, rules, policies, t, now)
    clock.head, clock.outranked = head, 0
    forget_freed(sim)
    end_pass(sim, rules, now)
    return 0


# -- greedy ----------------------------------------------------------------------------------------------------------


@value
def pass_greedy(sim: Simulation, now: NodeView, rules: Rules, policies: Policies) -> int:
    """Start every job that fits, in order."""
    able = find_able(sim, rules, now)
    if able:
        try_able(sim)
        size = rank_waiting(sim, rules, policies)
        while able and size:
            t, size = next_job(sim, rules, size)
            job, group = sim.jobs[t], sim.groups[sim.jobs[t].group]
            if not group.tried:
                continue
            if over_quota(sim, job.group) or not fits(rules.shapes[job.shape_id], job.instances, now):
                group.tried = 0
                able -= 1
            else:
                start(sim, rules, policies, t, now)
    end_pass(sim, rules, now)
    return 0


# -- easy ------------------------------------------------------------------------------------------------------------


@value
def pass_easy(sim: Simulation, now: NodeView, rules: Rules, policies: Policies) -> int:
    """Start jobs in order; the first that does not fit gets a reservation, which no other may delay."""
    able = find_able(sim, rules, now)
    if able:
        try_all(sim)
        size = rank_waiting(sim, rules, policies)
        try_able(sim)
        while able and size:
            t, size = next_job(sim, rules, size)
            job, group = sim.jobs[t], sim.groups[sim.jobs[t].group]
            if over_quota(sim, job.group):
                continue
            if group.tried and fits(rules.shapes[job.shape_id], job.instances, now):
                start(sim, rules, policies, t, now)
                continue
            able -= group.tried
            group.tried = 0
            backfill(sim, now, rules, policies, able, size, reserve(sim, rules, t, now))
            break
    end_pass(sim, rules, now)
    return 0


@inner_loop
def backfill(
    sim: Simulation, now: NodeView, rules: Rules, policies: Policies, able: int, size: int, shadow: Shadow
) -> None:
    """Start jobs that end before the shadow time, or beside which the first still fits then."""
    while able and size:
        t, size = next_job(sim, rules, size)
        job, group = sim.jobs[t], sim.groups[sim.jobs[t].group]
        if not group.tried or over_quota(sim, job.group):
            continue
        if not fits(rules.shapes[job.shape_id], job.instances, now):
            group.tried = 0
            able -= 1
        elif sim.clock.now + estimated_length(sim, rules, t) <= shadow.time:
            start(sim, rules, policies, t, now)
        elif not group.held:  # what is free beside the first only becomes less
            group.held = not start_beside(sim, rules, policies, t, now, shadow)
