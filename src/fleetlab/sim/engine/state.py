"""The tables of the quick loops, bundled. Python allocates them, compiled code changes them: see `layout`."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fleetlab.sim import layout
from fleetlab.sim.engine.index import Index
from fleetlab.sim.layout import Floats, Ints, NodeView, Record, Records, Scoring, table


class Jobs(NamedTuple):
    """Jobs in order of arrival."""

    submit: Floats
    runtime: Floats
    estimate: Floats  # filled in at arrival where it is learnt
    key: Floats  # rank, the lowest first; where the order is by a learnt estimate, it is added on arrival
    kind: Ints
    first: Ints  # [jobs + 1]: index of the first instance
    learner: Ints  # -1: the estimate stands
    kinds: Records  # KIND
    learners: Records  # LEARNER; the last is of all jobs


class Resources(NamedTuple):
    """Shapes, and the nodes as they are now."""

    shapes: Records  # SHAPE
    now: NodeView
    free: Ints  # [types]: GPU milli
    fit_index: Index
    scoring: Scoring


class Allocation(NamedTuple):
    """Where instances are."""

    node: Ints
    gpus: Ints  # bits, counted from the node's first GPU


class ScheduleTable(NamedTuple):
    """The result of a loop."""

    start: Floats  # [jobs]; nan: never
    placed: Allocation  # [instances]


class Events(NamedTuple):
    """What comes next, and which nodes were freed in this instant."""

    clock: Record  # CLOCK
    ends: Floats  # [jobs]: heap of the running jobs by end
    running: Ints
    freed: Ints  # [nodes]: list of freed nodes
    freed_at: Ints  # [nodes]: the instant in which a node was last freed


class Queues(NamedTuple):
    """Waiting jobs, a heap for each kind."""

    kinds: Records  # QUEUE
    shapes: Records  # SHAPE_QUEUE
    keys: Floats  # [jobs]
    jobs: Ints  # [jobs]
    listed: Ints  # shapes (greedy) or kinds (easy) with waiting jobs
    candidates: Ints  # [kinds]: those looked at in this instant
    ranks: Floats  # [kinds]: heap of the first jobs of candidates
    first_jobs: Ints


def new_schedule(first: Ints) -> ScheduleTable:
    """Make the table of a schedule in which nothing has started."""
    jobs, instances = len(first) - 1, int(first[-1])
    placed = Allocation(np.full(instances, -1, dtype=np.int64), np.zeros(instances, dtype=np.int64))
    return ScheduleTable(np.full(jobs, np.nan), placed)


def new_events(jobs: int, nodes: int) -> Events:
    """Make tables in which nothing has happened."""
    clock = table(1, layout.CLOCK, head=-1, shadow_time=np.inf, last_job=-1)[0]
    ends, running, freed = np.empty(jobs), np.empty(jobs, dtype=np.int64), np.empty(nodes, dtype=np.int64)
    return Events(clock, ends, running, freed, np.full(nodes, -1, dtype=np.int64))


def new_queues(jobs: Ints, shapes: int) -> Queues:
    """Make empty queues, for so many `jobs` of each kind."""
    kinds = table(len(jobs), layout.QUEUE, first=np.cumsum(jobs) - jobs, slot=-1, next=-1, previous=-1, shortest=np.inf)
    total, most = int(jobs.sum()), max(len(jobs), shapes)
    lists = [np.empty(size, dtype=np.int64) for size in (total, most, len(jobs), len(jobs))]
    by_shape = table(shapes, layout.SHAPE_QUEUE, slot=-1, first_kind=-1, counted=-1)
    return Queues(kinds, by_shape, np.empty(total), lists[0], lists[1], lists[2], np.empty(len(jobs)), lists[3])


def new_learners(count: int) -> Records:
    """Make a table of learners that know nothing."""
    return table(count + 1, layout.LEARNER)
