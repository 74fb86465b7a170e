"""The wait ledger of a schedule: the seconds each job waited, by reason and by who holds what is missing."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fleetlab.core.catalog import BACKFILLS, HOLDERS
from fleetlab.sim.codes import BY_ELIGIBLE, BY_HEAD, BY_LIMIT, BY_RESERVATION, BY_SCHEDULER
from fleetlab.sim.jit import compile_notice
from fleetlab.sim.layout import TICK, Floats, Ints, NodeView, Records, table, writable
from fleetlab.sim.ledger.holders import WIDTH, Holding
from fleetlab.sim.ledger.reasons import (
    COUNT,
    SHAPE_ROOM,
    STAGES,
    WAIT,
    WAITING_GROUP,
    NodeSums,
    Switches,
    Waiting,
    replay_waits,
)
from fleetlab.sim.ledger.rules import Looks, alike, anew, first_after
from fleetlab.sim.ledger.waits import Charged, Waits, pieces, seconds_between, waits
from fleetlab.sim.quota import NO_QUOTAS, copied
from fleetlab.sim.schedule import Schedule, Segments
from fleetlab.sim.schedule_check import RunTable
from fleetlab.sim.timeline import run_table
from fleetlab.sim.world import World, groups_of

SEEN = -1  # in place of the reason why a scheduler has not looked
PAIRS = 1_000_000_000  # of a waiting job and a run that begins or ends meanwhile: about ten seconds


@dataclass(frozen=True, slots=True, eq=False)
class Holders:
    """Who held what jobs were missing."""

    job: Ints  # [jobs measured]: the row in the world
    seconds: Floats  # [jobs measured, HOLDERS]; they sum to the wait of the job
    by_user: Floats  # [users of the world]: of all jobs that waited, seconds


def ledger(world: World, played: Schedule, *, within: tuple[float, float] | None = None) -> Floats:
    """Return the seconds each job that is measured waited, by reason: [jobs, reasons]; 0 of those before.

    `within` counts those between two times only, and none in which a job may not start yet.
    """
    waiting, runs = waiting_of(world, played, within), run_table(world, played.occupied(world.first, world.instances))
    replay(world, played, waiting, runs, None)
    return waiting.ledger


def ledger_over_time(world: World, played: Schedule, edges: Floats) -> Floats:
    """Return the seconds that jobs waited from each edge of time to the next, by reason: [edges - 1, reasons]."""
    waiting, runs = waiting_of(world, played), run_table(world, played.occupied(world.first, world.instances))
    whole, last = waiting.waits, len(edges) - 1
    out = np.zeros((last + 1, COUNT))
    # Each wait is cut at the edges, and a piece is charged to its interval of time in the place of its job. The waits
    # themselves stay, charged to a row that nobody reads: without them groups would end and begin at every edge.
    row, interval, begin, end = pieces(whole.begin, whole.end, edges)
    row, interval = np.append(np.arange(len(whole)), row), np.append(np.full(len(whole), last), interval)
    begin, end = np.append(whole.begin, begin), np.append(whole.end, end)
    order = np.argsort(begin, kind="stable")
    rows = table(len(row), WAIT, job=interval[order], group=whole.group[row[order]], begin=begin[order], end=end[order])
    by_end = np.argsort(rows.end, kind="stable")
    replay(world, played, waiting._replace(waits=rows, by_end=by_end, ledger=out), runs, None, jobs=whole)
    for charged, reason in explained(world, played, _measured_waits(world, played))[2]:
        out[:last, reason] += seconds_between(charged.begin, charged.end, edges)
    return out[:last]


def holders(world: World, played: Schedule, *, pairs: int = PAIRS, seed: int = 0) -> Holders:
    """Return who held what jobs were missing; of a sample of the jobs where `pairs` would be exceeded."""
    waiting, runs = waiting_of(world, played), run_table(world, played.occupied(world.first, world.instances))
    sample = _sample(world, waiting.waits, runs, pairs, seed)
    sample[world.frame["job"].to_numpy() < 0] = False
    keys = np.zeros(len(world.submit)) if played.keys is None else played.keys
    holding = _holding(world, waiting.waits, keys, sample)
    replay(world, played, waiting, runs, holding)
    rows = np.flatnonzero(sample)
    seconds = np.rint(holding.seconds[rows] / TICK) * TICK  # on the tick, so that they add up
    wait = np.bincount(waiting.waits.job, waiting.waits.end - waiting.waits.begin, minlength=len(world.submit))
    most = np.argmax(seconds, axis=1)
    seconds[np.arange(len(rows)), most] += wait[rows] - seconds.sum(axis=1)
    seconds[:, HOLDERS.index("nobody")] += waiting.before[rows]
    return Holders(rows, seconds, np.maximum(holding.by_user, 0.0))


def replay(
    world: World, played: Schedule, waiting: Waiting, runs: RunTable, holding: Holding | None,
    jobs: Records | None = None,
) -> None:  # fmt: skip
    """Replay a schedule and charge what waits; `jobs` are the waits that tell a job of each group, else those."""
    rules = None
    if played.rules is not None:
        rules = anew(played.rules, waiting.waits if jobs is None else jobs, len(waiting.groups))
    with compile_notice():
        replay_waits(runs, switches_of(played), waiting, _nodes(world, played), holding, rules)


def _sample(world: World, rows: Records, runs: RunTable, pairs: int, seed: int) -> NDArray[np.bool_]:
    """Choose the jobs whose waits are divided: all, or so many that there are about `pairs` steps."""
    changes = np.sort(np.concatenate((runs.runs.begin, runs.runs.end)))
    steps = np.searchsorted(changes, rows.end) - np.searchsorted(changes, rows.begin)
    total = float(steps.sum())
    if total <= pairs:
        return np.ones(len(world.submit), dtype=bool)
    return np.random.default_rng(seed).random(len(world.submit)) < pairs / total


def _holding(world: World, rows: Records, keys: Floats, sample: NDArray[np.bool_]) -> Holding:
    """Make the tables of what is held, before anything runs."""
    shapes, every = world.shapes, np.bitwise_or.reduce(world.nodes.node_class, initial=0)
    classes = int(every).bit_length()
    everywhere = (shapes.gpus == 0) & (shapes.types & every == every)
    masks, mask_of = np.unique(np.where(everywhere, -1, shapes.types), return_inverse=True)
    divided = sample[rows.job]
    mine = rows[divided]
    times = np.concatenate((mine.begin, mine.end))
    steps = np.concatenate((np.ones(len(mine), dtype=np.int64), -np.ones(len(mine), dtype=np.int64)))
    most = int(np.cumsum(steps[np.lexsort((steps, times))]).max(initial=0)) + 1  # at one instant ends come first
    return Holding(
        keys=keys, tracked=_zeros(most), slot=np.where(divided, 0, -1), amounts=_zeros(most, 3, WIDTH),
        of_class=_zeros(classes, WIDTH), of_run=_zeros(classes, WIDTH), masks=masks.astype(np.int64),
        mask_of=mask_of.astype(np.int64), waiting=np.zeros((len(masks), WIDTH)), clock=np.zeros((len(masks), WIDTH)),
        seconds=np.zeros((len(world.submit), len(HOLDERS))), by_user=np.zeros(max(1, len(world.users))),
        sizes=_zeros(1),
    )  # fmt: skip


def _zeros(*shape: int) -> Ints:
    return np.zeros(shape, dtype=np.int64)


def waiting_of(world: World, played: Schedule, within: tuple[float, float] | None = None) -> Waiting:
    """Return what waits, before anything is replayed."""
    every = _measured_waits(world, played)
    intervals, unseen, charged = explained(world, played, every)
    seconds = np.zeros((len(world.submit), COUNT))
    for spent, reason in charged:
        np.add.at(seconds[:, reason], spent.job, spent.end - spent.begin)
    if played.admitted is not None:
        intervals, _ = intervals.split(played.admitted[intervals.job])
        unseen = np.where(intervals.begin < world.submit[intervals.job], BY_SCHEDULER, SEEN)
    if within is not None:
        inside = np.flatnonzero((intervals.begin < within[1]) & (intervals.end > within[0]))
        intervals, unseen = intervals.rows(inside).clipped(*within), unseen[inside]
        seconds[:] = 0.0
    groups, of = _groups(world, played, intervals, unseen)
    rows = table(
        len(intervals.job), WAIT, job=intervals.job, group=of, begin=intervals.begin, end=intervals.end,
    )  # fmt: skip
    by_end = np.argsort(intervals.end, kind="stable")
    shapes = table(len(world.shapes), SHAPE_ROOM, as_of=-1)
    listed, counted = _zeros(len(groups)), _zeros(len(world.shapes))
    return Waiting(rows, by_end, groups, listed, shapes, counted, seconds, seconds.sum(axis=1))


def _measured_waits(world: World, played: Schedule) -> Waits:
    return waits(world, played).of(world.frame["job"].to_numpy() >= 0)


def _groups(world: World, played: Schedule, intervals: Waits, unseen: Ints) -> tuple[Records, Ints]:
    """Return the groups of jobs with the same reason to wait, and the group of each interval.

    A job that the scheduler has not looked at is in a group of its own: that, or the limit for which it did not, keeps
    it waiting, whatever the rule. So is one that may not be submitted yet.
    """
    by = None if played.rules is None else alike(played.rules)
    groups, group = groups_of(world, WAITING_GROUP, played.member, by)
    rule, waits_behind = BACKFILLS[played.backfill], played.backfill == "none"
    groups.blocked = BY_RESERVATION if rule.reserves else BY_HEAD if waits_behind else BY_SCHEDULER
    admitted = world.submit if played.admitted is None else played.admitted
    seen, kinds = unseen == SEEN, len(groups)
    outside = seen & (intervals.begin < admitted[intervals.job])
    if seen.all() and not outside.any():
        return groups, group[intervals.job]
    by_loop, which = np.unique(unseen[~seen], return_inverse=True)
    groups = writable(groups[np.tile(np.arange(kinds), 2 + len(by_loop))])
    groups.outside[kinds : 2 * kinds] = 1
    groups.blocked[2 * kinds :] = np.repeat(by_loop, kinds)
    block = outside.astype(np.int64)
    block[~seen] = 2 + which
    return groups, group[intervals.job] + block * kinds


def explained(world: World, played: Schedule, every: Waits) -> tuple[Waits, Ints, list[Charged]]:
    """Return intervals that the schedule explains, why no loop has looked in each, and those of known reasons.

    A scheduler that looks in cycles first looks at `submit`. Slurm's loops look again and again: where a job fits, it
    is the scheduler that keeps it waiting from when something was freed after the last look that left it waiting.
    """
    if played.looks is None:
        intervals, unseen = every.split(world.submit[every.job])
        return intervals, np.where(unseen, BY_SCHEDULER, SEEN), []
    looks, runs = played.looks, played.runs(world.first)
    eligible = np.minimum(every.of_run(looks.eligible, looks.last_eligible), every.end)
    begin = np.maximum(every.begin, eligible)
    charged = [(replace(every, end=begin).rows(np.flatnonzero(begin > every.begin)), BY_ELIGIBLE)]
    later = np.flatnonzero(begin < every.end)
    may_start = replace(every, begin=begin).rows(later[np.lexsort((every.job[later], begin[later]))])
    may_start, at_limit = _within_minutes(may_start, looks)
    charged += at_limit
    looked = may_start.of_run(looks.looked, looks.last_looked)
    since = np.where(np.isinf(looked), looked, first_after(looked, _freed(played, runs)))
    intervals, seen = may_start.split(since)
    limit = intervals.of_run(looks.skipped, looks.last_skipped)
    return intervals, np.where(seen, SEEN, np.where(limit > 0, limit, BY_SCHEDULER)), charged


def _within_minutes(waits: Waits, looks: Looks) -> tuple[Waits, list[Charged]]:
    """Return the waits without the time in which loops found jobs at limits on minutes, and that time."""
    if not (looks.limited_since < looks.limited_until).any():
        return waits, []
    for bound in (looks.limited_since, looks.limited_until):
        waits, _ = waits.split(bound[waits.job])
    at_limit = (looks.limited_since[waits.job] <= waits.begin) & (waits.end <= looks.limited_until[waits.job])
    return waits.rows(np.flatnonzero(~at_limit)), [(waits.rows(np.flatnonzero(at_limit)), BY_LIMIT)]


def _freed(played: Schedule, runs: Segments) -> Floats:
    """Return when something became free: a run ended, with its epilog, or a node came back."""
    epilog = 0.0 if played.rules is None else played.rules.epilog
    back = () if played.up is None else (played.up.begin,)
    resumed = () if played.draining is None else (played.draining.end,)
    return np.concatenate((runs.end + epilog, *back, *resumed))


def _nodes(world: World, played: Schedule) -> NodeSums:
    """Make the tables of empty nodes, of which all take jobs, or, where nodes change, none yet."""
    kinds, nobody = world.nodes, np.full(len(world.submit), -1)
    number = np.array([int(bit).bit_length() - 1 for bit in kinds.node_class], dtype=np.int64)
    free = _zeros(int(number.max(initial=0)) + 1, 1 + kinds.free.shape[1])
    if played.up is None:
        np.add.at(free, number, np.column_stack((kinds.free_gpu, kinds.free)))
    now, empty = (NodeView(writable(world.nodes), writable(world.gpus), writable(world.apps)) for _ in range(2))
    return NodeSums(
        now=now, empty=empty, level=np.full(len(kinds), played.up is None, dtype=np.int64),
        shapes=writable(world.shapes), shape_of=world.shape, class_number=number,
        free=free, quotas=copied(NO_QUOTAS if played.quotas is None else played.quotas),
        member=nobody if played.member is None else played.member,
        slots=_zeros(len(kinds)), scratch=_zeros(STAGES), sizes=_zeros(3),
    )  # fmt: skip


def switches_of(played: Schedule) -> Switches:
    """Return when nodes begin and cease to take jobs: as they come up and go down, are drained and resume."""
    if played.up is None:
        return Switches(np.zeros(0), _zeros(0), _zeros(0))
    parts = [(played.up, 1)] + ([(played.draining, -1)] if played.draining is not None else [])
    time = np.concatenate([np.concatenate((part.begin, part.end)) for part, _ in parts])
    node = np.concatenate([np.concatenate((part.node, part.node)) for part, _ in parts])
    change = np.concatenate([np.repeat((sign, -sign), len(part.node)) for part, sign in parts])
    order = np.argsort(time, kind="stable")
    order = order[time[order] < np.inf]
    return Switches(time[order], node[order], change[order])
