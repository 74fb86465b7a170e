"""Who was at the head of the queue while one job fitted and did not start: it had a reservation, or let none pass."""

from __future__ import annotations

import heapq

import numpy as np

from fleetlab.sim.codes import BY_HEAD, BY_RESERVATION
from fleetlab.sim.layout import Floats, Ints
from fleetlab.sim.ledger.segments import WaitSegments
from fleetlab.sim.ledger.waits import Waits, pieces, waits
from fleetlab.sim.schedule import Played
from fleetlab.sim.world import World

BEHIND = (BY_RESERVATION, BY_HEAD)


def queue_heads(world: World, played: Played, row: int, segments: WaitSegments) -> tuple[Ints, Floats, Floats]:
    """Return who was first in the queue when, in the stretches of a job's wait whose reason is one of `BEHIND`.

    Nobody where ranks change with time, or where a site's Slurm ranks by partition: then no job is first for good.
    """
    nobody = np.zeros(0, dtype=np.int64), np.zeros(0), np.zeros(0)
    behind = np.isin(segments.reason, BEHIND)
    if played.keys is None or played.rules is not None or not behind.any():
        return nobody
    first, last = segments.begin[behind].min(), segments.end[behind].max()
    job, begin, end = _first_in_queue(_ahead(world, played, row), played.keys, first, last)
    # Stretches are cut out of the time in which one job was first.
    edges = np.unique(np.append(segments.begin[behind], segments.end[behind]))
    at, between, begin, end = pieces(begin, end, edges)
    inside = np.isin(edges[between], segments.begin[behind])
    return job[at][inside], begin[inside], end[inside]


def _ahead(world: World, played: Played, row: int) -> Waits:
    """Return the waits of jobs that are ahead of one in the queue: by their rank, then by their submission."""
    assert played.keys is not None
    keys, rows = played.keys, np.arange(len(world.submit))
    ahead = (keys < keys[row]) | ((keys == keys[row]) & (rows < row))
    if played.strict and played.member is not None:
        ahead &= played.member == played.member[row]
    return waits(world, played).of(ahead)


def _first_in_queue(queue: Waits, keys: Floats, begin: float, end: float) -> tuple[Ints, Floats, Floats]:
    """Return who of some waiting jobs is first by rank when, between two times."""
    inside = queue.rows(np.flatnonzero((queue.begin < end) & (queue.end > begin)))
    waiting: list[tuple[float, int, float]] = []  # rank, job, until
    found: list[tuple[int, float, float]] = []
    since = np.maximum(inside.begin, begin)  # in order of time, as waits are
    until = np.minimum(inside.end, end)
    instants = np.unique(np.concatenate((since, until)))
    added = 0
    for now, after in zip(instants[:-1].tolist(), instants[1:].tolist(), strict=True):
        while added < len(since) and since[added] <= now:
            heapq.heappush(waiting, (float(keys[inside.job[added]]), int(inside.job[added]), float(until[added])))
            added += 1
        while waiting and waiting[0][2] <= now:
            heapq.heappop(waiting)
        if waiting:
            who = waiting[0][1]
            if found and found[-1][0] == who and found[-1][2] == now:
                found[-1] = (who, found[-1][1], after)
            else:
                found.append((who, now, after))
    job, first, last = np.array(found, dtype=np.float64).reshape(-1, 3).T
    return job.astype(np.int64), first, last
