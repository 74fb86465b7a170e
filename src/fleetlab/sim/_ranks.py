"""Who is next? The built-in orders as numbers for the full loop; what they mean is in `orders`.

Some ranks are fixed when a job arrives and are kept with it; the others are asked for in every pass.
"""

from __future__ import annotations

import numpy as np

from fleetlab.core.catalog import ORDERS
from fleetlab.sim._books import (
    AFTER,
    BAD,
    BAD_JOB,
    BAD_ORDER,
    FRONT,
    KEY,
    LISTED,
    LIVE,
    NEED,
    NOW,
    OPEN,
    SUBMIT,
    TRY,
    USER,
    Book,
    Rules,
    inner_loop,
    inner_step,
)  # fmt: skip
from fleetlab.sim._nodes import Floats, Ints, pop, push
from fleetlab.sim._work import look_at
from fleetlab.sim.policy import Fill, State

SJF = ORDERS.index("sjf")
AGING = ORDERS.index("aging")
LAS = ORDERS.index("las")
FAIR = ORDERS.index("fair")
SERVER_FILLING = ORDERS.index("server_filling")
SERVER_FILLING_SRPT = ORDERS.index("server_filling_srpt")
OWN = len(ORDERS)  # an order that is not built in


@inner_step
def key_at_arrival(book: Book, rules: Rules, fill: Fill, state: State, t: int) -> float:
    """The rank of a job as long as it lives; `V` has it already where it does not depend on an estimate."""
    if rules.order == OWN:
        if rules.moving:
            return 0.0
        book.jobs[0] = t
        if fill(state, book.jobs, 1, book.clock[NOW], book.keys) == 0:
            book.K[BAD], book.K[BAD_JOB] = BAD_ORDER, t
        return book.keys[0]
    if rules.order == SJF:
        return book.estimate[t]
    if rules.order == AGING:  # all wait at the same pace, so the time they have waited so far may be left out
        return book.estimate[t] + rules.weight * book.V[t, SUBMIT]
    return book.V[t, KEY]


@inner_step
def level_of(attained: float, levels: Floats) -> float:
    """In which queue of `las` is a job that has had so many GPU-seconds?"""
    level = 0
    while level < len(levels) and attained >= levels[level]:
        level += 1
    return float(level)


@inner_loop
def first_to_fill(book: Book, rules: Rules, jobs: Ints, n: int, keys: Floats) -> None:
    """Rank jobs as ServerFilling does: first the shortest prefix that fills the cluster, the largest of it first.

    The prefix is of arrivals, or (SRPT) of GPUs times believed seconds left; `keys` gets places in line.
    """
    order, heap = np.empty(n), np.empty(n, np.int64)
    for k in range(n):
        size = float(jobs[k])
        if rules.order == SERVER_FILLING_SRPT:
            size = book.T[jobs[k], NEED] * book.remaining[jobs[k]]
        push(order, heap, 0, k, size, jobs[k] * n + k)  # ties to who came first
    total, left, chosen = 0, n, 0
    needs, line = np.empty(n), np.empty(n, np.int64)
    while left:
        k = heap[0] % n
        pop(order, heap, 0, left)
        left -= 1
        need = book.T[jobs[k], NEED]
        if total < rules.gpu:
            total += need
            push(needs, line, 0, chosen, -float(need), chosen * n + k)
            chosen += 1
        else:
            keys[k] = float(n - left)
    for at in range(chosen):
        keys[line[0] % n] = float(at)
        pop(needs, line, 0, chosen - at)


@inner_step
def rank(book: Book, rules: Rules, fill: Fill, state: State, jobs: Ints, n: int, keys: Floats) -> None:
    """Fill in the keys of the first `n` of `jobs`: the lowest goes first, ties to the lower job."""
    T, order = book.T, rules.order
    if not rules.moving:
        for k in range(n):
            keys[k] = book.V[jobs[k], KEY]
    elif order == OWN:
        if fill(state, jobs, n, book.clock[NOW], keys) == 0:
            book.K[BAD], book.K[BAD_JOB] = BAD_ORDER, n
    elif order == LAS:
        for k in range(n):
            keys[k] = level_of(book.attained[jobs[k]], rules.levels)
    elif order == FAIR:
        for k in range(n):
            keys[k] = book.usage[T[jobs[k], USER]]
    else:
        for k in range(n):
            keys[k] = book.remaining[jobs[k]]


@inner_step
def look_around(book: Book, rules: Rules) -> None:
    """Bring what is seen of the running jobs up to now, where ranks may depend on it."""
    if rules.moving and rules.order != FAIR:
        for k in range(book.K[LIVE]):
            look_at(book, book.T[k, LISTED], book.clock[NOW])


@inner_step
def gather(book: Book) -> int:
    """Put those who wait, of the groups to be tried, into `jobs`; how many they are."""
    n = 0
    for k in range(book.K[OPEN]):
        if book.Q[book.Q[k, LISTED], TRY]:
            t = book.Q[book.Q[k, LISTED], FRONT]
            while t >= 0:
                book.jobs[n] = t
                n += 1
                t = book.T[t, AFTER]
    return n


@inner_loop
def line_up(book: Book, rules: Rules, fill: Fill, state: State) -> int:
    """Put those who wait, of the groups to be tried, into the heap; how many they are."""
    n = gather(book)
    look_around(book, rules)
    keys = np.empty(n)
    rank(book, rules, fill, state, book.jobs, n, keys)
    if book.K[BAD]:
        return 0
    for k in range(n):
        push(book.keys, book.heap, 0, k, keys[k], book.jobs[k])
    return n


@inner_loop
def rank_all(book: Book, rules: Rules, fill: Fill, state: State) -> int:
    """Rank who waits and who runs together and keep their keys; who waits goes into the heap: how many."""
    n = gather(book)
    total = n + book.K[LIVE]
    for k in range(n, total):
        book.jobs[k] = book.T[k - n, LISTED]
    look_around(book, rules)
    keys = np.empty(total)
    if rules.order == SERVER_FILLING or rules.order == SERVER_FILLING_SRPT:  # never without preemption
        first_to_fill(book, rules, book.jobs, total, keys)
    else:
        rank(book, rules, fill, state, book.jobs, total, keys)
    if book.K[BAD]:
        return 0
    for k in range(total):
        book.V[book.jobs[k], KEY] = keys[k]
        if k < n:
            push(book.keys, book.heap, 0, k, keys[k], book.jobs[k])
    return n


@inner_loop
def worst_first(book: Book) -> Ints:
    """Those who run, the worst-ranked first."""
    n = book.K[LIVE]
    keys, heap, line = np.empty(n), np.empty(n, np.int64), np.empty(n, np.int64)
    for k in range(n):
        push(keys, heap, 0, k, -book.V[book.T[k, LISTED], KEY], -book.T[k, LISTED])
    for k in range(n):
        line[k] = -heap[0]
        pop(keys, heap, 0, n - k)
    return line


@inner_step
def next_in_line(book: Book, rules: Rules, size: int) -> tuple[int, int]:
    """Who is next in the heap, and how many are left in it; -1: nobody."""
    while size:
        t, key = book.heap[0], book.keys[0]
        pop(book.keys, book.heap, 0, size)
        size -= 1
        if rules.order == FAIR and not rules.preempt:
            now = book.usage[book.T[t, USER]]
            if now > key:  # the user has got something since: back into the line
                push(book.keys, book.heap, 0, size, now, t)
                size += 1
                continue
        return t, size
    return -1, 0
