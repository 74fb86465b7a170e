"""Sums over time, compiled: which job is on which GPU when, and GPU time by row of a tile and bin of time."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from fleetlab.sim.jit import inner, loop
from fleetlab.sim.layout import Floats, Ints, NodeView, Record, Records
from fleetlab.sim.placements import fragmentation
from fleetlab.sim.schedule_check import RunTable, _begin, _end

Small = Any  # an array of small integers
CATEGORIES = 16  # that a tile tells apart, at most; 0 is none


class GpuRuns(NamedTuple):
    """What ran on each GPU: entries `first[g]` to `first[g + 1]` are of GPU g."""

    first: Ints  # [GPUs + 1]
    begin: Floats
    end: Floats
    job: Small


@loop
def count_gpu_runs(of: RunTable, first_gpu: Ints, row_of_gpu: Ints, stopped: float, count: Ints) -> None:
    """Count the runs on each GPU, by its place, that take time between 0 and `stopped`; `count` has one entry more."""
    for k in range(len(of.runs)):
        run = of.runs[k]
        if of.shapes[run.shape_id].gpus == 0 or min(run.end, stopped) <= max(run.begin, 0.0):
            continue
        for i in range(run.first, run.first + run.instances):
            g, bits = first_gpu[of.node[i]], of.gpus[i]
            while bits:
                if bits & 1:
                    count[row_of_gpu[g] + 1] += 1
                bits >>= 1
                g += 1


@loop
def fill_gpu_runs(
    of: RunTable, first_gpu: Ints, row_of_gpu: Ints, stopped: float, next_entry: Ints, out: GpuRuns
) -> None:
    """Write the runs on each GPU."""
    for k in range(len(of.runs)):
        run = of.runs[k]
        end = min(run.end, stopped)
        if of.shapes[run.shape_id].gpus == 0 or end <= max(run.begin, 0.0):
            continue
        for i in range(run.first, run.first + run.instances):
            g, bits = first_gpu[of.node[i]], of.gpus[i]
            while bits:
                if bits & 1:
                    row = row_of_gpu[g]
                    at = next_entry[row]
                    out.begin[at], out.end[at], out.job[at] = run.begin, end, run.job
                    next_entry[row] = at + 1
                bits >>= 1
                g += 1


@inner
def add_between(begin: float, end: float, since: float, width: float, amount: float, out: Floats) -> None:
    """Add `amount` for each second from `begin` to `end` to the bins that it lies in."""
    bins = len(out)
    begin, end = max(begin, since), min(end, since + width * bins)
    if end <= begin:
        return
    first = min(bins - 1, int((begin - since) / width))
    last = min(bins - 1, int((end - since) / width))
    if first == last:
        out[first] += amount * (end - begin)
        return
    out[first] += amount * (since + (first + 1) * width - begin)
    for k in range(first + 1, last):
        out[k] += amount * width
    out[last] += amount * (end - (since + last * width))


@loop
def sum_tile(
    runs: GpuRuns, edges: Ints, since: float, width: float, amount: Floats, category: Small, out: Floats, most: Small
) -> None:
    """Sum `amount` × seconds by row and bin, and write the category that has most of it; 0 where nothing runs.

    Rows are the GPUs from one of `edges` to the next; `amount` and `category` are of jobs.
    """
    bins = out.shape[1]
    until = since + width * bins
    parts = np.zeros((CATEGORIES, bins))
    for row in range(len(edges) - 1):
        empty = True
        for k in range(runs.first[edges[row]], runs.first[edges[row + 1]]):
            if runs.end[k] > since and runs.begin[k] < until:
                job, empty = runs.job[k], False
                add_between(runs.begin[k], runs.end[k], since, width, amount[job], parts[category[job]])
        if empty:
            continue
        for b in range(bins):
            total, best, largest = 0.0, 0, 0.0
            for c in range(CATEGORIES):
                total += parts[c, b]
                if parts[c, b] > largest:
                    best, largest = c, parts[c, b]
            out[row, b], most[row, b] = total, best
        parts[:, :] = 0.0


@loop
def sum_spells(
    first: Ints, end: Ints, begins: Floats, ends: Floats, edges: Ints, since: float, width: float, out: Floats
) -> None:
    """Add the seconds of spells on GPUs `first` to `end` to the rows and bins that they lie in."""
    for k in range(len(begins)):
        for g in range(max(first[k], edges[0]), min(end[k], edges[-1])):
            row = np.searchsorted(edges, g, side="right") - 1
            add_between(begins[k], ends[k], since, width, 1.0, out[row])


@loop
def sum_intervals(begins: Floats, ends: Floats, since: float, width: float, out: Floats) -> None:
    """Add the seconds of intervals to the bins that they lie in."""
    for k in range(len(begins)):
        add_between(begins[k], ends[k], since, width, 1.0, out)


@loop
def find_runs(runs: GpuRuns, first: int, end: int, time: float, out: Ints) -> int:
    """Write which entries of GPUs `first` to `end` run at a time, as many as fit; return how many run."""
    count = 0
    for k in range(runs.first[first], runs.first[end]):
        if runs.begin[k] <= time < runs.end[k]:
            if count < len(out):
                out[count] = k
            count += 1
    return count


@inner
def mark(run: Record, of: RunTable, changed: Ints) -> None:
    """Note that the nodes of a run have changed."""
    for i in range(run.first, run.first + run.instances):
        changed[of.node[i]] = 1


@loop
def sample_fragments(of: RunTable, state: NodeView, times: Floats, row: Ints, typical: Records, out: Floats) -> None:
    """Write at `times` which share of what is free on a node typical shapes cannot use: `out[time, row of the node]`.

    Only nodes that have changed are measured again: it takes a microsecond or more each.
    """
    runs, b, e = of.runs, 0, 0
    changed, now = np.ones(len(state.nodes), dtype=np.int64), np.zeros(len(state.nodes))
    for k in range(len(times)):
        while True:
            begin = runs[of.by_begin[b]].begin if b < len(of.by_begin) else np.inf
            end = runs[of.by_end[e]].end if e < len(of.by_end) else np.inf
            if min(begin, end) > times[k]:
                break
            if end <= begin:  # what ends comes before what begins
                mark(runs[of.by_end[e]], of, changed)
                _end(runs[of.by_end[e]], of, state)
                e += 1
            else:
                run = runs[of.by_begin[b]]
                b += 1
                if run.end > run.begin:
                    mark(run, of, changed)
                    _begin(run, of, state)
        for n in range(len(state.nodes)):
            if row[n] < 0:
                continue
            if changed[n]:
                node, free = state.nodes[n], 0
                for g in range(node.first_gpu, node.end_gpu):
                    free += state.gpus[g].free
                now[n] = fragmentation(node, state.gpus, node.free_cpu, typical) / free if free else 0.0
                changed[n] = 0
            out[k, row[n]] = now[n]
