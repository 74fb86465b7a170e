"""Parts of a world that share no nodes: partitions that do not overlap are simulated each by itself.

Two classes of nodes are in one part if a job may use both, or if jobs of one partition use them: they share a queue.
A part is a world of its own; what placement policies compare with (the largest node, typical shapes, how high-end a
GPU type is) stays that of the whole.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from fleetlab.sim.layout import Ints, Records, cut, writable
from fleetlab.sim.schedule import Schedule
from fleetlab.sim.world import World


@dataclass(frozen=True, slots=True, eq=False)
class WorldPart:
    """A part of a world, and where its jobs and nodes are in the whole."""

    world: World
    jobs: Ints
    nodes: Ints
    instances: Ints


def parts_of(world: World) -> list[WorldPart]:
    """Return the parts of a world, in order of their first classes; none where it does not fall apart."""
    if len(world.queues) == 1:
        return []
    masks = world.shapes.types[world.shape]
    used = [int(np.bitwise_or.reduce(masks[world.queue == q], initial=0)) for q in range(len(world.queues))]
    linked = [
        _union(used[q] for q, names in enumerate(world.queues) if name in names)
        for name in sorted({name for names in world.queues for name in names})
    ]
    apart = _connected(linked)
    return [_part(world, classes, masks) for classes in apart] if len(apart) > 1 else []


def joined(world: World, parts: list[WorldPart], played: list[Schedule]) -> Schedule:
    """Put the schedules of the parts of a world together."""
    first, last = played[0], [one for one in played if one.until is not None]
    assert all(one.segments is None and one.up is None and one.keys is not None for one in played)
    jobs, instances = len(world.submit), int(world.first[-1])
    start, end, keys, lost = (np.full(jobs, np.nan), np.full(jobs, np.nan), np.zeros(jobs), np.zeros(jobs))
    status, where, got = np.zeros(jobs, dtype=np.int64), np.full(instances, -1), np.zeros(instances, dtype=np.int64)
    for part, one in zip(parts, played, strict=True):
        start[part.jobs], end[part.jobs], keys[part.jobs] = one.start, one.end, one.keys
        status[part.jobs], lost[part.jobs] = one.status, one.lost
        where[part.instances] = np.where(one.where >= 0, part.nodes[one.where], -1)
        got[part.instances] = one.got
    nothing = np.zeros(jobs, dtype=np.int64)
    until = last[0].until if last else None
    return replace(
        first, start=start, end=end, status=status, where=where, got=got, preemptions=nothing, failures=nothing,
        lost=lost, keys=keys, until=until,
    )  # fmt: skip


def _union(masks: object) -> int:
    total = 0
    for mask in masks:  # type: ignore[attr-defined]
        total |= mask
    return total


def _connected(masks: list[int]) -> list[int]:
    """Merge the masks that have a class in common."""
    merged: list[int] = []
    for mask in masks:
        apart = [other for other in merged if not other & mask]
        merged = [*apart, _union([mask, *(other for other in merged if other & mask)])] if mask else merged
    return sorted(merged, key=lambda mask: mask & -mask)


def _part(world: World, classes: int, masks: Ints) -> WorldPart:
    jobs = np.flatnonzero(masks & classes)
    nodes = np.flatnonzero(world.nodes.node_class & classes)
    instances = world.instances[jobs]
    places = cut(world.first[jobs], instances)
    shapes, shape = np.unique(world.shape[jobs], return_inverse=True)
    kinds, kind = np.unique(world.kind[jobs], return_inverse=True)
    node_table, gpu_table = _nodes(world, nodes, classes)
    kind_table, shape_table = writable(world.kinds[kinds]), writable(world.shapes[shapes])
    kind_table.shape_id = np.searchsorted(shapes, kind_table.shape_id)
    shape_table.types = _renumbered(shape_table.types, classes)
    typical = writable(world.typical)
    typical.types = _renumbered(typical.types, classes)
    queues, queue = np.unique(world.queue[jobs], return_inverse=True)
    of_jobs = ("submit", "submitted", "eligible", "runtime", "to_end", "estimate", "learner", "gpu_milli", "user")
    columns = {name: getattr(world, name)[jobs] for name in (*of_jobs, "priority", "requested", "latency", "unseen")}
    part = replace(
        world, frame=world.frame.select("job")[jobs], measured=jobs[:0], refused=world.refused.clear(), shape=shape,
        instances=instances, kind=kind, kinds=kind_table, first=np.append(0, np.cumsum(instances)), queue=queue,
        queues=tuple(world.queues[q] for q in queues), of_types=_renumbered(world.of_types[jobs], classes),
        partitions={name: int(_renumbered(np.array([bits]), classes)[0]) for name, bits in world.partitions.items()},
        shapes=shape_table, nodes=node_table, gpus=gpu_table, capacity=world.capacity[nodes], typical=typical,
        apps=world.apps if world.apps.shape[1] == 1 else writable(world.apps[:, nodes]), **columns,
    )  # fmt: skip
    return WorldPart(part, jobs, nodes, places)


def _nodes(world: World, nodes: Ints, classes: int) -> tuple[Records, Records]:
    """The tables of some nodes and their GPUs, numbered anew."""
    part = writable(world.nodes[nodes])
    count = part.end_gpu - part.first_gpu
    gpus = writable(world.gpus[cut(part.first_gpu, count)])
    gpus.node = np.repeat(np.arange(len(nodes)), count)
    part.end_gpu, part.first_gpu, part.number = np.cumsum(count), np.cumsum(count) - count, np.arange(len(nodes))
    part.node_class = _renumbered(part.node_class, classes)
    part.gpu_type = np.where(count > 0, part.node_class, 0)
    numbers = np.array([int(bit).bit_length() - 1 for bit in part.node_class], dtype=np.int64)
    part.type_number = np.where(count > 0, numbers, -1)
    return part, gpus


def _renumbered(masks: Ints, classes: int) -> Ints:
    """The masks with the bits of `classes` alone, moved together."""
    present = [bit for bit in range(classes.bit_length()) if classes >> bit & 1]
    moved = np.zeros(len(masks), dtype=np.int64)
    for new, old in enumerate(present):
        moved |= (masks >> old & 1) << new
    return moved
