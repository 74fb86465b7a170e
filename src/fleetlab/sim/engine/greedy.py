"""The quick loop with greedy backfill: every waiting job that fits may start, in the order of the queue.

Jobs of one kind fit or fail together, so a pass looks at kinds, not at jobs, and only at those that nodes freed since
the last look may help: what fitted then, plus what fits on every node freed since, bounds what fits now.
"""

from __future__ import annotations

from fleetlab.sim.engine.events import complete, exceeds_freed, fits_freed, next_instant, start, summarize_freed
from fleetlab.sim.engine.fit import allocate, fit_bound, slots
from fleetlab.sim.engine.queue import add_candidate, contend, dequeue, enqueue, learn_key, list_kind, unlist_kind
from fleetlab.sim.engine.scores import Memo
from fleetlab.sim.engine.state import Events, Jobs, Queues, Resources, ScheduleTable
from fleetlab.sim.engine.timed import Timed, rank_kind
from fleetlab.sim.heap import pop
from fleetlab.sim.jit import inline, inner, loop
from fleetlab.sim.layout import UNLIMITED, Record
from fleetlab.sim.nodes import node_slots


@inner
def raise_bounds(resources: Resources, events: Events, queues: Queues) -> None:
    """Add what fits on freed nodes to what may fit of every waiting shape."""
    clock, now = events.clock, resources.now
    for i in range(clock.listed):
        shape = resources.shapes[queues.listed[i]]
        if not exceeds_freed(shape, clock):
            for f in range(clock.freed):
                more = node_slots(shape, now.nodes[events.freed[f]], now.gpus, now.apps)
                queues.shapes[queues.listed[i]].fit_bound += more


@inner
def retry(jobs: Jobs, queues: Queues, events: Events) -> None:
    """Look again at the waiting kinds of which all instances may fit now."""
    for i in range(events.clock.listed):
        waiting = queues.shapes[queues.listed[i]]
        k = waiting.first_kind
        while k >= 0:
            if jobs.kinds[k].instances <= waiting.fit_bound:
                add_candidate(k, queues, events.clock)
            k = queues.kinds[k].next


@inline
def arrive(jobs: Jobs, events: Events, queues: Queues, by_estimate: int) -> None:
    """Put jobs that are submitted now into the queues of their kinds."""
    clock = events.clock
    while clock.arrived < len(jobs.submit) and jobs.submit[clock.arrived] == clock.now:
        j = clock.arrived
        clock.arrived += 1
        queue = queues.kinds[jobs.kind[j]]
        if by_estimate:
            learn_key(j, jobs, 1)
        if queue.length == 0:
            add_candidate(jobs.kind[j], queues, clock)
        enqueue(j, queue, jobs, queues)


@inline
def may_fit(k: int, jobs: Jobs, resources: Resources, queues: Queues, clock: Record) -> bool:
    """Return whether a candidate is worth trying.

    A waiting kind of one instance fits on the node that was freed. A gang must be counted, and a new kind if it is not
    alone; but a new kind of a shape that waits finds no more than those who wait.
    """
    queue, kind = queues.kinds[k], jobs.kinds[k]
    waiting, shape, count = queues.shapes[kind.shape_id], resources.shapes[kind.shape_id], kind.instances
    waits = queue.slot >= 0
    if not waits and waiting.first_kind >= 0 and waiting.fit_bound < count:
        if waiting.fit_bound:
            header, numbers = resources.fit_index.header, resources.fit_index.numbers
            waiting.fit_bound = slots(shape, UNLIMITED, resources.now, header, numbers)
        return False
    if (count > 1 or not waits) and (waits or clock.candidates > 1):
        if waiting.counted == clock.instant:
            return waiting.fit_bound >= count
        fits = fit_bound(shape, count, resources)
        if fits < count:  # so many fit, and no more: other kinds of its shape need not count
            waiting.fit_bound, waiting.counted = fits, clock.instant
        return fits >= count
    return True


@inline
def start_candidates(
    placement: int, jobs: Jobs, resources: Resources, memo: Memo | None, events: Events, queues: Queues,
    schedule: ScheduleTable, timed: Timed,
) -> None:  # fmt: skip
    """Start the first-ranked job of the kinds that may fit, again and again, until none fits."""
    clock, size = events.clock, 0
    for i in range(clock.candidates):
        if may_fit(queues.candidates[i], jobs, resources, queues, clock):
            if timed.changes:
                rank_kind(queues.candidates[i], jobs, queues, timed, clock)
            size = contend(queues.kinds[queues.candidates[i]], queues, size)
    while size:
        j = queues.first_jobs[0]
        pop(queues.ranks, queues.first_jobs, 0, size)
        size -= 1
        queue, kind = queues.kinds[jobs.kind[j]], jobs.kinds[jobs.kind[j]]
        shape, waiting = resources.shapes[kind.shape_id], queues.shapes[kind.shape_id]
        # A kind that waited fits only on a freed node: those are quickly looked through.
        if queue.slot >= 0 and (
            exceeds_freed(shape, clock) or not fits_freed(shape, resources.now, events.freed, clock.freed)
        ):
            if kind.instances == 1:
                waiting.fit_bound = 0
            continue
        fits = allocate(placement, kind.shape_id, kind.instances, resources, memo, schedule.placed, jobs.first[j])
        if fits < kind.instances:
            waiting.fit_bound = fits
            continue
        start(j, jobs, events, schedule)
        dequeue(queue, queues)
        if queue.length:
            size = contend(queue, queues, size)
        if clock.freed and size:
            summarize_freed(clock, events.freed, resources.now.nodes)


@inner
def update_lists(jobs: Jobs, queues: Queues, clock: Record) -> None:
    """After a pass: list the candidates that begin to wait, and take those that wait no more off the list."""
    for i in range(clock.candidates):
        k = queues.candidates[i]
        queue, kind = queues.kinds[k], jobs.kinds[k]
        if queue.length and queue.slot < 0:
            list_kind(k, kind.shape_id, queues, clock)
        elif queue.length == 0 and queue.slot >= 0:
            unlist_kind(k, kind.shape_id, queues, clock)


@loop
def run_greedy(
    placement: int, jobs: Jobs, resources: Resources, memo: Memo | None, events: Events, queues: Queues,
    schedule: ScheduleTable, by_estimate: int, timed: Timed, until: float,
) -> None:  # fmt: skip
    """Play all events."""
    clock = events.clock
    while next_instant(jobs, events, until):
        complete(jobs, resources, events, schedule, clock.listed > 0)  # before new jobs request what it frees
        if clock.freed:
            summarize_freed(clock, events.freed, resources.now.nodes)
            raise_bounds(resources, events, queues)
            retry(jobs, queues, events)
        arrive(jobs, events, queues, by_estimate)
        if clock.candidates:
            start_candidates(placement, jobs, resources, memo, events, queues, schedule, timed)
            update_lists(jobs, queues, clock)
