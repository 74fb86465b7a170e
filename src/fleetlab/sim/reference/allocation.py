"""Gangs on and off the nodes: all instances of a job or none, and the tables with them.

Functions that take `view` work on the nodes as they are now or on a copy; `at` is NOW or PLANNED, the place of an
instance that is meant.
"""

from __future__ import annotations

import numpy as np

from fleetlab.sim.codes import OWN_PLACEMENT, RANDOM
from fleetlab.sim.heap import heapify, pop, sink
from fleetlab.sim.jit import inner, inner_loop
from fleetlab.sim.layout import NOW, RUNNING, TICK, WHOLE, Floats, Ints, NodeView, Record
from fleetlab.sim.nodes import give_back, holds, intersect, node_slots, take, take_gpus
from fleetlab.sim.placements import pick, score
from fleetlab.sim.policy import arrived
from fleetlab.sim.reference.queue import charge_user, enter, leave
from fleetlab.sim.reference.state import BAD_PLACEMENT, Policies, Rules, Simulation, on_tick, set_timer
from fleetlab.sim.reference.work import interrupt, join_neighbors, leave_neighbors, start_run


@inner
def slots(shape: Record, enough: int, view: NodeView) -> int:
    """Return how many instances the nodes could take, counted up to `enough`."""
    count = 0
    for n in range(len(view.nodes)):
        node = view.nodes[n]
        if node.free_cpu < shape.cpu or (shape.gpus and node.largest_free < shape.milli):
            continue  # most nodes are full: that is seen here, without a call
        count += node_slots(shape, node, view.gpus, view.apps)
        if count >= enough:
            return enough
    return count


@inner
def fits(shape: Record, count: int, view: NodeView) -> bool:
    """Return whether `count` instances fit. They are alike, so it does not matter where each goes."""
    return slots(shape, count, view) == count


@inner_loop
def copy(view: NodeView) -> NodeView:
    """Copy a view of the nodes, to plan with."""
    return NodeView(view.nodes.copy(), view.gpus.copy(), view.apps.copy())


@inner
def leave_common(a: NodeView, b: NodeView, n: int) -> None:
    """Leave on node `n` of `a` only what is free on `b` too."""
    intersect(a.nodes[n], a.gpus, b.nodes[n], b.gpus)
    if a.apps.shape[1] > n:
        for app in range(len(a.apps)):
            a.apps[app, n] = max(a.apps[app, n], b.apps[app, n])


# -- where -----------------------------------------------------------------------------------------------------------


@inner
def pick_by_policy(
    sim: Simulation, policies: Policies, shape: Record, t: int, view: NodeView, nodes: Ints, scores: Floats
) -> int:
    """Return the node that the user's own placement policy picks."""
    n = 0
    for k in range(len(view.nodes)):
        if holds(shape, view.nodes[k], view.gpus, view.apps):
            nodes[n] = k
            n += 1
    if policies.placement(arrived(policies.state, sim.clock.arrived), nodes, n, t, scores) == 0:
        sim.clock.policy_error, sim.clock.error_job = BAD_PLACEMENT, t
        return nodes[0]
    best = 0
    for k in range(1, n):
        if scores[k] < scores[best]:
            best = k
    return nodes[best]


@inner
def rate(rules: Rules, shape: Record, node: Record, view: NodeView, cards: Ints) -> float:
    """Score a node for an instance, infinity if it holds none; `cards` gets the GPU."""
    if not holds(shape, node, view.gpus, view.apps):
        return np.inf
    value, cards[node.number] = score(rules.placement, shape, node, view.gpus, rules.scoring)
    return value


@inner
def end_gang(sim: Simulation, shape: Record, t: int, view: NodeView, at: int) -> None:
    """Say that a job has its nodes: where its instances are on distinct nodes, the next job may use these again."""
    if shape.distinct:
        job = sim.jobs[t]
        for i in range(job.first_instance, job.first_instance + job.instances):
            view.apps[shape.app, sim.instances[i].node[at]] = 0


