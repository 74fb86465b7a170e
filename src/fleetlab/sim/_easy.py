"""The quick loop with a reservation: nobody may delay the first in line that does not fit.

That first one, the head, is given the earliest time at which it fits if those that run end when they are believed to,
on very GPUs (`future`). Who comes after it may start if it is believed to be gone by then, or if it fits beside the
head then too (`both`: what is free now and then). A reservation stands as long as its head does and all goes as
believed; else it is made anew. Kinds that could not start are looked at again only when that may have changed.
"""

from __future__ import annotations

import numpy as np

from fleetlab.sim._compile import inner, loop
from fleetlab.sim._engine import (
    ALL,
    WHY,
    Jobs,
    Land,
    believe,
    charge,
    fit,
    hopeless,
    largest,
    learn,
    part_of_each,
    pay,
    put,
)
from fleetlab.sim._gangs import Memo, back, indexed, reason, slots
from fleetlab.sim._index import AT_TYPES, KNOWN, TIERS, Bits, delist, enlist, lift, moved, relist, tier_of
from fleetlab.sim._nodes import (
    APP,
    BY_HEAD,
    BY_ORDER,
    COUNT,
    CPU,
    FIRST,
    FREE,
    GPU_MEMORY,
    GPUS,
    HELD,
    IDLE,
    KIND,
    LAST,
    LIMIT,
    LIST,
    MILLI,
    MOST,
    ORDINAL,
    RANK,
    TYPE,
    TYPES,
    VERSION,
    VRAM,
    Floats,
    Ints,
    give_back,
    heapify,
    holds,
    pop,
    push,
    room,
    sink,
    survey,
    take,
)
from fleetlab.sim._places import score

TICK = 2.0**-24


@inner
def claim(S: Ints, s: int, N: Ints, n: int, G: Ints, apps: Ints, got: int) -> None:
    """Give an instance very GPUs of a node."""
    for field in range(4):
        N[n, field] -= S[s, field]
    N[n, COUNT] += 1
    N[n, VERSION] += 1
    if S[s, LIMIT]:
        apps[S[s, APP], n] += 1
    if got:
        N[n, HELD + S[s, KIND]] += 1
        for g in range(N[n, FIRST], N[n, LAST]):
            if got >> (g - N[n, FIRST]) & 1:
                G[g, FREE] -= S[s, MILLI]
                G[g, VRAM] -= S[s, GPU_MEMORY]
        survey(N, n, G)


@inner
def meet(
    n: int, N: Ints, G: Ints, apps: Ints, FN: Ints, FG: Ints, Fapps: Ints, BN: Ints, BG: Ints, Bapps: Ints, X: Ints,
    B: Bits,
) -> None:  # fmt: skip
    """Say what of node `n` is free both now and in the future; X and B are the index of that, B empty for none."""
    idle, group = BN[n, IDLE], BN[n, LIST]
    for field in range(N.shape[1]):
        BN[n, field] = N[n, field]
    for field in range(4):
        BN[n, field] = min(N[n, field], FN[n, field])
    other = group
    if len(B) and N[n, TYPE] and X[TIERS] > 1:
        other = group - group % X[TIERS] + tier_of(X, BN[n, CPU])
    BN[n, LIST] = other
    for g in range(N[n, FIRST], N[n, LAST]):
        before, BG[g, FREE] = BG[g, FREE], min(G[g, FREE], FG[g, FREE])
        BG[g, VRAM] = min(G[g, VRAM], FG[g, VRAM])
        if len(B) and (other != group or BG[g, FREE] != before):
            relist(BG, g, X, B, group, before, other, BG[g, FREE])
    if Bapps.shape[1] == len(N):
        for a in range(len(Bapps)):
            Bapps[a, n] = max(apps[a, n], Fapps[a, n])
    survey(BN, n, BG)
    if len(B):
        lift(X, BN[n, RANK], BN[n, CPU])
        if N[n, TYPE] and (other != group or BN[n, IDLE] != idle):
            delist(BN, n, X, B, group, idle)
            enlist(BN, n, X, B, other, BN[n, IDLE])


