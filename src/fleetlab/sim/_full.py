"""The full loop: everything a simulation can ask for, simply.

At one instant: what happens to nodes, completions, arrivals, timers; then one scheduling pass. The loop owns the truth:
a placement policy is asked only about nodes that can hold an instance, so nothing is allocated twice. What the quick
loop in `_engine` can do too comes out the same, bit for bit. Everything here also runs as plain Python.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fleetlab.core.catalog import BACKFILLS
from fleetlab.sim._backfill import believed_length, meet_all, meet_at, plan_next, plan_running, reserve, start_beside
from fleetlab.sim._books import (
    ABLE,
    ARRIVED,
    ASKED,
    BAD,
    BARRED,
    DONE,
    END,
    ENTRIES,
    EVICTIONS,
    FINISHED,
    FREED,
    FRONT,
    GANG,
    GROUP,
    HEAD,
    HEAD_REASON,
    HELD,
    HERE,
    HOPE,
    KEY,
    LISTED,
    LIVE,
    LOST,
    NEW,
    NOW,
    OF_GANG,
    OF_SHAPE,
    ON_NODES,
    OPEN,
    OUTRANKED,
    REASON,
    RUNS,
    SHAPE,
    SIZE,
    STAMP,
    STATUS,
    STRUCK,
    SUBMIT,
    TODO,
    TRY,
    UPS,
    Book,
    Ground,
    Rules,
    believe,
    blame,
    enter,
    inner_loop,
    inner_step,
    learn,
    leave,
    next_alarm,
    over_quota,
    ranked_after,
    set_head,
    value,
)  # fmt: skip
from fleetlab.sim._compile import loop
from fleetlab.sim._moves import ALL, close, copy, cross, fits, lift, log_run, occupy, release, send_back, slots, start
from fleetlab.sim._nodes import (
    BY_GANG,
    BY_GPU,
    BY_HEAD,
    BY_ORDER,
    BY_QUOTA,
    BY_TYPE,
    GPU,
    GPUS,
    MILLI,
    TYPE,
    TYPES,
    UP,
    Ints,
    holds,
    push,
    room,
    why,
)  # fmt: skip
from fleetlab.sim._pools import RING, STRIKE, TEND, Pools
from fleetlab.sim._ranks import key_at_arrival, line_up, next_in_line, rank_all, worst_first
from fleetlab.sim._work import in_vain, next_run
from fleetlab.sim.policy import Fill, State

NO_BACKFILL = BACKFILLS.index("none")
Pass = Callable[[Book, Ground, Rules, Fill, Fill, State], int]
Shift = Callable[[Book, Ground, Rules, Pools, int, int], int]
OVER, MORE, REFUSED = range(3)  # how `run` ends: nothing more happens, empty the logs and go on, a policy failed
BREATH = 250  # instants after which `run` comes up for air, so that somebody can look how far it is, or stop it


# -- which groups are tried ------------------------------------------------------------------------------------------


@inner_step
def helped(book: Book, ground: Ground, g: int) -> bool:
    """Could a node freed since the last pass hold an instance of the group? If none can, what failed fails still."""
    for k in range(book.K[FREED]):
        if holds(ground.S, book.Q[g, OF_SHAPE], ground.N, book.P[k, LISTED], ground.G, ground.apps):
            return True
    return False


@inner_step
def freed_for(book: Book, ground: Ground, g: int) -> int:
    """How many instances of the group could the nodes freed since the last pass hold? Counted as far as it matters."""
    found, lacks = 0, max(1, book.Q[g, OF_GANG] - book.Q[g, HOPE])
    for k in range(book.K[FREED]):
        found += room(ground.S, book.Q[g, OF_SHAPE], ground.N, book.P[k, LISTED], ground.G, ground.apps)
        if found >= lacks:
            break
    return found


@inner_step
def forget_freed(book: Book) -> None:
    """A pass is over."""
    for k in range(book.K[FREED]):
        book.P[book.P[k, LISTED], STAMP] = 0
    book.K[FREED] = 0


@inner_step
def ask_again(book: Book, ground: Ground) -> int:
    """Mark the groups that may fit where they did not before, and of these (and those held back) who does: how many.

    What fitted when a group was last counted, and what was freed since, bounds what fits now: few are counted again.
    """
    Q, able = book.Q, 0
    for k in range(book.K[OPEN]):
        g = book.Q[k, LISTED]
        count, barred = Q[g, OF_GANG], over_quota(book, g)
        if Q[g, NEW] or Q[g, BARRED] or barred:
            Q[g, HOPE] = count  # nothing is known
        more = freed_for(book, ground, g)
        asked = Q[g, NEW] or (Q[g, BARRED] and not barred) or more > 0
        Q[g, ASKED] = 1 if asked else 0
        Q[g, ABLE], Q[g, HOPE] = 0, min(count, Q[g, HOPE] + more)
        if not barred and (asked or Q[g, HELD]) and Q[g, HOPE] == count:
            Q[g, HOPE] = slots(ground, Q[g, OF_SHAPE], count)
            Q[g, ABLE] = 1 if Q[g, HOPE] == count else 0
            able += Q[g, ABLE]
    forget_freed(book)
    return able


@inner_step
def try_all(book: Book) -> None:
    """Let every group be tried that its user's quota does not bar."""
    for k in range(book.K[OPEN]):
        g = book.Q[k, LISTED]
        book.Q[g, TRY] = 0 if over_quota(book, g) else 1


