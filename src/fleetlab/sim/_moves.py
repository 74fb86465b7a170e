"""Gangs on and off the nodes, for the full loop: all of a job's instances or none, and the books with them."""

from __future__ import annotations

import numpy as np

from fleetlab.sim._books import (
    AT,
    BAD,
    BAD_JOB,
    BAD_PLACE,
    ENTRIES,
    FREED,
    GANG,
    HERE,
    LISTED,
    LIVE,
    NEED,
    NOW,
    ON_NODES,
    RAN,
    RUNNING,
    RUNS,
    SEGMENT,
    SHAPE,
    SPOT,
    STAMP,
    START,
    STATUS,
    TICK,
    WAITING,
    Book,
    Ground,
    Rules,
    enter,
    hold,
    inner_loop,
    inner_step,
    leave,
    on_tick,
    set_alarm,
)  # fmt: skip
from fleetlab.sim._nodes import (
    APP,
    COUNT,
    CPU,
    DISK,
    FIRST,
    FREE,
    GPU_MEMORY,
    GPUS,
    HELD,
    KIND,
    LAST,
    LIMIT,
    MEMORY,
    MILLI,
    MOST,
    RDMA,
    UP,
    VRAM,
    WHOLE,
    Floats,
    Ints,
    give_back,
    heapify,
    holds,
    pop,
    room,
    sink,
    survey,
    take,
)  # fmt: skip
from fleetlab.sim._places import OWN, RANDOM, pick, score
from fleetlab.sim._work import join, part, set_back, set_off
from fleetlab.sim.policy import Fill, State

ALL = 1 << 60  # more than there can be


@inner_step
def slots(ground: Ground, s: int, enough: int) -> int:
    """How many instances of shape `s` the nodes could take now, counted up to `enough`."""
    S, N, G, apps, found = ground.S, ground.N, ground.G, ground.apps, 0
    for n in range(len(N)):
        if N[n, CPU] < S[s, CPU] or (S[s, GPUS] and N[n, MOST] < S[s, MILLI]):
            continue  # most nodes are full: that is said here, without a call
        found += room(S, s, N, n, G, apps)
        if found >= enough:
            return enough
    return found


@inner_step
def fits(ground: Ground, s: int, count: int) -> bool:
    """Do `count` instances of shape `s` fit now? They are alike, so it does not matter where each goes."""
    return slots(ground, s, count) == count


@inner_loop
def copy(ground: Ground) -> Ground:
    """The nodes as they are, to think with."""
    S, N, G, apps, C, most, U, share, draws = ground
    return Ground(S, N.copy(), G.copy(), apps.copy(), C, most, U, share, draws)


@inner_step
def meet(a: Ground, b: Ground, n: int) -> None:
    """Leave on node `n` of `a` only what is free on `b` too."""
    for field in (CPU, MEMORY, RDMA, DISK):
        a.N[n, field] = min(a.N[n, field], b.N[n, field])
    a.N[n, UP] = min(a.N[n, UP], b.N[n, UP])
    for g in range(a.N[n, FIRST], a.N[n, LAST]):
        a.G[g, FREE] = min(a.G[g, FREE], b.G[g, FREE])
        a.G[g, VRAM] = min(a.G[g, VRAM], b.G[g, VRAM])
    if a.apps.shape[1] > n:
        for app in range(len(a.apps)):
            a.apps[app, n] = max(a.apps[app, n], b.apps[app, n])
    survey(a.N, n, a.G)


@inner_step
def take_these(ground: Ground, s: int, n: int, got: int) -> None:
    """Take what `give_back` gives back: the very GPUs `got`."""
    S, N, G = ground.S, ground.N, ground.G
    for field in (CPU, MEMORY, RDMA, DISK):
        N[n, field] -= S[s, field]
    N[n, COUNT] += 1
    if S[s, LIMIT]:
        ground.apps[S[s, APP], n] += 1
    if got:
        N[n, HELD + S[s, KIND]] += 1
        for g in range(N[n, FIRST], N[n, LAST]):
            if got >> (g - N[n, FIRST]) & 1:
                G[g, FREE] -= S[s, MILLI]
                G[g, VRAM] -= S[s, GPU_MEMORY]
        survey(N, n, G)


# -- where -----------------------------------------------------------------------------------------------------------


