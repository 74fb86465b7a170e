"""Placement by stored scores, for every policy but `best_fit`.

The score of a request on a node is kept until the node changes, so a job looks at stored numbers and computes scores
only for nodes that changed since the last job with its request. No policy looks at memory or at the GPU types a job may
run on, so shapes that differ in nothing else are one *request*.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fleetlab.sim.codes import BEST_FIT, FGD
from fleetlab.sim.engine.fragments import Usefulness, growth_by_lines, no_lines, plan_lines
from fleetlab.sim.engine.state import Allocation, Resources
from fleetlab.sim.heap import heapify, pop, sink
from fleetlab.sim.jit import inner
from fleetlab.sim.layout import MAX_TYPES, WHOLE, Floats, Ints, NodeView, Record, Records, Scoring
from fleetlab.sim.nodes import holds, node_slots, take
from fleetlab.sim.placements import next_random, random_gpu, score

Cards = NDArray[np.int16]

MAX_SCORES = 20_000_000  # stored at once: about 360 MB


class NodeOrder(NamedTuple):
    """Nodes by GPU type, and a heap that a gang picks from."""

    nodes: Ints  # [nodes]: those without GPUs, then type by type, the first of a type first
    position: Ints  # [nodes]: of a node in that order
    begin: Ints  # [types + 2]: where those without GPUs and then each type begin; all 0 until nodes are sorted
    keys: Floats  # [nodes]: heap
    heap: Ints  # [nodes]


class Memo(NamedTuple):
    """Scores of requests on nodes, each valid as long as the node has the same version. Nodes are in `NodeOrder`."""

    request: Ints  # [shapes]: which request a shape is
    requests: Records  # SHAPE, without memory and GPU types
    row: Ints  # [requests + 1]: the row of scores a request has, -1: none; last, the row to reuse next
    owner: Ints  # [rows]: the request that has it
    scores: Floats  # [rows, nodes]; inf: does not fit
    cards: Cards  # [rows, nodes]: the GPU for a fraction, from the node's first; -1: the tightest
    version: Ints  # [rows, nodes]: of the node that a score is for
    order: NodeOrder
    usefulness: Usefulness


def new_memo(placement: int, shapes: Records, nodes: int, typical: int) -> Memo | None:
    """Allocate the scores of as many requests as memory allows; best_fit needs none, and compiles without."""
    if placement == BEST_FIT:
        return None
    plain = shapes.copy()
    plain.memory, plain.types = 0, (1 << MAX_TYPES) - 1
    rows = np.ascontiguousarray(plain).view(np.int64).reshape(len(plain), plain.itemsize // 8)
    distinct, request = np.unique(rows, axis=0, return_inverse=True)
    requests = np.ascontiguousarray(distinct).view(shapes.dtype).reshape(-1).view(np.recarray)
    count = max(1, min(len(requests), MAX_SCORES // max(1, nodes)))
    row = np.full(len(requests) + 1, -1, dtype=np.int64)
    row[-1] = 0
    lists = [np.zeros(size, dtype=np.int64) for size in (nodes, nodes, MAX_TYPES + 2, nodes)]
    return Memo(
        np.array(request, dtype=np.int64).reshape(-1),
        requests,
        row,
        np.full(count, -1, dtype=np.int64),
        np.empty((count, nodes)),
        np.empty((count, nodes), dtype=np.int16),
        np.full((count, nodes), -1, dtype=np.int64),
        NodeOrder(lists[0], lists[1], lists[2], np.empty(nodes), lists[3]),
        no_lines(typical),
    )


@inner
def sort_nodes(nodes: Records, order: Ints, position: Ints, begin: Ints) -> None:
    """Put the nodes in order of their GPU types."""
    for n in range(len(nodes)):
        begin[nodes[n].type_number + 2] += 1
    for t in range(1, len(begin)):
        begin[t] += begin[t - 1]
    for n in range(len(nodes)):
        t = nodes[n].type_number + 1
        position[n] = begin[t]
        order[begin[t]] = n
        begin[t] += 1
    for t in range(len(begin) - 1, 0, -1):  # each has moved on to where the next begins
        begin[t] = begin[t - 1]
    begin[0] = 0


@inner
def row_of(q: int, row: Ints, owner: Ints, version: Ints) -> int:
    """Return the row of scores of request `q`; where it has none, the one that was assigned longest ago."""
    r = row[q]
    if r < 0:
        r = row[-1]
        row[-1] = (r + 1) % len(owner)
        if owner[r] >= 0:
            row[owner[r]] = -1
            version[r, :] = -1
        row[q], owner[r] = r, q
    return r


@inner
def refresh(
    placement: int, shape: Record, node: Record, now: NodeView, scoring: Scoring, memo: Memo, r: int, i: int
) -> None:
    """Score a request, in row `r`, on a node, at position `i`, again."""
    value, card = np.inf, -1
    if holds(shape, node, now.gpus, now.apps):
        if placement == FGD:
            lines, about, cpus = memo.usefulness
            value, g = growth_by_lines(shape, node, now.gpus, scoring.typical, lines, about, cpus)
        else:
            value, g = score(placement, shape, node, now.gpus, scoring)
        card = g - node.first_gpu if g >= 0 else -1
    memo.scores[r, i], memo.cards[r, i], memo.version[r, i] = value, card, node.version


@inner
def collect(
    placement: int, shape: Record, count: int, resources: Resources, memo: Memo, request: Record, r: int
) -> tuple[int, int]:
    """Find the node with the lowest score, or, for a gang, a heap of all nodes that hold an instance; return its size.

    Where a heap is made the node is its first; -1: none.
    """
    nodes, scores, order, size = resources.now.nodes, memo.scores, memo.order, 0
    best, least = -1, np.inf
    for t in range(len(order.begin) - 1):
        if shape.gpus and (t == 0 or shape.types >> (t - 1) & 1 == 0):
            continue
        for i in range(order.begin[t], order.begin[t + 1]):
            n = order.nodes[i]
            node = nodes[n]
            if shape.gpus == 0 and shape.types & node.node_class == 0:
                continue
            if memo.version[r, i] != node.version:
                refresh(placement, request, node, resources.now, resources.scoring, memo, r, i)
            value = scores[r, i]
            if count > 1:
                if value < np.inf and node.free_memory >= shape.memory:
                    order.keys[size], order.heap[size] = value, n
                    size += 1
            elif (value < least or (value == least and n < best)) and node.free_memory >= shape.memory:
                best, least = n, value
    if size:
        heapify(order.keys, order.heap, size)
        best = order.heap[0]
    return best, size


@inner
def place_by_score(
    placement: int, s: int, count: int, resources: Resources, memo: Memo, placed: Allocation, at: int
) -> int:
    """Place up to `count` instances of shape `s` by stored scores; return how many fit."""
    shape, now, order, scores = resources.shapes[s], resources.now, memo.order, memo.scores
    if order.begin[-1] == 0:
        lines, about, cpus = memo.usefulness
        sort_nodes(now.nodes, order.nodes, order.position, order.begin)
        plan_lines(now.nodes, resources.scoring.typical, lines, about, cpus)
    request = memo.requests[memo.request[s]]
    r = row_of(memo.request[s], memo.row, memo.owner, memo.version)
    best, size = collect(placement, shape, count, resources, memo, request, r)
    if best < 0:
        return 0
    for k in range(count):
        if k:
            if size == 0:
                return k
            best = order.heap[0]
        node, i = now.nodes[best], order.position[best]
        card = memo.cards[r, i]
        placed.node[at + k] = best
        placed.gpus[at + k] = take(shape, node, now.gpus, now.apps, node.first_gpu + card if card >= 0 else -1)
        if count > 1:
            refresh(placement, request, node, now, resources.scoring, memo, r, i)
            if scores[r, i] == np.inf or node.free_memory < shape.memory:
                pop(order.keys, order.heap, 0, size)
                size -= 1
            else:
                sink(order.keys, order.heap, 0, size, 0, scores[r, i], best)
    return count


@inner
def place_randomly(
    shape: Record, count: int, now: NodeView, random: Ints, able: Ints, placed: Allocation, at: int
) -> int:
    """Place all `count` instances, each on a random node that holds it, or none; return how many are placed."""
    slots, size = 0, 0
    for n in range(len(now.nodes)):
        if holds(shape, now.nodes[n], now.gpus, now.apps):
            able[size] = n
            size += 1
            if slots < count:
                slots += node_slots(shape, now.nodes[n], now.gpus, now.apps)
    if slots < count:
        return 0
    for k in range(at, at + count):
        i = next_random(random) % size
        node = now.nodes[able[i]]
        g = random_gpu(shape, node, now.gpus, random) if shape.gpus and shape.milli < WHOLE else -1
        placed.node[k], placed.gpus[k] = able[i], take(shape, node, now.gpus, now.apps, g)
        if not holds(shape, node, now.gpus, now.apps):
            size -= 1
            for later in range(i, size):
                able[later] = able[later + 1]
    return count
