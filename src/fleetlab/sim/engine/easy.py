"""The quick loop with EASY backfill: no job may delay the first job in the queue that does not fit, the *head*.

The head has a reservation: the earliest time at which it fits, by estimates. A job behind it may start if it is
expected to end before that, or if the head still fits at that time beside it. A reservation stands as long as its head
does and all goes as estimated; else it is made again. Kinds that could not start are looked at again only when that may
have changed.
"""

from __future__ import annotations

import numpy as np

from fleetlab.sim.engine.beside import Reservation, node_slots_beside
from fleetlab.sim.engine.events import complete, exceeds_freed, next_instant, start, summarize_freed
from fleetlab.sim.engine.fit import allocate, fit_bound
from fleetlab.sim.engine.queue import add_candidate, contend, enqueue, learn_key
from fleetlab.sim.engine.reservation import allocate_beside, reserve, slots_beside
from fleetlab.sim.engine.scores import Memo
from fleetlab.sim.engine.state import Events, Jobs, Queues, Resources, ScheduleTable
from fleetlab.sim.engine.timed import Timed, rank_kind
from fleetlab.sim.heap import pop, push, remove
from fleetlab.sim.jit import inline, inner, loop
from fleetlab.sim.layout import Floats, Record
from fleetlab.sim.nodes import node_slots

CONTINUE, AGAIN = range(2)  # what a tried job means for the pass


@inner
def retry(jobs: Jobs, resources: Resources, reservation: Reservation, events: Events, queues: Queues) -> None:
    """Look again at the waiting kinds that nodes freed now may help."""
    clock, now = events.clock, resources.now
    for i in range(clock.listed):
        k = queues.listed[i]
        queue, kind = queues.kinds[k], jobs.kinds[k]
        shape = resources.shapes[kind.shape_id]
        if exceeds_freed(shape, clock):
            continue
        for f in range(clock.freed):
            n = events.freed[f]
            queue.fit_bound += node_slots(shape, now.nodes[n], now.gpus, now.apps)
            if queue.delays:
                queue.both_bound += node_slots_beside(shape, n, now, reservation)
        if (queue.both_bound if queue.delays else queue.fit_bound) >= kind.instances:
            add_candidate(k, queues, clock)


@inline
def arrive(jobs: Jobs, events: Events, queues: Queues, by_estimate: int) -> None:
    """Put jobs that are submitted now into the queues of their kinds."""
    clock = events.clock
    while clock.arrived < len(jobs.submit) and jobs.submit[clock.arrived] == clock.now:
        j = clock.arrived
        clock.arrived += 1
        queue = queues.kinds[jobs.kind[j]]
        learn_key(j, jobs, by_estimate)
        # If others of its kind wait, it does not fit either; but if it ranks before the head, it is the head now.
        first = clock.head >= 0 and jobs.key[j] < jobs.key[clock.head]
        if not queue.candidate and (queue.slot < 0 or queue.delays or first):
            add_candidate(jobs.kind[j], queues, clock)
        queue.shortest = min(queue.shortest, jobs.estimate[j])
        enqueue(j, queue, jobs, queues)


@inner
def after_subtree(i: int) -> int:
    """Return which entry of a heap to look at after entry `i` and all below it; 0: none is left."""
    while i > 0 and i % 2 == 0:  # the second of two
        i = (i - 1) >> 1
    return i + 1 if i > 0 else 0


@inner
def first_within(queue: Record, queues: Queues, estimate: Floats, window: float) -> int:
    """Return the position of the first-ranked job of a kind that is expected to run at most `window`; -1: none.

    Below an entry of a heap all rank behind it: with a long queue, few are looked at.
    """
    best, keys, jobs, i = -1, queues.keys, queues.jobs, 0
    while True:
        at = queue.first + i
        if i < queue.length and (
            best < 0 or keys[at] < keys[best] or (keys[at] == keys[best] and jobs[at] < jobs[best])
        ):
            if estimate[jobs[at]] > window:
                i = 2 * i + 1
                continue
            best = at
        i = after_subtree(i)
        if i == 0:
            return best


