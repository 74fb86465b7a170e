"""Beside the reservation of EASY backfill: what other jobs may take, so that the head still starts in time.

A reservation is a number of places at one time, the *shadow time*: nothing in particular is kept free. `then` is what
running jobs leave free at that time, by their estimates. A job that runs beyond it may start wherever as many instances
of the head still fit then as it has; which nodes and GPUs these are is left open until the head starts.
"""

from __future__ import annotations

from typing import NamedTuple

from fleetlab.sim.jit import inner
from fleetlab.sim.layout import WHOLE, Floats, Ints, NodeView, Record, Records
from fleetlab.sim.nodes import give_back, holds, node_slots, node_slots_after, recount, take_gpus


class Reservation(NamedTuple):
    """The nodes at the shadow time, and heaps to work with."""

    owner: Ints  # [1]: the job that it was made for
    then: NodeView  # without the head; only nodes of the classes that the head may use are up to date
    head: Records  # SHAPE, [1]: of the head
    counts: Ints  # [nodes]: how many of its instances a node could take then
    spare: Ints  # [1]: how many more they could take in all than it has
    masked: NodeView  # nodes without the GPUs that a fraction may not take
    ends: Floats  # [jobs]: heap of running jobs by expected end
    by_end: Ints
    classes: Ints  # [jobs]: bits of the node classes that a running job is on; 0: not known yet
    scores: Floats  # [nodes]: heap of nodes by score
    nodes: Ints


@inner
def may_take(shape: Record, n: int, at: int, beside: Reservation) -> bool:
    """Return whether the head still fits at its time if node `n` takes an instance, a fraction on GPU `at`."""
    then, most, spare = beside.then, beside.counts[n], beside.spare[0]
    if most <= spare:
        return True
    return most - node_slots_after(beside.head[0], shape, then.nodes[n], then.gpus, then.apps, at) <= spare


@inner
def update_spare(n: int, beside: Reservation) -> None:
    """Count again how many instances of the head node `n` could take."""
    then, before = beside.then, beside.counts[n]
    beside.counts[n] = node_slots(beside.head[0], then.nodes[n], then.gpus, then.apps)
    beside.spare[0] += beside.counts[n] - before


@inner
def claim(shape: Record, n: int, bits: int, beside: Reservation) -> None:
    """Let an instance have the GPUs `bits` of node `n` at the shadow time too."""
    if beside.head[0].types & beside.then.nodes[n].node_class == 0:
        return
    take_gpus(shape, beside.then.nodes[n], beside.then.gpus, beside.then.apps, bits)
    update_spare(n, beside)


@inner
def unclaim(shape: Record, n: int, bits: int, beside: Reservation) -> None:
    """Undo `claim`."""
    if beside.head[0].types & beside.then.nodes[n].node_class == 0:
        return
    give_back(shape, beside.then.nodes[n], beside.then.gpus, beside.then.apps, bits)
    update_spare(n, beside)


@inner
def mask(shape: Record, n: int, now: NodeView, beside: Reservation) -> None:
    """Copy node `n` without the GPUs on which a fraction would delay the head."""
    masked, node = beside.masked, now.nodes[n]
    masked.nodes[n] = node
    for g in range(node.first_gpu, node.end_gpu):
        masked.gpus[g] = now.gpus[g]
        gpu = masked.gpus[g]
        if gpu.free >= shape.milli and gpu.free_memory >= shape.gpu_memory and not may_take(shape, n, g, beside):
            gpu.free = 0
    recount(masked.nodes[n], masked.gpus)


@inner
def is_masked(shape: Record, n: int, beside: Reservation) -> bool:
    """Return whether a fraction may not take every GPU of node `n` that holds it."""
    return shape.gpus > 0 and shape.milli < WHOLE and beside.counts[n] > beside.spare[0]


@inner
def holds_beside(shape: Record, n: int, now: NodeView, beside: Reservation) -> bool:
    """Return whether node `n` can take an instance that does not delay the head; where it must, it is masked."""
    if not holds(shape, now.nodes[n], now.gpus, now.apps):
        return False
    if not is_masked(shape, n, beside):
        return may_take(shape, n, -1, beside)
    mask(shape, n, now, beside)
    return holds(shape, beside.masked.nodes[n], beside.masked.gpus, now.apps)


@inner
def node_slots_beside(shape: Record, n: int, now: NodeView, beside: Reservation) -> int:
    """Return how many instances that do not delay the head node `n` could take, at most."""
    node = now.nodes[n]
    most = node_slots(shape, node, now.gpus, now.apps)
    if most == 0 or not is_masked(shape, n, beside):
        return most if most and may_take(shape, n, -1, beside) else 0
    for g in range(node.first_gpu, node.end_gpu):
        gpu = now.gpus[g]
        if gpu.free >= shape.milli and gpu.free_memory >= shape.gpu_memory and may_take(shape, n, g, beside):
            return most
    return 0
