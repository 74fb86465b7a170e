"""Gangs on and off the nodes: all instances of a job, or none."""

from __future__ import annotations

from fleetlab.sim.codes import RANDOM
from fleetlab.sim.engine.beside import Reservation, claim
from fleetlab.sim.engine.index import Index, best_cpu, best_fraction, best_whole, update_index
from fleetlab.sim.engine.scores import Memo, place_by_score, place_randomly
from fleetlab.sim.engine.state import Allocation, Resources
from fleetlab.sim.jit import inline, inner
from fleetlab.sim.layout import UNLIMITED, WHOLE, Ints, NodeView, Record
from fleetlab.sim.nodes import end_gang, give_back, node_slots, take


@inline
def free_on_types(shape: Record, free: Ints) -> int:
    """Return the GPU milli that are free on the types a shape may run on."""
    total = 0
    for t in range(len(free)):
        if shape.types >> t & 1:
            total += free[t]
    return total


@inline
def place_by_index(
    shape: Record, count: int, state: NodeView, index: Index, placed: Allocation, at: int, beside: Reservation | None
) -> int:
    """Place up to `count` instances where each fits best, by the index; return how many fit.

    With a reservation, each goes only where that still starts in time.
    """
    for i in range(at, at + count):
        g, n = -1, -1
        if shape.gpus == 0:
            n = best_cpu(shape, state, index.header, index.numbers, beside)
        elif shape.milli < WHOLE:
            g = best_fraction(shape, state, index, beside)
            if g >= 0:
                n = state.gpus[g].node
        else:
            n = best_whole(shape, state, index, beside)
        if n < 0:
            return i - at
        node = state.nodes[n]
        idle = node.idle_gpus
        bits = take(shape, node, state.gpus, state.apps, g)
        placed.node[i], placed.gpus[i] = n, bits
        update_index(node, state.gpus, index, bits, shape.milli, idle)
        if beside is not None:
            claim(shape, n, bits, beside)
    return count


@inline
def release(shape: Record, count: int, resources: Resources, placed: Allocation, at: int) -> None:
    """Take `count` instances off their nodes."""
    now, index, milli = resources.now, resources.fit_index, shape.milli
    for i in range(at, at + count):
        node, bits = now.nodes[placed.node[i]], placed.gpus[i]
        idle = node.idle_gpus
        give_back(shape, node, now.gpus, now.apps, bits)
        if bits:
            resources.free[node.type_number] += shape.gpus * milli
        if len(index.bits):
            update_index(node, now.gpus, index, bits, -milli, idle)


@inline
def allocate(
    placement: int, s: int, count: int, resources: Resources, memo: Memo | None, placed: Allocation, at: int
) -> int:
    """Place all instances of a job of shape `s`, or none; `placed` takes nodes and GPUs from `at` on.

    Returns `count`, or, if so many do not fit, an upper bound of how many do.
    """
    shape, free = resources.shapes[s], resources.free
    each, most = shape.gpus * shape.milli, free_on_types(shape, free)
    if count * each > most:  # fewer milli are free in all: no need to search
        return most // each
    if memo is None:
        done = place_by_index(shape, count, resources.now, resources.fit_index, placed, at, None)
    elif placement == RANDOM:
        done = place_randomly(shape, count, resources.now, resources.scoring.random, memo.order.heap, placed, at)
    else:
        done = place_by_score(placement, s, count, resources, memo, placed, at)
    end_gang(shape, resources.now, placed.node, at, done)
    if each:
        for i in range(at, at + done):
            free[resources.now.nodes[placed.node[i]].type_number] -= each
    if done < count:
        release(shape, done, resources, placed, at)
        if placement == RANDOM and count > 1:  # nothing was counted
            return slots(shape, UNLIMITED, resources.now, resources.fit_index.header, resources.fit_index.numbers)
    return done


@inner
def slots(shape: Record, enough: int, state: NodeView, header: Record, numbers: Ints) -> int:
    """Return how many instances fit now, counted up to `enough`; only nodes of the shape's types are looked at."""
    nodes, count = state.nodes, 0
    if shape.gpus == 0:
        for n in range(len(nodes)):
            if nodes[n].free_cpu >= shape.cpu:
                count += node_slots(shape, nodes[n], state.gpus, state.apps)
                if count >= enough:
                    break
        return count
    for t in range(header.types):
        if shape.types >> t & 1:
            ranges = header.type_ranges + 2 * t
            for i in range(numbers[ranges], numbers[ranges + 1]):
                node = nodes[numbers[i]]
                if node.largest_free >= shape.milli and node.free_cpu >= shape.cpu:
                    count += node_slots(shape, node, state.gpus, state.apps)
                    if count >= enough:
                        return count
    return count


@inner
def fit_bound(shape: Record, count: int, resources: Resources) -> int:
    """Return how many of `count` instances fit now, at most: where too little is free in all, those that fill it."""
    each, most = shape.gpus * shape.milli, free_on_types(shape, resources.free)
    if count * each > most:
        return most // each
    return slots(shape, count, resources.now, resources.fit_index.header, resources.fit_index.numbers)
