"""What a trace shows: slices of GPUs in lanes, counters over time, and flows between slices."""

from __future__ import annotations

from dataclasses import dataclass, replace
from heapq import heappop, heappush
from typing import TYPE_CHECKING

import numpy as np

from fleetlab.core.catalog import REASONS
from fleetlab.core.censoring import Bools
from fleetlab.sim.jit import loop
from fleetlab.sim.layout import RUNNING, WHOLE, Floats, Ints
from fleetlab.sim.ledger.waits import Waits, waits
from fleetlab.sim.schedule import Schedule, Segments
from fleetlab.sim.world import World

if TYPE_CHECKING:
    from fleetlab.sim.result import SimResult


@loop
def assign_lanes(order: Ints, track: Ints, begin: Floats, end: Floats, lane: Ints) -> None:
    """Give each slice the lowest lane of its track that is free; `order` sorts them by track and begin."""
    ends, used, now = np.zeros(len(order)), 0, -1
    for k in order:
        if track[k] != now:
            now, used = track[k], 0
        chosen = 0
        while chosen < used and ends[chosen] > begin[k]:
            chosen += 1
        used = max(used, chosen + 1)
        ends[chosen], lane[k] = end[k], chosen


# How a run ended.
ENDS = ("done", "time limit", "cut short", "preempted", "node down", "still running")
DONE, TIME_LIMIT, CUT_SHORT, PREEMPTED, NODE_DOWN, STILL_RUNNING = range(len(ENDS))


@dataclass(frozen=True, slots=True, eq=False)
class Slices:
    """One entry per run and GPU; per run and instance, where it has no GPU. Those of a run follow each other."""

    run: Ints  # a row of `Schedule.runs`
    track: Ints  # a row of `World.gpus`; from there on, nodes: what runs there without GPUs
    lane: Ints  # 0, or higher where others are on the same track
    begin: Floats  # from second 0 on
    end: Floats  # until the simulation stops
    first: Bools  # of its run

    def __len__(self) -> int:
        return len(self.run)


def slices(world: World, played: Schedule, runs: Segments) -> Slices:
    """Return what ran where from second 0 until the simulation stopped."""
    begin, end = np.maximum(runs.begin, 0.0), np.minimum(runs.end, played.stopped)
    inside = (end > begin) | ((runs.begin == runs.end) & (runs.begin >= 0))
    inside_run = np.flatnonzero(inside)
    count = runs.instances(world.instances)[inside_run]
    run = np.repeat(inside_run, count)
    instance = np.arange(len(run)) - np.repeat(np.cumsum(count) - count, count) + runs.first[run]
    run, track = _tracks(world, run, runs.where[instance], runs.got[instance])
    lane = np.zeros(len(run), dtype=np.int64)
    assign_lanes(np.lexsort((run, begin[run], track)), track, begin[run], end[run], lane)
    first = np.append(True, run[1:] != run[:-1]) if len(run) else np.zeros(0, dtype=bool)
    return Slices(run, track, lane, begin[run], end[run], first)


def _tracks(world: World, run: Ints, node: Ints, got: Ints) -> tuple[Ints, Ints]:
    """Return the run and the track of each GPU that an instance holds, and of each instance without GPUs."""
    of_node = np.flatnonzero(got == 0)
    rows, tracks = [of_node], [len(world.gpus) + node[of_node]]
    for bit in range(int(np.bitwise_or.reduce(got, initial=0)).bit_length()):
        holds = np.flatnonzero(got >> bit & 1)
        rows.append(holds)
        tracks.append(world.nodes.first_gpu[node[holds]] + bit)
    row, track = np.concatenate(rows), np.concatenate(tracks)
    order = np.lexsort((track, row))
    return run[row[order]], track[order]


def ends(world: World, played: Schedule, runs: Segments, timed_out: Bools) -> Ints:
    """Return how each run ended: a place in ENDS."""
    last = np.full(len(world.submit), -1)
    last[runs.job] = np.arange(len(runs.job))  # those of one job are in order of time
    is_last = last[runs.job] == np.arange(len(runs.job))
    of_job = np.where(timed_out, TIME_LIMIT, DONE)
    if played.cut is not None:
        of_job[played.cut > 0] = CUT_SHORT
    finished = is_last & ~np.isnan(played.end[runs.job])
    running = is_last & (played.status[runs.job] == RUNNING)
    out = np.where(finished, of_job[runs.job], np.where(running, STILL_RUNNING, PREEMPTED))
    broken = np.flatnonzero((out == PREEMPTED) & (played.failures[runs.job] > 0))
    out[broken] = _broken(world, played, runs, broken)
    return out