@inner_step
def asked(book: Book, ground: Ground, s: int, t: int, ask: Fill, state: State, nodes: Ints, scores: Floats) -> int:
    """The node that a policy of the user's own takes."""
    n = 0
    for k in range(len(ground.N)):
        if holds(ground.S, s, ground.N, k, ground.G, ground.apps):
            nodes[n] = k
            n += 1
    if ask(state, nodes, n, t, scores) == 0:
        book.K[BAD], book.K[BAD_JOB] = BAD_PLACE, t
        return nodes[0]
    best = 0
    for k in range(1, n):
        if scores[k] < scores[best]:
            best = k
    return nodes[best]


@inner_step
def rate(ground: Ground, placement: int, s: int, n: int, cards: Ints) -> float:
    """How good node `n` is for an instance now, infinitely bad where it holds none; `cards` gets the GPU."""
    S, N, G, apps, C, most, U, share, _ = ground
    if not holds(S, s, N, n, G, apps):
        return np.inf
    value, cards[n] = score(placement, S, s, N, n, G, C, most, U, share)
    return value


@inner_loop
def settle_gang(book: Book, ground: Ground, placement: int, t: int, at: int) -> None:
    """As `settle` does, for several alike: what one takes changes the score of its own node alone."""
    S, N, G, apps, s = ground.S, ground.N, ground.G, ground.apps, book.T[t, SHAPE]
    values, able, size, cards = np.empty(len(N)), np.empty(len(N), np.int64), 0, np.empty(len(N), np.int64)
    for n in range(len(N)):
        if N[n, CPU] < S[s, CPU] or (S[s, GPUS] and N[n, MOST] < S[s, MILLI]):
            continue
        values[size], able[size] = rate(ground, placement, s, n, cards), n
        size += values[size] < np.inf
    heapify(values, able, size)
    for i in range(book.T[t, AT], book.T[t, AT] + book.T[t, GANG]):
        n = able[0]
        book.I[i, at], book.I[i, at + 1] = n, take(S, s, N, n, G, apps, cards[n])
        value = rate(ground, placement, s, n, cards)
        if value < np.inf:
            sink(values, able, 0, size, 0, value, n)
        else:
            pop(values, able, 0, size)
            size -= 1


@inner_loop
def settle(book: Book, ground: Ground, rules: Rules, ask: Fill, state: State, t: int, at: int) -> None:
    """Take a place for each instance of a job that fits, one after the other, and note it in column `at` of `I`."""
    S, N, G, apps, C, most, U, share, draws = ground
    s, own = book.T[t, SHAPE], rules.placement == OWN
    if book.T[t, GANG] > 1 and not own and rules.placement != RANDOM:
        settle_gang(book, ground, rules.placement, t, at)
        return
    nodes, scores = np.empty(len(N) if own else 0, np.int64), np.empty(len(N) if own else 0)
    for i in range(book.T[t, AT], book.T[t, AT] + book.T[t, GANG]):
        if own:
            n, g = asked(book, ground, s, t, ask, state, nodes, scores), -1
        else:
            n, g = pick(rules.placement, S, s, N, G, apps, C, most, U, share, draws)
        book.I[i, at], book.I[i, at + 1] = n, take(S, s, N, n, G, apps, g)


@inner_step
def release(book: Book, ground: Ground, t: int, at: int) -> None:
    """Give back what a job holds at the places of column `at`."""
    S, N, G, apps, s = ground.S, ground.N, ground.G, ground.apps, book.T[t, SHAPE]
    for i in range(book.T[t, AT], book.T[t, AT] + book.T[t, GANG]):
        give_back(S, s, N, book.I[i, at], G, apps, book.I[i, at + 1])


@inner_step
def lift(book: Book, ground: Ground, s: int, t: int, at: int, sign: int) -> int:
    """Take a job off its places of column `at` (1) or put it there (-1); how many more of shape `s` fit then."""
    S, N, G, apps, more = ground.S, ground.N, ground.G, ground.apps, 0
    for i in range(book.T[t, AT], book.T[t, AT] + book.T[t, GANG]):
        n, got = book.I[i, at], book.I[i, at + 1]
        more -= room(S, s, N, n, G, apps)
        if sign > 0:
            give_back(S, book.T[t, SHAPE], N, n, G, apps, got)
        else:
            take_these(ground, book.T[t, SHAPE], n, got)
        more += room(S, s, N, n, G, apps)
    return more