@inner
def rate(
    placement: int, S: Ints, s: int, N: Ints, n: int, G: Ints, apps: Ints, C: Ints, most: Ints, U: Ints, share: Floats,
    near: Floats, heap: Ints, size: int,
) -> int:  # fmt: skip
    """Add node `n` to those that hold an instance, with its score, if it does; how many they are."""
    if not holds(S, s, N, n, G, apps):
        return size
    near[size], heap[size] = score(placement, S, s, N, n, G, C, most, U, share)[0], n
    return size + 1


@inner
def seat(
    placement: int, S: Ints, s: int, count: int, N: Ints, G: Ints, apps: Ints, C: Ints, most: Ints, U: Ints,
    share: Floats, X: Ints, near: Floats, heap: Ints, where: Ints, got: Ints, at: int,
) -> None:  # fmt: skip
    """Place a gang that fits by asking every node of its types once, and those it goes to again."""
    size = 0
    if S[s, GPUS] == 0:
        for n in range(len(N)):
            size = rate(placement, S, s, N, n, G, apps, C, most, U, share, near, heap, size)
    else:
        for t in range(X[KNOWN]):
            if S[s, TYPES] >> t & 1:
                for i in range(X[X[AT_TYPES] + 2 * t], X[X[AT_TYPES] + 2 * t + 1]):
                    if N[X[i], MOST] >= S[s, MILLI]:  # most nodes are full
                        size = rate(placement, S, s, N, X[i], G, apps, C, most, U, share, near, heap, size)
    if count == 1:
        best = 0
        for i in range(1, size):
            if near[i] < near[best] or (near[i] == near[best] and heap[i] < heap[best]):
                best = i
        heap[0] = heap[best]
    else:
        heapify(near, heap, size)
    for i in range(at, at + count):
        n = heap[0]
        g = score(placement, S, s, N, n, G, C, most, U, share)[1]
        where[i], got[i] = n, take(S, s, N, n, G, apps, g)
        if i == at + count - 1:
            break
        if holds(S, s, N, n, G, apps):
            sink(near, heap, 0, size, 0, score(placement, S, s, N, n, G, C, most, U, share)[0], n)
        else:
            pop(near, heap, 0, size)
            size -= 1


@inner
def release(S: Ints, of: int, count: int, s: int, N: Ints, G: Ints, apps: Ints, where: Ints, got: Ints, at: int) -> int:
    """Take a gang of shape `of` off its nodes; how many more of shape `s` fit then."""
    more = 0
    for i in range(at, at + count):
        n = where[i]
        more -= room(S, s, N, n, G, apps)
        give_back(S, of, N, n, G, apps, got[i])
        more += room(S, s, N, n, G, apps)
    return more


@inner
def falls_due(
    S: Ints, s: int, count: int, X: Ints, FN: Ints, FG: Ints, Fapps: Ints, running: Ints, active: int, start: Floats,
    estimate: Floats, kind: Ints, kinds: Ints, first: Ints, where: Ints, got: Ints, now: float, ends: Floats,
    heap: Ints,
) -> float:  # fmt: skip
    """When a gang will fit, as is believed; the future becomes what is free then."""
    for i in range(active):
        end = start[running[i]] + estimate[running[i]]
        ends[i], heap[i] = end if end > now else now + TICK, running[i]
    heapify(ends, heap, active)
    found, when = slots(S, s, ALL, FN, FG, Fapps, X), now
    while found < count and active:
        when, r = ends[0], heap[0]
        pop(ends, heap, 0, active)
        active -= 1
        found += release(S, kinds[kind[r], 0], kinds[kind[r], 1], s, FN, FG, Fapps, where, got, first[r])
    return when


