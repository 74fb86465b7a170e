"""The plan of the backfill loop: spans of time, each with the nodes that no job is planned on."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fleetlab.sim.jit import inner, inner_loop
from fleetlab.sim.layout import Floats, Ints
from fleetlab.sim.slurm.node_sets import WORD, add_node, count_nodes, drop_node, has_node, same_set
from fleetlab.sim.slurm.select import give_back, room_on
from fleetlab.sim.slurm.state import Settings, Slurm


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
    roomy: Ints  # [words]: scratch of `enough_by`
    ended: Ints  # [1]: scratch of `enough_by`: running jobs that have ended, -1: not begun


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
        np.zeros(words, np.int64), np.zeros(words, np.int64), np.zeros(1, np.int64),
    )  # fmt: skip
    second, resolution = s.clock.second, settings.resolution
    plan.begin[0] = on_grid(s, second, resolution)
    plan.end[0] = on_grid(s, second + settings.window, resolution)
    for n in range(len(s.nodes)):
        if s.nodes[n].up and not s.nodes[n].drained:
            add_node(plan.up, n)
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
def enough_by(s: Slurm, plan: Plan, t: int, time: float, running: int) -> bool:
    """Return whether the nodes in `current` hold a job when all running jobs have ended that end by a time.

    If not, it starts later than that. Asked about times that rise; `by_end` lists the running jobs.
    """
    job = s.jobs[t]
    if plan.ended[0] < 0:
        plan.ended[0] = 0
        for w in range(len(plan.roomy)):
            plan.roomy[w] = 0
        for n in range(len(s.nodes)):
            s.ahead.cpu[n], s.ahead.memory[n], s.ahead.gpu[n] = s.free.cpu[n], s.free.memory[n], s.free.gpu[n]
            count_ahead(s, plan, t, n)
    while plan.ended[0] < running:
        other = s.by_end[plan.ended[0]]
        ended = s.jobs[other]
        if ended.expected_end > time:
            break
        give_back(s, other, s.ahead, 1)
        for k in range(ended.first_slot, ended.first_slot + ended.slots):
            count_ahead(s, plan, t, s.slot_node[k])
        plan.ended[0] += 1
    room = 0
    for w in range(len(plan.roomy)):
        bits = plan.current[w] & plan.roomy[w]
        while bits:
            low = bits & -bits
            room += s.ahead_room[w * WORD + log2(low)]
            if room >= job.instances:
                return True
            bits ^= low
    return False


@inner
def count_ahead(s: Slurm, plan: Plan, t: int, n: int) -> None:
    """Count the instances of a job that a node holds in `ahead`."""
    s.ahead_room[n] = room_on(s.jobs[t], n, s.ahead, s)
    if s.ahead_room[n]:
        add_node(plan.roomy, n)


@inner
def log2(bit: int) -> int:
    """Return which bit is set."""
    place = 0
    for step in (32, 16, 8, 4, 2, 1):
        if bit >> step:
            bit >>= step
            place += step
    return place
