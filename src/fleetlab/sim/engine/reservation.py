"""The reservation of EASY backfill: when and where the first job that does not fit will start, if estimates are right.

There are three views of the nodes: `now`, `reserved` (when the reservation starts, beside it), and `combined` (what is
free both now and then). A job that may run beyond the start of the reservation starts only where `combined` holds it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fleetlab.sim.engine.fit import place_by_index, slots
from fleetlab.sim.engine.index import Index, add_node, group_of, move_gpu, remove_node, set_free_cpu, update_index
from fleetlab.sim.engine.scores import Memo
from fleetlab.sim.engine.state import Allocation, Events, Jobs, Resources, ScheduleTable
from fleetlab.sim.heap import heapify, pop, sink
from fleetlab.sim.jit import inline, inner
from fleetlab.sim.layout import TICK, UNLIMITED, Floats, Ints, NodeView, Record, Scoring, writable
from fleetlab.sim.nodes import BESIDE_GPUS, end_gang, give_back, holds, recount, room, take, take_gpus
from fleetlab.sim.placements import score


class Reservation(NamedTuple):
    """Two views of the nodes, and heaps to work with."""

    reserved: NodeView
    combined: NodeView
    fit_index: Index  # of `combined`
    ends: Floats  # [jobs]: heap of running jobs by expected end
    by_end: Ints
    scores: Floats  # [nodes]: heap of nodes by score
    nodes: Ints
    placed: Allocation  # of the head, planned


def new_reservation(resources: Resources, jobs: int, most_instances: int) -> Reservation:
    """Make the views of a reservation that is not yet made."""
    reserved, combined = (NodeView(*map(writable, resources.now)) for _ in range(2))
    header, groups, numbers, bits = resources.fit_index
    nodes = len(resources.now.nodes)
    placed = Allocation(*(np.empty(most_instances, dtype=np.int64) for _ in range(2)))
    return Reservation(
        reserved, combined, Index(header, writable(groups), writable(numbers), writable(bits)), np.empty(jobs),
        np.empty(jobs, dtype=np.int64), np.empty(nodes), np.empty(nodes, dtype=np.int64), placed,
    )  # fmt: skip


@inner
def combine(n: int, now: NodeView, reservation: Reservation) -> None:
    """Set what of node `n` is free both now and when the reservation starts."""
    reserved, combined, index = reservation.reserved, reservation.combined, reservation.fit_index
    here, then, both = now.nodes[n], reserved.nodes[n], combined.nodes[n]
    indexed, idle, old = len(index.bits) > 0, both.idle_gpus, both.index_group
    combined.nodes[n] = here
    for k in range(BESIDE_GPUS):
        both.free[k] = min(here.free[k], then.free[k])
    both.exclusive, both.instances = max(here.exclusive, then.exclusive), max(here.instances, then.instances)
    both.index_group = old
    group = group_of(both, index.header) if indexed and here.gpu_type else old
    both.index_group = group
    for g in range(here.first_gpu, here.end_gpu):
        gpu = combined.gpus[g]
        before, gpu.free = gpu.free, min(now.gpus[g].free, reserved.gpus[g].free)
        gpu.free_memory = min(now.gpus[g].free_memory, reserved.gpus[g].free_memory)
        if indexed and (group != old or gpu.free != before):
            move_gpu(gpu, index, old, before, group, gpu.free)
    if combined.apps.shape[1] == len(now.nodes):
        for app in range(len(combined.apps)):
            combined.apps[app, n] = max(now.apps[app, n], reserved.apps[app, n])
    recount(both, combined.gpus)
    if indexed:
        set_free_cpu(index.header, index.numbers, both.cpu_rank, both.free_cpu)
        if here.gpu_type and (group != old or both.idle_gpus != idle):
            remove_node(both, index, old, idle)
            add_node(both, index, group, both.idle_gpus)


@inner
def copy_nodes(source: NodeView, target: NodeView) -> None:
    """Copy a view. Row by row: an assignment of slices takes longer to compile."""
    for n in range(len(source.nodes)):
        target.nodes[n] = source.nodes[n]
    for g in range(len(source.gpus)):
        target.gpus[g] = source.gpus[g]
    for app in range(source.apps.shape[0]):
        for n in range(source.apps.shape[1]):
            target.apps[app, n] = source.apps[app, n]


@inner
def rate(
    placement: int, shape: Record, n: int, state: NodeView, scoring: Scoring, reservation: Reservation, size: int
) -> int:
    """Add node `n`, if it holds an instance, with its score to the nodes to pick from; return how many there are."""
    node = state.nodes[n]
    if not holds(shape, node, state.gpus, state.apps):
        return size
    reservation.scores[size], reservation.nodes[size] = score(placement, shape, node, state.gpus, scoring)[0], n
    return size + 1


@inner
def rate_nodes(placement: int, shape: Record, state: NodeView, resources: Resources, reservation: Reservation) -> int:
    """Score every node that holds an instance; return how many there are."""
    header, numbers, size = resources.fit_index.header, resources.fit_index.numbers, 0
    if shape.gpus == 0:
        for n in range(len(state.nodes)):
            size = rate(placement, shape, n, state, resources.scoring, reservation, size)
        return size
    for t in range(header.types):
        if shape.types >> t & 1:
            ranges = header.type_ranges + 2 * t
            for i in range(numbers[ranges], numbers[ranges + 1]):
                if state.nodes[numbers[i]].largest_free >= shape.milli:  # most nodes are full
                    size = rate(placement, shape, numbers[i], state, resources.scoring, reservation, size)
    return size


@inner
def place_by_scan(
    placement: int, shape: Record, count: int, state: NodeView, resources: Resources, reservation: Reservation,
    placed: Allocation, at: int,
) -> None:  # fmt: skip
    """Place a gang that fits: score every node of its types once, and the nodes that it goes to again."""
    scores, heap, gpus, scoring = reservation.scores, reservation.nodes, state.gpus, resources.scoring
    size = rate_nodes(placement, shape, state, resources, reservation)
    if count == 1:
        best = 0
        for i in range(1, size):
            if scores[i] < scores[best] or (scores[i] == scores[best] and heap[i] < heap[best]):
                best = i
        heap[0] = heap[best]
    else:
        heapify(scores, heap, size)
    for i in range(at, at + count):
        n = heap[0]
        node = state.nodes[n]
        g = score(placement, shape, node, gpus, scoring)[1]
        placed.node[i], placed.gpus[i] = n, take(shape, node, gpus, state.apps, g)
        if i == at + count - 1:
            break
        if holds(shape, node, gpus, state.apps):
            sink(scores, heap, 0, size, 0, score(placement, shape, node, gpus, scoring)[0], n)
        else:
            pop(scores, heap, 0, size)
            size -= 1
    end_gang(shape, state, placed.node, at, count)


@inner
def shadow_time(
    shape: Record, count: int, jobs: Jobs, resources: Resources, events: Events, schedule: ScheduleTable,
    reservation: Reservation,
) -> float:  # fmt: skip
    """Return when a gang will fit by the estimates of running jobs; `reserved` becomes what is free then."""
    now, ends, heap, then = events.clock.now, reservation.ends, reservation.by_end, reservation.reserved
    size, placed = events.clock.running, schedule.placed
    for i in range(size):
        j = events.running[i]
        end = schedule.start[j] + jobs.estimate[j]
        ends[i], heap[i] = end if end > now else now + TICK, j
    heapify(ends, heap, size)
    fits, when = slots(shape, UNLIMITED, then, resources.fit_index.header, resources.fit_index.numbers), now
    while fits < count and size:
        when, j = ends[0], heap[0]
        pop(ends, heap, 0, size)
        size -= 1
        of = resources.shapes[jobs.kinds[jobs.kind[j]].shape_id]
        for i in range(jobs.first[j], jobs.first[j + 1]):
            node = then.nodes[placed.node[i]]
            fits -= room(shape, node, then.gpus, then.apps)
            give_back(of, node, then.gpus, then.apps, placed.gpus[i])
            fits += room(shape, node, then.gpus, then.apps)
    return when


@inner
def reserve(
    placement: int, j: int, jobs: Jobs, resources: Resources, events: Events, schedule: ScheduleTable,
    reservation: Reservation,
) -> None:  # fmt: skip
    """Make job `j` the head: give it the earliest time and nodes at which it fits by estimates."""
    kind, clock = jobs.kinds[jobs.kind[j]], events.clock
    shape, count, reserved = resources.shapes[kind.shape_id], kind.instances, reservation.reserved
    copy_nodes(resources.now, reserved)
    clock.head = j
    clock.shadow_time = shadow_time(shape, count, jobs, resources, events, schedule, reservation)
    place_by_scan(placement, shape, count, reserved, resources, reservation, reservation.placed, 0)
    for n in range(len(resources.now.nodes)):
        combine(n, resources.now, reservation)


@inline
def allocate_beside(
    placement: int, shape: Record, count: int, resources: Resources, memo: Memo | None, reservation: Reservation,
    placed: Allocation, at: int,
) -> int:  # fmt: skip
    """Place a job on what is free both now and beside the reservation, in all views; return how many instances fit."""
    combined, header, numbers = reservation.combined, resources.fit_index.header, resources.fit_index.numbers
    if memo is None:
        if count > 1 and slots(shape, count, combined, header, numbers) < count:
            return 0
        fits = place_by_index(shape, count, combined, reservation.fit_index, placed, at)
        end_gang(shape, combined, placed.node, at, fits)
    else:
        if slots(shape, count, combined, header, numbers) < count:
            return 0
        place_by_scan(placement, shape, count, combined, resources, reservation, placed, at)
        fits = count
    if fits == count:
        for i in range(at, at + count):
            take_in_views(shape, resources, reservation.reserved, placed.node[i], placed.gpus[i])
    return fits


@inner
def take_in_views(shape: Record, resources: Resources, reserved: NodeView, n: int, bits: int) -> None:
    """Allocate the GPUs `bits` of node `n`, now and when the reservation starts."""
    now, node, then = resources.now, resources.now.nodes[n], reserved.nodes[n]
    idle = node.idle_gpus
    take_gpus(shape, node, now.gpus, now.apps, bits)
    take_gpus(shape, then, reserved.gpus, reserved.apps, bits)
    if bits:
        resources.free[node.type_number] -= shape.gpus * shape.milli
    if len(resources.fit_index.bits):
        update_index(node, now.gpus, resources.fit_index, bits, shape.milli, idle)
