"""Backfilling: who may start before whom without delaying them, by what is believed of run times.

`easy` keeps one reservation, that of the first job in line that does not fit. `conservative` plans a start for every
job that waits, and lets one begin only if that delays nobody ranked before it. Both know nodes and GPUs, not only
how many: a reservation is a place on very GPUs.
"""

from __future__ import annotations

import numpy as np

from fleetlab.sim._books import (
    AT,
    BELIEVED,
    GANG,
    HERE,
    LISTED,
    LIVE,
    NOW,
    PLANNED,
    SHAPE,
    TICK,
    Book,
    Ground,
    Rules,
    inner_loop,
    inner_step,
    on_tick,
)  # fmt: skip
from fleetlab.sim._moves import ALL, begin, copy, fits, lift, meet, occupy, settle, slots
from fleetlab.sim._nodes import Floats, Ints, pop, push
from fleetlab.sim._work import believed_left, next_run
from fleetlab.sim.policy import Fill, State


@inner_step
def believed_end(book: Book, t: int, now: float) -> float:
    """When a running job is believed to end; one that is overdue, at once."""
    return book.V[t, BELIEVED] if book.V[t, BELIEVED] > now else now + TICK


@inner_step
def believed_length(book: Book, rules: Rules, t: int) -> float:
    """How long a waiting job is believed to run."""
    return believed_left(book, t, next_run(book, rules, t))


@inner_loop
def running_by_end(book: Book, now: float) -> tuple[Floats, Ints]:
    """A heap of the running jobs by believed end."""
    n = book.K[LIVE]
    keys, heap = np.empty(n), np.empty(n, np.int64)
    for k in range(n):
        push(keys, heap, 0, k, believed_end(book, book.T[k, LISTED], now), book.T[k, LISTED])
    return keys, heap


@inner_loop
def reserve(book: Book, rules: Rules, ask: Fill, state: State, t: int, future: Ground) -> float:
    """When the first in line will fit, as is believed; `future` becomes what is free then beside it."""
    now, s, count = book.clock[NOW], book.T[t, SHAPE], book.T[t, GANG]
    ends, heap = running_by_end(book, now)
    size, found, when = len(heap), slots(future, s, ALL), now
    while found < count and size:
        when, r = ends[0], heap[0]
        pop(ends, heap, 0, size)
        size -= 1
        found += lift(book, future, s, r, HERE, 1)
    if found < count:
        return np.inf  # not before nodes come back: nothing can delay it
    settle(book, future, rules, ask, state, t, PLANNED)
    return when


@inner_step
def meet_all(a: Ground, b: Ground) -> None:
    """Leave of `a` only what is free on `b` too."""
    for n in range(len(a.N)):
        meet(a, b, n)


@inner_loop
def start_beside(
    book: Book, ground: Ground, rules: Rules, ask: Fill, state: State, t: int, future: Ground, both: Ground
) -> None:
    """Start a job where it is in nobody's way, now or when the reservation falls due."""
    settle(book, both, rules, ask, state, t, HERE)
    occupy(book, ground, t, HERE)
    occupy(book, future, t, HERE)
    begin(book, ground, rules, t, book.clock[NOW])


@inner_step
def meet_at(book: Book, t: int, both: Ground, ground: Ground) -> None:
    """A job has started: leave of `both` only what is still free now on its nodes."""
    for i in range(book.T[t, AT], book.T[t, AT] + book.T[t, GANG]):
        meet(both, ground, book.I[i, HERE])


# -- a plan over time ------------------------------------------------------------------------------------------------

RELEASE, OCCUPY = 0, 1  # in a plan; at one time in this order


@inner_step
def note(times: Floats, what: Ints, size: int, time: float, act: int, t: int) -> int:
    """Add to the plan that a job releases or occupies its place; releases come first at one time."""
    k = size
    while k and (times[k - 1] > time or (times[k - 1] == time and what[k - 1, 0] > act)):
        times[k], what[k, 0], what[k, 1] = times[k - 1], what[k - 1, 0], what[k - 1, 1]
        k -= 1
    times[k], what[k, 0], what[k, 1] = time, act, t
    return size + 1


@inner_step
def lasts(
    book: Book, t: int, ahead: Ground, free: Ground, times: Floats, what: Ints, k: int, size: int, end: float
) -> bool:
    """Does a job that fits in `free` fit there until `end`? `free` is left with what is free all that time."""
    s = book.T[t, SHAPE]
    while k < size and times[k] < end:
        time, taken = times[k], 0
        while k < size and times[k] == time:
            lift(book, ahead, s, what[k, 1], PLANNED, 1 - 2 * what[k, 0])
            taken += what[k, 0]
            k += 1
        for back in range(k - taken, k):
            r = what[back, 1]
            for i in range(book.T[r, AT], book.T[r, AT] + book.T[r, GANG]):
                meet(free, ahead, book.I[i, PLANNED])
        if taken and not fits(free, s, book.T[t, GANG]):
            return False
    return True


@inner_loop
def earliest(
    book: Book, ground: Ground, rules: Rules, ask: Fill, state: State, t: int, times: Floats, what: Ints, size: int
) -> float:
    """The first time from which on a job fits for as long as it is believed to run; its place goes into the plan."""
    s, count, at, k = book.T[t, SHAPE], book.T[t, GANG], book.clock[NOW], 0
    long = max(TICK, believed_length(book, rules, t))
    then, found = copy(ground), slots(ground, s, ALL)
    while True:
        if found >= count:
            free = copy(then)
            if lasts(book, t, copy(then), free, times, what, k, size, at + long):
                settle(book, free, rules, ask, state, t, PLANNED)
                return at
        if k == size:
            return np.inf
        at = times[k]
        while k < size and times[k] == at:
            found += lift(book, then, s, what[k, 1], PLANNED, 1 - 2 * what[k, 0])
            k += 1


@inner_loop
def plan_running(book: Book, times: Floats, what: Ints) -> int:
    """Begin a plan with the ends of the running jobs."""
    ends, heap = running_by_end(book, book.clock[NOW])
    for k in range(len(heap)):
        r = heap[0]
        times[k], what[k, 0], what[k, 1] = ends[0], RELEASE, r
        for i in range(book.T[r, AT], book.T[r, AT] + book.T[r, GANG]):
            book.I[i, PLANNED], book.I[i, PLANNED + 1] = book.I[i, HERE], book.I[i, HERE + 1]
        pop(ends, heap, 0, len(heap) - k)
    return book.K[LIVE]


@inner_loop
def plan_next(
    book: Book, ground: Ground, rules: Rules, ask: Fill, state: State, t: int, times: Floats, what: Ints, size: int
) -> int:
    """Give a job the earliest start that delays nobody in the plan, and start it if that is now."""
    now = book.clock[NOW]
    at = earliest(book, ground, rules, ask, state, t, times, what, size)
    if at == np.inf:
        return size  # not before nodes come back: nothing can delay it
    end = on_tick(at + max(TICK, believed_length(book, rules, t)))
    if at == now:
        for i in range(book.T[t, AT], book.T[t, AT] + book.T[t, GANG]):
            book.I[i, HERE], book.I[i, HERE + 1] = book.I[i, PLANNED], book.I[i, PLANNED + 1]
        occupy(book, ground, t, HERE)
        begin(book, ground, rules, t, now)
    else:
        size = note(times, what, size, at, OCCUPY, t)
    return note(times, what, size, end, RELEASE, t)