@inner
def first_within(keys: Floats, queue: Ints, at: int, size: int, estimate: Floats, window: float) -> int:
    """Where in a line stands the best-ranked job that is believed to run no longer than `window`? -1: none does."""
    best = -1
    for i in range(at, at + size):
        if estimate[queue[i]] <= window and (
            best < 0 or keys[i] < keys[best] or (keys[i] == keys[best] and queue[i] < queue[best])
        ):
            best = i
    return best


@inner
def leave(keys: Floats, queue: Ints, at: int, size: int, i: int) -> None:
    """Take entry `i` out of the heap that begins at `at`: the last takes its place and finds its own, up or down."""
    key, item = keys[at + size - 1], queue[at + size - 1]
    i -= at
    while i > 0:
        up = (i - 1) >> 1
        if keys[at + up] < key or (keys[at + up] == key and queue[at + up] < item):
            break
        keys[at + i], queue[at + i] = keys[at + up], queue[at + up]
        i = up
    sink(keys, queue, at, size - 1, i, key, item)


@inner
def copy(source: Ints, target: Ints) -> None:
    """Copy a table: compiled in no time, where a slice would bring along all that its refusals can say."""
    for i in range(source.shape[0]):
        for k in range(source.shape[1]):
            target[i, k] = source[i, k]


