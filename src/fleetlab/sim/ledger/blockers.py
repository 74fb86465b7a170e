"""Which jobs held what one job was missing, each by itself: the holders of the ledger, not summed by kind.

Each waiting second is divided by what running jobs have allocated of the missing resource on nodes that the job may
use (see `holders`). For one job that is a clock: it runs at one over what all of them hold, and a run is charged for
what it holds times the clock while it ran.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fleetlab.sim.layout import Floats, Ints
from fleetlab.sim.ledger.holders import AHEAD, BEFORE, OVERTOOK, RESOURCE_OF, WIDTH
from fleetlab.sim.ledger.segments import WaitSegments
from fleetlab.sim.ledger.waits import waits
from fleetlab.sim.schedule import Played, Segments
from fleetlab.sim.world import World


@dataclass(frozen=True, slots=True, eq=False)
class Blockers:
    """Runs that were on nodes that a waiting job may use, one entry a run and wait that they overlap."""

    job: Ints  # the row of the world
    begin: Floats
    end: Floats
    kind: Ints  # BEFORE, AHEAD or OVERTOOK
    seconds: Floats  # of the wait, by what it held of what was missing
    gpu_seconds: Floats  # that it held during the wait, on nodes that the job may use; in GPUs × s
    nobody: float  # seconds of the wait in which no job held what was missing, or nothing was


def usable_nodes(world: World, row: int) -> Ints:
    """Return which nodes a job may use, by type, partition and constraint: 1 or 0 each."""
    shape, kinds = world.shapes[world.shape[row]], world.nodes.node_class
    every = np.bitwise_or.reduce(kinds, initial=0)
    everywhere = shape.gpus == 0 and shape.types & every == every
    return np.ones(len(kinds), dtype=np.int64) if everywhere else ((kinds & shape.types) != 0).astype(np.int64)


def blockers(world: World, played: Played, row: int, segments: WaitSegments) -> Blockers:
    """Return who held what a job was missing, and who else ran where it could have."""
    runs, mine = played.runs(world.first), waits(world, played).of(np.arange(len(world.submit)) == row)
    amounts = _amounts(world, runs, usable_nodes(world, row))
    keys = np.zeros(len(world.submit)) if played.keys is None else played.keys
    parts, nobody = [], 0.0
    for begin, end in zip(mine.begin, mine.end, strict=True):
        there = np.flatnonzero((amounts.sum(axis=1) > 0) & (runs.begin < end) & (runs.end > begin))
        seconds, free = _divided(world, row, runs, there, amounts, segments, (begin, end))
        job, since = runs.job[there], runs.begin[there]
        first = (keys[job] < keys[row]) | ((keys[job] == keys[row]) & (job < row))
        kind = np.where(since < begin, BEFORE, np.where(first, AHEAD, OVERTOOK))
        overlap = np.minimum(runs.end[there], end) - np.maximum(since, begin)
        parts.append((job, since, runs.end[there], kind, seconds, amounts[there, 0] / 1000 * overlap))
        nobody += free
    if not parts:
        none, never = np.zeros(0, dtype=np.int64), np.zeros(0)
        parts.append((none, never, never, none, never, never))
    job, since, until, kind, seconds, gpu_seconds = (np.concatenate(column) for column in zip(*parts, strict=True))
    return Blockers(job, since, until, kind, seconds, gpu_seconds, nobody)


def _amounts(world: World, runs: Segments, usable: Ints) -> Ints:
    """Return what each run holds on nodes that count: [runs, resources]."""
    count = runs.instances(world.instances)
    first = runs.first[: len(runs.job)]
    owner = np.repeat(np.arange(len(count)), count)
    place = np.arange(len(owner)) - np.repeat(np.cumsum(count) - count, count) + np.repeat(first, count)
    on = np.bincount(owner, usable[runs.where[place]], minlength=len(count)).astype(np.int64)
    shapes = world.shapes[world.shape[runs.job]]
    gpu = shapes.gpus * shapes.milli
    each = np.column_stack((gpu, *shapes.amounts.T, shapes.gpus * shapes.gpu_memory))
    return np.asarray(each * on[:, None])


def _divided(
    world: World, row: int, runs: Segments, there: Ints, amounts: Ints, segments: WaitSegments,
    wait: tuple[float, float],
) -> tuple[Floats, float]:  # fmt: skip
    """Return the seconds of a wait that each of some runs held what was missing, and those in which none did."""
    inside = (segments.begin < wait[1]) & (segments.end > wait[0])
    since, until = segments.begin[inside], segments.end[inside]
    resource = np.array([RESOURCE_OF[k] for k in segments.reason[inside]], dtype=np.int64)
    if world.gpu_milli[row] == 0:
        resource[resource == 0] = 1  # who needs no GPUs lacks CPU
    begin, end = np.maximum(runs.begin[there], wait[0]), np.minimum(runs.end[there], wait[1])
    edges = np.unique(np.concatenate((since, until, begin, end)))
    if len(edges) < 2:
        return np.zeros(len(there)), 0.0
    long, held = np.diff(edges), np.zeros((len(edges), WIDTH), dtype=np.int64)
    np.add.at(held, np.searchsorted(edges, begin), amounts[there])
    np.add.at(held, np.searchsorted(edges, end), -amounts[there])
    held = np.cumsum(held, axis=0)[:-1]
    of = np.searchsorted(since, edges[:-1], side="right") - 1  # segments follow each other without a gap
    missing = resource[of]
    total = np.where(missing >= 0, held[np.arange(len(long)), missing], 0)
    clock = np.zeros((len(edges), WIDTH))
    some = np.flatnonzero(total > 0)
    clock[some + 1, missing[some]] = long[some] / total[some]
    clock = np.cumsum(clock, axis=0)
    ran = clock[np.searchsorted(edges, end)] - clock[np.searchsorted(edges, begin)]
    return (ran * amounts[there]).sum(axis=1), float(long[total == 0].sum())
