"""A quick loop that begins with jobs that run: they are where they are, and hold what they hold."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fleetlab.sim.engine.state import Allocation, Events, Jobs, ScheduleTable
from fleetlab.sim.layout import MAX_GPUS, WHOLE, Floats, Ints, NodeView, writable
from fleetlab.sim.world import World


class Running(NamedTuple):
    """The first jobs of a world, which run when the loop begins."""

    start: Floats  # [jobs]: when they started, before anything else happens
    placed: Allocation  # [their instances]
    now: NodeView  # what they leave free


def running_of(world: World, start: Floats, node: Ints, gpus: Ints) -> Running:
    """Return the first jobs of a world as running since `start`, with their instances on these nodes and GPUs."""
    now = NodeView(writable(world.nodes), writable(world.gpus), writable(world.apps))
    shapes = world.shapes[np.repeat(world.shape[: len(start)], world.instances[: len(start)])]
    np.subtract.at(now.nodes.free, node, shapes.amounts)
    np.add.at(now.nodes.instances, node, 1)
    np.add.at(now.nodes.exclusive, node, shapes.exclusive)
    limited = (shapes.per_node > 0) & (shapes.distinct == 0)
    np.add.at(now.apps, (shapes.app[limited], node[limited]), 1)
    on_gpu = gpus != 0
    np.add.at(now.nodes.by_request, (node[on_gpu], shapes.request[on_gpu]), 1)
    for bit in range(min(MAX_GPUS, int(gpus.max(initial=0)).bit_length())):
        has = gpus >> bit & 1 > 0
        card = now.nodes.first_gpu[node[has]] + bit
        np.subtract.at(now.gpus.free, card, shapes.milli[has])
        np.subtract.at(now.gpus.free_memory, card, shapes.gpu_memory[has])
    _recount(now)
    return Running(start, Allocation(node, gpus), now)


def _recount(now: NodeView) -> None:
    """Sum up what is free on the GPUs of each node."""
    nodes, free, of = now.nodes, now.gpus.free, now.gpus.node
    nodes.free_gpu = np.bincount(of, weights=free, minlength=len(nodes))
    nodes.idle_gpus = np.bincount(of[free == WHOLE], minlength=len(nodes))
    most = np.zeros(len(nodes), dtype=np.int64)
    np.maximum.at(most, of, free)
    nodes.largest_free = most


def begin_with(running: Running, jobs: Jobs, events: Events, schedule: ScheduleTable) -> None:
    """Fill the tables of a loop with jobs that run."""
    count, instances = len(running.start), len(running.placed.node)
    end = running.start + jobs.runtime[:count]
    order = np.lexsort((np.arange(count), end))  # sorted, it is a heap
    schedule.start[:count] = running.start
    schedule.placed.node[:instances], schedule.placed.gpus[:instances] = running.placed
    events.ends[:count], events.running[:count] = end[order], order
    events.clock.running = events.clock.arrived = events.clock.next_job = count
