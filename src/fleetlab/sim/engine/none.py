"""The quick loop without backfill: a job that does not fit blocks every job behind it (head-of-line blocking)."""

from __future__ import annotations

from fleetlab.sim.engine.events import complete, fits_freed, next_instant, start
from fleetlab.sim.engine.fit import allocate
from fleetlab.sim.engine.queue import learn_key
from fleetlab.sim.engine.scores import Memo
from fleetlab.sim.engine.state import Events, Jobs, Resources, ScheduleTable
from fleetlab.sim.engine.timed import Timed, rank_anew
from fleetlab.sim.heap import pop, push
from fleetlab.sim.jit import inline, loop
from fleetlab.sim.layout import Floats, Ints


@inline
def arrive(jobs: Jobs, events: Events, keys: Floats, heap: Ints, by_estimate: int) -> None:
    """Put jobs that are submitted now into the queue."""
    clock = events.clock
    while clock.arrived < len(jobs.submit) and jobs.submit[clock.arrived] == clock.now:
        j = clock.arrived
        if by_estimate:
            learn_key(j, jobs, 1)
        if len(heap):
            push(keys, heap, 0, clock.waiting, jobs.key[j], j)
        clock.arrived += 1
        clock.waiting += 1


@inline
def start_in_order(
    placement: int, jobs: Jobs, resources: Resources, memo: Memo | None, events: Events, keys: Floats, heap: Ints,
    schedule: ScheduleTable,
) -> None:  # fmt: skip
    """Start jobs from the head of the queue until one does not fit."""
    clock = events.clock
    while clock.waiting:
        j = heap[0] if len(heap) else clock.next_job
        kind = jobs.kinds[jobs.kind[j]]
        shape, count = resources.shapes[kind.shape_id], kind.instances
        if j == clock.head and not fits_freed(shape, resources.now, events.freed, clock.freed):
            break
        clock.head = -1
        if allocate(placement, kind.shape_id, count, resources, memo, schedule.placed, jobs.first[j]) < count:
            clock.head = j
            break
        if len(heap):
            pop(keys, heap, 0, clock.waiting)
        else:
            clock.next_job += 1
        clock.waiting -= 1
        start(j, jobs, events, schedule)


@loop
def run_none(
    placement: int, jobs: Jobs, resources: Resources, memo: Memo | None, events: Events, keys: Floats, heap: Ints,
    schedule: ScheduleTable, by_estimate: int, timed: Timed, until: float,
) -> None:  # fmt: skip
    """Play all events. `keys` and `heap` are empty where jobs arrive in the order of their ranks."""
    while next_instant(jobs, events, until):
        complete(jobs, resources, events, schedule, events.clock.head >= 0)  # before new jobs request what it frees
        arrive(jobs, events, keys, heap, by_estimate)
        if timed.changes:
            rank_anew(jobs, keys, heap, events.clock.waiting, timed, events.clock)
        start_in_order(placement, jobs, resources, memo, events, keys, heap, schedule)