@inner
def leave_queue(j: int, key: float, queue: Record, queues: Queues) -> None:
    """Remove a job that starts from the queue of its kind; it need not be the first."""
    first, keys, jobs, k = queue.first, queues.keys, queues.jobs, 0
    while k >= queue.length or jobs[first + k] != j:
        below = k < queue.length and (keys[first + k] < key or (keys[first + k] == key and jobs[first + k] < j))
        k = 2 * k + 1 if below else after_subtree(k)
    remove(queues.keys, queues.jobs, queue.first, queue.length, first + k)
    queue.length -= 1
    if queue.length == 0:
        queue.shortest = np.inf


@inner
def try_shorter(queue: Record, jobs: Jobs, queues: Queues, window: float, size: int) -> int:
    """Where a job is too long to end before the reservation, let the first that is short enough contend."""
    if queue.shortest > window:
        return size
    i = first_within(queue, queues, jobs.estimate, window)
    if i < 0:
        queue.shortest = np.nextafter(window, np.inf)
        return size
    push(queues.ranks, queues.first_jobs, 0, size, queues.keys[i], queues.jobs[i])
    return size + 1


@inline
def try_job(
    placement: int, j: int, rank: float, jobs: Jobs, resources: Resources, memo: Memo | None, events: Events,
    queues: Queues, schedule: ScheduleTable, reservation: Reservation, size: int, exact: int,
) -> tuple[int, int]:  # fmt: skip
    """Start a job if it fits and delays no reservation; if it is first in the queue and does not fit, reserve for it.

    Returns how many jobs contend now, and AGAIN if another job is the head, so that all who wait must be tried again.
    Estimates that are not exact make a reservation last an instant: it is made when a job behind the head may start.
    """
    clock = events.clock
    queue, kind = queues.kinds[jobs.kind[j]], jobs.kinds[jobs.kind[j]]
    shape, count, at, head = resources.shapes[kind.shape_id], kind.instances, jobs.first[j], clock.head
    ahead = head < 0 or j == head or rank < jobs.key[head] or (rank == jobs.key[head] and j < head)
    full = queue.slot >= 0 and queue.fit_bound < count  # since it did not fit, too little was freed for it
    if full and not ahead:
        return size, CONTINUE
    if not ahead and reservation.owner[0] != head:
        reserve(head, jobs, resources, events, schedule, reservation)
    within = ahead or clock.now + jobs.estimate[j] <= clock.shadow_time
    if full:
        fits = 0
    elif within:
        fits = allocate(placement, kind.shape_id, count, resources, memo, schedule.placed, at)
    else:
        fits = allocate_beside(placement, shape, count, resources, memo, reservation, schedule.placed, at)
    if fits == count:
        leave_queue(j, jobs.key[j], queue, queues)
        start(j, jobs, events, schedule)
        if head >= 0 and ahead:  # the head started, or a job before it: the first that does not fit is the head now
            clock.head, clock.renew = -1, 1
            return size, AGAIN
        return contend(queue, queues, size) if queue.length else size, CONTINUE
    if ahead:
        if j == head:
            return size, CONTINUE
        clock.head, reservation.owner[0] = j, -1
        if exact:
            reserve(j, jobs, resources, events, schedule, reservation)
        if clock.renew:
            return size, CONTINUE
        clock.renew = 1  # another head than before
        return size, AGAIN
    return size if within else try_shorter(queue, jobs, queues, clock.shadow_time - clock.now, size), CONTINUE


@inner
def line_up(queues: Queues, clock: Record) -> int:
    """Let the first jobs of all candidates contend; of all kinds that wait, where the head may be another."""
    size = 0
    if clock.renew:
        for i in range(clock.listed):
            if not queues.kinds[queues.listed[i]].candidate:
                add_candidate(queues.listed[i], queues, clock)
    for i in range(clock.candidates):
        queue = queues.kinds[queues.candidates[i]]
        if queue.length:
            size = contend(queue, queues, size)
    return size


@inner
def update_list(k: int, queue: Record, queues: Queues, clock: Record) -> None:
    """List a kind that begins to wait; take one that waits no more off the list."""
    if queue.length and queue.slot < 0:
        queue.slot = clock.listed
        queues.listed[clock.listed] = k
        clock.listed += 1
    elif queue.length == 0 and queue.slot >= 0:
        clock.listed -= 1
        last = queues.listed[clock.listed]
        queues.listed[queue.slot] = last
        queues.kinds[last].slot = queue.slot
        queue.slot = -1