@inner_step
def try_able(book: Book) -> None:
    """Let the groups be tried that fit when the pass began: no other will in it."""
    for k in range(book.K[OPEN]):
        book.Q[book.Q[k, LISTED], TRY] = book.Q[book.Q[k, LISTED], ABLE]


@inner_loop
def free_by_type(ground: Ground) -> Ints:
    """Free GPU milli on nodes that are up, by the bit of their type."""
    free = np.zeros(64, np.int64)
    for n in range(len(ground.N)):
        kind, bit = ground.N[n, TYPE], 0
        while kind > 1:
            kind >>= 1
            bit += 1
        if ground.N[n, UP]:
            free[bit] += ground.N[n, GPU]
    return free


@inner_step
def lacks(ground: Ground, s: int, count: int, free: Ints) -> int:
    """What `why` says, quickly where too little is free in all, or some instances fit and not all."""
    need, anywhere, typed = count * ground.S[s, GPUS] * ground.S[s, MILLI], 0, 0
    for bit in range(len(free)):
        anywhere += free[bit]
        typed += free[bit] if ground.S[s, TYPES] >> bit & 1 else 0
    if typed < need:
        return BY_TYPE if anywhere >= need else BY_GPU
    if 0 < slots(ground, s, count) < count:
        return BY_GANG
    return why(ground.S, s, count, ground.N, ground.G, ground.apps)


@inner_loop
def give_reasons(book: Book, ground: Ground, rules: Rules) -> None:
    """After a pass: what does each group wait for?"""
    Q, now, free = book.Q, book.clock[NOW], free_by_type(ground)
    for k in range(book.K[OPEN]):
        g = book.Q[k, LISTED]
        s, count = Q[g, OF_SHAPE], Q[g, OF_GANG]
        reason = Q[g, REASON]
        if over_quota(book, g):
            reason = BY_QUOTA
        elif rules.backfill == NO_BACKFILL:
            reason = BY_HEAD
        elif Q[g, NEW] or Q[g, ASKED] or Q[g, HELD] or Q[g, BARRED]:
            Q[g, HELD] = 1 if Q[g, ABLE] and fits(ground, s, count) else 0
            if Q[g, HELD]:
                reason = BY_HEAD
            elif Q[g, ABLE]:
                reason = BY_ORDER
            else:
                reason = lacks(ground, s, count, free)
        blame(book, g, reason, now)
        Q[g, BARRED] = 1 if reason == BY_QUOTA else 0
        Q[g, NEW] = Q[g, ASKED] = 0


# -- the passes ------------------------------------------------------------------------------------------------------


@value
def pass_skip(book: Book, ground: Ground, rules: Rules, fill: Fill, ask: Fill, state: State) -> int:
    """Who does not fit is passed over."""
    able = ask_again(book, ground)
    if able:
        try_able(book)
        size = line_up(book, rules, fill, state)
        while able and size:
            t, size = next_in_line(book, rules, size)
            g = book.T[t, GROUP]
            if not book.Q[g, TRY]:
                continue
            if over_quota(book, g) or not fits(ground, book.T[t, SHAPE], book.T[t, GANG]):
                book.Q[g, TRY] = 0
                able -= 1
            else:
                start(book, ground, rules, ask, state, t)
    give_reasons(book, ground, rules)
    return 0


