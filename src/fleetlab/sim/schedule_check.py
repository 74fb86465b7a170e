"""Check a schedule: runs are replayed instant by instant, and nothing may be allocated twice.

This knows nothing of policies and does its own sums, sharing only the layout of tables with the loops: it is their
audit. At one instant runs end, nodes go down, nodes come up, runs begin. A run that takes no time is checked before the
others that begin with it: those that came before it in that instant may have ended when it comes, but none that stays
is in its way.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fleetlab.sim.jit import inner, loop
from fleetlab.sim.layout import AMOUNTS, WHOLE, Floats, Ints, NodeView, Record, Records, record
from fleetlab.sim.placements import fragmentation

# What may be wrong with an instance on a node.
FAULTS = (
    "", "the node is not up", "more CPU, memory, RDMA or disk than is free", "more of its app than the node may have",
    "not one of its GPU types, partitions or features", "not the number of GPUs it requests",
    "a GPU that the node does not have", "more of a GPU than is free", "the node goes down with a job on it",
    "a node that is not its own, though it or another job asks for that",
)  # fmt: skip
NOT_UP, TOO_MUCH, OVER_LIMIT, WRONG_TYPE, WRONG_COUNT, NO_SUCH_GPU, GPU_TAKEN, LEFT_BEHIND, NOT_ALONE = range(
    1, len(FAULTS)
)
SAMPLE = ("up", "allocated", "used", "fragmented")  # columns of a sample by GPU type, in milli of GPUs
UP, ALLOCATED, USED, FRAGMENTED = range(len(SAMPLE))
BESIDE_GPUS = len(AMOUNTS)
SCHEDULED_RUN = record("job user shape_id first instances begin:f end:f")  # first: its first instance


class RunTable(NamedTuple):
    """RunTable, and where their instances are."""

    runs: Records  # SCHEDULED_RUN
    by_begin: Ints  # in order of begin, then end
    by_end: Ints  # those that take time, in order of end
    node: Ints  # [instances]
    gpus: Ints  # [instances]: bits, counted from the node's first GPU
    shapes: Records  # SHAPE


class UpChanges(NamedTuple):
    """When nodes come up (1) or go down (0)."""

    time: Floats
    node: Ints
    up: Ints


@inner
def _fault(shape: Record, node: Record, gpus: Records, apps: Ints, bits: int) -> int:
    """Return what is wrong with an instance on a node with the GPUs `bits`; 0: nothing."""
    if node.up == 0:
        return NOT_UP
    for k in range(BESIDE_GPUS):
        if node.free[k] < shape.amounts[k]:
            return TOO_MUCH
    if node.exclusive or (shape.exclusive and node.instances):
        return NOT_ALONE
    if shape.per_node and apps[shape.app, node.number] >= shape.per_node:
        return NOT_ALONE if shape.distinct else OVER_LIMIT
    if shape.types & node.node_class == 0:
        return WRONG_TYPE
    if bits >> (node.end_gpu - node.first_gpu):
        return NO_SUCH_GPU
    count, g = 0, node.first_gpu
    while bits:
        if bits & 1:
            count += 1
            if gpus[g].free < shape.milli or gpus[g].free_memory < shape.gpu_memory:
                return GPU_TAKEN
        bits >>= 1
        g += 1
    return 0 if count == shape.gpus else WRONG_COUNT


@inner
def _allocate(shape: Record, node: Record, gpus: Records, apps: Ints, bits: int, sign: int) -> None:
    """Allocate these GPUs of a node and what else an instance requests (`sign` 1), or free all that (-1)."""
    for k in range(BESIDE_GPUS):
        node.free[k] -= sign * shape.amounts[k]
    node.instances += sign
    node.exclusive += sign * shape.exclusive
    if shape.per_node and (sign > 0 or not shape.distinct):
        apps[shape.app, node.number] += sign
    g = node.first_gpu
    while bits:
        if bits & 1:
            gpus[g].free -= sign * shape.milli
            gpus[g].free_memory -= sign * shape.gpu_memory
        bits >>= 1
        g += 1


@inner
def _end(run: Record, of: RunTable, state: NodeView) -> None:
    for i in range(run.first, run.first + run.instances):
        node = state.nodes[of.node[i]]
        _allocate(of.shapes[run.shape_id], node, state.gpus, state.apps, of.gpus[i], -1)


@inner
def _begin(run: Record, of: RunTable, state: NodeView) -> tuple[int, int]:
    """Put the instances of a run on their nodes; return what is wrong, and with which instance."""
    shape = of.shapes[run.shape_id]
    for i in range(run.first, run.first + run.instances):
        n = of.node[i]
        if not 0 <= n < len(state.nodes):
            return NOT_UP, i
        fault = _fault(shape, state.nodes[n], state.gpus, state.apps, of.gpus[i])
        if fault:
            return fault, i
        _allocate(shape, state.nodes[n], state.gpus, state.apps, of.gpus[i], 1)
    if shape.distinct:  # counted within this run alone
        for i in range(run.first, run.first + run.instances):
            state.apps[shape.app, of.node[i]] = 0
    return 0, -1


@inner
def _sample(state: NodeView, column: Ints, typical: Records, out: Floats) -> None:
    """Add up what the nodes have, by GPU type."""
    for n in range(len(state.nodes)):
        node = state.nodes[n]
        if node.end_gpu > node.first_gpu and node.up:
            out[column[n], UP] += (node.end_gpu - node.first_gpu) * WHOLE
            for g in range(node.first_gpu, node.end_gpu):
                free = state.gpus[g].free
                out[column[n], ALLOCATED] += WHOLE - free
                out[column[n], USED] += WHOLE if free < WHOLE else 0
            out[column[n], FRAGMENTED] += fragmentation(node, state.gpus, node.free_cpu, typical)


@loop
def replay(
    of: RunTable, state: NodeView, switches: UpChanges, times: Floats, column: Ints, typical: Records, out: Floats
) -> tuple[int, int, int, float]:
    """Replay runs and sample at `times`; return what is wrong, if anything, in which run, on which node, and when.

    `column` is the column of `out` that a node counts in.
    """
    runs, by_begin, by_end, b, e, w = of.runs, of.by_begin, of.by_end, 0, 0, 0
    for k in range(len(times) + 1):
        stop = times[k] if k < len(times) else np.inf
        while True:
            now = runs[by_begin[b]].begin if b < len(by_begin) else np.inf
            now = min(now, runs[by_end[e]].end) if e < len(by_end) else now
            now = min(now, switches.time[w]) if w < len(switches.time) else now
            if now > stop or now == np.inf:
                break
            while e < len(by_end) and runs[by_end[e]].end == now:
                _end(runs[by_end[e]], of, state)
                e += 1
            while w < len(switches.time) and switches.time[w] == now:
                node = state.nodes[switches.node[w]]
                if switches.up[w] == 0 and node.instances:
                    return LEFT_BEHIND, -1, switches.node[w], now
                node.up = switches.up[w]
                w += 1
            while b < len(by_begin) and runs[by_begin[b]].begin == now:
                run = runs[by_begin[b]]
                fault, i = _begin(run, of, state)
                if fault:
                    return fault, by_begin[b], of.node[i], now
                if run.end == now:
                    _end(run, of, state)
                b += 1
        if k < len(times):
            _sample(state, column, typical, out[k])
    return 0, -1, -1, 0.0


@inner
def last_at(times: Floats, time: float) -> int:
    """Return the last place of sorted times that is not after `time`; -1: none.

    `np.searchsorted` would do, but to load code that calls it numba imports scipy, a quarter of a second.
    """
    low, high = 0, len(times)
    while low < high:
        middle = (low + high) // 2
        if times[middle] <= time:
            low = middle + 1
        else:
            high = middle
    return low - 1


@loop
def allocated_between(of: RunTable, column: Ints, edges: Floats, out: Floats) -> None:
    """Add to `out[j, column]` what is allocated from `edges[j]` to `edges[j + 1]`, in milli of a GPU × seconds."""
    milli = np.zeros(out.shape[1], dtype=np.int64)
    for k in range(len(of.runs)):
        run = of.runs[k]
        shape = of.shapes[run.shape_id]
        if shape.gpus == 0 or run.end <= run.begin:
            continue
        milli[:] = 0
        for i in range(run.first, run.first + run.instances):
            milli[column[of.node[i]]] += shape.gpus * shape.milli
        j = max(0, last_at(edges, run.begin))
        while j < len(edges) - 1 and edges[j] < run.end:
            seconds = min(run.end, edges[j + 1]) - max(run.begin, edges[j])
            for c in range(len(milli)):
                if milli[c]:
                    out[j, c] += seconds * milli[c]
            j += 1
