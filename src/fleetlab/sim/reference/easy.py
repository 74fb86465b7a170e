"""The reservation of EASY backfill, and what others may take beside it.

The reservation of the head is a number of places at one time, the *shadow time*; nothing in particular is kept free. A
job that runs beyond it starts only where as many instances of the head still fit at that time as it has.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fleetlab.sim.heap import pop, push
from fleetlab.sim.jit import inner, inner_loop
from fleetlab.sim.layout import NOW, TICK, UNLIMITED, WHOLE, Floats, Ints, NodeView, Record, Records
from fleetlab.sim.nodes import give_back, node_slots, node_slots_after, recount, take_gpus
from fleetlab.sim.reference.allocation import begin, copy, place_instance, slots, slots_gained
from fleetlab.sim.reference.state import Policies, Rules, Simulation


class Shadow(NamedTuple):
    """The nodes at the shadow time, by estimates and without the head."""

    time: float
    then: NodeView
    head: Records  # SHAPE, [1]: of the head
    counts: Ints  # [nodes]: how many of its instances a node could take
    spare: Ints  # [1]: how many more they could take in all than it has


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
def reserve(sim: Simulation, rules: Rules, t: int, now: NodeView) -> Shadow:
    """Return when the first job in the queue will fit, by estimates, and what is free then."""
    job, then = sim.jobs[t], copy(now)
    shape = rules.shapes[job.shape_id]
    ends, heap = running_by_end(sim)
    size, count, time = len(heap), slots(shape, UNLIMITED, then), sim.clock.now
    soon = sim.clock.now + TICK
    # All that ends at that time is free then; of overdue jobs, which may end at any time, only as many as it takes.
    while size and (count < job.instances or (ends[0] == time and time > soon)):
        time, r = ends[0], heap[0]
        pop(ends, heap, 0, size)
        size -= 1
        count += slots_gained(sim, rules, shape, r, then, NOW, 1)
    if count < job.instances:
        time = np.inf  # not before nodes come back: nothing can delay it
    counts, spare = np.empty(len(then.nodes), np.int64), np.empty(1, np.int64)
    for n in range(len(then.nodes)):
        counts[n] = node_slots(shape, then.nodes[n], then.gpus, then.apps)
    spare[0] = count - job.instances
    return Shadow(time, then, rules.shapes[job.shape_id : job.shape_id + 1], counts, spare)


@inner
def delays(shape: Record, n: int, at: int, shadow: Shadow) -> bool:
    """Return whether the head fits no more if node `n` takes an instance, a fraction on GPU `at`."""
    then, spare = shadow.then, shadow.spare[0]
    if shadow.counts[n] <= spare:
        return False
    return shadow.counts[n] - node_slots_after(shadow.head[0], shape, then.nodes[n], then.gpus, then.apps, at) > spare


@inner
def hide(shape: Record, n: int, view: NodeView, shadow: Shadow) -> None:
    """Hide on node `n` of `view` where an instance would delay the head: a node, or GPUs where it is a fraction."""
    node = view.nodes[n]
    if node_slots(shape, node, view.gpus, view.apps) == 0:
        return
    if shape.gpus == 0 or shape.milli == WHOLE:
        if delays(shape, n, -1, shadow):
            node.up = 0
        return
    for g in range(node.first_gpu, node.end_gpu):
        gpu = view.gpus[g]
        if gpu.free >= shape.milli and gpu.free_memory >= shape.gpu_memory and delays(shape, n, g, shadow):
            gpu.free = 0
    recount(node, view.gpus)


@inner_loop
def hide_all(shape: Record, now: NodeView, shadow: Shadow) -> NodeView:
    """Return the nodes as a job sees them that may not delay the head."""
    view = copy(now)
    for n in range(len(view.nodes)):
        hide(shape, n, view, shadow)
    return view


@inner
def update_shadow(n: int, shadow: Shadow) -> None:
    """Count again how many instances of the head node `n` could take."""
    before = shadow.counts[n]
    shadow.counts[n] = node_slots(shadow.head[0], shadow.then.nodes[n], shadow.then.gpus, shadow.then.apps)
    shadow.spare[0] += shadow.counts[n] - before


@inner_loop
def start_beside(
    sim: Simulation, rules: Rules, policies: Policies, t: int, now: NodeView, shadow: Shadow
) -> bool:  # fmt: skip
    """Start a job that runs beyond the shadow time, each instance where the head still fits; return whether it did."""
    job, then, spare = sim.jobs[t], shadow.then, shadow.spare[0]
    shape, first = rules.shapes[job.shape_id], job.first_instance
    view, done = hide_all(shape, now, shadow), 0
    while done < job.instances and slots(shape, job.instances - done, view) == job.instances - done:
        n, bits = place_instance(sim, rules, policies, t, view)
        sim.instances[first + done].node[NOW], sim.instances[first + done].gpus[NOW] = n, bits
        take_gpus(shape, now.nodes[n], now.gpus, now.apps, bits)
        take_gpus(shape, then.nodes[n], then.gpus, then.apps, bits)
        if shape.distinct:
            now.apps[shape.app, n] = 1
        update_shadow(n, shadow)
        done += 1
        if shadow.spare[0] < spare:  # what it may take is less on other nodes, too
            spare = shadow.spare[0]
            view = hide_all(shape, now, shadow)
        else:
            hide(shape, n, view, shadow)
    if shape.distinct:  # the next job may use these nodes again
        for i in range(first, first + done):
            now.apps[shape.app, sim.instances[i].node[NOW]] = 0
    if done == job.instances:
        begin(sim, rules, t, now)
        return True
    for i in range(first, first + done):
        n, bits = sim.instances[i].node[NOW], sim.instances[i].gpus[NOW]
        give_back(shape, now.nodes[n], now.gpus, now.apps, bits)
        give_back(shape, then.nodes[n], then.gpus, then.apps, bits)
        update_shadow(n, shadow)
        sim.instances[i].node[NOW] = -1
    return False
