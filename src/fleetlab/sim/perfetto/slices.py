"""Slices of a trace: what ran on each GPU from when to when, in lanes where a GPU is shared."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fleetlab.core.censoring import Bools
from fleetlab.sim.layout import RUNNING, Floats, Ints
from fleetlab.sim.perfetto.lanes import assign_lanes
from fleetlab.sim.schedule import Played, Segments
from fleetlab.sim.world import World

# How a run ended.
ENDS = ("done", "time limit", "cut short", "preempted", "node down", "still running")
DONE, TIME_LIMIT, CUT_SHORT, PREEMPTED, NODE_DOWN, STILL_RUNNING = range(len(ENDS))


@dataclass(frozen=True, slots=True, eq=False)
class Slices:
    """One entry per run and GPU; per run and instance, where it has no GPU. Those of a run follow each other."""

    run: Ints  # a row of `Played.runs`
    track: Ints  # a row of `World.gpus`; from there on, nodes: what runs there without GPUs
    lane: Ints  # 0, or higher where others are on the same track
    begin: Floats  # from second 0 on
    end: Floats  # until the simulation stops
    first: Bools  # of its run

    def __len__(self) -> int:
        return len(self.run)


def slices(world: World, played: Played, runs: Segments) -> Slices:
    """Return what ran where from second 0 until the simulation stopped."""
    begin, end = np.maximum(runs.begin, 0.0), np.minimum(runs.end, played.stopped)
    inside = (end > begin) | ((runs.begin == runs.end) & (runs.begin >= 0))
    kept = np.flatnonzero(inside)
    count = runs.instances(world.instances)[kept]
    run = np.repeat(kept, count)
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


def ends(world: World, played: Played, runs: Segments, timed_out: Bools) -> Ints:
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


def _broken(world: World, played: Played, runs: Segments, rows: Ints) -> Ints:
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
