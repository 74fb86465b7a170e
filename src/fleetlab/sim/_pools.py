"""Nodes that fail, are drained or reclaimed, and pools that are switched on and off, for the full loop."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fleetlab.sim._books import (
    AT,
    BARRED,
    FAILURES,
    GANG,
    HERE,
    LISTED,
    LIVE,
    NOW,
    OF_GANG,
    OF_SHAPE,
    OPEN,
    OUT,
    POOL,
    POWER,
    SIZE,
    STRUCK,
    UPS,
    Book,
    Ground,
    Rules,
    inner_loop,
    inner_step,
    on_tick,
    set_alarm,
    value,
)  # fmt: skip
from fleetlab.sim._moves import mark_freed, release, send_back
from fleetlab.sim._nodes import COUNT, UP, Floats, Ints, holds, room, take

# What strikes a node: it fails, it takes no more jobs, it is reclaimed after a notice that lets jobs be saved.
DOWN, DRAIN, RECLAIM, BACK = range(4)
OFF, BOOTING, ON = range(3)  # POWER of a node
IN_SERVICE, DRAINING, AWAY = range(3)  # OUT
# A row of E: a pool.
LEAST, BOOT, EVERY, IDLE = range(4)
UNUSED, LOOK, BOOTED = range(3)  # what a timer of a node or pool is for: a look comes before a node that it counts on
STRIKE, RING, TEND = range(3)  # what `shift` is called for


class Pools(NamedTuple):
    """What happens to nodes."""

    E: Floats  # [pools, 4]
    since: Floats  # [nodes, 2]: since when it is up, and since when idle; inf: it is not
    blank: Ints  # [nodes, NODE_FIELDS]: the rows of N of empty nodes
    strokes: Floats  # [outages, 3]: time, node, what strikes it
    ups: Floats  # [.., 3]: nodes that were up, from when to when; told to Python when full


@inner_step
def set_up(book: Book, ground: Ground, pools: Pools, n: int) -> None:
    """Let node `n` take jobs if it is on and in service, and note when it goes or comes."""
    D, since, now = book.P, pools.since, book.clock[NOW]
    up = D[n, POWER] == ON and D[n, OUT] == IN_SERVICE
    if up and not ground.N[n, UP]:
        mark_freed(book, n)
    ground.N[n, UP] = 1 if up else 0
    there = D[n, POWER] == ON and D[n, OUT] != AWAY
    if there and since[n, 0] == np.inf:
        since[n, 0] = now
    elif not there and since[n, 0] < np.inf:
        k = book.K[UPS]
        pools.ups[k, 0], pools.ups[k, 1], pools.ups[k, 2] = n, since[n, 0], now
        book.K[UPS] += 1
        since[n, 0] = np.inf


@inner_step
def is_on(book: Book, t: int, n: int) -> bool:
    """Has a job an instance on node `n`?"""
    found = False
    for i in range(book.T[t, AT], book.T[t, AT] + book.T[t, GANG]):
        found = found or book.I[i, HERE] == n
    return found


@inner_step
def put_off(book: Book, ground: Ground, rules: Rules, n: int, saved: int) -> None:
    """All jobs on node `n` lose their places, the whole gang of each."""
    k = 0
    while k < book.K[LIVE]:
        t = book.T[k, LISTED]
        if is_on(book, t, n):
            release(book, ground, t, HERE)
            send_back(book, ground, rules, t, book.clock[NOW], saved)
            book.T[t, FAILURES] += 1
        else:
            k += 1


@inner_step
def strike(book: Book, ground: Ground, rules: Rules, pools: Pools) -> None:
    """What happens to nodes now."""
    D, strokes, k = book.P, pools.strokes, book.K[STRUCK]
    while k < len(strokes) and strokes[k, 0] == book.clock[NOW]:
        n, act = int(strokes[k, 1]), int(strokes[k, 2])
        if act == BACK:
            D[n, OUT] = IN_SERVICE
        elif act == DRAIN:
            D[n, OUT] = max(D[n, OUT], DRAINING)
        else:
            D[n, OUT] = AWAY
            put_off(book, ground, rules, n, 1 if act == RECLAIM else 0)
        set_up(book, ground, pools, n)
        k += 1
    book.K[STRUCK] = k


# -- pools that grow and shrink --------------------------------------------------------------------------------------


@inner_step
def timer_of(book: Book, what: int, n: int) -> int:
    """The alarm of a node's idleness (0), a pool's next look (1), or a node's boot (2): at one time in this order."""
    return 2 * len(book.T) + what * len(book.P) + n