@inner_step
def occupy(book: Book, ground: Ground, t: int, at: int) -> None:
    """Take for a job the very places of column `at`."""
    for i in range(book.T[t, AT], book.T[t, AT] + book.T[t, GANG]):
        take_these(ground, book.T[t, SHAPE], book.I[i, at], book.I[i, at + 1])


# -- the books -------------------------------------------------------------------------------------------------------


@inner_step
def cross(book: Book, rules: Rules, t: int, now: float) -> None:
    """Set a timer for when a running job will have had enough to fall into the next queue of `las`."""
    ran, need = book.V[t, RAN] + (now - book.V[t, SEGMENT]), book.T[t, NEED]
    if need == 0:
        return
    for level in rules.levels:
        if ran * need / WHOLE < level:
            more = on_tick(max(0.0, level * WHOLE / need - ran))
            while (ran + more) * need / WHOLE < level:  # a division may end one tick short
                more += TICK
            set_alarm(book, len(book.T) + t, now + more)
            return


@inner_step
def begin(book: Book, ground: Ground, rules: Rules, t: int, now: float) -> None:
    """A job that has its place begins to run."""
    T, V, K = book.T, book.V, book.K
    leave(book, t, now)
    T[t, STATUS], T[t, SPOT], book.T[K[LIVE], LISTED] = RUNNING, K[LIVE], t
    K[LIVE] += 1
    K[ON_NODES] += T[t, GANG]
    hold(book, rules, ground.S, t, T[t, GANG])
    if V[t, START] != V[t, START]:
        V[t, START] = now
    set_off(book, rules, t, now)
    if rules.sharing:
        join(book, ground, rules, t, now)
    if rules.preempt and len(rules.levels):
        cross(book, rules, t, now)


@inner_loop
def start(book: Book, ground: Ground, rules: Rules, ask: Fill, state: State, t: int) -> None:
    """A job that fits gets its place and begins to run."""
    settle(book, ground, rules, ask, state, t, HERE)
    begin(book, ground, rules, t, book.clock[NOW])


@inner_step
def log_run(book: Book, t: int, now: float) -> None:
    """Note a run that ends."""
    K, runs, first = book.K, book.runs, book.T[t, AT]
    runs[K[RUNS], 0], runs[K[RUNS], 1], runs[K[RUNS], 2], runs[K[RUNS], 3] = t, K[ENTRIES], book.V[t, SEGMENT], now
    K[RUNS] += 1
    for i in range(first, first + book.T[t, GANG]):
        book.entries[K[ENTRIES], 0], book.entries[K[ENTRIES], 1] = book.I[i, HERE], book.I[i, HERE + 1]
        K[ENTRIES] += 1


@inner_step
def mark_freed(book: Book, n: int) -> None:
    """Node `n` has more free than at the last pass."""
    if not book.P[n, STAMP]:
        book.P[n, STAMP], book.P[book.K[FREED], LISTED] = 1, n
        book.K[FREED] += 1


@inner_step
def close(book: Book, ground: Ground, rules: Rules, t: int, now: float) -> None:
    """A job that has given back its place runs no more."""
    T, V, K = book.T, book.V, book.K
    if rules.sharing:
        part(book, ground, rules, t, now)
    V[t, RAN] += now - V[t, SEGMENT]
    book.attained[t] = V[t, RAN] * T[t, NEED] / WHOLE
    hold(book, rules, ground.S, t, -T[t, GANG])
    book.due[t] = book.due[len(T) + t] = np.inf
    for i in range(T[t, AT], T[t, AT] + T[t, GANG]):
        mark_freed(book, book.I[i, HERE])
    if len(book.runs):
        log_run(book, t, now)
    K[LIVE] -= 1
    K[ON_NODES] -= T[t, GANG]
    last = book.T[K[LIVE], LISTED]
    book.T[T[t, SPOT], LISTED], T[last, SPOT] = last, T[t, SPOT]


@inner_step
def send_back(book: Book, ground: Ground, rules: Rules, t: int, now: float, saved: int) -> None:
    """A job that has lost its place waits again."""
    set_back(book, rules, t, now, saved)
    close(book, ground, rules, t, now)
    book.T[t, STATUS] = WAITING
    enter(book, t, now)
