"""The built-in placement policies, as scores: the lowest score wins, ties go to the first node.

`pick` scores every node and defines what a placement policy means. The quick loop finds the same node by an index.
A policy is asked only about nodes that can hold the instance, so none can give away what is not there.
"""

from __future__ import annotations

import math

import numpy as np

from fleetlab.core.catalog import PLACEMENTS
from fleetlab.sim._compile import step
from fleetlab.sim._nodes import (
    COUNT,
    CPU,
    FIRST,
    FREE,
    GPU,
    GPU_MEMORY,
    GPUS,
    HELD,
    IDLE,
    KIND,
    KINDS,
    LAST,
    MEMORY,
    MILLI,
    MOST,
    TYPE,
    VRAM,
    WHOLE,
    Floats,
    Ints,
    holds,
    tightest,
)  # fmt: skip

BEST_FIT = PLACEMENTS.index("best_fit")
WORST_FIT = PLACEMENTS.index("worst_fit")
DOT_PRODUCT = PLACEMENTS.index("dot_product")
GPU_PACKING = PLACEMENTS.index("gpu_packing")
GPU_CLUSTERING = PLACEMENTS.index("gpu_clustering")
FGD = PLACEMENTS.index("fgd")
RESERVE_AND_PACK = PLACEMENTS.index("reserve_and_pack")
SPREAD = PLACEMENTS.index("spread")
RANDOM = PLACEMENTS.index("random")
OWN = len(PLACEMENTS)  # a policy that is not built in

# A row of `U`, the usual shapes that fragments are measured against; their shares of the workload stand beside it.
USUAL_CPU, USUAL_MILLI, USUAL_GPUS, USUAL_TYPES = range(4)
# A row of `C`: what a node has when it is empty.
HAS_CPU, HAS_MEMORY, HAS_GPU, TIER = range(4)  # milli, MiB, milli, and how high-end its GPUs are: 0 the weakest


# Shares of the workload are on a grid, so that sums of them times milli are exact in whatever order they are made, and
# what is equal ties. 62 GPUs are less than 2^16 milli: 52 bits.
GRID = 2.0**36


@step
def weight(share: float) -> float:
    """The nearest share on the grid."""
    return math.floor(share * GRID + 0.5) / GRID


@step
def fragment(N: Ints, n: int, G: Ints, cpu: int, U: Ints, share: Floats) -> float:
    """How much of a node's free GPU, in milli, the usual shapes cannot use: F_n(M) of the FGD paper, equations 1 to 4.

    `cpu` is the free CPU to reckon with; the GPUs are as `G` has them.
    """
    free, idle, most, least = 0, 0, 0, WHOLE
    for g in range(N[n, FIRST], N[n, LAST]):
        free += G[g, FREE]
        idle += G[g, FREE] == WHOLE
        most = max(most, G[g, FREE])
        if G[g, FREE]:
            least = min(least, G[g, FREE])
    if free == 0:
        return 0.0
    lost, unable = 0.0, 0.0  # milli that are too small, and the weight of those that can use none at all
    for m in range(len(share)):
        need = U[m, USUAL_MILLI]
        if (
            U[m, USUAL_GPUS] == 0
            or cpu < U[m, USUAL_CPU]
            or U[m, USUAL_TYPES] & N[n, TYPE] == 0
            or (idle < U[m, USUAL_GPUS] if need == WHOLE else most < need)
        ):
            unable += weight(share[m])
        elif need == WHOLE:
            lost += weight(share[m]) * (free - idle * WHOLE)
        elif need > least:
            small = 0
            for g in range(N[n, FIRST], N[n, LAST]):
                if G[g, FREE] < need:
                    small += G[g, FREE]
            lost += weight(share[m]) * small
    return lost + unable * free


@step
def met_before(G: Ints, first: int, g: int, memory: int) -> bool:
    """Has one of the GPUs before `g`, with as much free, been asked already?"""
    met = False
    for other in range(first, g):
        met |= G[other, FREE] == G[g, FREE] and G[other, VRAM] >= memory
    return met


@step
def growth(S: Ints, s: int, N: Ints, n: int, G: Ints, U: Ints, share: Floats) -> tuple[float, int]:
    """How many milli of fragments an instance would add to a node at least, and on which GPU a share does that."""
    before = fragment(N, n, G, N[n, CPU], U, share)
    cpu, milli = N[n, CPU] - S[s, CPU], S[s, MILLI]
    if S[s, GPUS] == 0:
        return fragment(N, n, G, cpu, U, share) - before, -1
    best, at = np.inf, -1
    if milli < WHOLE:
        for g in range(N[n, FIRST], N[n, LAST]):
            if G[g, FREE] >= milli and G[g, VRAM] >= S[s, GPU_MEMORY]:
                if met_before(G, N[n, FIRST], g, S[s, GPU_MEMORY]):
                    continue
                G[g, FREE] -= milli
                after = fragment(N, n, G, cpu, U, share)
                G[g, FREE] += milli
                if after < best:
                    best, at = after, g
        return best - before, at
    taken, left = 0, S[s, GPUS]
    for g in range(N[n, FIRST], N[n, LAST]):
        if left and G[g, FREE] == WHOLE and G[g, VRAM] >= S[s, GPU_MEMORY]:
            G[g, FREE] = 0
            taken |= 1 << (g - N[n, FIRST])
            left -= 1
    after = fragment(N, n, G, cpu, U, share)
    for g in range(N[n, FIRST], N[n, LAST]):
        if taken >> (g - N[n, FIRST]) & 1:
            G[g, FREE] = WHOLE
    return after - before, -1


