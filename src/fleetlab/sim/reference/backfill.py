"""Backfilling: which jobs may start before others without delaying them, by estimates of runtimes.

`easy` keeps one reservation, that of the first job in the queue that does not fit. `conservative` plans a start for
every waiting job, and starts a job only if that delays none ranked before it. A reservation is of nodes and GPUs, not
only of their number.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fleetlab.sim.heap import pop, push
from fleetlab.sim.jit import inner, inner_loop
from fleetlab.sim.layout import NOW, PLANNED, TICK, UNLIMITED, Floats, Ints, NodeView
from fleetlab.sim.reference.allocation import begin, copy, fits, leave_common, occupy, place, slots, slots_gained
from fleetlab.sim.reference.state import Policies, Rules, Simulation, on_tick
from fleetlab.sim.reference.work import estimated_length


@inner_loop
def running_by_end(sim: Simulation) -> tuple[Floats, Ints]:
    """Return a heap of the running jobs by expected end; one that is overdue is expected to end at once."""
    n, now = sim.clock.running, sim.clock.now
    keys, heap = np.empty(n), np.empty(n, np.int64)
    for k in range(n):
        end = sim.jobs[sim.running[k]].expected_end
        push(keys, heap, 0, k, end if end > now else now + TICK, sim.running[k])
    return keys, heap


@inner_loop
def reserve(sim: Simulation, rules: Rules, policies: Policies, t: int, reserved: NodeView) -> float:
    """Return when the first job in the queue will fit, by estimates; `reserved` becomes what is free beside it then."""
    job = sim.jobs[t]
    shape = rules.shapes[job.shape_id]
    ends, heap = running_by_end(sim)
    size, count, shadow_time = len(heap), slots(shape, UNLIMITED, reserved), sim.clock.now
    while count < job.instances and size:
        shadow_time, r = ends[0], heap[0]
        pop(ends, heap, 0, size)
        size -= 1
        count += slots_gained(sim, rules, shape, r, reserved, NOW, 1)
    if count < job.instances:
        return np.inf  # not before nodes come back: nothing can delay it
    place(sim, rules, policies, t, reserved, PLANNED)
    return shadow_time


@inner_loop
def combine(now: NodeView, reserved: NodeView) -> NodeView:
    """Return what is free both now and beside the reservation."""
    combined = copy(now)
    for n in range(len(combined.nodes)):
        leave_common(combined, reserved, n)
    return combined


@inner
def combine_at(sim: Simulation, t: int, combined: NodeView, now: NodeView) -> None:
    """A job has started: leave of `combined` only what is still free now on its nodes."""
    job = sim.jobs[t]
    for i in range(job.first_instance, job.first_instance + job.instances):
        leave_common(combined, now, sim.instances[i].node[NOW])


@inner_loop
def start_beside(
    sim: Simulation, rules: Rules, policies: Policies, t: int, now: NodeView, reserved: NodeView, combined: NodeView
) -> None:
    """Start a job on what is free both now and beside the reservation."""
    place(sim, rules, policies, t, combined, NOW)
    occupy(sim, rules, t, now, NOW)
    occupy(sim, rules, t, reserved, NOW)
    begin(sim, rules, t, now)


# -- a plan over time ------------------------------------------------------------------------------------------------

RELEASE, OCCUPY = range(2)  # at one time in this order


class Plan(NamedTuple):
    """Which job releases or occupies its nodes when, in order of time. `conservative` makes one in every pass."""

    time: Floats
    action: Ints
    job: Ints
    length: Ints  # [1]


@inner
def add_step(plan: Plan, time: float, action: int, t: int) -> None:
    """Add to the plan that a job releases or occupies its nodes; releases come first at one time."""
    k = plan.length[0]
    while k and (plan.time[k - 1] > time or (plan.time[k - 1] == time and plan.action[k - 1] > action)):
        plan.time[k], plan.action[k], plan.job[k] = plan.time[k - 1], plan.action[k - 1], plan.job[k - 1]
        k -= 1
    plan.time[k], plan.action[k], plan.job[k] = time, action, t
    plan.length[0] += 1


@inner
def fits_until(
    sim: Simulation, rules: Rules, t: int, plan: Plan, k: int, ahead: NodeView, free: NodeView, end: float
) -> bool:
    """Return whether a job that fits in `free` fits there until `end`; `free` is left with what is free all that time.

    `ahead` is what is free at step `k` of the plan, and changes with the steps that follow.
    """
    shape, count, size = rules.shapes[sim.jobs[t].shape_id], sim.jobs[t].instances, plan.length[0]
    while k < size and plan.time[k] < end:
        time, occupied = plan.time[k], 0
        while k < size and plan.time[k] == time:
            slots_gained(sim, rules, shape, plan.job[k], ahead, PLANNED, 1 - 2 * plan.action[k])
            occupied += plan.action[k]
            k += 1
        for step in range(k - occupied, k):
            other = sim.jobs[plan.job[step]]
            for i in range(other.first_instance, other.first_instance + other.instances):
                leave_common(free, ahead, sim.instances[i].node[PLANNED])
        if occupied and not fits(shape, count, free):
            return False
    return True


@inner_loop
def earliest_start(sim: Simulation, rules: Rules, policies: Policies, t: int, now: NodeView, plan: Plan) -> float:
    """Return the first time from which on a job fits for its estimated runtime; its nodes are planned."""
    job, at, k = sim.jobs[t], sim.clock.now, 0
    shape, length = rules.shapes[job.shape_id], max(TICK, estimated_length(sim, rules, t))
    then, count = copy(now), slots(shape, UNLIMITED, now)
    while True:
        if count >= job.instances:
            free = copy(then)
            if fits_until(sim, rules, t, plan, k, copy(then), free, at + length):
                place(sim, rules, policies, t, free, PLANNED)
                return at
        if k == plan.length[0]:
            return np.inf
        at = plan.time[k]
        while k < plan.length[0] and plan.time[k] == at:
            count += slots_gained(sim, rules, shape, plan.job[k], then, PLANNED, 1 - 2 * plan.action[k])
            k += 1


@inner_loop
def plan_running(sim: Simulation, size: int) -> Plan:
    """Make a plan of the ends of the running jobs, with room for `size` more jobs."""
    steps = sim.clock.running + 2 * size + 2
    plan = Plan(np.empty(steps), np.empty(steps, np.int64), np.empty(steps, np.int64), np.zeros(1, np.int64))
    ends, heap = running_by_end(sim)
    for k in range(len(heap)):
        plan.time[k], plan.action[k], plan.job[k] = ends[0], RELEASE, heap[0]
        job = sim.jobs[heap[0]]
        for i in range(job.first_instance, job.first_instance + job.instances):
            instance = sim.instances[i]
            instance.node[PLANNED], instance.gpus[PLANNED] = instance.node[NOW], instance.gpus[NOW]
        pop(ends, heap, 0, len(heap) - k)
    plan.length[0] = len(heap)
    return plan


@inner_loop
def plan_next(sim: Simulation, rules: Rules, policies: Policies, t: int, now: NodeView, plan: Plan) -> None:
    """Plan the earliest start of a job that delays none in the plan, and start it if that is now."""
    job, clock = sim.jobs[t], sim.clock
    at = earliest_start(sim, rules, policies, t, now, plan)
    if at == np.inf:
        return  # not before nodes come back: nothing can delay it
    end = on_tick(at + max(TICK, estimated_length(sim, rules, t)))
    if at == clock.now:
        for i in range(job.first_instance, job.first_instance + job.instances):
            instance = sim.instances[i]
            instance.node[NOW], instance.gpus[NOW] = instance.node[PLANNED], instance.gpus[PLANNED]
        occupy(sim, rules, t, now, NOW)
        begin(sim, rules, t, now)
    else:
        add_step(plan, at, OCCUPY, t)
    add_step(plan, end, RELEASE, t)
