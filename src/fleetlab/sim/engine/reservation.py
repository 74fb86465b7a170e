"""The reservation of EASY backfill: when the first job that does not fit will start, if estimates are right.

What it keeps other jobs from is in `beside`.
"""

from __future__ import annotations

import numpy as np

from fleetlab.sim.engine.beside import Reservation, claim, holds_beside, is_masked, node_slots_beside, unclaim
from fleetlab.sim.engine.fit import free_on_types, place_by_index, release
from fleetlab.sim.engine.scores import Memo
from fleetlab.sim.engine.state import Allocation, Events, Jobs, Resources, ScheduleTable
from fleetlab.sim.heap import heapify, pop, sink
from fleetlab.sim.jit import inline, inner
from fleetlab.sim.layout import SHAPE, TICK, NodeView, Record, Records, table, writable
from fleetlab.sim.nodes import end_gang, give_back, node_slots, take, tightest
from fleetlab.sim.placements import score


def new_reservation(resources: Resources, jobs: int) -> Reservation:
    """Make the tables of a reservation that is not yet made."""
    then, masked = (NodeView(*map(writable, resources.now)) for _ in range(2))
    nodes = len(resources.now.nodes)
    lists = [np.zeros(size, dtype=np.int64) for size in (nodes, 1, jobs, jobs, nodes)]
    return Reservation(
        np.full(1, -1), then, table(1, SHAPE), lists[0], lists[1], masked, np.empty(jobs), lists[2], lists[3],
        np.empty(nodes), lists[4],
    )  # fmt: skip


# -- when ------------------------------------------------------------------------------------------------------------


@inner
def copy_node(n: int, source: NodeView, target: NodeView) -> None:
    """Copy a node of a view. Row by row: an assignment of slices takes longer to compile."""
    node = source.nodes[n]
    target.nodes[n] = node
    for g in range(node.first_gpu, node.end_gpu):
        target.gpus[g] = source.gpus[g]
    if n < source.apps.shape[1]:
        for app in range(source.apps.shape[0]):
            target.apps[app, n] = source.apps[app, n]


@inner
def count_now(shape: Record, now: NodeView, reservation: Reservation) -> int:
    """Copy the nodes that a shape may use into `then`; return how many instances fit, of which `counts` has each's."""
    then, counts, fits = reservation.then, reservation.counts, 0
    for n in range(len(now.nodes)):
        counts[n] = 0
        if shape.types & now.nodes[n].node_class:
            copy_node(n, now, then)
            node = then.nodes[n]
            if node.free_cpu >= shape.cpu and (shape.gpus == 0 or node.largest_free >= shape.milli):
                counts[n] = node_slots(shape, node, then.gpus, then.apps)
                fits += counts[n]
    return fits


@inner
def classes_of(j: int, jobs: Jobs, nodes: Records, schedule: ScheduleTable, reservation: Reservation) -> int:
    """Return the classes of the nodes that a running job is on, as bits."""
    if reservation.classes[j] == 0:
        for i in range(jobs.first[j], jobs.first[j + 1]):
            reservation.classes[j] |= nodes[schedule.placed.node[i]].node_class
    return reservation.classes[j]


@inner
def line_up_ends(
    types: int, jobs: Jobs, resources: Resources, events: Events, schedule: ScheduleTable, reservation: Reservation
) -> int:  # fmt: skip
    """Make a heap of the running jobs on nodes of some classes by expected end; return how many there are."""
    now, ends, heap, size = events.clock.now, reservation.ends, reservation.by_end, 0
    for i in range(events.clock.running):
        j = events.running[i]
        if types & classes_of(j, jobs, resources.now.nodes, schedule, reservation):
            end = schedule.start[j] + jobs.estimate[j]
            ends[size], heap[size] = end if end > now else now + TICK, j
            size += 1
    heapify(ends, heap, size)
    return size


@inner
def reserve(
    j: int, jobs: Jobs, resources: Resources, events: Events, schedule: ScheduleTable, reservation: Reservation
) -> None:
    """Make job `j` the head: find the earliest time at which it fits by estimates, and how often on which node.

    `then` becomes what is free at that time on the nodes that it may use; no other node can delay it.
    """
    kind, clock, then, counts = jobs.kinds[jobs.kind[j]], events.clock, reservation.then, reservation.counts
    shape, ends, heap, placed = resources.shapes[kind.shape_id], reservation.ends, reservation.by_end, schedule.placed
    reservation.owner[0], reservation.head[0], now, when = j, shape, clock.now, clock.now
    fits = count_now(shape, resources.now, reservation)
    size = line_up_ends(shape.types, jobs, resources, events, schedule, reservation)
    # All that ends at that time is free then; of overdue jobs, which may end at any time, only as many as it takes.
    while size and (fits < kind.instances or (ends[0] == when and when > now + TICK)):
        when, ended = ends[0], heap[0]
        pop(ends, heap, 0, size)
        size -= 1
        of = resources.shapes[jobs.kinds[jobs.kind[ended]].shape_id]
        for i in range(jobs.first[ended], jobs.first[ended + 1]):
            n = placed.node[i]
            node = then.nodes[n]
            if shape.types & node.node_class:
                give_back(of, node, then.gpus, then.apps, placed.gpus[i])
                fits -= counts[n]
                counts[n] = node_slots(shape, node, then.gpus, then.apps)
                fits += counts[n]
    reservation.spare[0] = fits - kind.instances
    clock.shadow_time = when