def _broken(world: World, played: Schedule, runs: Segments, rows: Ints) -> Ints:
    """Return which interrupted runs, of jobs that lost nodes, ended with a node: where both happened, a node tells."""
    up = played.up
    lost = set() if up is None else set(zip(up.node.tolist(), up.end.tolist(), strict=True))
    out = np.full(len(rows), NODE_DOWN)
    count = runs.instances(world.instances)
    for k, row in enumerate(rows.tolist()):
        job, first = int(runs.job[row]), int(runs.first[row])
        nodes = runs.where[first : first + int(count[row])].tolist()
        if played.preemptions[job] and not any((node, float(runs.end[row])) in lost for node in nodes):
            out[k] = PREEMPTED
    return out


FEWEST, MOST = 500, 50_000  # intervals of time
PIECES = 4_000_000  # of waits, cut at the ends of the intervals
DIGITS = 6  # of a value that are kept


def edges(result: SimResult, s: Slices) -> Floats:
    """Return times between which nothing changes; of a long run, times at equal distances."""
    world, played = result.world, result.played
    stopped = played.stopped
    times = [np.array([0.0, stopped]), s.begin, s.end, world.submitted, world.eligible, played.start + world.latency]
    if played.up is not None:
        times += [played.up.begin, played.up.end]
    instants = np.concatenate(times)
    instants = np.unique(instants[(instants >= 0) & (instants <= stopped)])  # without those that are not numbers
    waiting = float(result.jobs["wait"].sum()) / max(stopped, 1.0)
    most = int(np.clip(PIECES / max(waiting, 1e-9), FEWEST, MOST))
    return instants if len(instants) <= most + 1 else np.linspace(0.0, stopped, most + 1)


def waiting_jobs(result: SimResult, times: Floats) -> dict[str, Floats]:
    """Return the mean number of jobs that wait from each time to the next, by reason; of reasons that occur."""
    mean = result.waiting_over_time(times) / np.diff(times)[:, None]
    return {name: mean[:, k] for k, name in enumerate(REASONS.names) if mean[:, k].any()}


def allocated_gpus(result: SimResult, s: Slices, share: Floats, times: Floats) -> dict[str, Floats]:
    """Return the mean number of GPUs that are allocated from each time to the next, in all and by type."""
    world, played, frame = result.world, result.played, result.cluster.frame
    on_gpu = np.flatnonzero(s.track < len(world.gpus))
    types = frame["gpu_type"].to_list()
    of_gpu = [types[node] for node in world.gpus.node.tolist()]
    names = sorted({name for name in of_gpu if name is not None})
    number = np.array([names.index(name) if name in names else -1 for name in of_gpu], dtype=np.int64)
    type_of, milli = number[s.track[on_gpu]], np.rint(share[on_gpu] * WHOLE).astype(np.int64)
    begin, end = s.begin[on_gpu], s.end[on_gpu]
    levels = {"GPUs allocated": mean_level(begin, end, milli, times) / WHOLE}
    if len(names) > 1:
        for k, name in enumerate(names):
            mine = type_of == k
            levels[f"{name} allocated"] = mean_level(begin[mine], end[mine], milli[mine], times) / WHOLE
    if played.up is not None:
        there = (world.nodes.end_gpu - world.nodes.first_gpu)[played.up.node]
        levels["GPUs up"] = mean_level(played.up.begin, played.up.end, there, times)
    return levels


def mean_level(begin: Floats, end: Floats, amount: Ints, times: Floats) -> Floats:
    """Return the mean sum of amounts, each of which lasts from a begin to an end, from each time to the next."""
    when = np.concatenate((begin, end))
    change = np.concatenate((amount, -amount))
    order = np.argsort(when, kind="stable")
    when, change = when[order], change[order]
    level = np.append(0, np.cumsum(change))[np.searchsorted(when, times[:-1], side="right")]
    within = np.searchsorted(times, when, side="left") - 1  # changes at the first time are in the level
    inside = np.flatnonzero((within >= 0) & (within < len(times) - 1))
    k, width = within[inside], np.diff(times)
    later = times[k + 1] - when[inside]
    rest = np.bincount(k, np.where(later < width[k], change[inside] * later, 0.0), minlength=len(width))
    return np.asarray(level + rest / width, dtype=np.float64)


@dataclass(frozen=True, slots=True, eq=False)
class Flows:
    """Numbers of flows by slice, 0: none. A flow leaves slices and arrives at a later one."""

    preempted: Ints  # leaves a slice that another takes the place of
    preempts: Ints  # arrives at that
    interrupted: Ints  # leaves a run that goes on later
    resumes: Ints  # arrives at the next run
    passes: Ints  # leaves jobs that start before one ahead of them
    passed: Ints  # arrives at that
    ahead: Ints  # by slice: the row of the job that it passed, -1: none


