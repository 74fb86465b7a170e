"""The compiled loop of the packing study: pods arrive, none ends, each goes where a placement policy scores highest.

Scores are whole numbers from 0 to 100, as in the study this follows (FGD, ATC'23); ties go to the node that comes first
in one random permutation a seed. The loop owns the truth: it asks for a score only where the pod fits, so no policy can
put it anywhere else. Everything here also runs as plain Python, with the same answer.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fleetlab.sim.codes import BEST_FIT, DOT_PRODUCT, FGD, GPU_CLUSTERING, GPU_PACKING, RANDOM, WORST_FIT
from fleetlab.sim.jit import loop, step
from fleetlab.sim.layout import REQUESTS, WHOLE, Floats, Ints

Scores = NDArray[np.int16]

UNFIT = -1000  # below every score


class Pods(NamedTuple):
    """What there is to place: one entry a shape of pod."""

    cpu: Ints  # milli
    memory: Ints  # MiB
    milli: Ints  # of each GPU: a share, or 1000
    gpus: Ints  # how many GPUs, 0 for a pod of CPU alone
    types: Ints  # bits: the GPU types it may run on


class PackNodes(NamedTuple):
    """Where: free amounts, changed in place."""

    first: Ints  # index of each node's first GPU, one more entry than nodes
    type: Ints  # bit of its GPU type
    cpu: Ints
    memory: Ints
    gpu: Ints  # milli free of each GPU
    by_request: Ints  # [nodes, REQUESTS] pods there by kind of request
    most_cpu: int  # of the largest node
    most_gpu: int


class Usual(NamedTuple):
    """The shapes of pods that stand for the workload, with their shares of it: what a fragment is measured against."""

    cpu: Ints
    milli: Ints
    gpus: Ints
    types: Ints
    share: Floats


@step
def fragment(gpu: Ints, cpu: int, kind: int, usual: Usual) -> float:
    """How much of a node's free GPU, in milli, the usual pods cannot use: F_n(M) of the FGD paper, equations 1 to 4."""
    free, whole, most = 0, 0, 0
    for g in range(len(gpu)):
        free += gpu[g]
        if gpu[g] == WHOLE:
            whole += 1
        most = max(most, gpu[g])
    lost = 0.0
    if free == 0:
        return lost
    for m in range(len(usual.share)):
        need = usual.milli[m]
        cannot = usual.gpus[m] == 0 or cpu < usual.cpu[m] or usual.types[m] & kind == 0
        short = whole < usual.gpus[m] if need == WHOLE else most < need
        if cannot or short:
            lost += usual.share[m] * free
            continue
        for g in range(len(gpu)):
            if gpu[g] < need:
                lost += usual.share[m] * gpu[g]
    return lost


@step
def fits(p: int, n: int, pods: Pods, nodes: PackNodes) -> bool:
    """Can node `n` hold pod `p` now? A pod of CPU alone may run beside any GPU."""
    if nodes.cpu[n] < pods.cpu[p] or nodes.memory[n] < pods.memory[p]:
        return False
    if pods.gpus[p] == 0:
        return True
    if pods.types[p] & nodes.type[n] == 0:
        return False
    count = 0
    for g in range(nodes.first[n], nodes.first[n + 1]):
        if nodes.gpu[g] >= pods.milli[p]:
            count += 1
    return count >= pods.gpus[p]


@step
def tightest(p: int, n: int, pods: Pods, nodes: PackNodes) -> int:
    """The GPU of a node with the least free that still holds a share."""
    best = -1
    for g in range(nodes.first[n], nodes.first[n + 1]):
        if nodes.gpu[g] >= pods.milli[p] and (best < 0 or nodes.gpu[g] < nodes.gpu[best]):
            best = g
    return best - nodes.first[n]


@step
def free_gpu(n: int, nodes: PackNodes) -> int:
    """All GPU that is free on a node, in milli."""
    free = 0
    for g in range(nodes.first[n], nodes.first[n + 1]):
        free += nodes.gpu[g]
    return free


@step
def by_remains(p: int, n: int, pods: Pods, nodes: PackNodes) -> int:
    """Best fit: the less CPU and GPU would remain, the better."""
    cpu = (nodes.cpu[n] - pods.cpu[p]) / nodes.most_cpu
    gpu = (free_gpu(n, nodes) - pods.gpus[p] * pods.milli[p]) / nodes.most_gpu
    return int(np.floor(100 * (1 - 0.5 * cpu - 0.5 * gpu)))


