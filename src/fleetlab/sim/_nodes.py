"""Nodes and what instances take of them: the compiled arithmetic that both loops share.

Everything that must add up is an integer. A node is a row of `N`, a GPU a row of `G`, a distinct demand (a *shape*) a
row of `S`: a row lies in one or two cache lines, and a compiled call hands over a few arrays, not dozens. The fields of
a row are the constants below. Everything here also runs as plain Python, with the same answer.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fleetlab.core import catalog
from fleetlab.sim._compile import step

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

WHOLE = 1000  # milli of one GPU

# A row of N: what is free on a node, and what never changes.
CPU, MEMORY, RDMA, DISK = 0, 1, 2, 3  # milli, MiB, milli, MiB: the same columns in S
GPU = 4  # free milli on all its GPUs
IDLE = 5  # GPUs that nobody holds any of
MOST = 6  # the most that is free on one GPU, milli
UP = 7  # 1: takes instances; 0: down, drained or not booted
FIRST, LAST = 8, 9  # its GPUs are the rows FIRST to LAST - 1 of G
TYPE = 10  # the bit of its GPU type, 0 without GPUs
COUNT = 11  # instances on it
VERSION = 12  # counts its changes
LIST, PLACE, RANK = 13, 14, 15  # where the index keeps it: see `_index`
ORDINAL = 16  # which of the types its GPUs are of, -1 without GPUs
HELD = 17  # and KINDS - 1 more: its instances with GPUs by kind of request
KINDS = 10  # of request: 0 a share, 1 to 8 whole GPUs, 9 more
NODE_FIELDS = 32  # four cache lines: what every step needs lies in the first two

# A row of G: what is free on a GPU.
FREE, VRAM = 0, 1  # milli, MiB
OWNER, SLOT = 2, 3  # its node, and where the index keeps it
GPU_FIELDS = 4

# A row of S beyond the four that N has too.
MILLI = 4  # of each GPU: a share, or WHOLE
GPUS = 5  # how many GPUs, 0 for CPU alone
GPU_MEMORY = 6  # MiB of each GPU
TYPES = 7  # bits: the GPU types it may run on
LIMIT = 8  # instances of its app on one node, 0 for any number
APP = 9  # the row of `apps` that counts them
KIND = 10  # of request
SHAPE_FIELDS = 12


@step
def holds(S: Ints, s: int, N: Ints, n: int, G: Ints, apps: Ints) -> bool:
    """Can node `n` take an instance of shape `s` now?"""
    if N[n, CPU] < S[s, CPU] or N[n, MEMORY] < S[s, MEMORY] or N[n, UP] == 0:
        return False
    if N[n, RDMA] < S[s, RDMA] or N[n, DISK] < S[s, DISK]:
        return False
    if S[s, LIMIT] and apps[S[s, APP], n] >= S[s, LIMIT]:
        return False
    if S[s, GPUS] == 0:
        return True
    if S[s, TYPES] & N[n, TYPE] == 0:
        return False
    if S[s, GPU_MEMORY] == 0:
        return N[n, MOST] >= S[s, MILLI] if S[s, MILLI] < WHOLE else N[n, IDLE] >= S[s, GPUS]
    found = 0
    for g in range(N[n, FIRST], N[n, LAST]):
        found += G[g, FREE] >= S[s, MILLI] and G[g, VRAM] >= S[s, GPU_MEMORY]
    return found >= S[s, GPUS]


@step
def pieces(S: Ints, s: int, N: Ints, n: int, G: Ints) -> int:
    """How often do the GPUs of node `n` have free what shape `s` asks of one?"""
    milli = S[s, MILLI]
    if milli == WHOLE:
        return N[n, IDLE]
    found = 0
    if N[n, MOST] >= milli:
        for g in range(N[n, FIRST], N[n, LAST]):
            found += G[g, FREE] >= milli if milli > WHOLE // 2 else G[g, FREE] // milli
    return found


@step
def room(S: Ints, s: int, N: Ints, n: int, G: Ints, apps: Ints) -> int:
    """How many instances of shape `s` could node `n` take now, one after the other?"""
    if not holds(S, s, N, n, G, apps):
        return 0
    most = 1 << 40
    for field in range(4):
        if S[s, field]:
            most = min(most, N[n, field] // S[s, field])
    if S[s, LIMIT]:
        most = min(most, S[s, LIMIT] - apps[S[s, APP], n])
    if S[s, GPUS] == 0:
        return most
    if S[s, GPU_MEMORY] == 0:
        return min(most, pieces(S, s, N, n, G) // S[s, GPUS])
    slots = 0
    for g in range(N[n, FIRST], N[n, LAST]):
        slots += min(G[g, FREE] // S[s, MILLI], G[g, VRAM] // S[s, GPU_MEMORY])
    return min(most, slots // S[s, GPUS])


@step
def tightest(S: Ints, s: int, N: Ints, n: int, G: Ints) -> int:
    """The GPU of node `n` with the least free that still holds a share of shape `s`; the first of equals."""
    best = -1
    for g in range(N[n, FIRST], N[n, LAST]):
        if G[g, FREE] >= S[s, MILLI] and G[g, VRAM] >= S[s, GPU_MEMORY] and (best < 0 or G[g, FREE] < G[best, FREE]):
            best = g
    return best


@step
def most_free(N: Ints, n: int, G: Ints) -> int:
    """The most that is free on one GPU of node `n`, milli."""
    most = 0
    for g in range(N[n, FIRST], N[n, LAST]):
        most = max(most, G[g, FREE])
    return most


@step
def survey(N: Ints, n: int, G: Ints) -> None:
    """Count again what is free on the GPUs of node `n`."""
    free, idle = 0, 0
    for g in range(N[n, FIRST], N[n, LAST]):
        free += G[g, FREE]
        idle += G[g, FREE] == WHOLE
    N[n, GPU], N[n, IDLE], N[n, MOST] = free, idle, most_free(N, n, G)


@step
def take(S: Ints, s: int, N: Ints, n: int, G: Ints, apps: Ints, at: int) -> int:
    """Give an instance of shape `s` what it asks for on node `n`; the GPUs it got, as bits counted from its first.

    A share comes from GPU `at`, or, where that is -1, from the tightest that holds it; whole GPUs are the first idle.
    """
    for field in range(4):
        N[n, field] -= S[s, field]
    N[n, COUNT] += 1
    N[n, VERSION] += 1
    if S[s, LIMIT]:
        apps[S[s, APP], n] += 1
    if S[s, GPUS] == 0:
        return 0
    N[n, HELD + S[s, KIND]] += 1
    N[n, GPU] -= S[s, GPUS] * S[s, MILLI]
    begin, got, left = N[n, FIRST], 0, S[s, GPUS]
    if S[s, MILLI] < WHOLE:
        g = at if at >= 0 else tightest(S, s, N, n, G)
        free = G[g, FREE]
        G[g, FREE] = free - S[s, MILLI]
        G[g, VRAM] -= S[s, GPU_MEMORY]
        N[n, IDLE] -= free == WHOLE
        if free == N[n, MOST]:
            N[n, MOST] = most_free(N, n, G)
        return 1 << (g - begin)
    for g in range(begin, N[n, LAST]):
        if left and G[g, FREE] == WHOLE and G[g, VRAM] >= S[s, GPU_MEMORY]:
            G[g, FREE] = 0
            G[g, VRAM] -= S[s, GPU_MEMORY]
            got |= 1 << (g - begin)
            left -= 1
    N[n, IDLE] -= S[s, GPUS]
    if N[n, IDLE] == 0:
        N[n, MOST] = most_free(N, n, G)
    return got


@step
def give_back(S: Ints, s: int, N: Ints, n: int, G: Ints, apps: Ints, got: int) -> None:
    """Undo `take`."""
    for field in range(4):
        N[n, field] += S[s, field]
    N[n, COUNT] -= 1
    N[n, VERSION] += 1
    if S[s, LIMIT]:
        apps[S[s, APP], n] -= 1
    if got == 0:
        return
    N[n, HELD + S[s, KIND]] -= 1
    N[n, GPU] += S[s, GPUS] * S[s, MILLI]
    g = N[n, FIRST]
    while got:
        if got & 1:
            G[g, FREE] += S[s, MILLI]
            G[g, VRAM] += S[s, GPU_MEMORY]
            N[n, IDLE] += G[g, FREE] == WHOLE
            N[n, MOST] = max(N[n, MOST], G[g, FREE])
        got >>= 1
        g += 1


# -- heaps: (key, item), the lowest first, ties to the lower item --------------------------------------------------


@step
def push(keys: Floats, heap: Ints, at: int, size: int, key: float, item: int) -> None:
    """Add an item to the heap that begins at `at` and has `size` entries."""
    i = size
    while i > 0:
        up = (i - 1) >> 1
        if keys[at + up] < key or (keys[at + up] == key and heap[at + up] < item):
            break
        keys[at + i], heap[at + i] = keys[at + up], heap[at + up]
        i = up
    keys[at + i], heap[at + i] = key, item


@step
def sink(keys: Floats, heap: Ints, at: int, size: int, i: int, key: float, item: int) -> None:
    """Put an item where entry `i` of a heap was, or further down."""
    while True:
        down = 2 * i + 1
        if down >= size:
            break
        if down + 1 < size:
            a, b = keys[at + down], keys[at + down + 1]
            down += b < a or (b == a and heap[at + down + 1] < heap[at + down])
        if key < keys[at + down] or (key == keys[at + down] and item < heap[at + down]):
            break
        keys[at + i], heap[at + i] = keys[at + down], heap[at + down]
        i = down
    keys[at + i], heap[at + i] = key, item


@step
def pop(keys: Floats, heap: Ints, at: int, size: int) -> None:
    """Take the first out of the heap that begins at `at` and has `size` entries."""
    sink(keys, heap, at, size - 1, 0, keys[at + size - 1], heap[at + size - 1])


@step
def heapify(keys: Floats, heap: Ints, size: int) -> None:
    """Make a heap of the first `size` entries, in place."""
    for i in range(size // 2 - 1, -1, -1):
        sink(keys, heap, 0, size, i, keys[i], heap[i])


# -- why not? ------------------------------------------------------------------------------------------------------

# Each waited second is charged to one of these.
REASONS = catalog.REASONS.names
BY_ORDER = catalog.REASONS.index("queue_order")
BY_HEAD = catalog.REASONS.index("head_of_line")
BY_GPU = catalog.REASONS.index("gpu")
BY_TYPE = catalog.REASONS.index("gpu_type")
BY_FRAGMENT = catalog.REASONS.index("fragmentation")
BY_CPU = catalog.REASONS.index("cpu")
BY_MEMORY = catalog.REASONS.index("memory")
BY_OTHER = catalog.REASONS.index("other")
BY_GANG = catalog.REASONS.index("gang")
BY_QUOTA = catalog.REASONS.index("quota")


@step
def why(S: Ints, s: int, instances: int, N: Ints, G: Ints, apps: Ints) -> int:
    """What keeps a job of `instances` of shape `s` from starting now, if one thing must be named.

    Asked from the scarcest down: is there enough free GPU in all, of its types, where it can be used, with the CPU and
    the memory beside it? A job of which some instances would fit, but not all, lacks a place for its `gang`.
    """
    need = instances * S[s, GPUS] * S[s, MILLI]
    anywhere, typed, usable, with_cpu, with_memory, slots = 0, 0, 0, 0, 0, 0
    for n in range(len(N)):
        if N[n, UP] == 0:
            continue
        anywhere += N[n, GPU]
        if S[s, GPUS] and S[s, TYPES] & N[n, TYPE] == 0:
            continue
        typed += N[n, GPU]
        whole = 0
        for g in range(N[n, FIRST], N[n, LAST]):
            if S[s, GPUS] and G[g, FREE] >= S[s, MILLI]:
                whole += G[g, FREE] // S[s, MILLI]
        units = whole // S[s, GPUS] if S[s, GPUS] else 1 << 40
        usable += min(units, instances)
        if S[s, CPU]:
            units = min(units, N[n, CPU] // S[s, CPU])
        with_cpu += min(units, instances)
        if S[s, MEMORY]:
            units = min(units, N[n, MEMORY] // S[s, MEMORY])
        with_memory += min(units, instances)
        slots += min(room(S, s, N, n, G, apps), instances)
    if anywhere < need:
        return BY_GPU
    if typed < need:
        return BY_TYPE
    if slots and slots < instances:
        return BY_GANG
    if usable < instances:
        return BY_FRAGMENT
    if with_cpu < instances:
        return BY_CPU
    if with_memory < instances:
        return BY_MEMORY
    return BY_OTHER
