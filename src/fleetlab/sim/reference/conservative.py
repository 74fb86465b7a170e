"""Conservative backfill: every waiting job has a reservation, and a job starts only if that delays none before it.

Where ranks are fixed and no job outlasts its estimate, the plan stands from pass to pass; else it is made anew in each.
"""

from __future__ import annotations

import numpy as np

from fleetlab.sim.jit import inner, inner_loop, value
from fleetlab.sim.layout import RUNNING, NodeView
from fleetlab.sim.reference.allocation import fits
from fleetlab.sim.reference.passes import end_pass, find_able, forget_freed, try_able, try_all
from fleetlab.sim.reference.plan import new_search, plan_job, plan_running
from fleetlab.sim.reference.queue import over_quota
from fleetlab.sim.reference.ranking import next_job, rank_waiting
from fleetlab.sim.reference.state import Policies, Rules, Simulation


@inner
def clear_plan(sim: Simulation, now: NodeView) -> None:
    """Begin a plan anew: of running jobs alone."""
    for k in range(sim.clock.steps):
        sim.jobs[sim.steps[k].job].planned = np.nan
    sim.clock.steps = 0
    for k in range(sim.clock.running):
        plan_running(sim, now, sim.running[k])


@inner
def drop_ended(sim: Simulation) -> bool:
    """Take jobs that have ended out of the plan; return whether there are any."""
    count, clock = 0, sim.clock
    for k in range(clock.steps):
        step = sim.steps[k]
        job = sim.jobs[step.job]
        if job.status == RUNNING or job.planned == job.planned:
            sim.steps[count] = step
            count += 1
        elif step.time > clock.now:  # earlier than expected: others may move up
            clock.unsettled = 1
    ended = count < clock.steps
    clock.steps = count
    return ended


@inner
def remove_waiting(sim: Simulation) -> None:
    """Take all waiting jobs out of the plan."""
    count = 0
    for k in range(sim.clock.steps):
        job = sim.jobs[sim.steps[k].job]
        if job.status == RUNNING:
            sim.steps[count] = sim.steps[k]
            count += 1
        else:
            job.planned = np.nan
    sim.clock.steps = count


@inner_loop
def keep_plan(sim: Simulation, now: NodeView, rules: Rules, policies: Policies, size: int) -> None:
    """Bring the plan up to date: plan new jobs, start those that are due.

    After a job has ended early, all in order may move up; so again whenever a job ends, until none moves.
    """
    jobs, clock, anew, came, line = sim.jobs, sim.clock, False, False, np.empty(size, np.int64)
    moving = drop_ended(sim) and clock.unsettled
    for k in range(len(line)):
        line[k], size = next_job(sim, rules, size)
        planned = jobs[line[k]].planned == jobs[line[k]].planned
        anew |= planned and came  # a job ranks before one that has a reservation
        came |= not planned
    if anew:
        remove_waiting(sim)
    if anew or moving:
        clock.unsettled = 0
    search = new_search(now)
    for k in range(len(line)):
        t = line[k]
        before = jobs[t].planned
        if before > clock.now and not (anew or moving):
            continue
        plan_job(sim, rules, policies, int(t), now, search)
        if moving and (jobs[t].planned < before or (before > clock.now and jobs[t].status == RUNNING)):
            clock.unsettled = 1


@inner
def count_able(sim: Simulation, rules: Rules, now: NodeView) -> int:
    """Return how many of the groups tried still fit and have a waiting job."""
    able = 0
    for k in range(sim.clock.waiting):
        group = sim.groups[sim.waiting[k]]
        if group.tried:
            group.tried = fits(rules.shapes[group.shape_id], group.instances, now)
            able += group.tried
    return able


@value
def pass_conservative(sim: Simulation, now: NodeView, rules: Rules, policies: Policies) -> int:
    """Plan a start for every waiting job; a job starts only where that delays none before it."""
    if rules.plan_stands:
        forget_freed(sim)
        try_all(sim)
        keep_plan(sim, now, rules, policies, rank_waiting(sim, rules, policies))
        return 0
    able = find_able(sim, rules, now)
    if able:
        try_all(sim)
        size = rank_waiting(sim, rules, policies)
        try_able(sim)
        clear_plan(sim, now)
        search = new_search(now)
        while able and size:  # as soon as no job is left that fits now, plans matter no more
            t, size = next_job(sim, rules, size)
            if over_quota(sim, sim.jobs[t].group):
                continue
            plan_job(sim, rules, policies, t, now, search)
            able = count_able(sim, rules, now)
    end_pass(sim, rules, now)
    return 0