@inner_step
def wanted(book: Book, ground: Ground, N: Ints, n: int) -> bool:
    """Does anyone wait that node `n`, as `N` has it, could hold an instance of?"""
    for k in range(book.K[OPEN]):
        g = book.Q[k, LISTED]
        if not book.Q[g, BARRED] and holds(ground.S, book.Q[g, OF_SHAPE], N, n, ground.G, ground.apps):
            return True
    return False


@inner_loop
def fill_up(book: Book, ground: Ground, pools: Pools, n: int, left: Ints) -> bool:
    """Fill node `n`, thought empty, with instances that wait and are `left`; did it take any?"""
    N, G, apps = pools.blank.copy(), ground.G.copy(), ground.apps.copy()
    taken = False
    for k in range(book.K[OPEN]):
        s = book.Q[book.Q[k, LISTED], OF_SHAPE]
        count = min(left[k], room(ground.S, s, N, n, G, apps))
        for _ in range(count):
            take(ground.S, s, N, n, G, apps, -1)
        left[k] -= count
        taken = taken or count > 0
    return taken


@inner_loop
def grow(book: Book, ground: Ground, pools: Pools, p: int) -> None:
    """Boot as many nodes of a pool as those who wait need, beside the ones that boot already."""
    D, left = book.P, np.empty(book.K[OPEN], np.int64)
    for k in range(book.K[OPEN]):
        g = book.Q[k, LISTED]
        left[k] = 0 if book.Q[g, BARRED] else book.Q[g, SIZE] * book.Q[g, OF_GANG]
    for power in (BOOTING, OFF):
        for n in range(len(D)):
            if D[n, POOL] != p or D[n, POWER] != power or D[n, OUT] != IN_SERVICE:
                continue
            if fill_up(book, ground, pools, n, left) and power == OFF:
                D[n, POWER] = BOOTING
                set_alarm(book, timer_of(book, BOOTED, n), book.clock[NOW] + pools.E[p, BOOT])


@inner_loop
def ring(book: Book, ground: Ground, pools: Pools, item: int) -> None:
    """A timer of a node or a pool has gone off; idle nodes are looked at after every pass anyway."""
    nodes, n = len(book.P), item - 2 * len(book.T)
    if n >= BOOTED * nodes:
        book.P[n - BOOTED * nodes, POWER] = ON
        set_up(book, ground, pools, n - BOOTED * nodes)
    elif n >= LOOK * nodes:
        grow(book, ground, pools, n - LOOK * nodes)


@inner_loop
def tend(book: Book, ground: Ground, pools: Pools) -> None:
    """After a pass: note who is idle, switch off who has been so too long, look again where someone waits."""
    D, E, since, now = book.P, pools.E, pools.since, book.clock[NOW]
    on = np.zeros(len(E), np.int64)
    for n in range(len(D)):
        if D[n, POOL] >= 0 and D[n, POWER] == ON:
            on[D[n, POOL]] += 1
    for n in range(len(D) - 1, -1, -1):  # the last to be booted first
        p = D[n, POOL]
        if p < 0 or D[n, POWER] == BOOTING:
            continue
        if D[n, POWER] == OFF:
            look = timer_of(book, LOOK, p)
            if book.due[look] == np.inf and D[n, OUT] == IN_SERVICE and wanted(book, ground, pools.blank, n):
                set_alarm(book, look, on_tick((np.floor(now / E[p, EVERY]) + 1) * E[p, EVERY]))
        elif ground.N[n, COUNT] or D[n, OUT] != IN_SERVICE:
            since[n, 1] = np.inf
            book.due[timer_of(book, UNUSED, n)] = np.inf
        elif since[n, 1] == np.inf:
            since[n, 1] = now
            set_alarm(book, timer_of(book, UNUSED, n), now + E[p, IDLE])
        elif now >= since[n, 1] + E[p, IDLE] and on[p] > E[p, LEAST] and not wanted(book, ground, ground.N, n):
            D[n, POWER], since[n, 1] = OFF, np.inf
            on[p] -= 1
            set_up(book, ground, pools, n)


@value
def shift(book: Book, ground: Ground, rules: Rules, pools: Pools, why: int, item: int) -> int:
    """All that this file does, behind one door: compiled by itself, and only where something happens to nodes."""
    if why == STRIKE:
        strike(book, ground, rules, pools)
    elif why == RING:
        ring(book, ground, pools, item)
    else:
        tend(book, ground, pools)
    return 0