# -- where others may start ------------------------------------------------------------------------------------------


@inner
def slots_beside(shape: Record, enough: int, resources: Resources, reservation: Reservation) -> int:
    """Return how many instances that do not delay the head fit now, at most, counted up to `enough`."""
    now, header, numbers, count = resources.now, resources.fit_index.header, resources.fit_index.numbers, 0
    if shape.gpus == 0:
        for n in range(len(now.nodes)):
            if count < enough and now.nodes[n].free_cpu >= shape.cpu:
                count += node_slots_beside(shape, n, now, reservation)
        return count
    for t in range(header.types):
        if shape.types >> t & 1:
            ranges = header.type_ranges + 2 * t
            for i in range(numbers[ranges], numbers[ranges + 1]):
                n = numbers[i]
                if count < enough and now.nodes[n].largest_free >= shape.milli and now.nodes[n].free_cpu >= shape.cpu:
                    count += node_slots_beside(shape, n, now, reservation)
    return count


@inner
def rate(placement: int, shape: Record, n: int, resources: Resources, reservation: Reservation) -> tuple[float, int]:
    """Score a node that holds an instance; also return the GPU for a fraction."""
    now, masked = resources.now, reservation.masked
    if not is_masked(shape, n, reservation):
        return score(placement, shape, now.nodes[n], now.gpus, resources.scoring)
    value, g = score(placement, shape, masked.nodes[n], masked.gpus, resources.scoring)
    return value, g if g >= 0 else tightest(shape, masked.nodes[n], masked.gpus)


@inner
def add_node(
    placement: int, shape: Record, n: int, resources: Resources, reservation: Reservation, size: int
) -> int:  # fmt: skip
    """Add node `n`, if it holds an instance that does not delay the head, to the nodes to pick from."""
    if not holds_beside(shape, n, resources.now, reservation):
        return size
    reservation.scores[size], reservation.nodes[size] = rate(placement, shape, n, resources, reservation)[0], n
    return size + 1


@inner
def rate_nodes(placement: int, shape: Record, resources: Resources, reservation: Reservation) -> int:
    """Make a heap of every node that holds an instance that does not delay the head; return how many there are."""
    header, numbers, nodes, size = resources.fit_index.header, resources.fit_index.numbers, resources.now.nodes, 0
    if shape.gpus == 0:
        for n in range(len(nodes)):
            size = add_node(placement, shape, n, resources, reservation, size)
    for t in range(header.types):
        if shape.gpus and shape.types >> t & 1:
            ranges = header.type_ranges + 2 * t
            for i in range(numbers[ranges], numbers[ranges + 1]):
                if nodes[numbers[i]].largest_free >= shape.milli:  # most nodes are full
                    size = add_node(placement, shape, numbers[i], resources, reservation, size)
    heapify(reservation.scores, reservation.nodes, size)
    return size


@inner
def place_by_scan(
    placement: int, shape: Record, count: int, resources: Resources, reservation: Reservation, placed: Allocation,
    at: int,
) -> int:  # fmt: skip
    """Place up to `count` instances that do not delay the head; return how many fit."""
    now, scores, heap = resources.now, reservation.scores, reservation.nodes
    size = rate_nodes(placement, shape, resources, reservation)
    for i in range(at, at + count):
        if size == 0:
            return i - at
        n, spare = heap[0], reservation.spare[0]
        g = rate(placement, shape, n, resources, reservation)[1]
        placed.node[i], placed.gpus[i] = n, take(shape, now.nodes[n], now.gpus, now.apps, g)
        claim(shape, n, placed.gpus[i], reservation)
        if i == at + count - 1:
            break
        if reservation.spare[0] < spare:  # what others may take is less on other nodes, too
            size = rate_nodes(placement, shape, resources, reservation)
        elif holds_beside(shape, n, now, reservation):
            sink(scores, heap, 0, size, 0, rate(placement, shape, n, resources, reservation)[0], n)
        else:
            pop(scores, heap, 0, size)
            size -= 1
    return count


@inline
def allocate_beside(
    placement: int, shape: Record, count: int, resources: Resources, memo: Memo | None, reservation: Reservation,
    placed: Allocation, at: int,
) -> int:  # fmt: skip
    """Place all instances of a job where they do not delay the head, or none; return how many fit, or fewer."""
    each, free = shape.gpus * shape.milli, resources.free
    if count * each > free_on_types(shape, free):
        return 0
    if count > 1 and slots_beside(shape, count, resources, reservation) < count:
        return 0
    if memo is None:
        done = place_by_index(shape, count, resources.now, resources.fit_index, placed, at, reservation)
    else:
        done = place_by_scan(placement, shape, count, resources, reservation, placed, at)
    end_gang(shape, resources.now, placed.node, at, done)
    for i in range(at, at + done):
        if each:
            free[resources.now.nodes[placed.node[i]].type_number] -= each
        if done < count:
            unclaim(shape, placed.node[i], placed.gpus[i], reservation)
    if done < count:
        release(shape, done, resources, placed, at)
    return done
