"""The wait ledger of one job, not summed: the reason of each second, who was at the head, and which jobs held what.

The replay sums seconds by row of a table. Here each row is the piece of the job's wait between two instants at which a
reason may change, so that a piece has one reason and its sum is its length: the same replay, and the same seconds.

Each waiting second is divided by what running jobs have allocated of the missing resource on nodes that the job may
use (see `holders`). For one job that is a clock: it runs at one over what all of them hold, and a run is charged for
what it holds times the clock while it ran.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np

from fleetlab.sim.codes import BY_HEAD, BY_RESERVATION
from fleetlab.sim.layout import Floats, Ints, Records, table
from fleetlab.sim.ledger.holders import AHEAD, BEFORE, OVERTOOK, RESOURCE_OF, WIDTH
from fleetlab.sim.ledger.ledger import explained, replay, switches_of, waiting_of
from fleetlab.sim.ledger.reasons import COUNT, WAIT, Waiting
from fleetlab.sim.ledger.waits import Waits, pieces, waits
from fleetlab.sim.schedule import Schedule, Segments
from fleetlab.sim.schedule_check import RunTable
from fleetlab.sim.timeline import run_table
from fleetlab.sim.world import World


@dataclass(frozen=True, slots=True, eq=False)
class WaitSegments:
    """The waits of one job in pieces of one reason each, in order of time; neighbors have different reasons."""

    begin: Floats
    end: Floats
    reason: Ints  # places in the catalog

    def merged(self) -> WaitSegments:
        """Return them in order of time, neighbors of the same reason as one."""
        order = np.lexsort((self.end, self.begin))
        begin, end, reason = self.begin[order], self.end[order], self.reason[order]
        first = np.ones(len(begin), dtype=bool)
        first[1:] = (reason[1:] != reason[:-1]) | (begin[1:] != end[:-1])
        last = np.append(first[1:], True)[: len(first)]
        return WaitSegments(begin[first], end[last], reason[first])


def wait_segments(world: World, played: Schedule, row: int) -> WaitSegments:
    """Return why a job, the row of the world, waited when; its reasons sum to its row of the ledger."""
    runs = run_table(world, played.occupied(world.first, world.instances))
    waiting = waiting_of(world, played)
    mine = waiting.waits[waiting.waits.job == row]
    begin, end, group = _pieces(mine, _instants(world, played, waiting, runs))
    pieces, whole = len(begin), len(mine)
    # The last rows are the whole waits: as long as one lasts, its group is not taken off the list and put on again.
    rows = table(
        pieces + whole, WAIT, job=np.append(np.arange(pieces), np.full(whole, pieces)),
        group=np.append(group, mine.group), begin=np.append(begin, mine.begin), end=np.append(end, mine.end),
    )  # fmt: skip
    order = np.argsort(rows.begin, kind="stable")
    rows = rows[order]
    one = waiting._replace(
        waits=rows, by_end=np.argsort(rows.end, kind="stable"), ledger=np.zeros((pieces + 1, COUNT)),
        before=np.zeros(pieces + 1),
    )  # fmt: skip
    if pieces:
        replay(world, played, one, runs, None, waiting.waits)
    seconds = one.ledger[:pieces]
    reason = np.argmax(seconds, axis=1) if pieces else np.zeros(0, dtype=np.int64)
    if not np.array_equal(seconds[np.arange(pieces), reason], end - begin):
        msg = f"a reason of job {row} changes between two instants"
        raise AssertionError(msg)
    charged = _known(world, played, row)
    return WaitSegments(
        np.append(begin, charged.begin), np.append(end, charged.end), np.append(reason, charged.reason)
    ).merged()


def _known(world: World, played: Schedule, row: int) -> WaitSegments:
    """Return the waits of a job whose reasons the loops tell, not the schedule."""
    of_job = np.arange(len(world.submit)) == row
    _, _, charged = explained(world, played, waits(world, played).of(of_job))
    parts = [(spent.begin, spent.end, np.full(len(spent.job), reason)) for spent, reason in charged]
    empty = (np.zeros(0), np.zeros(0), np.zeros(0, dtype=np.int64))
    begin, end, reason = (np.concatenate(column) for column in zip(empty, *parts, strict=True))
    return WaitSegments(begin, end, reason)


def _instants(world: World, played: Schedule, waiting: Waiting, runs: RunTable) -> Floats:
    """Return the instants at which the replay of all jobs assigns reasons."""
    times = [waiting.waits.begin, waiting.waits.end, runs.runs.begin, runs.runs.end, switches_of(played).time]
    if played.rules is not None:
        times += [played.rules.marks, runs.runs.end + played.rules.epilog]
    return np.unique(np.concatenate(times))


def _pieces(mine: Records, instants: Floats) -> tuple[Floats, Floats, Ints]:
    """Cut waits at instants; return begin, end and group of each piece."""
    parts = []
    for wait in mine:
        inside = instants[(instants > wait.begin) & (instants < wait.end)]
        edges = np.concatenate(([wait.begin], inside, [wait.end]))
        parts.append((edges[:-1], edges[1:], np.full(len(edges) - 1, wait.group)))
    empty = (np.zeros(0), np.zeros(0), np.zeros(0, dtype=np.int64))
    begin, end, group = (np.concatenate(column) for column in zip(empty, *parts, strict=True))
    return begin, end, group


BEHIND = (BY_RESERVATION, BY_HEAD)


def queue_heads(world: World, played: Schedule, row: int, segments: WaitSegments) -> tuple[Ints, Floats, Floats]:
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


def _ahead(world: World, played: Schedule, row: int) -> Waits:
    """Return the waits of jobs that are ahead of one in the queue: by their rank, then by their submission."""
    assert played.keys is not None
    keys, rows = played.keys, np.arange(len(world.submit))
    ahead = (keys < keys[row]) | ((keys == keys[row]) & (rows < row))
    return waits(world, played).of(ahead)


def _first_in_queue(queue: Waits, keys: Floats, begin: float, end: float) -> tuple[Ints, Floats, Floats]:
    """Return who of some waiting jobs is first by rank when, between two times."""
    inside = queue.rows(np.flatnonzero((queue.begin < end) & (queue.end > begin)))
    waiting: list[tuple[float, int, float]] = []  # rank, job, until
    heads: list[tuple[int, float, float]] = []
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
            if heads and heads[-1][0] == who and heads[-1][2] == now:
                heads[-1] = (who, heads[-1][1], after)
            else:
                heads.append((who, now, after))
    job, first, last = np.array(heads, dtype=np.float64).reshape(-1, 3).T
    return job.astype(np.int64), first, last


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


def blockers(world: World, played: Schedule, row: int, segments: WaitSegments) -> Blockers:
    """Return who held what a job was missing, and who else ran where it could have."""
    runs, mine = (
        played.occupied(world.first, world.instances),
        waits(world, played).of(np.arange(len(world.submit)) == row),
    )
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
    long, amount = np.diff(edges), np.zeros((len(edges), WIDTH), dtype=np.int64)
    np.add.at(amount, np.searchsorted(edges, begin), amounts[there])
    np.add.at(amount, np.searchsorted(edges, end), -amounts[there])
    amount = np.cumsum(amount, axis=0)[:-1]
    of = np.searchsorted(since, edges[:-1], side="right") - 1  # segments follow each other without a gap
    missing = resource[of]
    total = np.where(missing >= 0, amount[np.arange(len(long)), missing], 0)
    clock = np.zeros((len(edges), WIDTH))
    some = np.flatnonzero(total > 0)
    clock[some + 1, missing[some]] = long[some] / total[some]
    clock = np.cumsum(clock, axis=0)
    ran = clock[np.searchsorted(edges, end)] - clock[np.searchsorted(edges, begin)]
    return (ran * amounts[there]).sum(axis=1), float(long[total == 0].sum())
