"""The built-in placement policies, as scores: the lowest score wins, ties go to the first node.

`pick` scores every node and defines what a placement policy means. The quick loop finds the same node by an index.
A policy is asked only about nodes that can hold the instance, so none can allocate what is not free.
"""

from __future__ import annotations

import math

import numpy as np

from fleetlab.sim.codes import (
    BEST_FIT,
    DOT_PRODUCT,
    FGD,
    GPU_CLUSTERING,
    GPU_PACKING,
    RANDOM,
    RESERVE_AND_PACK,
    SPREAD,
    WORST_FIT,
)
from fleetlab.sim.jit import inner
from fleetlab.sim.layout import REQUESTS, WHOLE, Ints, NodeView, Record, Records, Scoring
from fleetlab.sim.nodes import holds, tightest

# Shares of the workload are on a grid, so that sums of them times milli are exact in whatever order they are made, and
# what is equal ties. 62 GPUs are less than 2^16 milli: 52 bits.
GRID = 2.0**36


@inner
def weight(share: float) -> float:
    """Return the nearest share on the grid."""
    return math.floor(share * GRID + 0.5) / GRID


@inner
def fragmentation(node: Record, gpus: Records, cpu: int, typical: Records) -> float:
    """Return how much of a node's free GPU, in milli, typical shapes cannot use: F_n(M), FGD paper, equations 1 to 4.

    `cpu` is the free CPU to assume; the GPUs are as `gpus` has them.
    """
    free, idle, most, least = 0, 0, 0, WHOLE
    for g in range(node.first_gpu, node.end_gpu):
        free_here = gpus[g].free
        free += free_here
        idle += free_here == WHOLE
        most = max(most, free_here)
        if free_here:
            least = min(least, free_here)
    if free == 0:
        return 0.0
    lost, unable = 0.0, 0.0  # milli that are too small, and the weight of the shapes that can use none at all
    for m in range(len(typical)):
        usual = typical[m]
        need = usual.milli
        if (
            usual.gpus == 0
            or cpu < usual.cpu
            or usual.types & node.gpu_type == 0
            or (idle < usual.gpus if need == WHOLE else most < need)
        ):
            unable += weight(usual.share)
        elif need == WHOLE:
            lost += weight(usual.share) * (free - idle * WHOLE)
        elif need > least:
            small = 0
            for g in range(node.first_gpu, node.end_gpu):
                if gpus[g].free < need:
                    small += gpus[g].free
            lost += weight(usual.share) * small
    return lost + unable * free


@inner
def is_repeat(gpus: Records, first: int, g: int, memory: int) -> bool:
    """Return whether a GPU before `g` with as much free has been tried already."""
    repeat = False
    for other in range(first, g):
        repeat |= gpus[other].free == gpus[g].free and gpus[other].free_memory >= memory
    return repeat


@inner
def fragmentation_growth(shape: Record, node: Record, gpus: Records, typical: Records) -> tuple[float, int]:
    """Return the least fragmentation, milli, that an instance adds to a node, and the GPU where a fraction does so."""
    before = fragmentation(node, gpus, node.free_cpu, typical)
    cpu, milli = node.free_cpu - shape.cpu, shape.milli
    if shape.gpus == 0:
        return fragmentation(node, gpus, cpu, typical) - before, -1
    if milli < WHOLE:
        best, at = np.inf, -1
        for g in range(node.first_gpu, node.end_gpu):
            if gpus[g].free >= milli and gpus[g].free_memory >= shape.gpu_memory:
                if is_repeat(gpus, node.first_gpu, g, shape.gpu_memory):
                    continue
                gpus[g].free -= milli
                after = fragmentation(node, gpus, cpu, typical)
                gpus[g].free += milli
                if after < best:
                    best, at = after, g
        return best - before, at
    bits, left = 0, shape.gpus
    for g in range(node.first_gpu, node.end_gpu):
        if left and gpus[g].free == WHOLE and gpus[g].free_memory >= shape.gpu_memory:
            gpus[g].free = 0
            bits |= 1 << (g - node.first_gpu)
            left -= 1
    after = fragmentation(node, gpus, cpu, typical)
    for g in range(node.first_gpu, node.end_gpu):
        if bits >> (g - node.first_gpu) & 1:
            gpus[g].free = WHOLE
    return after - before, -1


@inner
def tightness(shape: Record, node: Record, gpus: Records) -> int:
    """Return how little is left: free milli of the GPU for a fraction, idle GPUs of a node, or its number of GPUs."""
    if shape.gpus == 0:
        return node.end_gpu - node.first_gpu
    return gpus[tightest(shape, node, gpus)].free if shape.milli < WHOLE else node.idle_gpus