@inner_loop
def place_gang(sim: Simulation, rules: Rules, t: int, view: NodeView, at: int) -> None:
    """Do what `place` does, for several instances: what one takes changes the score of its own node alone."""
    job, shape, nodes = sim.jobs[t], rules.shapes[sim.jobs[t].shape_id], view.nodes
    scores, able, size = np.empty(len(nodes)), np.empty(len(nodes), np.int64), 0
    cards = np.empty(len(nodes), np.int64)
    for n in range(len(nodes)):
        if nodes[n].free_cpu < shape.cpu or (shape.gpus and nodes[n].largest_free < shape.milli):
            continue
        scores[size], able[size] = rate(rules, shape, nodes[n], view, cards), n
        size += scores[size] < np.inf
    heapify(scores, able, size)
    for i in range(job.first_instance, job.first_instance + job.instances):
        n = able[0]
        instance = sim.instances[i]
        instance.node[at], instance.gpus[at] = n, take(shape, nodes[n], view.gpus, view.apps, cards[n])
        value = rate(rules, shape, nodes[n], view, cards)
        if value < np.inf:
            sink(scores, able, 0, size, 0, value, n)
        else:
            pop(scores, able, 0, size)
            size -= 1
    end_gang(sim, shape, t, view, at)


@inner_loop
def place_instance(sim: Simulation, rules: Rules, policies: Policies, t: int, view: NodeView) -> tuple[int, int]:
    """Allocate a node and GPUs for one instance of a job that fits."""
    shape, g = rules.shapes[sim.jobs[t].shape_id], -1
    if rules.placement == OWN_PLACEMENT:
        nodes, scores = np.empty(len(view.nodes), np.int64), np.empty(len(view.nodes))
        n = pick_by_policy(sim, policies, shape, t, view, nodes, scores)
    else:
        n, g = pick(rules.placement, shape, view, rules.scoring)
    return n, take(shape, view.nodes[n], view.gpus, view.apps, g)


@inner_loop
def place(sim: Simulation, rules: Rules, policies: Policies, t: int, view: NodeView, at: int) -> None:
    """Allocate nodes and GPUs for each instance of a job that fits, one after the other."""
    job = sim.jobs[t]
    if job.instances > 1 and rules.placement != OWN_PLACEMENT and rules.placement != RANDOM:
        place_gang(sim, rules, t, view, at)
        return
    for i in range(job.first_instance, job.first_instance + job.instances):
        n, bits = place_instance(sim, rules, policies, t, view)
        sim.instances[i].node[at], sim.instances[i].gpus[at] = n, bits
    end_gang(sim, rules.shapes[job.shape_id], t, view, at)


@inner
def release(sim: Simulation, rules: Rules, t: int, view: NodeView, at: int) -> None:
    """Free what a job has allocated."""
    job, shape = sim.jobs[t], rules.shapes[sim.jobs[t].shape_id]
    for i in range(job.first_instance, job.first_instance + job.instances):
        instance = sim.instances[i]
        give_back(shape, view.nodes[instance.node[at]], view.gpus, view.apps, instance.gpus[at])


@inner
def occupy(sim: Simulation, rules: Rules, t: int, view: NodeView, at: int) -> None:
    """Allocate for a job the nodes and GPUs that it has in another view."""
    job, shape = sim.jobs[t], rules.shapes[sim.jobs[t].shape_id]
    for i in range(job.first_instance, job.first_instance + job.instances):
        instance = sim.instances[i]
        take_gpus(shape, view.nodes[instance.node[at]], view.gpus, view.apps, instance.gpus[at])


@inner
def slots_gained(sim: Simulation, rules: Rules, shape: Record, t: int, view: NodeView, at: int, sign: int) -> int:
    """Release a job (1) or let it occupy its nodes (-1); return how many more instances of `shape` fit then."""
    job, own, more = sim.jobs[t], rules.shapes[sim.jobs[t].shape_id], 0
    for i in range(job.first_instance, job.first_instance + job.instances):
        node, bits = view.nodes[sim.instances[i].node[at]], sim.instances[i].gpus[at]
        more -= node_slots(shape, node, view.gpus, view.apps)
        if sign > 0:
            give_back(own, node, view.gpus, view.apps, bits)
        else:
            take_gpus(own, node, view.gpus, view.apps, bits)
        more += node_slots(shape, node, view.gpus, view.apps)
    return more


