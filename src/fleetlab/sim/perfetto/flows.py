"""Flows of a trace: which slice took the place of which, which goes on, and who passed whom in the queue."""

from __future__ import annotations

from dataclasses import dataclass, replace
from heapq import heappop, heappush

import numpy as np

from fleetlab.sim.layout import Floats, Ints
from fleetlab.sim.ledger.waits import Waits, waits
from fleetlab.sim.perfetto.slices import NODE_DOWN, PREEMPTED, Slices
from fleetlab.sim.schedule import Played, Segments
from fleetlab.sim.world import World


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


def flows(world: World, played: Played, runs: Segments, ends: Ints, s: Slices) -> Flows:
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


def overtaken(world: World, played: Played, runs: Segments) -> tuple[Ints, Ints, Ints]:
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
    found, came = [], 0
    for run in np.argsort(runs.begin, kind="stable").tolist():
        now, mine = starts[run], of_run[run]
        while came < len(job) and begin[came] <= now:
            heappush(lines.setdefault(queue[job[came]], []), (ranks[job[came]], job[came], came))
            came += 1
        line = lines.get(queue[mine], [])
        while line and end[line[0][2]] <= now:
            heappop(line)
        if line and line[0][:2] < (ranks[mine], mine):
            found.append((run, line[0][2]))
    return found
