"""The plan of the backfill loop: spans of time, each with the nodes that no job is planned on."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fleetlab.schedulers.slurm.node_sets import WORD, add_node, count_nodes, drop_node, has_node, same_set, usable_set
from fleetlab.schedulers.slurm.select import copy_free, give_back, room_on, room_up_to
from fleetlab.schedulers.slurm.state import Settings, Slurm
from fleetlab.sim.jit import inner, inner_loop
from fleetlab.sim.layout import Floats, Ints

READY_ROWS = 64  # shapes of jobs for which it is known when nodes have room


class Plan(NamedTuple):
    """Spans of time, linked in order, and the nodes that are free of plans in each."""

    begin: Floats
    end: Floats
    following: Ints  # the next span, 0: none
    free: Ints  # [spans, words]
    size: Ints  # [1]: spans
    up: Ints  # [words]: nodes that take jobs
    usable: Ints  # [words]: scratch
    current: Ints  # [words]: scratch
    tried: Ints  # [words]: scratch: where the last try of a job was
    open: Ints  # [words]: nodes that had a free GPU when it was made


@inner
def on_grid(s: Slurm, time: float, resolution: float) -> float:
    """Return the last moment before a time whose Unix time is a multiple of the resolution."""
    return np.floor((time + s.clock.epoch) / resolution) * resolution - s.clock.epoch


@inner_loop
def new_plan(s: Slurm, settings: Settings) -> Plan:
    """Make a plan with one span, in which every node that is up is free."""
    most, words = 2 * min(settings.max_jobs, s.clock.pending + 1) + 4, s.partition_set.shape[1]
    plan = Plan(
        np.zeros(most), np.zeros(most), np.zeros(most, np.int64), np.zeros((most, words), np.int64),
        np.ones(1, np.int64), np.zeros(words, np.int64), np.zeros(words, np.int64), np.zeros(words, np.int64),
        np.zeros(words, np.int64), np.zeros(words, np.int64),
    )  # fmt: skip
    second, resolution = s.clock.second, settings.resolution
    plan.begin[0] = on_grid(s, second, resolution)
    plan.end[0] = on_grid(s, second + settings.window, resolution)
    for n in range(len(s.nodes)):
        if s.nodes[n].up and not s.nodes[n].drained:
            add_node(plan.up, n)
        if s.free.gpu[n]:
            add_node(plan.open, n)
    for w in range(words):
        plan.free[0, w] = plan.up[w]
    return plan


@inner
def split(plan: Plan, j: int, time: float) -> int:
    """Cut a span in two at a time, and return the second."""
    k = plan.size[0]
    plan.begin[k], plan.end[k], plan.end[j] = time, plan.end[j], time
    for w in range(plan.free.shape[1]):
        plan.free[k, w] = plan.free[j, w]
    plan.following[k], plan.following[j] = plan.following[j], k
    plan.size[0] += 1
    return k


@inner
def reserve(s: Slurm, plan: Plan, begin: float, end: float, nodes: int, resolution: float) -> None:
    """Take the chosen nodes out of the plan for a time, at least one step of the resolution."""
    begin = max(begin, plan.begin[0])
    end = max(end, begin + resolution)
    j, before = 0, 0
    while plan.end[j] < begin:
        before = j
        j = plan.following[j]
        if j == 0:
            return
    if plan.end[j] > begin:
        split(plan, j, begin)
    after = -1
    while plan.following[j]:
        j = plan.following[j]
        if end < plan.end[j]:
            split(plan, j, end)
        for k in range(nodes):
            drop_node(plan.free[j], s.chosen[k])
        if plan.end[j] == end:
            after = plan.following[j] if plan.following[j] else -1
            break
    join_equal(plan, before, after)


@inner
def join_equal(plan: Plan, j: int, after: int) -> None:
    """Join the first two spans in a row that have the same nodes."""
    while j != after:
        k = plan.following[j]
        if k == 0:
            return
        if same_set(plan.free[j], plan.free[k]):
            plan.end[j], plan.following[j] = plan.end[k], plan.following[k]
            return
        j = k


@inner
def overlaps_plan(s: Slurm, plan: Plan, begin: float, end: float, nodes: int) -> bool:
    """Return whether one of the chosen nodes is planned for another job in that time."""
    j = 0
    while True:
        if plan.end[j] > begin and plan.begin[j] < end:
            for k in range(nodes):
                if not has_node(plan.free[j], s.chosen[k]):
                    return True
        j = plan.following[j]
        if j == 0:
            return False


@inner
def span_at(plan: Plan, j: int, time: float) -> int:
    """Return the first span from `j` on that ends after a time, or the last."""
    while plan.end[j] <= time and plan.following[j]:
        j = plan.following[j]
    return j


@inner
def free_of_plans(plan: Plan, j: int, begin: float, end: float, least: int) -> float:
    """Leave in `current` the usable nodes that are free from `begin` to `end`; return when to try again, 0: never.

    `j` is the span of `begin`. Where fewer than `least` are left, how many does not matter.
    """
    later = 0.0
    for w in range(len(plan.usable)):
        plan.current[w] = plan.usable[w]
    while True:
        after = plan.following[j]
        if plan.end[j] > begin and after and later == 0.0 and frees_nodes(plan, j, after):
            later = plan.end[j]
        if plan.end[j] > begin:
            if plan.begin[j] > end:
                break
            for w in range(len(plan.current)):
                plan.current[w] &= plan.free[j, w]
            if later and count_nodes(plan.current) < least:
                break
        j = after
        if j == 0:
            break
    return later


@inner
def frees_nodes(plan: Plan, j: int, after: int) -> bool:
    """Return whether a usable node is free in the span after `j`, and was not until then."""
    for w in range(len(plan.usable)):
        if plan.usable[w] & plan.free[after, w] & ~(plan.current[w] & plan.free[j, w]):
            return True
    return False


@inner
def ready_row(s: Slurm, t: int, running: int) -> int:
    """Return the row of `ready_at` for jobs like this one; `by_end` lists the running jobs."""
    job = s.jobs[t]
    row = job.shape_id % READY_ROWS
    if s.ready_shape[row] == job.shape_id:
        return row
    s.ready_shape[row] = job.shape_id
    copy_free(s)
    for n in range(len(s.nodes)):
        s.ready_at[row, n] = -np.inf if room_up_to(1, job, n, s.then, s) else np.inf
    for k in range(running):
        other = s.by_end[k]
        ended = s.jobs[other]
        give_back(s, other, s.then, 1)
        for slot in range(ended.first_slot, ended.first_slot + ended.slots):
            n = s.slot_node[slot]
            if s.ready_at[row, n] == np.inf and room_up_to(1, job, n, s.then, s):
                s.ready_at[row, n] = ended.expected_end
    return row


@inner
def is_too_early(s: Slurm, plan: Plan, t: int, time: float, least: int, running: int) -> bool:
    """Return whether fewer than `least` of the nodes in `current` have room for an instance of a job by a time."""
    row, count = ready_row(s, t, running), 0
    for w in range(len(plan.current)):
        bits = plan.current[w]
        while bits:
            low = bits & -bits
            count += s.ready_at[row, w * WORD + place_of(low)] <= time
            if count >= least:
                return False
            bits ^= low
    return True


@inner
def may_start_now(s: Slurm, plan: Plan, t: int, p: int) -> bool:
    """Return whether a job has room now on nodes on which no other is planned before its time limit ends."""
    job, room, j = s.jobs[t], 0, 0
    usable_set(s, t, p, s.clock.second, plan.up, plan.current)
    for w in range(len(plan.current)):
        plan.current[w] &= plan.open[w] if job.gpus else plan.up[w]
    while plan.begin[j] <= s.clock.second + job.limit:
        left = False
        for w in range(len(plan.current)):
            plan.current[w] &= plan.free[j, w]
            left = left or plan.current[w] != 0
        j = plan.following[j]
        if not left or j == 0:
            break
    for w in range(len(plan.current)):
        bits = plan.current[w]
        while bits:
            low = bits & -bits
            room += room_on(job, w * WORD + place_of(low), s.free, s)
            if room >= job.instances:
                return True
            bits ^= low
    return False


@inner
def place_of(bit: int) -> int:
    """Return which bit of a word is set."""
    place = 0
    for step in (32, 16, 8, 4, 2, 1):
        if bit >> step:
            bit >>= step
            place += step
    return place
