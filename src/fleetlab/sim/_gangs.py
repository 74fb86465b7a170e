"""Gangs in and out of the nodes, for the quick loop: all of a job's instances, or none.

`best_fit` goes by the index. Under every other policy the score of a request on a node is kept until the node changes,
so that a job looks at stored numbers and asks only about nodes that changed since the last one of its request. No
policy looks at memory or at the GPU types a job may run on, so shapes that differ in nothing else are one *request*.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fleetlab.sim._compile import inline, inner
from fleetlab.sim._fragments import Uses, grown, lay_out, uses_of
from fleetlab.sim._index import AT_TYPES, KNOWN, Bits, best_cpu, best_share, best_whole, moved
from fleetlab.sim._nodes import (
    BY_CPU,
    BY_FRAGMENT,
    BY_GANG,
    BY_GPU,
    BY_MEMORY,
    BY_OTHER,
    BY_TYPE,
    CPU,
    FIRST,
    GPUS,
    IDLE,
    MEMORY,
    MILLI,
    MOST,
    ORDINAL,
    OWNER,
    TYPES,
    VERSION,
    WHOLE,
    Floats,
    Ints,
    give_back,
    heapify,
    holds,
    pieces,
    pop,
    room,
    sink,
    take,
)
from fleetlab.sim._places import BEST_FIT, FGD, RANDOM, any_gpu, lot, score

Cards = NDArray[np.int16]

MOST_SCORES = 20_000_000  # kept at once: about 360 MB
MOST_TYPES = 62  # of GPUs, a bit each


class Desk(NamedTuple):
    """Nodes by GPU type, and what a gang picks from."""

    order: Ints  # [nodes]: those without GPUs, then type by type, the first of a type first
    spot: Ints  # [nodes]: where a node stands in that order
    begin: Ints  # [types + 2]: where those without GPUs and then each type begin; all 0 as long as nothing is in order
    keys: Floats  # [nodes]: of the heap that a gang picks from
    heap: Ints  # [nodes]


class Memo(NamedTuple):
    """Scores of requests on nodes, each good as long as the node has the version it had. Nodes are in `Desk.order`."""

    request: Ints  # [shapes]: which request a shape is
    R: Ints  # [requests, SHAPE_FIELDS]: a shape that asks for no memory, and runs on any type
    row: Ints  # [requests + 1]: the row of scores a request has, -1: none; last, the row to give away next
    owner: Ints  # [rows]: the request that has it
    scores: Floats  # [rows, nodes]; inf: does not fit
    cards: Cards  # [rows, nodes]: the GPU for a share, from the node's first; -1: the tightest
    known: Ints  # [rows, nodes]: the version a score is of
    desk: Desk
    uses: Uses


def memo_of(placement: int, S: Ints, nodes: int) -> Memo | None:
    """Room for the scores of as many requests as memory allows; best_fit needs none, and compiles without."""
    if placement == BEST_FIT:
        return None
    plain = S.copy()
    plain[:, MEMORY], plain[:, TYPES] = 0, (1 << MOST_TYPES) - 1
    R, request = np.unique(plain, axis=0, return_inverse=True)
    rows = max(1, min(len(R), MOST_SCORES // max(1, nodes)))
    row = np.full(len(R) + 1, -1, dtype=np.int64)
    row[-1] = 0
    order, spot, begin, heap = (np.zeros(size, dtype=np.int64) for size in (nodes, nodes, MOST_TYPES + 2, nodes))
    return Memo(
        np.array(request, dtype=np.int64).reshape(-1),
        np.ascontiguousarray(R),
        row,
        np.full(rows, -1, dtype=np.int64),
        np.empty((rows, nodes)),
        np.empty((rows, nodes), dtype=np.int16),
        np.full((rows, nodes), -1, dtype=np.int64),
        Desk(order, spot, begin, np.empty(nodes), heap),
        uses_of(len(S)),
    )


@inner
def sort_nodes(N: Ints, order: Ints, spot: Ints, begin: Ints) -> None:
    """Put the nodes in order of their GPU types."""
    for n in range(len(N)):
        begin[N[n, ORDINAL] + 2] += 1
    for t in range(1, len(begin)):
        begin[t] += begin[t - 1]
    for n in range(len(N)):
        t = N[n, ORDINAL] + 1
        spot[n] = begin[t]
        order[begin[t]] = n
        begin[t] += 1
    for t in range(len(begin) - 1, 0, -1):  # each has moved on to where the next begins
        begin[t] = begin[t - 1]
    begin[0] = 0


@inner
def row_of(q: int, row: Ints, owner: Ints, known: Ints) -> int:
    """The row of scores of request `q`; where it has none, the one given away longest ago."""
    r = row[q]
    if r < 0:
        r = row[-1]
        row[-1] = (r + 1) % len(owner)
        if owner[r] >= 0:
            row[owner[r]] = -1
            known[r, :] = -1
        row[q], owner[r] = r, q
    return r


@inner
def refresh(
    placement: int, R: Ints, q: int, N: Ints, n: int, G: Ints, apps: Ints, C: Ints, most: Ints, U: Ints, share: Floats,
    r: int, i: int, scores: Floats, cards: Cards, known: Ints, lines: Floats, marks: Ints,
) -> None:  # fmt: skip
    """Score request `q` on node `n`, which stands at `i`, anew."""
    value, card = np.inf, -1
    if holds(R, q, N, n, G, apps):
        if placement == FGD:
            value, g = grown(R, q, N, n, G, U, share, lines, marks)
        else:
            value, g = score(placement, R, q, N, n, G, C, most, U, share)
        card = g - N[n, FIRST] if g >= 0 else -1
    scores[r, i], cards[r, i], known[r, i] = value, card, N[n, VERSION]


@inner
def scored(
    placement: int, S: Ints, s: int, count: int, N: Ints, G: Ints, apps: Ints, C: Ints, most: Ints, U: Ints,
    share: Floats, draws: Ints, memo: Memo, where: Ints, got: Ints, at: int,
) -> int:  # fmt: skip
    """Place up to `count` instances by stored scores; how many it could."""
    request, R, row, owner, scores, cards, known, desk, uses = memo
    order, spot, begin, keys, heap = desk
    lines, marks = uses
    if placement == RANDOM:
        return by_lot(S, s, count, N, G, apps, draws, heap, where, got, at)
    if begin[-1] == 0:
        sort_nodes(N, order, spot, begin)
        lay_out(N, U, share, lines, marks)
    q, memory = request[s], S[s, MEMORY]
    r = row_of(q, row, owner, known)
    best, least, size = -1, np.inf, 0
    for t in range(len(begin) - 1):
        if S[s, GPUS] and (t == 0 or S[s, TYPES] >> (t - 1) & 1 == 0):
            continue
        for i in range(begin[t], begin[t + 1]):
            n = order[i]
            if known[r, i] != N[n, VERSION]:
                refresh(placement, R, q, N, n, G, apps, C, most, U, share, r, i, scores, cards, known, lines, marks)
            value = scores[r, i]
            if count > 1:
                if value < np.inf and N[n, MEMORY] >= memory:
                    keys[size], heap[size] = value, n
                    size += 1
            elif (value < least or (value == least and n < best)) and N[n, MEMORY] >= memory:
                best, least = n, value
    if count > 1 and size:
        heapify(keys, heap, size)
        best = heap[0]
    if best < 0:
        return 0
    for k in range(count):
        if k:
            if size == 0:
                return k
            best = heap[0]
        i = spot[best]
        where[at + k], card = best, cards[r, i]
        got[at + k] = take(S, s, N, best, G, apps, N[best, FIRST] + card if card >= 0 else -1)
        if count > 1:
            refresh(placement, R, q, N, best, G, apps, C, most, U, share, r, i, scores, cards, known, lines, marks)
            if scores[r, i] == np.inf or N[best, MEMORY] < memory:
                pop(keys, heap, 0, size)
                size -= 1
            else:
                sink(keys, heap, 0, size, 0, scores[r, i], best)
    return count


@inner
def by_lot(
    S: Ints, s: int, count: int, N: Ints, G: Ints, apps: Ints, draws: Ints, able: Ints, where: Ints, got: Ints, at: int
) -> int:
    """Place all `count` instances, each on any node that holds it, or none: lots are drawn for those that start."""
    found, size = 0, 0
    for n in range(len(N)):
        if holds(S, s, N, n, G, apps):
            able[size] = n
            size += 1
            if found < count:
                found += room(S, s, N, n, G, apps)
    if found < count:
        return 0
    for k in range(at, at + count):
        i = lot(draws) % size
        n = able[i]
        g = any_gpu(S, s, N, n, G, draws) if S[s, GPUS] and S[s, MILLI] < WHOLE else -1
        where[k], got[k] = n, take(S, s, N, n, G, apps, g)
        if not holds(S, s, N, n, G, apps):
            size -= 1
            for later in range(i, size):
                able[later] = able[later + 1]
    return count


@inline
def indexed(
    S: Ints, s: int, count: int, N: Ints, G: Ints, apps: Ints, X: Ints, B: Bits, where: Ints, got: Ints, at: int
) -> int:
    """Place up to `count` instances where each fits best, by the index; how many it could."""
    for i in range(at, at + count):
        g, n = -1, -1
        if S[s, GPUS] == 0:
            n = best_cpu(S, s, N, apps, X)
        elif S[s, MILLI] < WHOLE:
            g = best_share(S, s, N, G, apps, X, B)
            if g >= 0:
                n = G[g, OWNER]
        else:
            n = best_whole(S, s, N, G, apps, X, B)
        if n < 0:
            return i - at
        idle = N[n, IDLE]
        where[i], got[i] = n, take(S, s, N, n, G, apps, g)
        moved(N, n, G, X, B, got[i], S[s, MILLI], idle)
    return count


@inline
def settle(S: Ints, s: int, placed: int, N: Ints, free: Ints, where: Ints, at: int) -> None:
    """Keep the books of what is free by type after `placed` instances have come."""
    each = S[s, GPUS] * S[s, MILLI]
    if each:
        for i in range(at, at + placed):
            free[N[where[i], ORDINAL]] -= each


@inline
def back(
    S: Ints, s: int, count: int, N: Ints, G: Ints, apps: Ints, X: Ints, B: Bits, free: Ints, where: Ints, got: Ints,
    at: int,
) -> None:  # fmt: skip
    """Take `count` instances off their nodes; where B is empty there is no index to tell."""
    milli = S[s, MILLI]
    for i in range(at, at + count):
        n = where[i]
        idle = N[n, IDLE]
        give_back(S, s, N, n, G, apps, got[i])
        if got[i]:
            free[N[n, ORDINAL]] += S[s, GPUS] * milli
        if len(B):
            moved(N, n, G, X, B, got[i], -milli, idle)


@inline
def offered(S: Ints, s: int, free: Ints) -> int:
    """The GPU milli that are free on the types a shape may run on."""
    total = 0
    for t in range(len(free)):
        if S[s, TYPES] >> t & 1:
            total += free[t]
    return total


@inner
def slots(S: Ints, s: int, enough: int, N: Ints, G: Ints, apps: Ints, X: Ints) -> int:
    """How many instances of shape `s` fit now, counted up to `enough`? Only nodes of its types are looked at."""
    found = 0
    if S[s, GPUS] == 0:
        for n in range(len(N)):
            if N[n, CPU] >= S[s, CPU]:
                found += room(S, s, N, n, G, apps)
                if found >= enough:
                    break
        return found
    for t in range(X[KNOWN]):
        if S[s, TYPES] >> t & 1:
            for i in range(X[X[AT_TYPES] + 2 * t], X[X[AT_TYPES] + 2 * t + 1]):
                if N[X[i], MOST] >= S[s, MILLI] and N[X[i], CPU] >= S[s, CPU]:
                    found += room(S, s, N, X[i], G, apps)
                    if found >= enough:
                        return found
    return found


@inner
def usable(S: Ints, s: int, N: Ints, n: int, G: Ints, lacks: Ints, count: int) -> None:
    """Add to `lacks` how many instances a node has GPUs for, then CPU too, then memory too."""
    units = count
    if S[s, GPUS]:
        units = min(pieces(S, s, N, n, G) // S[s, GPUS], count)
    lacks[0] += units
    if S[s, CPU]:
        units = min(units, N[n, CPU] // S[s, CPU])
    lacks[1] += units
    if S[s, MEMORY]:
        units = min(units, N[n, MEMORY] // S[s, MEMORY])
    lacks[2] += units


@inner
def reason(
    S: Ints, s: int, count: int, N: Ints, G: Ints, apps: Ints, X: Ints, free: Ints, fits: int, lacks: Ints
) -> int:
    """What `why` says, where `fits` of the `count` instances would fit: it looks no further than it must."""
    need, total = count * S[s, GPUS] * S[s, MILLI], 0
    for t in range(len(free)):
        total += free[t]
    if need > total:
        return BY_GPU
    if need > offered(S, s, free):
        return BY_TYPE
    if fits:
        return BY_GANG
    lacks[:] = 0
    if S[s, GPUS] == 0:
        for n in range(len(N)):
            usable(S, s, N, n, G, lacks, count)
    else:
        for t in range(X[KNOWN]):
            if S[s, TYPES] >> t & 1:
                for i in range(X[X[AT_TYPES] + 2 * t], X[X[AT_TYPES] + 2 * t + 1]):
                    usable(S, s, N, X[i], G, lacks, count)
    if lacks[0] < count:
        return BY_FRAGMENT
    if lacks[1] < count:
        return BY_CPU
    return BY_MEMORY if lacks[2] < count else BY_OTHER