@step
def by_product(p: int, n: int, pods: Pods, nodes: PackNodes) -> int:
    """Score by the dot product of the free resources and the request: smaller is better."""
    cpu = nodes.cpu[n] / nodes.most_cpu * pods.cpu[p] / nodes.most_cpu
    gpu = free_gpu(n, nodes) / nodes.most_gpu * (pods.gpus[p] * pods.milli[p]) / nodes.most_gpu
    return int(np.floor(100 * (1 - 0.5 * (cpu + gpu))))


@step
def by_packing(p: int, n: int, pods: Pods, nodes: PackNodes) -> int:
    """Occupied GPUs before idle GPUs of occupied nodes before idle nodes."""
    if pods.gpus[p] == 0:
        return 0
    begin, end = nodes.first[n], nodes.first[n + 1]
    idle = 0
    for g in range(begin, end):
        idle += nodes.gpu[g] == WHOLE
    if idle == end - begin:
        return max(33 - idle, idle)
    if pods.milli[p] == WHOLE:
        return max(50 - pods.gpus[p], 33)
    free = nodes.gpu[begin + tightest(p, n, pods, nodes)]
    return 49 if free == WHOLE else max(100 - free // 10 // 10, 50)


@step
def kind_of(p: int, pods: Pods) -> int:
    """What clustering calls alike: a share, or the same number of whole GPUs."""
    return 0 if pods.milli[p] < WHOLE else min(pods.gpus[p], REQUESTS - 1)


@step
def by_clustering(p: int, n: int, pods: Pods, nodes: PackNodes) -> int:
    """Requests of one kind together."""
    if pods.gpus[p] == 0:
        return 0
    base = 25 * (nodes.most_gpu - free_gpu(n, nodes)) // nodes.most_gpu
    others = 0
    for k in range(REQUESTS):
        if k != kind_of(p, pods) and nodes.by_request[n, k]:
            others += 1
    if nodes.by_request[n, kind_of(p, pods)]:
        return base + (50 if others else 75)
    return base + (0 if others else 25)


@step
def by_fragments(p: int, n: int, pods: Pods, nodes: PackNodes, usual: Usual, before: float) -> tuple[int, int]:
    """FGD: the less the fragments of a node would grow, the better; and the GPU for a share where they grow least."""
    cpu = nodes.cpu[n] - pods.cpu[p]
    gpu = nodes.gpu[nodes.first[n] : nodes.first[n + 1]]  # changed to see what comes of it, and put back
    best, where = np.inf, 0
    if pods.gpus[p] and pods.milli[p] < WHOLE:
        for g in range(len(gpu)):
            if gpu[g] >= pods.milli[p]:
                gpu[g] -= pods.milli[p]
                after = fragment(gpu, cpu, nodes.type[n], usual)
                gpu[g] += pods.milli[p]
                if after < best:
                    best, where = after, g
    else:
        missing, cards = pods.gpus[p], 0
        for g in range(len(gpu)):
            if missing and gpu[g] == WHOLE:
                gpu[g] = 0
                cards |= 1 << g
                missing -= 1
        best = fragment(gpu, cpu, nodes.type[n], usual)
        for g in range(len(gpu)):
            if cards >> g & 1:
                gpu[g] = WHOLE
    return int(np.floor(100 / (1 + math.exp(-(before - best) / 1000)))), where


@step
def score(placement: int, p: int, n: int, pods: Pods, nodes: PackNodes, usual: Usual, lost: float) -> tuple[int, int]:
    """How good node `n` is for pod `p`, and which of its GPUs a share would take; UNFIT where it does not fit."""
    if not fits(p, n, pods, nodes):
        return UNFIT, 0
    if placement == FGD:
        return by_fragments(p, n, pods, nodes, usual, lost)
    at = tightest(p, n, pods, nodes) if pods.gpus[p] else 0
    if placement == BEST_FIT:
        return by_remains(p, n, pods, nodes), at
    if placement == WORST_FIT:
        return -by_remains(p, n, pods, nodes), at
    if placement == DOT_PRODUCT:
        return by_product(p, n, pods, nodes), at
    if placement == GPU_PACKING:
        return by_packing(p, n, pods, nodes), at
    if placement == GPU_CLUSTERING:
        return by_clustering(p, n, pods, nodes), at
    return 0, at


@step
def put(p: int, n: int, at: int, pods: Pods, nodes: PackNodes) -> None:
    """Take what pod `p` asks for from node `n`; a share from GPU `at`, whole GPUs from idle ones in order."""
    nodes.cpu[n] -= pods.cpu[p]
    nodes.memory[n] -= pods.memory[p]
    if pods.gpus[p] == 0:
        return
    nodes.by_request[n, kind_of(p, pods)] += 1
    if pods.milli[p] < WHOLE:
        nodes.gpu[at] -= pods.milli[p]
        return
    missing = pods.gpus[p]
    for g in range(nodes.first[n], nodes.first[n + 1]):
        if missing and nodes.gpu[g] == WHOLE:
            nodes.gpu[g] = 0
            missing -= 1


@step
def _any_gpu(p: int, n: int, draw: float, pods: Pods, nodes: PackNodes) -> int:
    """One of the GPUs that hold a share, by chance."""
    count = 0
    for g in range(nodes.first[n], nodes.first[n + 1]):
        count += nodes.gpu[g] >= pods.milli[p]
    skip = int(draw * count)
    for g in range(nodes.first[n], nodes.first[n + 1]):
        if nodes.gpu[g] >= pods.milli[p]:
            if skip == 0:
                return g - nodes.first[n]
            skip -= 1
    return 0


@step
def _any_node(scores: Scores, order: Ints, skip: int) -> int:
    """The node that fits after `greedy` others that do."""
    for n in order:
        if scores[n] > UNFIT:
            if skip == 0:
                return n
            skip -= 1
    return -1


@step
def _sum(values: Floats) -> float:
    # One after the other: numpy adds in another order than compiled code does, and the last bits would differ.
    total = 0.0
    for value in values:
        total += value
    return total


@loop
def pack(
    placement: int, stream: Ints, draws: Floats, order: Ints, pods: Pods, nodes: PackNodes, usual: Usual, marks: Ints
) -> tuple[Ints, Floats, Ints, Ints, Ints]:
    """Place the stream of pods; at each mark of arrived GPU milli: what is allocated, in fragments and failed.

    Gives those three, and where each pod went: its node, or -1, and the GPU there that a share took, or -1.
    """
    count = len(nodes.cpu)
    lost = np.empty(count)
    for n in range(count):
        lost[n] = fragment(nodes.gpu[nodes.first[n] : nodes.first[n + 1]], nodes.cpu[n], nodes.type[n], usual)
    # Scores are kept by shape and node until the node changes: nearly all are what they were for the last such pod.
    shapes = len(pods.cpu)
    computed, version = np.full((shapes, count), -1, np.int32), np.zeros(count, np.int32)
    scores, gpus = np.empty((shapes, count), np.int16), np.empty((shapes, count), np.int16)
    allocated, failed = np.zeros(len(marks), np.int64), np.zeros(len(marks), np.int64)
    fragments = np.zeros(len(marks))
    went, card = np.full(len(stream), -1, np.int64), np.full(len(stream), -1, np.int64)
    arrived, used, lacking, mark = 0, 0, 0, 0
    for k in range(len(stream)):
        p = stream[k]
        n, top, many = -1, UNFIT, 0
        for m in order:
            if computed[p, m] != version[m]:
                scores[p, m], gpus[p, m] = score(placement, p, m, pods, nodes, usual, lost[m])
                computed[p, m] = version[m]
            many += scores[p, m] > UNFIT
            if scores[p, m] > top:
                n, top = m, scores[p, m]
        if placement == RANDOM and many:
            n = _any_node(scores[p], order, int(draws[k, 0] * many))
        arrived += pods.gpus[p] * pods.milli[p]
        if n < 0:
            lacking += 1
        else:
            begin, end = nodes.first[n], nodes.first[n + 1]
            if pods.gpus[p] and pods.milli[p] < WHOLE:
                card[k] = _any_gpu(p, n, draws[k, 1], pods, nodes) if placement == RANDOM else gpus[p, n]
            put(p, n, begin + card[k], pods, nodes)
            went[k] = n
            used += pods.gpus[p] * pods.milli[p]
            lost[n] = fragment(nodes.gpu[begin:end], nodes.cpu[n], nodes.type[n], usual)
            version[n] += 1
        while mark < len(marks) and arrived >= marks[mark]:
            allocated[mark], fragments[mark], failed[mark] = used, _sum(lost), lacking
            mark += 1
    # The stream stops just short of the last mark.
    while mark < len(marks):
        allocated[mark], fragments[mark], failed[mark] = used, _sum(lost), lacking
        mark += 1
    return allocated, fragments, failed, went, card