# -- starts and ends of runs -----------------------------------------------------------------------------------------


@inner
def set_level_timer(sim: Simulation, rules: Rules, t: int) -> None:
    """Set a timer for when a running job will have attained enough to enter the next queue of `las`."""
    job, now = sim.jobs[t], sim.clock.now
    ran, milli = job.ran + (now - job.run_start), job.gpu_milli
    if milli == 0:
        return
    for level in rules.levels:
        if ran * milli / WHOLE < level:
            more = on_tick(max(0.0, level * WHOLE / milli - ran))
            while (ran + more) * milli / WHOLE < level:  # a division may end one tick short
                more += TICK
            set_timer(sim, len(sim.jobs) + t, now + more)
            return


@inner
def begin(sim: Simulation, rules: Rules, t: int, now: NodeView) -> None:
    """Start a job that has its nodes."""
    job, clock = sim.jobs[t], sim.clock
    leave(sim, t)
    job.status, job.slot = RUNNING, clock.running
    sim.running[clock.running] = t
    clock.running += 1
    clock.instances_running += job.instances
    charge_user(sim, rules, job, 1)
    if job.start != job.start:
        job.start = clock.now
    start_run(sim, rules, t)
    if rules.sharing:
        join_neighbors(sim, rules, now, t)
    if rules.preempt and len(rules.levels):
        set_level_timer(sim, rules, t)


@inner_loop
def start(sim: Simulation, rules: Rules, policies: Policies, t: int, now: NodeView) -> None:
    """Place a job that fits, and start it."""
    place(sim, rules, policies, t, now, NOW)
    begin(sim, rules, t, now)


@inner
def log_run(sim: Simulation, t: int, end: float) -> None:
    """Log a run that ends."""
    clock, job = sim.clock, sim.jobs[t]
    run = sim.runs[clock.runs]
    run.job, run.entry, run.begin, run.end = t, clock.entries, job.run_start, end
    clock.runs += 1
    for i in range(job.first_instance, job.first_instance + job.instances):
        sim.entries[clock.entries, 0], sim.entries[clock.entries, 1] = (
            sim.instances[i].node[NOW],
            sim.instances[i].gpus[NOW],
        )
        clock.entries += 1


@inner
def list_freed(sim: Simulation, n: int) -> None:
    """Note that node `n` has more free than at the last pass."""
    if not sim.nodes[n].freed:
        sim.nodes[n].freed = 1
        sim.freed[sim.clock.freed] = n
        sim.clock.freed += 1


@inner
def end_run(sim: Simulation, rules: Rules, t: int, now: NodeView) -> None:
    """End the run of a job that has released its nodes."""
    job, clock = sim.jobs[t], sim.clock
    if rules.sharing:
        leave_neighbors(sim, rules, now, t)
    job.ran += clock.now - job.run_start
    sim.attained[t] = job.ran * job.gpu_milli / WHOLE
    charge_user(sim, rules, job, -1)
    sim.due[t] = sim.due[len(sim.jobs) + t] = np.inf
    for i in range(job.first_instance, job.first_instance + job.instances):
        list_freed(sim, sim.instances[i].node[NOW])
    if len(sim.runs):
        log_run(sim, t, clock.now)
    clock.running -= 1
    clock.instances_running -= job.instances
    last = sim.running[clock.running]
    sim.running[job.slot], sim.jobs[last].slot = last, job.slot


@inner
def requeue(sim: Simulation, rules: Rules, t: int, now: NodeView, saved: int) -> None:
    """Let a job that has lost its nodes wait again; its work is saved (1) or lost since the last checkpoint."""
    interrupt(sim, rules, t, saved)
    end_run(sim, rules, t, now)
    enter(sim, t)
