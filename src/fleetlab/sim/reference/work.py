"""The work of a job: checkpoints, what an interruption costs, and how fast it runs beside others on its GPU.

A job has its own seconds, which pass more slowly than the clock where it shares a GPU.
"""

from __future__ import annotations

import math

import numpy as np

from fleetlab.sim.jit import inner
from fleetlab.sim.layout import NOW, WHOLE, NodeView, Record
from fleetlab.sim.reference.state import Rules, Simulation, on_tick, set_timer


@inner
def work_done(own: float, every: float, save: float) -> tuple[float, float]:
    """Return the work done in so many own seconds of a run, and how much of it is in checkpoints."""
    if own <= 0:
        return 0.0, 0.0
    if every == 0:
        return own, 0.0
    rounds = math.floor(own / (every + save))
    return rounds * every + min(own - rounds * (every + save), every), rounds * every


@inner
def run_length(rules: Rules, job: Record) -> float:
    """Return the own seconds of a run that does all the work left: a checkpoint after each interval but the last."""
    every, save = rules.checkpoint_every, rules.save
    saves = (math.ceil(job.work / every) - 1) * save if every > 0 and job.work > 0 else 0.0
    return job.overhead + job.work + saves


@inner
def left_at(job: Record, now: float) -> float:
    """Return the own seconds that a running job has left."""
    return max(0.0, job.left - (now - job.since) * job.speed)


@inner
def estimated_left(job: Record, estimate: float, left: float) -> float:
    """Return the estimated seconds of a job with `left` own seconds: it errs by what the estimate errs."""
    return max(0.0, (left - job.runtime) + estimate)


@inner
def estimated_length(sim: Simulation, rules: Rules, t: int) -> float:
    """Return how long a waiting job is estimated to run."""
    return estimated_left(sim.jobs[t], sim.estimate[t], run_length(rules, sim.jobs[t]))


@inner
def update_attained(sim: Simulation, t: int) -> None:
    """Update what policies see of a running job."""
    job, now = sim.jobs[t], sim.clock.now
    sim.attained[t] = (job.ran + (now - job.run_start)) * job.gpu_milli / WHOLE
    sim.remaining[t] = estimated_left(job, sim.estimate[t], left_at(job, now))


@inner
def interrupt(sim: Simulation, rules: Rules, t: int, saved: int) -> None:
    """End a run early: work is kept up to now if it is saved (1), else up to the last checkpoint."""
    job = sim.jobs[t]
    own = run_length(rules, job) - left_at(job, sim.clock.now)
    done, in_checkpoints = work_done(own - job.overhead, rules.checkpoint_every, rules.save)
    work = min(job.work, done if saved else in_checkpoints)
    job.lost += own - work
    job.work -= work
    job.overhead = 0.0
    if job.work < job.runtime:  # there is something to load again
        job.overhead = rules.restart + (rules.save if saved and work > 0 else 0.0)
    sim.remaining[t] = estimated_length(sim, rules, t)


@inner
def lost_so_far(rules: Rules, job: Record, now: float) -> float:
    """Return the own seconds that a running job has spent on anything but work."""
    own = run_length(rules, job) - left_at(job, now)
    return own - min(job.work, work_done(own - job.overhead, rules.checkpoint_every, rules.save)[0])


@inner
def start_run(sim: Simulation, rules: Rules, t: int) -> None:
    """Start a run at full speed."""
    job, now = sim.jobs[t], sim.clock.now
    job.run_start, job.since, job.speed = now, now, 1.0
    job.left = run_length(rules, job)
    job.expected_end = now + estimated_left(job, sim.estimate[t], job.left)
    set_timer(sim, t, now + job.left)


# -- interference ----------------------------------------------------------------------------------------------------


@inner
def shared_gpu(sim: Simulation, rules: Rules, now: NodeView, i: int) -> int:
    """Return the GPU that instance `i` has a fraction of; -1 if it has none or whole ones."""
    instance = sim.instances[i]
    shape = rules.shapes[sim.jobs[instance.job].shape_id]
    if shape.gpus == 0 or shape.milli == WHOLE:
        return -1
    g, bits = now.nodes[instance.node[NOW]].first_gpu, instance.gpus[NOW]
    while bits > 1:
        bits >>= 1
        g += 1
    return g


@inner
def add_tenant(sim: Simulation, g: int, i: int) -> None:
    """Let instance `i` share a GPU."""
    sim.instances[i].neighbor = sim.last_tenant[g]
    sim.last_tenant[g] = i


@inner
def remove_tenant(sim: Simulation, g: int, i: int) -> None:
    """Undo `add_tenant`."""
    at = sim.last_tenant[g]
    if at == i:
        sim.last_tenant[g] = sim.instances[i].neighbor
        return
    while sim.instances[at].neighbor != i:
        at = sim.instances[at].neighbor
    sim.instances[at].neighbor = sim.instances[i].neighbor


@inner
def speed_on(sim: Simulation, rules: Rules, g: int, i: int) -> float:
    """Return how fast instance `i` is on the GPU it shares: slowed by each of its neighbors in turn."""
    mine = sim.jobs[sim.instances[i].job].speed_class
    speed, k = rules.alone[mine], sim.last_tenant[g]
    while k >= 0:
        if k != i:
            speed *= rules.pair[mine, sim.jobs[sim.instances[k].job].speed_class]
        k = sim.instances[k].neighbor
    return speed


@inner
def update_speed(sim: Simulation, t: int) -> None:
    """Compute anew when a running job ends, if its speed has changed. A gang is as fast as its slowest instance."""
    job, now, speed = sim.jobs[t], sim.clock.now, np.inf
    for i in range(job.first_instance, job.first_instance + job.instances):
        speed = min(speed, sim.instances[i].speed)
    if speed == job.speed:
        return
    job.left, job.since, job.speed = left_at(job, now), now, speed
    set_timer(sim, t, now + job.left if speed == 1.0 else on_tick(now + job.left / speed))


@inner
def update_tenants(sim: Simulation, rules: Rules, g: int) -> None:
    """The tenants of a GPU have changed: each runs at another speed."""
    k = sim.last_tenant[g]
    while k >= 0:
        sim.instances[k].speed = speed_on(sim, rules, g, k)
        k = sim.instances[k].neighbor
    k = sim.last_tenant[g]
    while k >= 0:
        update_speed(sim, sim.instances[k].job)
        k = sim.instances[k].neighbor


@inner
def join_neighbors(sim: Simulation, rules: Rules, now: NodeView, t: int) -> None:
    """Slow a job that has just started, and its neighbors."""
    job = sim.jobs[t]
    first, end = job.first_instance, job.first_instance + job.instances
    for i in range(first, end):
        g = shared_gpu(sim, rules, now, i)
        if g >= 0:
            add_tenant(sim, g, i)
        sim.instances[i].speed = rules.alone[job.speed_class] if rules.shapes[job.shape_id].gpus else 1.0
    for i in range(first, end):
        g = shared_gpu(sim, rules, now, i)
        if g >= 0:
            update_tenants(sim, rules, g)
    update_speed(sim, t)


@inner
def leave_neighbors(sim: Simulation, rules: Rules, now: NodeView, t: int) -> None:
    """Speed up the neighbors of a job that has just ended."""
    job = sim.jobs[t]
    first, end = job.first_instance, job.first_instance + job.instances
    for i in range(first, end):
        g = shared_gpu(sim, rules, now, i)
        if g >= 0:
            remove_tenant(sim, g, i)
    for i in range(first, end):
        g = shared_gpu(sim, rules, now, i)
        if g >= 0:
            update_tenants(sim, rules, g)
