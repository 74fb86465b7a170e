"""The plan of conservative backfill: when every waiting job will start, by estimates of runtimes.

A plan is a list of steps: jobs that release what they have, jobs that occupy it. What is alike is counted:

- Nodes on which no two instances fit together are machines. Those of one kind are a *pool*: a plan says how many are
  used. In the views here one row, that of its first node, stands for a pool: `up` is how many are idle.
- GPUs of a node that no job takes a fraction of are *counted*: a plan says how many of the node are used.
- Else a plan names the node, and the GPU that a fraction is on.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fleetlab.sim.jit import inner, inner_loop
from fleetlab.sim.layout import NOW, PLANNED, TICK, WHOLE, Ints, NodeView, Record
from fleetlab.sim.nodes import BESIDE_GPUS, give_back, holds, node_slots, recount, take, take_gpus
from fleetlab.sim.reference.allocation import begin, copy, leave_common, occupy, place
from fleetlab.sim.reference.state import Policies, Rules, Simulation, on_tick
from fleetlab.sim.reference.work import estimated_length

RELEASE, OCCUPY = range(2)  # at one time in this order


class PlanSearch(NamedTuple):
    """Views of the nodes to find a start with."""

    then: NodeView  # at a step of the plan
    ahead: NodeView  # at a later step
    free: NodeView  # from the one to the other
    attempt: Ints  # [nodes]: for which start the rows of `ahead` and `free` are; in others a node is as in `then`
    left: Ints  # [nodes]: machines of a pool


@inner_loop
def new_search(now: NodeView) -> PlanSearch:
    """Make views to search with."""
    n = len(now.nodes)
    return PlanSearch(copy(now), copy(now), copy(now), np.zeros(n, np.int64), np.zeros(n, np.int64))


# -- nodes in a plan -------------------------------------------------------------------------------------------------


@inner
def copy_row(source: NodeView, target: NodeView, n: int) -> None:
    """Copy node `n` from one view to another."""
    node = source.nodes[n]
    target.nodes[n] = node
    for g in range(node.first_gpu, node.end_gpu):
        target.gpus[g] = source.gpus[g]
    if source.apps.shape[1] > n:
        for app in range(len(source.apps)):
            target.apps[app, n] = source.apps[app, n]


@inner
def is_idle(node: Record) -> bool:
    """Return whether a machine takes an instance."""
    return node.up == 1 and node.instances == 0


@inner
def view_now(now: NodeView, rules: Rules, view: NodeView) -> None:
    """Let `view` be the nodes as they are now, with one row for each pool."""
    for n in range(len(now.nodes)):
        pool = now.nodes[n].pool - 1
        copy_row(rules.empty if n == pool else now, view, n)
        if pool >= 0:
            view.nodes[n].up = 0
            view.nodes[pool].up += is_idle(now.nodes[n])


@inner
def planned_slots(shape: Record, n: int, view: NodeView) -> int:
    """Return how many instances node `n`, or the pool that it stands for, could take."""
    node = view.nodes[n]
    if node.pool == n + 1:
        return node.up if holds(shape, node, view.gpus, view.apps) else 0
    return node_slots(shape, node, view.gpus, view.apps)


@inner
def leave_fewest(view: NodeView, other: NodeView, n: int) -> None:
    """Leave on node `n` of `view` only what is free in `other` too; of counted GPUs as many."""
    node, idle = view.nodes[n], min(view.nodes[n].idle_gpus, other.nodes[n].idle_gpus)
    if not node.counted:
        leave_common(view, other, n)
        return
    for k in range(BESIDE_GPUS):
        node.free[k] = min(node.free[k], other.nodes[n].free[k])
    node.up, node.exclusive = min(node.up, other.nodes[n].up), max(node.exclusive, other.nodes[n].exclusive)
    node.instances = max(node.instances, other.nodes[n].instances)
    for g in range(node.first_gpu, node.end_gpu):
        if idle and view.gpus[g].free == WHOLE:
            idle -= 1
        else:
            view.gpus[g].free = 0
    recount(node, view.gpus)
    if view.apps.shape[1] > n:
        for app in range(len(view.apps)):
            view.apps[app, n] = max(view.apps[app, n], other.apps[app, n])


# -- steps -----------------------------------------------------------------------------------------------------------


@inner
def add_step(sim: Simulation, time: float, action: int, t: int) -> None:
    """Add to the plan that a job releases or occupies its nodes; releases come first at one time."""
    steps, k = sim.steps, sim.clock.steps
    while k and (steps[k - 1].time > time or (steps[k - 1].time == time and steps[k - 1].action > action)):
        steps[k] = steps[k - 1]
        k -= 1
    steps[k].time, steps[k].action, steps[k].job = time, action, t
    sim.clock.steps += 1


@inner
def remove_steps(sim: Simulation, t: int) -> None:
    """Take a waiting job out of the plan, if it is in it."""
    if sim.jobs[t].planned != sim.jobs[t].planned:
        return
    others = 0
    for k in range(sim.clock.steps):
        if sim.steps[k].job != t:
            if others < k:
                sim.steps[others] = sim.steps[k]
            others += 1
    sim.clock.steps = others
    sim.jobs[t].planned = np.nan


@inner
def plan_running(sim: Simulation, now: NodeView, t: int) -> None:
    """Put a running job into the plan; one that is overdue is expected to end at once."""
    job, clock = sim.jobs[t], sim.clock
    for i in range(job.first_instance, job.first_instance + job.instances):
        instance = sim.instances[i]
        node = now.nodes[instance.node[NOW]]
        instance.node[PLANNED] = node.pool - 1 if node.pool and node.up else instance.node[NOW]
        instance.gpus[PLANNED] = instance.gpus[NOW]
    add_step(sim, job.expected_end if job.expected_end > clock.now else clock.now + TICK, RELEASE, t)


@inner
def take_step(sim: Simulation, rules: Rules, shape: Record, k: int, view: NodeView) -> int:
    """Take step `k` of the plan in a view; return how many more instances of `shape` fit then."""
    job, action, more = sim.jobs[sim.steps[k].job], sim.steps[k].action, 0
    own, gpus, apps = rules.shapes[job.shape_id], view.gpus, view.apps
    for i in range(job.first_instance, job.first_instance + job.instances):
        instance = sim.instances[i]
        n = instance.node[PLANNED]
        node = view.nodes[n]
        more -= planned_slots(shape, n, view)
        if node.pool == n + 1:
            node.up += 1 if action == RELEASE else -1
        elif action == RELEASE:
            give_back(own, node, gpus, apps, instance.gpus[PLANNED])
        elif node.counted:  # which GPUs it has is not said: any that are idle at that time
            instance.gpus[PLANNED] = take(own, node, gpus, apps, -1)
            if own.distinct:
                apps[own.app, n] = 0
        else:
            take_gpus(own, node, gpus, apps, instance.gpus[PLANNED])
        more += planned_slots(shape, n, view)
    return more


# -- the earliest start ----------------------------------------------------------------------------------------------


@inner
def begin_rows(sim: Simulation, k: int, search: PlanSearch, attempt: int) -> None:
    """Copy the nodes that step `k` is about, where this attempt has not met them yet."""
    job = sim.jobs[sim.steps[k].job]
    for i in range(job.first_instance, job.first_instance + job.instances):
        n = sim.instances[i].node[PLANNED]
        if search.attempt[n] != attempt:
            search.attempt[n] = attempt
            copy_row(search.then, search.ahead, n)
            copy_row(search.then, search.free, n)


@inner
def conflict(
    sim: Simulation, rules: Rules, t: int, k: int, at: float, end: float, slots: int, search: PlanSearch, attempt: int
) -> float:
    """Return until when a job that fits at step `k`, `slots` times, may not start; infinity if it fits until `end`.

    If at some time too few instances fit, it cannot start before; if always enough fit, but not in the same places, it
    may be able to at the next step.
    """
    shape, count, size, always = rules.shapes[sim.jobs[t].shape_id], sim.jobs[t].instances, sim.clock.steps, slots
    while k < size and sim.steps[k].time < end:
        time, occupied = sim.steps[k].time, 0
        while k < size and sim.steps[k].time == time:
            begin_rows(sim, k, search, attempt)
            slots += take_step(sim, rules, shape, k, search.ahead)
            occupied += sim.steps[k].action
            k += 1
        for step in range(k - occupied, k):
            other = sim.jobs[sim.steps[step].job]
            for i in range(other.first_instance, other.first_instance + other.instances):
                n = sim.instances[i].node[PLANNED]
                always -= planned_slots(shape, n, search.free)
                leave_fewest(search.free, search.ahead, n)
                always += planned_slots(shape, n, search.free)
        if always < count:
            return time if slots < count else at
    return np.inf


@inner
def lower_bound(sim: Simulation, rules: Rules, t: int, now: NodeView) -> float:
    """Return a time before which a job cannot start, since less is free in the whole cluster than it requests."""
    job, gpu, cpu, since, k = sim.jobs[t], 0, 0, sim.clock.now, 0
    length, need = planned_length(sim, rules, t), job.instances * rules.shapes[job.shape_id].cpu
    for n in range(len(now.nodes)):
        if now.nodes[n].up:
            gpu += now.nodes[n].free_gpu
            cpu += now.nodes[n].free_cpu
    while True:
        time = sim.steps[k].time if k < sim.clock.steps else np.inf
        if gpu >= job.gpu_milli and cpu >= need:
            if time >= since + length:
                return since
        else:  # not before something is released
            since = time
            if time == np.inf:
                return np.inf
        while k < sim.clock.steps and sim.steps[k].time == time:
            other, sign = sim.jobs[sim.steps[k].job], 1 - 2 * sim.steps[k].action
            if sim.steps[k].job != t:
                gpu += sign * other.gpu_milli
                cpu += sign * other.instances * rules.shapes[other.shape_id].cpu
            k += 1


@inner
def earliest_start(
    sim: Simulation, rules: Rules, t: int, now: NodeView, search: PlanSearch, first: float, latest: float
) -> tuple[float, int]:
    """Return the first time from which on a job fits for its estimated runtime, and the attempt that found it.

    It cannot be before `first`; if there is none before `latest`, that is returned.
    """
    job, at, k, slots, attempt = sim.jobs[t], sim.clock.now, 0, 0, 0
    shape, length, steps, then = rules.shapes[job.shape_id], planned_length(sim, rules, t), sim.steps, search.then
    view_now(now, rules, then)
    search.attempt[:] = 0
    for n in range(len(then.nodes)):
        slots += planned_slots(shape, n, then)
    blocked = -np.inf
    while at < latest:
        while k < sim.clock.steps and steps[k].time <= at:
            slots += take_step(sim, rules, shape, k, then)
            k += 1
        if slots >= job.instances and at >= first and at > blocked:
            attempt += 1
            blocked = conflict(sim, rules, t, k, at, at + length, slots, search, attempt)
            if blocked == np.inf:
                return at, attempt
        at = steps[k].time if k < sim.clock.steps else np.inf
    return latest, 0


@inner
def planned_length(sim: Simulation, rules: Rules, t: int) -> float:
    """Return how long a job is in the plan."""
    return max(TICK, estimated_length(sim, rules, t))


@inner
def show_free(now: NodeView, rules: Rules, search: PlanSearch, attempt: int, starts: int) -> None:
    """Let `ahead` be what a job may take in the plan, or, if it starts now (1), what it may take of the nodes."""
    view = search.ahead
    for n in range(len(now.nodes)):
        other, pool = search.free if search.attempt[n] == attempt else search.then, now.nodes[n].pool - 1
        if pool >= 0:
            search.left[n] = other.nodes[n].up if n == pool else 0
            copy_row(rules.empty, view, n)
            view.nodes[n].up = search.left[pool] > 0 and (not starts or is_idle(now.nodes[n]))
            search.left[pool] -= view.nodes[n].up
        elif starts:
            copy_row(now, view, n)
            leave_fewest(view, other, n)
        else:
            copy_row(other, view, n)


@inner
def start_planned(sim: Simulation, rules: Rules, t: int, now: NodeView) -> None:
    """Start a job that has its nodes."""
    occupy(sim, rules, t, now, NOW)
    begin(sim, rules, t, now)
    plan_running(sim, now, t)


@inner_loop
def start_beside_plan(
    sim: Simulation, rules: Rules, policies: Policies, t: int, now: NodeView, search: PlanSearch
) -> None:  # fmt: skip
    """Start a job now, if that delays none in the plan."""
    clock = sim.clock
    at, attempt = earliest_start(sim, rules, t, now, search, clock.now, clock.now + TICK)
    starts = at == clock.now
    if starts:
        show_free(now, rules, search, attempt, starts)
        place(sim, rules, policies, t, search.ahead, NOW)
        start_planned(sim, rules, t, now)


@inner_loop
def plan_job(sim: Simulation, rules: Rules, policies: Policies, t: int, now: NodeView, search: PlanSearch) -> None:
    """Plan the earliest start of a job that delays none in the plan, and start it if that is now.

    A job that has a reservation keeps it, or moves up.
    """
    job, clock, latest = sim.jobs[t], sim.clock, np.inf
    if job.planned > clock.now:
        latest = job.planned
    first = lower_bound(sim, rules, t, now)
    if first >= latest:
        return
    remove_steps(sim, t)
    at, attempt = earliest_start(sim, rules, t, now, search, first, latest)
    if at == np.inf:
        return  # not before nodes come back: nothing can delay it
    starts = at == clock.now
    if at < latest:
        show_free(now, rules, search, attempt, starts)
        place(sim, rules, policies, t, search.ahead, NOW if starts else PLANNED)
    if starts:
        start_planned(sim, rules, t, now)
        return
    for i in range(job.first_instance, job.first_instance + job.instances):
        pool = now.nodes[sim.instances[i].node[PLANNED]].pool
        if pool:
            sim.instances[i].node[PLANNED] = pool - 1
    job.planned = at
    add_step(sim, at, OCCUPY, t)
    add_step(sim, on_tick(at + planned_length(sim, rules, t)), RELEASE, t)