@inner
def count_candidates(
    jobs: Jobs, resources: Resources, reservation: Reservation, queues: Queues, clock: Record, exact: int
) -> None:
    """After a pass: list the candidates that wait, and count how many of their instances fit.

    Beside the reservation that is counted only where it stands: where the next pass makes another, it has no meaning.
    """
    for i in range(clock.candidates):
        k = queues.candidates[i]
        queue, kind = queues.kinds[k], jobs.kinds[k]
        shape, count = resources.shapes[kind.shape_id], kind.instances
        queue.candidate, is_new = 0, queue.slot < 0
        update_list(k, queue, queues, clock)
        if queue.length == 0 or not (exact or is_new or queue.fit_bound >= count):
            continue
        queue.fit_bound = fit_bound(shape, count, resources)
        if exact:
            queue.delays = queue.fit_bound >= count
            queue.both_bound = slots_beside(shape, count, resources, reservation) if queue.delays else 0


@inner
def may_start(jobs: Jobs, queues: Queues, clock: Record) -> bool:
    """Return whether a job may fit of which that is not known to be false."""
    for i in range(clock.candidates):
        queue = queues.kinds[queues.candidates[i]]
        if queue.slot < 0 or queue.fit_bound >= jobs.kinds[queues.candidates[i]].instances:
            return True
    for i in range(clock.listed):
        if queues.kinds[queues.listed[i]].fit_bound >= jobs.kinds[queues.listed[i]].instances:
            return True
    return False


@inner
def forget_candidates(queues: Queues, clock: Record) -> None:
    """End an instant in which no job can start."""
    for i in range(clock.candidates):
        queues.kinds[queues.candidates[i]].candidate = 0


@inner
def rank_queues(jobs: Jobs, queues: Queues, timed: Timed, clock: Record) -> None:
    """Rank all waiting jobs as of now."""
    for i in range(clock.candidates):
        if queues.kinds[queues.candidates[i]].slot < 0:
            rank_kind(queues.candidates[i], jobs, queues, timed, clock)
    for i in range(clock.listed):
        rank_kind(queues.listed[i], jobs, queues, timed, clock)


@loop
def run_easy(
    placement: int, jobs: Jobs, resources: Resources, memo: Memo | None, events: Events, queues: Queues,
    schedule: ScheduleTable, reservation: Reservation, by_estimate: int, exact: int, timed: Timed, until: float,
) -> None:  # fmt: skip
    """Play all events; `exact`: every estimate is the true runtime, and ranks do not change."""
    clock = events.clock
    while next_instant(jobs, events, until):
        complete(jobs, resources, events, schedule, clock.listed > 0)  # before new jobs request what it frees
        if clock.freed:
            summarize_freed(clock, events.freed, resources.now.nodes)
            retry(jobs, resources, reservation, events, queues)
        arrive(jobs, events, queues, by_estimate)
        if clock.candidates == 0 and (exact or clock.listed == 0):
            continue
        if not exact or clock.now >= clock.shadow_time:
            clock.head = -1  # not all went as estimated: whoever is first gets a new reservation
        if timed.changes:
            if not may_start(jobs, queues, clock):
                forget_candidates(queues, clock)
                continue
            rank_queues(jobs, queues, timed, clock)
        clock.renew = clock.head < 0
        after = AGAIN
        while after == AGAIN:
            size, after = line_up(queues, clock), CONTINUE
            while size and after == CONTINUE:
                j, rank = queues.first_jobs[0], queues.ranks[0]
                pop(queues.ranks, queues.first_jobs, 0, size)
                size, after = try_job(
                    placement, j, rank, jobs, resources, memo, events, queues, schedule, reservation, size - 1,
                    exact,
                )  # fmt: skip
        count_candidates(jobs, resources, reservation, queues, clock, exact)
        if clock.head >= 0 and schedule.start[clock.head] == schedule.start[clock.head]:
            clock.head = -1