@step
def tightness(S: Ints, s: int, N: Ints, n: int, G: Ints) -> int:
    """How little is left beside: what the GPU for a share has free, the idle GPUs of a node, or its GPUs at all."""
    if S[s, GPUS] == 0:
        return N[n, LAST] - N[n, FIRST]
    return G[tightest(S, s, N, n, G), FREE] if S[s, MILLI] < WHOLE else N[n, IDLE]


@step
def packing(S: Ints, s: int, N: Ints, n: int, G: Ints) -> int:
    """Occupied GPUs before idle GPUs of occupied nodes before idle nodes: the score of the FGD study, 0 to 100."""
    if S[s, GPUS] == 0:
        return 0
    idle = N[n, IDLE]
    if idle == N[n, LAST] - N[n, FIRST]:
        return max(33 - idle, idle)
    if S[s, MILLI] == WHOLE:
        return max(50 - S[s, GPUS], 33)
    free = G[tightest(S, s, N, n, G), FREE]
    return 49 if free == WHOLE else max(100 - free // 100, 50)


@step
def clustering(S: Ints, s: int, N: Ints, n: int, most_gpu: int) -> int:
    """Requests of one kind together: the score of the FGD study, 0 to 100."""
    if S[s, GPUS] == 0:
        return 0
    base = 25 * (most_gpu - N[n, GPU]) // most_gpu
    others = 0
    for kind in range(KINDS):
        others += kind != S[s, KIND] and N[n, HELD + kind] > 0
    if N[n, HELD + S[s, KIND]]:
        return base + (50 if others else 75)
    return base + (0 if others else 25)


@step
def score(
    placement: int, S: Ints, s: int, N: Ints, n: int, G: Ints, C: Ints, most: Ints, U: Ints, share: Floats
) -> tuple[float, int]:
    """How good a node that holds the instance is, the lowest best, and the GPU for a share; -1: the tightest.

    `most` has the CPU and the GPU milli of the largest node.
    """
    if placement == BEST_FIT:
        return float(tightness(S, s, N, n, G)), -1
    if placement == WORST_FIT:  # PAI's load balancing: what is allocated of CPU, memory and GPU, each of what there is
        load = 0.0
        if C[n, HAS_CPU]:
            load += (C[n, HAS_CPU] - N[n, CPU]) / C[n, HAS_CPU]
        if C[n, HAS_MEMORY]:
            load += (C[n, HAS_MEMORY] - N[n, MEMORY]) / C[n, HAS_MEMORY]
        if C[n, HAS_GPU]:
            load += (C[n, HAS_GPU] - N[n, GPU]) / C[n, HAS_GPU]
        return load, -1
    if placement == DOT_PRODUCT:
        cpu = N[n, CPU] / most[0] * S[s, CPU] / most[0]
        return cpu + N[n, GPU] / most[1] * (S[s, GPUS] * S[s, MILLI]) / most[1], -1
    if placement == GPU_PACKING:
        return -float(packing(S, s, N, n, G)), -1
    if placement == GPU_CLUSTERING:
        return -float(clustering(S, s, N, n, most[1])), -1
    if placement == FGD:
        return growth(S, s, N, n, G, U, share)
    if placement == RESERVE_AND_PACK:  # weak GPUs first, and of those the tightest
        return float(C[n, TIER] * 2 * WHOLE + tightness(S, s, N, n, G)), -1
    if placement == SPREAD:
        return float(N[n, COUNT]), -1
    return 0.0, -1


@step
def lot(draws: Ints) -> int:
    """The next of a row of random whole numbers; `draws` holds the last, from 1 to 2^31 - 2."""
    draws[0] = draws[0] * 48271 % 2147483647
    return draws[0]


@step
def any_gpu(S: Ints, s: int, N: Ints, n: int, G: Ints, draws: Ints) -> int:
    """One of the GPUs of a node that hold a share, by lot."""
    count, found = 0, -1
    for g in range(N[n, FIRST], N[n, LAST]):
        if G[g, FREE] >= S[s, MILLI] and G[g, VRAM] >= S[s, GPU_MEMORY]:
            count += 1
            if lot(draws) % count == 0:
                found = g
    return found


@step
def pick(
    placement: int,
    S: Ints,
    s: int,
    N: Ints,
    G: Ints,
    apps: Ints,
    C: Ints,
    most: Ints,
    U: Ints,
    share: Floats,
    draws: Ints,
) -> tuple[int, int]:
    """The node for an instance and the GPU for its share (-1: the tightest); node -1 where none holds it."""
    best, at, least, able = -1, -1, np.inf, 0
    for n in range(len(N)):
        if N[n, CPU] < S[s, CPU] or (S[s, GPUS] and N[n, MOST] < S[s, MILLI]) or not holds(S, s, N, n, G, apps):
            continue
        able += 1
        if placement != RANDOM:
            value, g = score(placement, S, s, N, n, G, C, most, U, share)
            if value < least:
                best, at, least = n, g, value
    if placement == RANDOM and able:
        skip = lot(draws) % able
        while skip >= 0:
            best += 1
            skip -= holds(S, s, N, best, G, apps)
        if S[s, GPUS] and S[s, MILLI] < WHOLE:
            at = any_gpu(S, s, N, best, G, draws)
    return best, at
