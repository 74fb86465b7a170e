"""The compiled event loop: what happens when, and nothing else.

At one instant: completions, then arrivals, then one scheduling pass. The loop owns the truth: it asks a place policy
only about nodes that can hold an instance, so nothing is ever given away twice. Everything here also runs as plain
Python, with the same answer.

Two ideas make it quick. Tasks that ask for the same are a *class*: they fit or fail together, so a pass under `skip`
looks at classes, not at tasks, and only at those that a node freed since could help. And the score of a shape on a
node is kept until that node changes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Scores = NDArray[np.float64]

PLACES = ("first_fit", "best_fit", "worst_fit", "dot_product")
FIRST_FIT, BEST_FIT, WORST_FIT, DOT_PRODUCT = range(len(PLACES))
DISCIPLINES = ("strict", "skip")
STRICT, SKIP = range(len(DISCIPLINES))
ORDERS = ("fifo", "sjf", "smallest", "largest", "priority")
FIFO, SJF, SMALLEST, LARGEST, PRIORITY = range(len(ORDERS))
WHOLE = 1000
UNFIT = np.inf  # a score: the lowest is taken


class Shapes(NamedTuple):
    """What instances ask for: one entry a distinct demand."""

    cpu: Ints  # milli
    memory: Ints  # MiB
    milli: Ints  # of each GPU: a share, or 1000
    gpus: Ints  # how many GPUs, 0 for CPU alone
    gpu_memory: Ints  # MiB of each GPU
    rdma: Ints
    disk: Ints
    types: Ints  # bits: the GPU types it may run on
    limit: Ints  # instances of its app on one node, 0 for none
    app: Ints
    first: Ints  # where the nodes begin that could ever hold it, one more entry than shapes
    candidates: Ints


class Nodes(NamedTuple):
    """What is free, changed in place."""

    first: Ints  # index of each node's first GPU, one more entry than nodes
    type: Ints  # bit of its GPU type
    cpu: Ints
    memory: Ints
    rdma: Ints
    disk: Ints
    gpu: Ints  # milli of each GPU
    gpu_memory: Ints  # MiB of each GPU
    apps: Ints  # [apps, nodes] instances there; [0, 0] where no task has a limit
    most_cpu: int  # of the largest node
    most_gpu: int


class Tasks(NamedTuple):
    """Tasks in order of arrival."""

    submit: Floats
    service: Floats
    key: Floats  # rank, the lowest first; nan: the estimate when it arrives
    kind: Ints  # its class: tasks that ask for the same
    learns: Ints  # whose finished tasks its estimate is the mean of; -1: `key` stands
    first: Ints  # index of its first instance, one more entry than tasks


class Kinds(NamedTuple):
    """Classes of tasks: a shape, so many times."""

    shape: Ints
    instances: Ints
    first: Ints  # where each class's queue begins, one more entry than classes


@njit(cache=True)
def holds(s: int, n: int, shapes: Shapes, nodes: Nodes) -> bool:
    """Can node `n` take an instance of shape `s` now?"""
    if nodes.cpu[n] < shapes.cpu[s] or nodes.memory[n] < shapes.memory[s]:
        return False
    if nodes.rdma[n] < shapes.rdma[s] or nodes.disk[n] < shapes.disk[s]:
        return False
    if shapes.limit[s] and nodes.apps[shapes.app[s], n] >= shapes.limit[s]:
        return False
    if shapes.gpus[s] == 0:
        return True
    if shapes.types[s] & nodes.type[n] == 0:
        return False
    found = 0
    for g in range(nodes.first[n], nodes.first[n + 1]):
        found += nodes.gpu[g] >= shapes.milli[s] and nodes.gpu_memory[g] >= shapes.gpu_memory[s]
    return found >= shapes.gpus[s]


@njit(cache=True)
def score(place: int, s: int, n: int, shapes: Shapes, nodes: Nodes) -> float:
    """How good a node is for an instance, the lowest best; UNFIT where it does not fit."""
    if not holds(s, n, shapes, nodes):
        return UNFIT
    if place == FIRST_FIT:
        return 0.0
    gpu = 0
    for g in range(nodes.first[n], nodes.first[n + 1]):
        gpu += nodes.gpu[g]
    if place == DOT_PRODUCT:
        cpu = nodes.cpu[n] / nodes.most_cpu * shapes.cpu[s] / nodes.most_cpu
        return cpu + gpu / nodes.most_gpu * (shapes.gpus[s] * shapes.milli[s]) / nodes.most_gpu
    left = nodes.cpu[n] / nodes.most_cpu + gpu / nodes.most_gpu
    return -left if place == WORST_FIT else left


@njit(cache=True)
def take(s: int, n: int, shapes: Shapes, nodes: Nodes) -> int:
    """Give an instance what it asks for on node `n`; the GPUs it got, as bits."""
    nodes.cpu[n] -= shapes.cpu[s]
    nodes.memory[n] -= shapes.memory[s]
    nodes.rdma[n] -= shapes.rdma[s]
    nodes.disk[n] -= shapes.disk[s]
    if shapes.limit[s]:
        nodes.apps[shapes.app[s], n] += 1
    begin, end = nodes.first[n], nodes.first[n + 1]
    got, left = 0, shapes.gpus[s]
    while left:
        # Of the GPUs that hold it the one with the least free: shares fill up what is broken, whole GPUs are all alike.
        best = -1
        for g in range(begin, end):
            room = nodes.gpu[g] >= shapes.milli[s] and nodes.gpu_memory[g] >= shapes.gpu_memory[s]
            if room and not got >> (g - begin) & 1 and (best < 0 or nodes.gpu[g] < nodes.gpu[best]):
                best = g
        nodes.gpu[best] -= shapes.milli[s]
        nodes.gpu_memory[best] -= shapes.gpu_memory[s]
        got |= 1 << (best - begin)
        left -= 1
    return got


@njit(cache=True)
def give_back(s: int, n: int, got: int, shapes: Shapes, nodes: Nodes) -> None:
    """Undo `take`."""
    nodes.cpu[n] += shapes.cpu[s]
    nodes.memory[n] += shapes.memory[s]
    nodes.rdma[n] += shapes.rdma[s]
    nodes.disk[n] += shapes.disk[s]
    if shapes.limit[s]:
        nodes.apps[shapes.app[s], n] -= 1
    for g in range(nodes.first[n], nodes.first[n + 1]):
        if got >> (g - nodes.first[n]) & 1:
            nodes.gpu[g] += shapes.milli[s]
            nodes.gpu_memory[g] += shapes.gpu_memory[s]


# -- heaps: (key, task), the lowest first ------------------------------------------------------------------------


@njit(cache=True)
def push(keys: Floats, heap: Ints, at: int, size: int, key: float, task: int) -> None:
    """Add a task to the heap that begins at `at` and has `size` entries."""
    i = size
    while i > 0:
        up = (i - 1) >> 1
        if keys[at + up] < key or (keys[at + up] == key and heap[at + up] < task):
            break
        keys[at + i], heap[at + i] = keys[at + up], heap[at + up]
        i = up
    keys[at + i], heap[at + i] = key, task


@njit(cache=True)
def pop(keys: Floats, heap: Ints, at: int, size: int) -> None:
    """Take the first out of the heap that begins at `at` and has `size` entries."""
    size -= 1
    key, task = keys[at + size], heap[at + size]
    i = 0
    while True:
        down = 2 * i + 1
        if down >= size:
            break
        if down + 1 < size:
            a, b = keys[at + down], keys[at + down + 1]
            down += b < a or (b == a and heap[at + down + 1] < heap[at + down])
        if key < keys[at + down] or (key == keys[at + down] and task < heap[at + down]):
            break
        keys[at + i], heap[at + i] = keys[at + down], heap[at + down]
        i = down
    keys[at + i], heap[at + i] = key, task


# -- the loop ----------------------------------------------------------------------------------------------------


@njit(cache=True)
def gang(
    place: int, k: int, shapes: Shapes, kinds: Kinds, nodes: Nodes, memo: tuple[Scores, Ints, Ints],
    where: Ints, got: Ints,
) -> bool:  # fmt: skip
    """Place all instances of a task of class `k`, or none; `where` and `got` take their nodes and GPUs."""
    s = kinds.shape[k]
    # A call hands over every array there is: what the inner loop looks at is taken out of it first.
    scores, known, version = memo[0][s], memo[1][s], memo[2]
    candidates = shapes.candidates[shapes.first[s] : shapes.first[s + 1]]
    # Under these a node that took one instance ranks before all others for the next, as long as it holds another.
    stays = place in (BEST_FIT, FIRST_FIT)
    best = -1
    for i in range(kinds.instances[k]):
        if stays and best >= 0:
            scores[best] = score(place, s, best, shapes, nodes)
            known[best] = version[best]
        if not stays or best < 0 or scores[best] == UNFIT:
            best, least = -1, UNFIT
            for n in candidates:
                if known[n] != version[n]:
                    scores[n] = score(place, s, n, shapes, nodes)
                    known[n] = version[n]
                if scores[n] < least:
                    best, least = n, scores[n]
        if best < 0:
            for j in range(i):
                give_back(s, where[j], got[j], shapes, nodes)
                version[where[j]] += 1
            return False
        where[i], got[i] = best, take(s, best, shapes, nodes)
        version[best] += 1
    return True


@njit(cache=True)
def helped(
    place: int, k: int, since: int, freed: Ints, count: int, shapes: Shapes, kinds: Kinds, nodes: Nodes,
    memo: tuple[Scores, Ints, Ints],
) -> bool:  # fmt: skip
    """Could a node freed `since` hold an instance of class `k`? If none can, what failed then fails still."""
    s = kinds.shape[k]
    scores, known, version = memo[0][s], memo[1][s], memo[2]
    if count - since > len(version):
        return True
    for i in range(since, count):
        n = freed[i % len(freed)]
        if known[n] != version[n]:
            scores[n] = score(place, s, n, shapes, nodes)
            known[n] = version[n]
        if scores[n] < UNFIT:
            return True
    return False


@njit(cache=True)
def run(
    place: int, discipline: int, tasks: Tasks, shapes: Shapes, kinds: Kinds, nodes: Nodes, learners: int
) -> tuple[Floats, Ints, Ints]:
    """Play all events; when each task started, and where its instances ran and on which GPUs."""
    total, many = len(tasks.submit), len(kinds.shape)
    start = np.full(total, np.nan)
    where, got = np.full(tasks.first[-1], -1, np.int64), np.zeros(tasks.first[-1], np.int64)
    count = len(nodes.cpu)
    memo = (
        np.empty((len(shapes.cpu), count)),
        np.full((len(shapes.cpu), count), -1, np.int64),
        np.zeros(count, np.int64),
    )
    ends, running, active = np.empty(total), np.empty(total, np.int64), 0  # completions to come
    # Waiting tasks: a heap a class, or under `strict` one for all.
    keys, queue = np.empty(total), np.empty(total, np.int64)
    size = np.zeros(many, np.int64)
    all_keys, all_queue, all_size = np.empty(total), np.empty(total, np.int64), 0
    waiting, lines = np.empty(many, np.int64), 0  # classes with tasks that wait
    tried = np.full(many, -1, np.int64)  # how many nodes had been freed when a class last failed
    asked = np.zeros(many, np.bool_)
    freed, frees = np.zeros(2 * count + 2, np.int64), 0
    mean, seen = np.zeros(learners + 1), np.zeros(learners + 1, np.int64)
    arrived, blocked = 0, False
    while arrived < total or active:
        now = ends[0] if active else np.inf
        if arrived < total:
            now = min(now, tasks.submit[arrived])
        new = False
        while active and ends[0] == now:  # GPUs are freed before a newcomer asks for them
            j = running[0]
            pop(ends, running, 0, active)
            active -= 1
            s = kinds.shape[tasks.kind[j]]
            for i in range(tasks.first[j], tasks.first[j + 1]):
                give_back(s, where[i], got[i], shapes, nodes)
                memo[2][where[i]] += 1
                freed[frees % len(freed)] = where[i]
                frees += 1
            for of in (tasks.learns[j], learners):
                if of >= 0:
                    seen[of] += 1
                    mean[of] += (tasks.service[j] - mean[of]) / seen[of]
            blocked = False
            new = True
        while arrived < total and tasks.submit[arrived] == now:
            j = arrived
            arrived += 1
            key = tasks.key[j]
            if tasks.learns[j] >= 0:
                of = tasks.learns[j] if seen[tasks.learns[j]] else learners
                key = mean[of]
            k = tasks.kind[j]
            if discipline == STRICT:
                if all_size == 0 or key < all_keys[0]:
                    blocked = False
                push(all_keys, all_queue, 0, all_size, key, j)
                all_size += 1
                continue
            push(keys, queue, kinds.first[k], size[k], key, j)
            size[k] += 1
            if size[k] == 1:
                waiting[lines] = k
                lines += 1
                tried[k] = -1
                asked[k] = True
                new = True
        if discipline == STRICT:
            while all_size and not blocked:
                j = all_queue[0]
                i = tasks.first[j]
                if not gang(place, tasks.kind[j], shapes, kinds, nodes, memo, where[i:], got[i:]):
                    blocked = True
                    break
                pop(all_keys, all_queue, 0, all_size)
                all_size -= 1
                start[j] = now
                push(ends, running, 0, active, now + tasks.service[j], j)
                active += 1
            continue
        if not new:
            continue
        for w in range(lines):
            k = waiting[w]
            asked[k] = tried[k] < 0 or (
                tried[k] < frees and helped(place, k, tried[k], freed, frees, shapes, kinds, nodes, memo)
            )
            if not asked[k]:
                tried[k] = frees
        while True:  # the best-ranked of the classes that may fit, until none does
            best = -1
            for w in range(lines):
                k = waiting[w]
                if asked[k]:
                    at, of = kinds.first[k], kinds.first[waiting[best]] if best >= 0 else 0
                    if best < 0 or keys[at] < keys[of] or (keys[at] == keys[of] and queue[at] < queue[of]):
                        best = w
            if best < 0:
                break
            k = waiting[best]
            j = queue[kinds.first[k]]
            i = tasks.first[j]
            if not gang(place, k, shapes, kinds, nodes, memo, where[i:], got[i:]):
                asked[k] = False
                tried[k] = frees
                continue
            pop(keys, queue, kinds.first[k], size[k])
            size[k] -= 1
            start[j] = now
            push(ends, running, 0, active, now + tasks.service[j], j)
            active += 1
            if size[k] == 0:
                lines -= 1
                waiting[best] = waiting[lines]
                asked[k] = False
    return start, where, got
