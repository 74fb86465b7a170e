"""The books of the full loop: what is known of each job, each group of alike jobs and each user, and how it is kept.

A job is a row of `T` and of `V`, an instance a row of `I`. Jobs that ask for the same are a *group* (under a quota:
of one user), a row of `Q` and of `A`: they fit or fail together and wait for the same reason, so what is waited for is
charged to the group, and a job takes the difference between its coming and its going. Everything here also runs as
plain Python, with the same answer.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fleetlab.sim._compile import kept
from fleetlab.sim._nodes import BY_HEAD, CPU, GPUS, MEMORY, MILLI, REASONS, Floats, Ints, pop, push

# Only compiled code calls these: what Python would call them by takes as long to compile as they do.
inner_loop = kept(no_cpython_wrapper=True, no_cfunc_wrapper=True)
value = kept(no_cpython_wrapper=True)  # taken by the loop as a value: see `full`
inner_step = kept(no_cpython_wrapper=True, no_cfunc_wrapper=True, _nrt=False)

TICK = 2.0**-24  # seconds; every time is a whole number of these
TICKS = 2.0**24

LISTED = 0  # column 0 of T, Q and P is a list beside the table: of who runs, which groups wait, which nodes were freed
# A row of T: a job in whole numbers. `SPOT`: where it stands in the list; `AFTER` and `BEFORE`: who waits beside it.
SHAPE, GANG, GROUP, USER, AT, LEARNER, CLASS, STATUS, SPOT, AFTER, BEFORE, EVICTIONS, FAILURES, NEED = range(1, 15)
JOB_FIELDS = 15
# A row of V: a job in seconds. Its own seconds pass more slowly than the clock where it shares a GPU.
SUBMIT, RUNTIME, KEY, START, END = range(5)
TODO = 5  # work that it has not done, when this run began
INTRO = 6  # own seconds that saving and restarting take before that
SEGMENT = 7  # when this run began
SINCE, LEFT, SPEED = 8, 9, 10  # own seconds left at a time, and how fast they pass
BELIEVED = 11  # when this run is believed to end
LOST, RAN = 12, 13  # own seconds in vain, and seconds run, in the runs before this one
LEDGER = 14  # and one more for each reason
JOB_TIMES = LEDGER + len(REASONS)
# A row of I: an instance, where it is, and where it is planned to be. `BESIDE`: who came to its GPU before it.
HERE, PLANNED, BESIDE, OWNED_BY = 0, 2, 4, 5  # a place is two numbers: the node, and its GPUs as bits
INSTANCE_FIELDS = 6
# A row of Q: a group. `HOPE`: at most so many of its instances fit.
OF_SHAPE, OF_GANG, OF_USER, OF_NEED, SIZE, FRONT, SLOT, REASON, NEW, ASKED, ABLE, TRY, HELD, BARRED, HOPE = range(1, 16)
GROUP_FIELDS = 16
SETTLED = len(REASONS)  # the last column of A: until when a group's account is settled
# A row of H: what a user holds, and may hold.
HOLDS_CPU, HOLDS_MEMORY, HOLDS_GPU, QUOTA = range(4)
# A row of P: a node. `POOL`: with which it is switched on and off, -1: none.
STAMP, POOL, POWER, OUT = range(1, 5)
PLACE_FIELDS = 5
# A row of M: what jobs finished so far tell of run times.
MEAN, SEEN = 0, 1
# K: counts and marks.
(
    LIVE, OPEN, FREED, ALARMS, ARRIVED, STRUCK, FINISHED, HEAD, HEAD_REASON, BAD, BAD_JOB, RUNS, ENTRIES, UPS,
    ON_NODES, OUTRANKED,
) = range(16)  # fmt: skip
COUNTS = 16
BAD_ORDER, BAD_PLACE = 1, 2  # what BAD says: a policy's answer was not a number
NOW, HEAD_SINCE = 0, 1  # of `clock`
WAITING, RUNNING, DONE = 0, 1, 2


class Ground(NamedTuple):
    """Nodes, the shapes that ask for them, and what placement policies look at: see `_nodes` and `_places`."""

    S: Ints
    N: Ints
    G: Ints
    apps: Ints
    C: Ints
    most: Ints
    U: Ints
    share: Floats
    draws: Ints


class Book(NamedTuple):
    """All that changes, but for the nodes. Few arrays: each makes every call that hands them on slower to compile."""

    T: Ints
    V: Floats
    I: Ints  # noqa: E741
    Q: Ints
    A: Floats  # [groups, reasons + 1]
    H: Ints
    P: Ints
    K: Ints
    clock: Floats
    pace: Floats  # [instances]: the speed of each
    tenants: Ints  # [GPUs]: who came last to share it
    due: Floats  # when what is due: completions of jobs, then timers; inf: not at all
    alarm_keys: Floats  # a heap of all that is due; what is not due at its key is stale
    alarms: Ints
    keys: Floats  # [jobs]: of the heap of those in line
    heap: Ints
    jobs: Ints  # [jobs]: to be ranked
    runs: Floats  # [jobs, 4]: runs that have ended, told to Python when full: job, first entry, begin, end
    entries: Ints  # [instances, 2]: node and GPUs
    estimate: Floats
    attained: Floats  # GPU-seconds
    remaining: Floats
    usage: Floats  # [users]: dominant share
    M: Floats  # [learners + 1, 2]: the last is of all


class Rules(NamedTuple):
    """What does not change."""

    order: int
    moving: int  # keys are asked for in every pass
    backfill: int
    placement: int
    preempt: int
    sharing: int
    quota: int
    every: float  # Recovery
    save: float
    restart: float
    until: float
    cpu: float  # of the cluster
    memory: float
    gpu: float
    weight: float  # of waiting, under `aging`
    levels: Floats  # GPU-seconds between the queues of `las`
    alone: Floats  # [classes]: speed
    pair: Floats  # [classes, classes]: by how much one of the second slows one of the first


@inner_step
def on_tick(time: float) -> float:
    """The first tick at or after a time."""
    return np.ceil(time * TICKS) * TICK


# -- alarms ----------------------------------------------------------------------------------------------------------


@inner_step
def set_alarm(book: Book, item: int, time: float) -> None:
    """Let `item` be due at `time`, and no more at another."""
    keys, items, due, size = book.alarm_keys, book.alarms, book.due, book.K[ALARMS]
    due[item] = time
    if size == len(items):  # full of stale ones
        size = 0
        for k in range(len(due)):
            if k != item and due[k] < np.inf:
                push(keys, items, 0, size, due[k], k)
                size += 1
    push(keys, items, 0, size, time, item)
    book.K[ALARMS] = size + 1


@inner_step
def next_alarm(book: Book) -> float:
    """When is something due next?"""
    keys, items, due, size = book.alarm_keys, book.alarms, book.due, book.K[ALARMS]
    while size and due[items[0]] != keys[0]:
        pop(keys, items, 0, size)
        size -= 1
    book.K[ALARMS] = size
    return keys[0] if size else np.inf


# -- who waits, and what for -----------------------------------------------------------------------------------------


@inner_step
def settle_account(book: Book, g: int, now: float) -> None:
    """Charge a group for the time since its account was settled last."""
    A = book.A
    A[g, book.Q[g, REASON]] += now - A[g, SETTLED]
    A[g, SETTLED] = now


@inner_step
def ranked_after(book: Book, a: int, b: int) -> bool:
    """Does job `a` come after job `b`, by their keys?"""
    one, other = book.V[a, KEY], book.V[b, KEY]
    return one > other or (one == other and a > b)


@inner_step
def enter(book: Book, t: int, now: float) -> None:
    """A job begins to wait."""
    T, Q, A, V = book.T, book.Q, book.A, book.V
    g = T[t, GROUP]
    if Q[g, SIZE] == 0:
        Q[g, SLOT], Q[book.K[OPEN], LISTED] = book.K[OPEN], g
        book.K[OPEN] += 1
        Q[g, NEW], Q[g, HELD], Q[g, BARRED], Q[g, REASON], Q[g, FRONT] = 1, 0, 0, BY_HEAD, -1
        A[g, SETTLED] = now
    settle_account(book, g, now)
    for r in range(SETTLED):
        V[t, LEDGER + r] -= A[g, r]
    front = Q[g, FRONT]
    T[t, STATUS], T[t, AFTER], T[t, BEFORE] = WAITING, front, -1
    if front >= 0:
        T[front, BEFORE] = t
    Q[g, FRONT] = t
    Q[g, SIZE] += 1
    head = book.K[HEAD]
    if head >= 0 and ranked_after(book, head, t):
        book.K[OUTRANKED] = 1


@inner_step
def leave(book: Book, t: int, now: float) -> None:
    """A job waits no more."""
    T, Q, A, V = book.T, book.Q, book.A, book.V
    g = T[t, GROUP]
    settle_account(book, g, now)
    for r in range(SETTLED):
        V[t, LEDGER + r] += A[g, r]
    before, after = T[t, BEFORE], T[t, AFTER]
    if before >= 0:
        T[before, AFTER] = after
    else:
        Q[g, FRONT] = after
    if after >= 0:
        T[after, BEFORE] = before
    Q[g, SIZE] -= 1
    if Q[g, SIZE] == 0:
        book.K[OPEN] -= 1
        last = Q[book.K[OPEN], LISTED]
        Q[Q[g, SLOT], LISTED] = last
        Q[last, SLOT] = Q[g, SLOT]


@inner_step
def blame(book: Book, g: int, reason: int, now: float) -> None:
    """From now on a group waits for `reason`."""
    settle_account(book, g, now)
    book.Q[g, REASON] = reason


@inner_step
def set_head(book: Book, t: int, reason: int, now: float) -> None:
    """From now on `t` (-1: nobody) blocks all others and itself waits for `reason`, which its group is not charged."""
    K, V, clock = book.K, book.V, book.clock
    if K[HEAD] >= 0:
        V[K[HEAD], LEDGER + K[HEAD_REASON]] += now - clock[HEAD_SINCE]
        V[K[HEAD], LEDGER + BY_HEAD] -= now - clock[HEAD_SINCE]
    K[HEAD], K[HEAD_REASON], clock[HEAD_SINCE], K[OUTRANKED] = t, reason, now, 0


# -- users -----------------------------------------------------------------------------------------------------------


@inner_step
def hold(book: Book, rules: Rules, S: Ints, t: int, count: int) -> None:
    """A user gets (or gives back, below 0) what `count` instances of a job ask for."""
    T, H = book.T, book.H
    u, s = T[t, USER], T[t, SHAPE]
    H[u, HOLDS_CPU] += count * S[s, CPU]
    H[u, HOLDS_MEMORY] += count * S[s, MEMORY]
    H[u, HOLDS_GPU] += count * S[s, GPUS] * S[s, MILLI]
    share = H[u, HOLDS_GPU] / rules.gpu
    share = max(share, H[u, HOLDS_CPU] / rules.cpu)
    book.usage[u] = max(share, H[u, HOLDS_MEMORY] / rules.memory)


@inner_step
def over_quota(book: Book, g: int) -> bool:
    """Would a job of the group take its user above the quota?"""
    u, need = book.Q[g, OF_USER], book.Q[g, OF_NEED]
    return u >= 0 and need > 0 and book.H[u, QUOTA] >= 0 and book.H[u, HOLDS_GPU] + need > book.H[u, QUOTA]


# -- what is believed ------------------------------------------------------------------------------------------------


@inner_step
def believe(book: Book, t: int) -> None:
    """What is believed of a job's run time when it arrives: the mean of its like, or of all, that have finished."""
    of = book.T[t, LEARNER]
    if of >= 0:
        book.estimate[t] = book.M[of if book.M[of, SEEN] else len(book.M) - 1, MEAN]


@inner_step
def learn(book: Book, t: int) -> None:
    """Remember how long a finished job ran."""
    M = book.M
    if book.T[t, LEARNER] >= 0:
        for of in (book.T[t, LEARNER], len(M) - 1):
            M[of, SEEN] += 1
            M[of, MEAN] += (book.V[t, RUNTIME] - M[of, MEAN]) / M[of, SEEN]