@loop
def run_easy(
    placement: int, jobs: Jobs, kinds: Ints, land: Land, memo: Memo | None, by_estimate: int, exact: int, until: float
) -> tuple[Floats, Ints, Ints, Floats]:
    """Play all events where the first that does not fit has a reservation: starts, nodes, GPUs and the ledger."""
    submit, runtime, estimate, key, _, _, kind, first, learns = jobs
    S, N, G, apps, C, most, U, share, _, free, X, B = land
    total, many = len(submit), len(kinds)
    start, ledger = np.full(total, np.nan), np.zeros((total, WHY))
    where, got = np.full(first[-1], -1, np.int64), np.zeros(first[-1], np.int64)
    ends, running, active = np.empty(total), np.empty(total, np.int64), 0
    begin = np.zeros(many + 1, np.int64)
    part_of_each(kind, begin)
    keys, queue, size = np.empty(total), np.empty(total, np.int64), np.zeros(many, np.int64)
    opened, lines, at_line = np.empty(many, np.int64), 0, np.full(many, -1, np.int64)  # kinds that wait
    spent, since, cause = np.zeros((many, WHY)), np.zeros(many), np.zeros(many, np.int64)
    # At most so many instances fit now, and now and then; `held`: it fits now, but the reservation is in its way.
    hope, chance, held = np.zeros(many, np.int64), np.zeros(many, np.int64), np.zeros(many, np.bool_)
    shortest = np.full(many, np.inf)  # no job of a kind is believed to run for less
    asked, asks, is_asked = np.empty(many, np.int64), 0, np.zeros(many, np.bool_)
    ranks, best = np.empty(many), np.empty(many, np.int64)
    mean, seen = np.zeros(learns.max() + 2 if total else 1), np.zeros(learns.max() + 2 if total else 1, np.int64)
    stamp, freed, frees = np.full(len(N), -1, np.int64), np.empty(len(N), np.int64), 0
    top, lacks = np.zeros(5, np.int64), np.zeros(3, np.int64)
    FN, FG, Fapps, BN, BG, Bapps = N.copy(), G.copy(), apps.copy(), N.copy(), G.copy(), apps.copy()
    BX, BB = X.copy(), B.copy()
    due, due_of = np.empty(total), np.empty(total, np.int64)
    spot, bits = (
        np.empty(kinds[:, 1].max() if many else 1, np.int64),
        np.empty(kinds[:, 1].max() if many else 1, np.int64),
    )
    seats, numbers = np.empty(len(N)), np.empty(len(N), np.int64)
    head, when = -1, np.inf
    arrived, turn = 0, 0
    while arrived < total or active:
        now = ends[0] if active else np.inf
        if arrived < total and submit[arrived] < now:
            now = submit[arrived]
        if now > until:
            break
        turn += 1
        frees, asks = 0, 0
        while active and ends[0] == now:
            j = running[0]
            pop(ends, running, 0, active)
            active -= 1
            k = kind[j]
            back(S, kinds[k, 0], kinds[k, 1], N, G, apps, X, B, free, where, got, first[j])
            learn(j, learns, runtime, mean, seen)
            if lines:
                for i in range(first[j], first[j + 1]):
                    if stamp[where[i]] != turn:
                        stamp[where[i]] = turn
                        freed[frees] = where[i]
                        frees += 1
        if frees:
            largest(freed, frees, N, top)
            if head >= 0:
                for i in range(frees):
                    meet(freed[i], N, G, apps, FN, FG, Fapps, BN, BG, Bapps, BX, BB)
            for i in range(lines):
                k = opened[i]
                if not hopeless(S, kinds[k, 0], top):
                    for f in range(frees):
                        hope[k] += room(S, kinds[k, 0], N, freed[f], G, apps)
                        if held[k]:
                            chance[k] += room(S, kinds[k, 0], BN, freed[f], BG, Bapps)
                    if (chance[k] if held[k] else hope[k]) >= kinds[k, 1]:
                        asked[asks], is_asked[k] = k, True
                        asks += 1
        while arrived < total and submit[arrived] == now:
            j = arrived
            arrived += 1
            k = kind[j]
            if learns[j] >= 0:
                believe(j, learns, estimate, mean, seen)
                if by_estimate:
                    key[j] += estimate[j]
            if at_line[k] >= 0:
                charge(k, now, spent, since, cause)
            elif size[k] == 0:
                since[k], cause[k] = now, 0
            # Others of its kind wait, so it does not fit; but if it is before the head, it is head now.
            first_now = head >= 0 and key[j] < key[head]
            if not is_asked[k] and (at_line[k] < 0 or held[k] or first_now):
                asked[asks], is_asked[k] = k, True
                asks += 1
            pay(j, k, -1, ledger, spent)
            shortest[k] = min(shortest[k], estimate[j])
            push(keys, queue, begin[k], size[k], key[j], j)
            size[k] += 1
        if asks == 0 and (exact or head < 0):
            continue
        if not exact or now >= when:
            head = -1  # not all went as believed: whoever is first is given a time anew
        began = False  # has anything started in this pass?
        anew = head < 0
        while True:
            if anew:
                for i in range(lines):
                    if not is_asked[opened[i]]:
                        asked[asks], is_asked[opened[i]] = opened[i], True
                        asks += 1
            trying = 0
            for i in range(asks):
                if size[asked[i]]:
                    push(ranks, best, 0, trying, keys[begin[asked[i]]], queue[begin[asked[i]]])
                    trying += 1
            again = False
            while trying:
                j, rank = best[0], ranks[0]
                pop(ranks, best, 0, trying)
                trying -= 1
                k = kind[j]
                s, count, at = kinds[k, 0], kinds[k, 1], first[j]
                ahead = head < 0 or j == head or rank < key[head] or (rank == key[head] and j < head)
                within = ahead or now + estimate[j] <= when
                placed = 0
                if within:
                    if memo is None:
                        placed = fit(S, s, count, N, G, apps, X, B, free, where, got, at)
                    else:
                        placed = put(placement, s, count, land, memo, where, got, at)
                elif count == 1 and memo is None:
                    placed = indexed(S, s, 1, BN, BG, Bapps, BX, BB, where, got, at)
                elif slots(S, s, count, BN, BG, Bapps, X) >= count:
                    if memo is None:
                        placed = indexed(S, s, count, BN, BG, Bapps, BX, BB, where, got, at)
                    else:
                        seat(
                            placement, S, s, count, BN, BG, Bapps, C, most, U, share, X, seats, numbers, where, got, at
                        )
                        placed = count
                if placed == count and not within:
                    for i in range(at, at + count):
                        n = where[i]
                        idle = N[n, IDLE]
                        claim(S, s, N, n, G, apps, got[i])
                        claim(S, s, FN, n, FG, Fapps, got[i])
                        if got[i]:
                            free[N[n, ORDINAL]] -= S[s, GPUS] * S[s, MILLI]
                        if len(B):
                            moved(N, n, G, X, B, got[i], S[s, MILLI], idle)
                if placed == count:
                    i = begin[k]
                    while queue[i] != j:
                        i += 1
                    leave(keys, queue, begin[k], size[k], i)
                    size[k] -= 1
                    if at_line[k] >= 0:
                        charge(k, now, spent, since, cause)
                    pay(j, k, 1, ledger, spent)
                    start[j] = now
                    push(ends, running, 0, active, now + runtime[j], j)
                    active += 1
                    began = True
                    if size[k] == 0:
                        shortest[k] = np.inf
                    if head >= 0 and ahead:  # the head began, or somebody before it: whoever is first is head now
                        head, again, anew = -1, True, True
                        break
                    if head >= 0:
                        for i in range(at, at + count):
                            meet(where[i], N, G, apps, FN, FG, Fapps, BN, BG, Bapps, BX, BB)
                    if size[k]:
                        push(ranks, best, 0, trying, keys[begin[k]], queue[begin[k]])
                        trying += 1
                    continue
                if ahead:
                    if j == head:
                        continue
                    head, rank = j, key[j]
                    copy(N, FN)
                    copy(G, FG)
                    copy(apps, Fapps)
                    when = falls_due(
                        S, s, count, X, FN, FG, Fapps, running, active, start, estimate, kind, kinds, first, where, got,
                        now, due, due_of,
                    )  # fmt: skip
                    seat(placement, S, s, count, FN, FG, Fapps, C, most, U, share, X, seats, numbers, spot, bits, 0)
                    for n in range(len(N)):
                        meet(n, N, G, apps, FN, FG, Fapps, BN, BG, Bapps, BX, BB)
                    if not anew:  # another head than before: all who wait are looked at again
                        again, anew = True, True
                        break
                    continue
                if not within and shortest[k] <= when - now:  # not this one, but one behind it may be short enough
                    i = first_within(keys, queue, begin[k], size[k], estimate, when - now)
                    if i >= 0:
                        push(ranks, best, 0, trying, keys[i], queue[i])
                        trying += 1
                    else:
                        shortest[k] = np.nextafter(when - now, np.inf)
            if not again:
                break
        for i in range(asks):
            k = asked[i]
            is_asked[k] = False
            s, count = kinds[k, 0], kinds[k, 1]
            if size[k] == 0:
                if at_line[k] >= 0:
                    lines -= 1
                    opened[at_line[k]] = opened[lines]
                    at_line[opened[lines]] = at_line[k]
                    at_line[k] = -1
                continue
            fresh = at_line[k] < 0
            if fresh:
                hope[k] = 0
                opened[lines], at_line[k] = k, lines
                lines += 1
            hoped = hope[k] >= count
            hope[k] = slots(S, s, count, N, G, apps, X)
            held[k] = hope[k] >= count
            chance[k] = slots(S, s, count, BN, BG, Bapps, X) if held[k] else 0
            if not (held[k] or hoped or fresh):
                continue  # nothing has changed for it
            charge(k, now, spent, since, cause)
            if held[k]:
                cause[k] = BY_HEAD
            elif hoped and began:
                cause[k] = BY_ORDER  # it might have fitted, and something was served before it
            else:
                cause[k] = reason(S, s, count, N, G, apps, X, free, hope[k], lacks)
        if head >= 0 and start[head] == start[head]:
            head = -1
    for k in range(many):
        if size[k]:
            charge(k, until, spent, since, cause)
            for i in range(begin[k], begin[k] + size[k]):
                pay(queue[i], k, 1, ledger, spent)
    return start, where, got, ledger