@inner
def packing(shape: Record, node: Record, gpus: Records) -> int:
    """Prefer occupied GPUs to idle GPUs of occupied nodes to idle nodes: the score of the FGD study, 0 to 100."""
    if shape.gpus == 0:
        return 0
    idle = node.idle_gpus
    if idle == node.end_gpu - node.first_gpu:
        return max(33 - idle, idle)
    if shape.milli == WHOLE:
        return max(50 - shape.gpus, 33)
    free = gpus[tightest(shape, node, gpus)].free
    return 49 if free == WHOLE else max(100 - free // 100, 50)


@inner
def clustering(shape: Record, node: Record, most_gpu: int) -> int:
    """Prefer nodes with requests of the same kind: the score of the FGD study, 0 to 100."""
    if shape.gpus == 0:
        return 0
    base = 25 * (most_gpu - node.free_gpu) // most_gpu
    others = 0
    for request in range(REQUESTS):
        others += request != shape.request and node.by_request[request] > 0
    if node.by_request[shape.request]:
        return base + (50 if others else 75)
    return base + (0 if others else 25)


@inner
def load(node: Record, capacity: Record) -> float:
    """Return the allocated parts of a node's CPU, memory and GPU, added up: PAI's load balancing."""
    total = 0.0
    if capacity.cpu:
        total += (capacity.cpu - node.free_cpu) / capacity.cpu
    if capacity.memory:
        total += (capacity.memory - node.free_memory) / capacity.memory
    if capacity.gpu:
        total += (capacity.gpu - node.free_gpu) / capacity.gpu
    return total


@inner
def score(placement: int, shape: Record, node: Record, gpus: Records, scoring: Scoring) -> tuple[float, int]:
    """Score a node that holds the instance, the lowest best; also return the GPU for a fraction, -1: the tightest."""
    most_cpu, most_gpu = scoring.largest[0], scoring.largest[1]
    if placement == BEST_FIT:
        return float(tightness(shape, node, gpus)), -1
    if placement == WORST_FIT:
        return load(node, scoring.capacity[node.number]), -1
    if placement == DOT_PRODUCT:
        cpu = node.free_cpu / most_cpu * shape.cpu / most_cpu
        return cpu + node.free_gpu / most_gpu * (shape.gpus * shape.milli) / most_gpu, -1
    if placement == GPU_PACKING:
        return -float(packing(shape, node, gpus)), -1
    if placement == GPU_CLUSTERING:
        return -float(clustering(shape, node, most_gpu)), -1
    if placement == FGD:
        return fragmentation_growth(shape, node, gpus, scoring.typical)
    if placement == RESERVE_AND_PACK:  # weak GPUs first, and of those the tightest
        return float(scoring.capacity[node.number].tier * 2 * WHOLE + tightness(shape, node, gpus)), -1
    if placement == SPREAD:
        return float(node.instances), -1
    return 0.0, -1


@inner
def next_random(random: Ints) -> int:
    """Return the next random integer; `random` holds the last, from 1 to 2^31 - 2."""
    random[0] = random[0] * 48271 % 2147483647
    return random[0]


@inner
def random_gpu(shape: Record, node: Record, gpus: Records, random: Ints) -> int:
    """Return a random one of the GPUs of a node that hold a fraction."""
    count, chosen = 0, -1
    for g in range(node.first_gpu, node.end_gpu):
        if gpus[g].free >= shape.milli and gpus[g].free_memory >= shape.gpu_memory:
            count += 1
            if next_random(random) % count == 0:
                chosen = g
    return chosen


@inner
def pick(placement: int, shape: Record, now: NodeView, scoring: Scoring) -> tuple[int, int]:
    """Return the node for an instance and the GPU for a fraction (-1: the tightest); node -1 if none holds it."""
    best, at, least, able = -1, -1, np.inf, 0
    for n in range(len(now.nodes)):
        node = now.nodes[n]
        if node.free_cpu < shape.cpu or (shape.gpus and node.largest_free < shape.milli):
            continue  # most nodes are full: that is seen here, without a call
        if not holds(shape, node, now.gpus, now.apps):
            continue
        able += 1
        if placement != RANDOM:
            value, g = score(placement, shape, node, now.gpus, scoring)
            if value < least:
                best, at, least = n, g, value
    if placement == RANDOM and able:
        skip = next_random(scoring.random) % able
        while skip >= 0:
            best += 1
            skip -= holds(shape, now.nodes[best], now.gpus, now.apps)
        if shape.gpus and shape.milli < WHOLE:
            at = random_gpu(shape, now.nodes[best], now.gpus, scoring.random)
    return best, at