@inner_step
def still_blocked(book: Book, ground: Ground, t: int) -> bool:
    """Is this the head that did not fit before, and has nothing been freed for it?"""
    return t == book.K[HEAD] and not helped(book, ground, book.T[t, GROUP])


@value
def pass_strict(book: Book, ground: Ground, rules: Rules, fill: Fill, ask: Fill, state: State) -> int:
    """All wait behind the first that does not fit."""
    now, head, reason, K = book.clock[NOW], -1, 0, book.K
    before = K[HEAD]
    if K[HEAD] >= 0 and not (rules.moving or rules.quota or K[OUTRANKED]) and still_blocked(book, ground, K[HEAD]):
        forget_freed(book)
        return 0
    try_all(book)
    size = line_up(book, rules, fill, state)
    while size:
        t, size = next_in_line(book, rules, size)
        s, count = book.T[t, SHAPE], book.T[t, GANG]
        if over_quota(book, book.T[t, GROUP]):
            continue
        if t == before and still_blocked(book, ground, t):
            head, reason = t, K[HEAD_REASON]
            break
        before = -1  # someone else was tried: what is free may have changed
        if not fits(ground, s, count):
            head, reason = t, why(ground.S, s, count, ground.N, ground.G, ground.apps)
            break
        start(book, ground, rules, ask, state, t)
    set_head(book, head, reason, now)
    forget_freed(book)
    give_reasons(book, ground, rules)
    return 0


@value
def pass_easy(book: Book, ground: Ground, rules: Rules, fill: Fill, ask: Fill, state: State) -> int:
    """Who does not delay the first that does not fit may go before it."""
    able = ask_again(book, ground)
    if able:
        try_all(book)
        size = line_up(book, rules, fill, state)
        try_able(book)
        while able and size:
            t, size = next_in_line(book, rules, size)
            g = book.T[t, GROUP]
            if over_quota(book, book.T[t, GROUP]):
                continue
            if book.Q[g, TRY] and fits(ground, book.T[t, SHAPE], book.T[t, GANG]):
                start(book, ground, rules, ask, state, t)
                continue
            able -= book.Q[g, TRY]
            book.Q[g, TRY] = 0
            future = copy(ground)
            when = reserve(book, rules, ask, state, t, future)
            backfill(book, ground, rules, ask, state, able, size, when, future)
            break
    give_reasons(book, ground, rules)
    return 0


@inner_loop
def backfill(
    book: Book, ground: Ground, rules: Rules, ask: Fill, state: State, able: int, size: int, when: float, future: Ground
) -> None:
    """Start who ends before the reservation falls due, or is in nobody's way then either."""
    now, both, Q = book.clock[NOW], copy(ground), book.Q
    meet_all(both, future)
    while able and size:
        t, size = next_in_line(book, rules, size)
        g, s, count = book.T[t, GROUP], book.T[t, SHAPE], book.T[t, GANG]
        if not Q[g, TRY] or over_quota(book, book.T[t, GROUP]):
            continue
        if not fits(ground, s, count):
            Q[g, TRY] = 0
            able -= 1
        elif now + believed_length(book, rules, t) <= when:
            start(book, ground, rules, ask, state, t)
            meet_at(book, t, both, ground)
        elif fits(both, s, count):
            start_beside(book, ground, rules, ask, state, t, future, both)


@value
def pass_conservative(book: Book, ground: Ground, rules: Rules, fill: Fill, ask: Fill, state: State) -> int:
    """Everyone who waits has a start planned; who comes after may go before only where that delays nobody."""
    able = ask_again(book, ground)
    if able:
        try_all(book)
        size = line_up(book, rules, fill, state)
        try_able(book)
        room_for = book.K[LIVE] + 2 * size + 2
        times, what = np.empty(room_for), np.empty((room_for, 2), np.int64)
        acts = plan_running(book, times, what)
        while able and size:  # as soon as nobody is left who fits now, plans matter no more
            t, size = next_in_line(book, rules, size)
            if over_quota(book, book.T[t, GROUP]):
                continue
            acts = plan_next(book, ground, rules, ask, state, t, times, what, acts)
            able = count_able(book, ground)
    give_reasons(book, ground, rules)
    return 0