def flows(world: World, played: Schedule, runs: Segments, ends: Ints, s: Slices) -> Flows:
    """Return the flows of a run."""
    preempted, preempts = _taken_over(s, ends)
    base = len(s)
    interrupted, resumes = _resumed(runs, ends, s, base)
    ahead, by_run, arrives = overtaken(world, played, runs)
    base += len(runs.job)
    shown = np.zeros(len(arrives), dtype=bool)
    shown[s.run] = True  # a flow to a run that is not in the trace would end nowhere
    head = np.zeros(len(by_run) + 1, dtype=np.int64)
    head[arrives[arrives > 0]] = shown[arrives > 0]
    leaves = by_run * head[by_run]
    first = s.first
    return Flows(
        preempted, preempts, interrupted, resumes,
        passes=np.where(first & (leaves[s.run] > 0), leaves[s.run] + base, 0),
        passed=np.where(first & (arrives[s.run] > 0), arrives[s.run] + base, 0),
        ahead=np.where(leaves[s.run] > 0, ahead[s.run], -1),
    )  # fmt: skip


def _taken_over(s: Slices, ends: Ints) -> tuple[Ints, Ints]:
    """Join slices that were preempted with those that begin on the same GPU at that instant."""
    leaves, arrives = np.zeros(len(s), dtype=np.int64), np.zeros(len(s), dtype=np.int64)
    put_off = np.flatnonzero(ends[s.run] == PREEMPTED)
    begins = (
        dict(zip(zip(s.track.tolist(), s.begin.tolist(), strict=True), range(len(s)), strict=True))
        if len(put_off)
        else {}
    )
    for k in put_off.tolist():
        other = begins.get((int(s.track[k]), float(s.end[k])), -1)
        if other >= 0 and s.run[other] != s.run[k] and not arrives[other]:
            leaves[k] = arrives[other] = k + 1
    return leaves, arrives


def _resumed(runs: Segments, ends: Ints, s: Slices, base: int) -> tuple[Ints, Ints]:
    """Join the runs of a job that was interrupted."""
    leaves, arrives = np.zeros(len(s), dtype=np.int64), np.zeros(len(s), dtype=np.int64)
    order = np.lexsort((runs.begin, runs.job))
    following = np.full(len(runs.job), -1)
    same = np.flatnonzero(runs.job[order][1:] == runs.job[order][:-1])
    following[order[same]] = order[same + 1]
    first = np.full(len(runs.job), -1)
    first[s.run[s.first]] = np.flatnonzero(s.first)
    broken = np.isin(ends, (PREEMPTED, NODE_DOWN)) & (following >= 0) & (first >= 0)
    rows = np.flatnonzero(broken)
    rows = rows[first[following[rows]] >= 0]
    leaves[first[rows]] = arrives[first[following[rows]]] = base + 1 + rows
    return leaves, arrives


def overtaken(world: World, played: Schedule, runs: Segments) -> tuple[Ints, Ints, Ints]:
    """Return the job at the head of the queue that each run passed, and by run the flow that leaves and that arrives.

    A run passes a job that waits when it begins and is ahead of its job: by the ranks of the queue, or, where those
    change with time, by submission. Jobs that name other partitions are in another queue.
    """
    rank = world.submit if played.keys is None else played.keys
    waiting = waits(world, played)
    # Who takes the place of a job passes nobody: that job waits only from then on.
    again = waiting.begin > world.eligible[waiting.job]
    waiting = replace(waiting, begin=np.where(again, np.nextafter(waiting.begin, np.inf), waiting.begin))
    waiting = waiting.rows(np.argsort(waiting.begin, kind="stable"))
    ahead, leaves = np.full(len(runs.job), -1), np.zeros(len(runs.job), dtype=np.int64)
    for run, wait in _passed(world, runs, waiting, rank):
        ahead[run], leaves[run] = waiting.job[wait], max(0, int(waiting.run[wait]) + 1)
    arrives = np.zeros(len(runs.job), dtype=np.int64)
    used = np.unique(leaves[leaves > 0])
    arrives[used - 1] = used
    return ahead, leaves, arrives


def _passed(world: World, runs: Segments, waiting: Waits, rank: Floats) -> list[tuple[int, int]]:
    """Return runs with the wait of the first in line when they began, where that was ahead of them."""
    queue, job, begin, end = (x.tolist() for x in (world.queue, waiting.job, waiting.begin, waiting.end))
    ranks, of_run, starts = rank.tolist(), runs.job.tolist(), runs.begin.tolist()
    lines: dict[int, list[tuple[float, int, int]]] = {}
    passed, came = [], 0
    for run in np.argsort(runs.begin, kind="stable").tolist():
        now, mine = starts[run], of_run[run]
        while came < len(job) and begin[came] <= now:
            heappush(lines.setdefault(queue[job[came]], []), (ranks[job[came]], job[came], came))
            came += 1
        line = lines.get(queue[mine], [])
        while line and end[line[0][2]] <= now:
            heappop(line)
        if line and line[0][:2] < (ranks[mine], mine):
            passed.append((run, line[0][2]))
    return passed
