"""The best-fitting node without looking at all of them.

GPUs of one type stand in lists by how much of them is free, nodes of one type in lists by how many of their GPUs are
idle. A list is a row of bits with a second row that says which words of it are not empty, so the tightest GPU or node
that may hold an instance is the first set bit of the first list that is not empty. Where CPU is scarcer than GPUs,
nodes of one type are kept apart by how much CPU they have free, in tiers: else the lists fill up with idle GPUs that
nobody can use. A job of CPU alone goes to the node with the fewest GPUs that has room: a tree of the most CPU free,
over nodes in that order, finds it.

The answer is that of `pick` with `best_fit`, node for node and GPU for GPU; a test holds the two together. All of it
lies in two flat arrays, `X` of numbers and `B` of bits, because every array handed to a compiled call costs time.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fleetlab.sim._compile import inline, inner, loop
from fleetlab.sim._nodes import (
    APP,
    CPU,
    DISK,
    FIRST,
    FREE,
    GPU,
    GPU_MEMORY,
    GPUS,
    IDLE,
    LAST,
    LIMIT,
    LIST,
    MEMORY,
    MILLI,
    OWNER,
    PLACE,
    RANK,
    RDMA,
    SLOT,
    TYPE,
    TYPES,
    VRAM,
    WHOLE,
    Ints,
    holds,
)

Bits = NDArray[np.uint64]

LEVELS = WHOLE + 1
SCARCE = 0.8  # CPU asked for beside a GPU, of what the poorest node has beside one: above it CPU may run out first
LEVEL_WORDS = (LEVELS + 63) // 64 + 1  # the last says which of the others are not empty
ONE = np.uint64(1)
NONE = np.uint64(0)

MOST_TIERS = 8
# X begins with these: how many types and tiers, the most GPUs of a node, the leaves of the tree, where parts begin.
KNOWN, TIERS, BIGGEST, LEAVES, AT_COUNT, AT_NODE_COUNT, AT_ORDER, AT_TREE, AT_TYPES = range(9)
STEPS = 9  # the CPU from which on each tier but the first begins
HEADER = STEPS + MOST_TIERS
# Then one row a type and tier, a *group*: where its lists of GPUs and of nodes begin in B, how many words and words of
# summary each has, where its GPUs and nodes begin in X, and, as bits, which of its lists of nodes are not empty.
GPU_BITS, GPU_WORDS, GPU_SUMS, GPU_SUM_WORDS, AT_GPUS = 0, 1, 2, 3, 4
NODE_BITS, NODE_WORDS, NODE_SUMS, NODE_SUM_WORDS, AT_NODES = 5, 6, 7, 8, 9
IDLES = 10
ROW = 11


@inner
def lowest(word: Bits) -> int:
    """The number of the lowest bit that is set."""
    n = 0
    if word & np.uint64(0xFFFFFFFF) == NONE:
        n += 32
        word >>= np.uint64(32)
    if word & np.uint64(0xFFFF) == NONE:
        n += 16
        word >>= np.uint64(16)
    if word & np.uint64(0xFF) == NONE:
        n += 8
        word >>= np.uint64(8)
    if word & np.uint64(0xF) == NONE:
        n += 4
        word >>= np.uint64(4)
    if word & np.uint64(0x3) == NONE:
        n += 2
        word >>= np.uint64(2)
    if word & ONE == NONE:
        n += 1
    return n


@inner
def put_in(B: Bits, begin: int, sums: int, i: int) -> None:
    """Add slot `i` to a list."""
    w = i >> 6
    B[begin + w] |= ONE << np.uint64(i & 63)
    B[sums + (w >> 6)] |= ONE << np.uint64(w & 63)


@inner
def take_out(B: Bits, begin: int, sums: int, i: int) -> None:
    """Remove slot `i` from a list."""
    w = i >> 6
    left = B[begin + w] & ~(ONE << np.uint64(i & 63))
    B[begin + w] = left
    if left == NONE:
        B[sums + (w >> 6)] &= ~(ONE << np.uint64(w & 63))


@inline
def next_level(B: Bits, t: int, level: int) -> int:
    """The first list of GPUs of group `t` that is not empty, from `level` on; LEVELS where there is none."""
    w, at = level >> 6, t * LEVEL_WORDS
    word = B[at + w] & ~((ONE << np.uint64(level & 63)) - ONE)
    if word == NONE:
        later = B[at + LEVEL_WORDS - 1] & ~((ONE << np.uint64(w + 1)) - ONE)
        if later == NONE:
            return LEVELS
        w = lowest(later)
        word = B[at + w]
    return (w << 6) + lowest(word)


@inner
def fuller(X: Ints, B: Bits, t: int, level: int) -> None:
    """One GPU more in a list."""
    at = X[AT_COUNT] + t * LEVELS + level
    if X[at] == 0:
        B[t * LEVEL_WORDS + (level >> 6)] |= ONE << np.uint64(level & 63)
        B[t * LEVEL_WORDS + LEVEL_WORDS - 1] |= ONE << np.uint64(level >> 6)
    X[at] += 1


@inner
def emptier(X: Ints, B: Bits, t: int, level: int) -> None:
    """One GPU less in a list."""
    at = X[AT_COUNT] + t * LEVELS + level
    X[at] -= 1
    if X[at] == 0:
        w = t * LEVEL_WORDS + (level >> 6)
        B[w] &= ~(ONE << np.uint64(level & 63))
        if B[w] == NONE:
            B[t * LEVEL_WORDS + LEVEL_WORDS - 1] &= ~(ONE << np.uint64(level >> 6))


@inner
def tier_of(X: Ints, cpu: int) -> int:
    """In which tier is a node with so much CPU free? One that holds so much is in this or a higher one."""
    tier = 0
    while tier + 1 < X[TIERS] and X[STEPS + tier] <= cpu:
        tier += 1
    return tier


@inner
def beside(S: Ints, s: int, N: Ints, n: int, apps: Ints) -> bool:
    """Does node `n` have what an instance needs beside GPUs?"""
    if N[n, CPU] < S[s, CPU] or N[n, MEMORY] < S[s, MEMORY]:
        return False
    if N[n, RDMA] < S[s, RDMA] or N[n, DISK] < S[s, DISK]:
        return False
    return S[s, LIMIT] == 0 or apps[S[s, APP], n] < S[s, LIMIT]


@inline
def share_in(S: Ints, s: int, N: Ints, G: Ints, apps: Ints, X: Ints, B: Bits, t: int, level: int, below: int) -> int:
    """The first GPU of a list, with a number below `below`, whose node has room beside it; -1 where there is none."""
    row = HEADER + t * ROW
    begin, sums = X[row + GPU_BITS] + level * X[row + GPU_WORDS], X[row + GPU_SUMS] + level * X[row + GPU_SUM_WORDS]
    gpus, vram, failed = X[row + AT_GPUS], S[s, GPU_MEMORY], -1
    for k in range(X[row + GPU_SUM_WORDS]):
        summary = B[sums + k]
        while summary != NONE:
            w = (k << 6) + lowest(summary)
            summary &= summary - ONE
            word = B[begin + w]
            while word != NONE:
                g = X[gpus + (w << 6) + lowest(word)]
                word &= word - ONE
                if g >= below:
                    return -1
                n = G[g, OWNER]
                if n == failed or G[g, VRAM] < vram:
                    continue
                if beside(S, s, N, n, apps):
                    return g
                failed = n
    return -1


@inline
def best_share(S: Ints, s: int, N: Ints, G: Ints, apps: Ints, X: Ints, B: Bits) -> int:
    """The GPU with the least free that holds a share, the first of equals; -1 where there is none."""
    level, none, tiers, wanted = S[s, MILLI], len(G), X[TIERS], S[s, TYPES]
    tier = tier_of(X, S[s, CPU]) if tiers > 1 else 0
    while level < LEVELS:
        least = LEVELS
        for t in range(X[KNOWN]):
            if wanted >> t & 1:
                for group in range(t * tiers + tier, (t + 1) * tiers):
                    least = min(least, next_level(B, group, level))
        if least == LEVELS:
            return -1
        best = none
        for t in range(X[KNOWN]):
            if wanted >> t & 1:
                for group in range(t * tiers + tier, (t + 1) * tiers):
                    if X[X[AT_COUNT] + group * LEVELS + least]:
                        g = share_in(S, s, N, G, apps, X, B, group, least, best)
                        if g >= 0:
                            best = g
        if best < none:
            return best
        level = least + 1
    return -1


@inline
def whole_in(S: Ints, s: int, N: Ints, G: Ints, apps: Ints, X: Ints, B: Bits, t: int, idle: int, below: int) -> int:
    """The first node of a list, with a number below `below`, that holds an instance; -1 where there is none."""
    row = HEADER + t * ROW
    begin, sums = X[row + NODE_BITS] + idle * X[row + NODE_WORDS], X[row + NODE_SUMS] + idle * X[row + NODE_SUM_WORDS]
    nodes = X[row + AT_NODES]
    for k in range(X[row + NODE_SUM_WORDS]):
        summary = B[sums + k]
        while summary != NONE:
            w = (k << 6) + lowest(summary)
            summary &= summary - ONE
            word = B[begin + w]
            while word != NONE:
                n = X[nodes + (w << 6) + lowest(word)]
                word &= word - ONE
                if n >= below:
                    return -1
                if beside(S, s, N, n, apps) and (S[s, GPU_MEMORY] == 0 or holds(S, s, N, n, G, apps)):
                    return n
    return -1


@inline
def best_whole(S: Ints, s: int, N: Ints, G: Ints, apps: Ints, X: Ints, B: Bits) -> int:
    """The node with the fewest idle GPUs that holds an instance of whole GPUs, the first of equals; -1: none."""
    wanted, none, tiers = S[s, TYPES], len(N), X[TIERS]
    tier = tier_of(X, S[s, CPU]) if tiers > 1 else 0
    idles = 0
    for t in range(X[KNOWN]):
        if wanted >> t & 1:
            for group in range(t * tiers + tier, (t + 1) * tiers):
                idles |= X[HEADER + group * ROW + IDLES]
    idle = S[s, GPUS]
    idles >>= idle
    while idles:
        if idles & 1:
            best = none
            for t in range(X[KNOWN]):
                if wanted >> t & 1:
                    for group in range(t * tiers + tier, (t + 1) * tiers):
                        if X[HEADER + group * ROW + IDLES] >> idle & 1:
                            n = whole_in(S, s, N, G, apps, X, B, group, idle, best)
                            if n >= 0:
                                best = n
            if best < none:
                return best
        idles >>= 1
        idle += 1
    return -1


@inner
def best_cpu(S: Ints, s: int, N: Ints, apps: Ints, X: Ints) -> int:
    """The node with the fewest GPUs that holds an instance of CPU alone, the first of equals; -1: none."""
    need, leaves, tree = S[s, CPU], X[LEAVES], X[AT_TREE]
    if X[tree + 1] < need:
        return -1
    i = 1
    while True:
        while i < leaves:  # down to the first leaf with enough
            i = 2 * i if X[tree + 2 * i] >= need else 2 * i + 1
        n = X[X[AT_ORDER] + i - leaves]
        if beside(S, s, N, n, apps):
            return n
        while True:  # on to the next subtree to the right that has enough
            while i & 1:
                i >>= 1
            if i == 0:
                return -1
            i += 1
            if X[tree + i] >= need:
                break


@inline
def lift(X: Ints, rank: int, cpu: int) -> None:
    """Say how much CPU the node of that rank has free."""
    tree, i = X[AT_TREE], rank + X[LEAVES]
    X[tree + i] = cpu
    while i > 1:
        i >>= 1
        most = max(X[tree + 2 * i], X[tree + 2 * i + 1])
        if X[tree + i] == most:
            return
        X[tree + i] = most


@inline
def enlist(N: Ints, n: int, X: Ints, B: Bits, group: int, idle: int) -> None:
    """Put node `n` into the list of those with `idle` GPUs."""
    row, at = HEADER + group * ROW, X[AT_NODE_COUNT] + group * (X[BIGGEST] + 1) + idle
    begin, sums = X[row + NODE_BITS] + idle * X[row + NODE_WORDS], X[row + NODE_SUMS] + idle * X[row + NODE_SUM_WORDS]
    put_in(B, begin, sums, N[n, PLACE])
    X[at] += 1
    X[row + IDLES] |= 1 << idle


@inline
def delist(N: Ints, n: int, X: Ints, B: Bits, group: int, idle: int) -> None:
    """Undo `enlist`."""
    row, at = HEADER + group * ROW, X[AT_NODE_COUNT] + group * (X[BIGGEST] + 1) + idle
    begin, sums = X[row + NODE_BITS] + idle * X[row + NODE_WORDS], X[row + NODE_SUMS] + idle * X[row + NODE_SUM_WORDS]
    take_out(B, begin, sums, N[n, PLACE])
    X[at] -= 1
    if X[at] == 0:
        X[row + IDLES] &= ~(1 << idle)


@inline
def relist(G: Ints, g: int, X: Ints, B: Bits, group: int, old: int, new_group: int, new: int) -> None:
    """Move a GPU from one list to another."""
    row, i = HEADER + group * ROW, G[g, SLOT]
    take_out(B, X[row] + old * X[row + GPU_WORDS], X[row + GPU_SUMS] + old * X[row + GPU_SUM_WORDS], i)
    emptier(X, B, group, old)
    row = HEADER + new_group * ROW
    put_in(B, X[row] + new * X[row + GPU_WORDS], X[row + GPU_SUMS] + new * X[row + GPU_SUM_WORDS], i)
    fuller(X, B, new_group, new)


@inline
def moved(N: Ints, n: int, G: Ints, X: Ints, B: Bits, got: int, more: int, idle: int) -> None:
    """Put GPUs `got` of node `n`, which had `more` milli free, and the node, which had `idle`, into their lists."""
    lift(X, N[n, RANK], N[n, CPU])
    if N[n, TYPE] == 0:
        return
    group, g, tiers = N[n, LIST], N[n, FIRST], X[TIERS]
    other = group
    if tiers > 1:
        other = group - group % tiers + tier_of(X, N[n, CPU])
    if other == group:
        while got:
            if got & 1:
                relist(G, g, X, B, group, G[g, FREE] + more, group, G[g, FREE])
            got >>= 1
            g += 1
    else:  # its CPU is in another tier now: all of it moves
        N[n, LIST] = other
        while g < N[n, LAST]:
            relist(G, g, X, B, group, G[g, FREE] + more * (got & 1), other, G[g, FREE])
            got >>= 1
            g += 1
    if other != group or N[n, IDLE] != idle:
        delist(N, n, X, B, group, idle)
        enlist(N, n, X, B, other, N[n, IDLE])


def tiers_of(S: Ints, jobs: Ints, N: Ints) -> Ints:
    """The CPU from which on tiers begin: what most jobs with GPUs ask for; none where GPUs run out before CPU does."""
    gpu = S[:, GPUS] > 0
    milli, nodes = (S[:, GPUS] * S[:, MILLI])[gpu], N[N[:, TYPE] > 0]
    asked = (jobs[gpu] * S[gpu, CPU]).sum() / max(1, (jobs[gpu] * milli).sum())
    if not len(nodes) or asked < SCARCE * (nodes[:, CPU] / nodes[:, GPU]).min():
        return np.zeros(0, dtype=np.int64)
    values, which = np.unique(S[gpu, CPU], return_inverse=True)
    weight = np.bincount(which, weights=jobs[gpu])
    return np.sort(values[np.argsort(-weight, kind="stable")[: MOST_TIERS - 1]])


def index_of(N: Ints, G: Ints, steps: Ints) -> tuple[Ints, Bits]:
    """Build the index of nodes as they are: X and B; nodes and GPUs are told where they stand in it."""
    types, tiers = max(1, int(N[:, TYPE].max(initial=0)).bit_length()), len(steps) + 1
    kind = np.array([int(t).bit_length() - 1 for t in N[:, TYPE]], dtype=np.int64)
    size = N[:, LAST] - N[:, FIRST]
    biggest, leaves = int(size.max(initial=0)), 1 << max(0, len(N) - 1).bit_length()
    header, rows = np.zeros(HEADER, dtype=np.int64), np.zeros((types * tiers, ROW), dtype=np.int64)
    at, bits = HEADER + rows.size, len(rows) * LEVEL_WORDS
    parts: list[Ints] = []
    ranges: list[int] = []  # where the nodes of each type begin and end
    for t in range(types):
        mine, cards = np.flatnonzero(kind == t), np.flatnonzero(kind[G[:, OWNER]] == t)
        N[mine, PLACE], G[cards, SLOT] = np.arange(len(mine)), np.arange(len(cards))
        for first, lists, members in ((GPU_BITS, LEVELS, cards), (NODE_BITS, biggest + 1, mine)):
            words = -(-len(members) // 64)
            summary = -(-words // 64)
            for group in range(t * tiers, (t + 1) * tiers):
                rows[group, first : first + 5] = bits, words, bits + lists * words, summary, at
                bits += lists * (words + summary)
            parts.append(members)
            at += len(members)
        ranges += [at - len(mine), at]
    order = np.argsort(size, kind="stable")
    N[order, RANK], N[:, LIST] = np.arange(len(order)), kind * tiers
    header[:5] = types, tiers, biggest, leaves, at
    header[AT_NODE_COUNT] = at + len(rows) * LEVELS
    header[AT_ORDER] = header[AT_NODE_COUNT] + len(rows) * (biggest + 1)
    header[AT_TREE] = header[AT_ORDER] + len(order)
    header[STEPS : STEPS + len(steps)] = steps
    counts, tree = np.zeros(len(rows) * (LEVELS + biggest + 1), dtype=np.int64), np.full(2 * leaves, -1, dtype=np.int64)
    header[AT_TYPES] = header[AT_TREE] + len(tree)
    X = np.concatenate([header, rows.ravel(), *parts, counts, order, tree, np.array(ranges, dtype=np.int64)])
    B = np.zeros(bits, dtype=np.uint64)
    fill(N, G, X, B)
    return X, B


@loop
def fill(N: Ints, G: Ints, X: Ints, B: Bits) -> None:
    """Put every GPU and node into its list."""
    for n in range(len(N)):
        lift(X, N[n, RANK], N[n, CPU])
        if N[n, TYPE]:
            N[n, LIST] += tier_of(X, N[n, CPU])
            enlist(N, n, X, B, N[n, LIST], N[n, IDLE])
    for g in range(len(G)):
        group, free = N[G[g, OWNER], LIST], G[g, FREE]
        row = HEADER + group * ROW
        put_in(B, X[row] + free * X[row + GPU_WORDS], X[row + GPU_SUMS] + free * X[row + GPU_SUM_WORDS], G[g, SLOT])
        fuller(X, B, group, free)