@inner_step
def count_able(book: Book, ground: Ground) -> int:
    """How many of the groups tried still fit and have someone waiting."""
    Q, able = book.Q, 0
    for k in range(book.K[OPEN]):
        g = book.Q[k, LISTED]
        if Q[g, TRY]:
            Q[g, TRY] = 1 if fits(ground, Q[g, OF_SHAPE], Q[g, OF_GANG]) else 0
            able += Q[g, TRY]
    return able


# -- preemption ------------------------------------------------------------------------------------------------------


@inner_loop
def bare_for(book: Book, ground: Ground, t: int, worst: Ints) -> tuple[Ground, int]:
    """What would be free if all ranked after `t` were gone, and the place in `worst` of the best of them."""
    bare, k = copy(ground), 0
    while k < len(worst) and (worst[k] < 0 or ranked_after(book, worst[k], t)):
        if worst[k] >= 0:
            release(book, bare, worst[k], HERE)
        k += 1
    return bare, k - 1


@inner_step
def dress(book: Book, bare: Ground, t: int, worst: Ints, best: int) -> int:
    """Put those of `worst` back into `bare` who are not ranked after `t`, as the line goes on to who is worse."""
    while best >= 0 and (worst[best] < 0 or not ranked_after(book, worst[best], t)):
        if worst[best] >= 0:
            occupy(book, bare, worst[best], HERE)
        best -= 1
    return best


@inner_step
def make_room(book: Book, ground: Ground, t: int, worst: Ints, victims: Ints) -> int:
    """Take off those ranked after `t`, the worst first, until it fits, as it will; how many of them it really needs."""
    s, count, n, gone = book.T[t, SHAPE], book.T[t, GANG], 0, 0
    found = slots(ground, s, ALL)
    while found < count:
        if worst[n] >= 0:
            found += lift(book, ground, s, worst[n], HERE, 1)
        n += 1
    for k in range(n - 1, -1, -1):  # the best-ranked stay if they can
        if worst[k] >= 0:
            more = lift(book, ground, s, worst[k], HERE, -1)
            if found + more >= count:
                found += more
            else:
                lift(book, ground, s, worst[k], HERE, 1)
                victims[gone], worst[k] = worst[k], -1
                gone += 1
    return gone


@inner_step
def evict(book: Book, ground: Ground, rules: Rules, v: int, size: int) -> int:
    """A running job whose place is gone waits again, and may be tried again in this pass; how many are in line."""
    Q, g = book.Q, book.T[v, GROUP]
    if Q[g, SIZE] == 0:
        Q[g, TRY] = 1
    send_back(book, ground, rules, v, book.clock[NOW], 1)
    book.T[v, EVICTIONS] += 1
    Q[g, ASKED] = Q[g, ABLE] = 1  # someone ahead of it was served
    push(book.keys, book.heap, 0, size, book.V[v, KEY], v)
    return size + 1


@value
def pass_preempt(book: Book, ground: Ground, rules: Rules, fill: Fill, ask: Fill, state: State) -> int:
    """Who does not fit may put off those ranked after it."""
    head, reason = -1, 0
    ask_again(book, ground)
    try_all(book)
    size = rank_all(book, rules, fill, state)
    worst = worst_first(book)
    victims, bare, best = np.empty(len(worst), np.int64), ground, -2  # -2: there is no `bare` yet
    while size:
        t, size = next_in_line(book, rules, size)
        g, s, count = book.T[t, GROUP], book.T[t, SHAPE], book.T[t, GANG]
        if not book.Q[g, TRY] or over_quota(book, g):
            continue
        if not fits(ground, s, count):
            if best == -2:
                bare, best = bare_for(book, ground, t, worst)
            best = dress(book, bare, t, worst, best)
            if not fits(bare, s, count):
                book.Q[g, TRY] = 0
                if rules.backfill == NO_BACKFILL:
                    head, reason = t, why(ground.S, s, count, ground.N, ground.G, ground.apps)
                    break
                continue
            for k in range(make_room(book, ground, t, worst, victims)):
                size = evict(book, ground, rules, victims[k], size)
        start(book, ground, rules, ask, state, t)
        if best > -2:
            occupy(book, bare, t, HERE)
    if rules.backfill == NO_BACKFILL:
        set_head(book, head, reason, book.clock[NOW])
    give_reasons(book, ground, rules)
    return 0


# -- events ----------------------------------------------------------------------------------------------------------


@inner_step
def next_time(book: Book, pools: Pools) -> float:
    """When does something happen next?"""
    K, when = book.K, next_alarm(book)
    if K[ARRIVED] < len(book.T):
        when = min(when, book.V[K[ARRIVED], SUBMIT])
    if K[STRUCK] < len(pools.strokes):
        when = min(when, pools.strokes[K[STRUCK], 0])
    return when


@inner_step
def complete(book: Book, ground: Ground, rules: Rules) -> None:
    """Jobs that are done give back what they hold. Alarms of one time go off in order: jobs before timers."""
    K, T, V, now = book.K, book.T, book.V, book.clock[NOW]
    while next_alarm(book) == now and book.alarms[0] < len(T):
        t = book.alarms[0]
        release(book, ground, t, HERE)
        V[t, LOST] += next_run(book, rules, t) - V[t, TODO]
        close(book, ground, rules, t, now)
        T[t, STATUS], V[t, END], V[t, TODO], book.remaining[t] = DONE, now, 0.0, 0.0
        learn(book, t)
        K[FINISHED] += 1


@inner_step
def arrive(book: Book, rules: Rules, fill: Fill, state: State) -> None:
    """Jobs come and wait."""
    K = book.K
    while K[ARRIVED] < len(book.T) and book.V[K[ARRIVED], SUBMIT] == book.clock[NOW]:
        t = K[ARRIVED]
        K[ARRIVED] += 1
        believe(book, t)
        book.remaining[t] = book.estimate[t]
        book.V[t, KEY] = key_at_arrival(book, rules, fill, state, t)
        enter(book, t, book.clock[NOW])


@inner_step
def logs_are_full(book: Book, pools: Pools) -> bool:
    """Might what happens at one instant be more than the logs have room for?"""
    K = book.K
    if len(book.runs) and (K[RUNS] + K[LIVE] > len(book.runs) or K[ENTRIES] + K[ON_NODES] > len(book.entries)):
        return True
    return K[UPS] + 2 * len(book.P) > len(pools.ups)


@inner_step
def finish(book: Book, rules: Rules, pools: Pools, stop: float) -> None:
    """Bring the books up to the moment at which the loop stopped."""
    set_head(book, -1, 0, stop)
    while book.K[OPEN]:
        leave(book, book.Q[book.Q[0, LISTED], FRONT], stop)
    for k in range(book.K[LIVE]):
        t = book.T[k, LISTED]
        book.V[t, LOST] += in_vain(book, rules, t, stop)
        if len(book.runs):
            log_run(book, t, stop)
    for n in range(len(pools.since)):
        if pools.since[n, 0] <= stop:
            k = book.K[UPS]
            pools.ups[k, 0], pools.ups[k, 1], pools.ups[k, 2] = n, pools.since[n, 0], stop
            book.K[UPS] += 1


@loop
def run(
    book: Book, ground: Ground, rules: Rules, pools: Pools, schedule: Pass, shift: Shift, fill: Fill, ask: Fill,
    state: State,
) -> int:  # fmt: skip
    """Play all events from where the books stand, with one scheduling pass (`schedule`) at each instant."""
    K, jobs, left = book.K, len(book.T), BREATH
    while K[FINISHED] < jobs:
        if left == 0 or logs_are_full(book, pools):
            return MORE
        left -= 1
        now = next_time(book, pools)
        if now == np.inf or now > rules.until:
            break
        book.clock[NOW] = now
        if K[STRUCK] < len(pools.strokes) and pools.strokes[K[STRUCK], 0] == now:
            shift(book, ground, rules, pools, STRIKE, 0)
        complete(book, ground, rules)  # GPUs are freed before a newcomer asks for them
        arrive(book, rules, fill, state)
        while next_alarm(book) == now:
            item = book.alarms[0]
            book.due[item] = np.inf
            if item < 2 * jobs:
                cross(book, rules, item - jobs, now)
            else:
                shift(book, ground, rules, pools, RING, item)
        if K[OPEN]:
            schedule(book, ground, rules, fill, ask, state)
        else:
            forget_freed(book)
        if K[BAD]:
            return REFUSED
        if len(pools.E):
            shift(book, ground, rules, pools, TEND, 0)
    done = K[FINISHED] == jobs or rules.until == np.inf
    finish(book, rules, pools, book.clock[NOW] if done else rules.until)
    return OVER


PASSES = {"none": pass_strict, "greedy": pass_skip, "easy": pass_easy, "conservative": pass_conservative}
