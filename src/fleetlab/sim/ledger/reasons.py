"""The reason of every waiting second: the schedule is replayed, and waiting jobs are judged after each instant.

A job has the first reason that applies in the state after the scheduling pass, so this needs no policy: quota, nodes
that are down, a resource that is missing even if the job were first in line, or, where it fits, the rule that keeps it
from starting. Under a site's Slurm there are more rules (`rules`), which follow from what runs too. Jobs of one group
request the same and have the same reason, so time is charged to the group; a job gets the difference between what its
group had waited for when the job came and when it left.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fleetlab.sim.codes import (
    BY_FRAGMENT,
    BY_GPU,
    BY_GPU_MEMORY,
    BY_NODES,
    BY_PARTITION,
    BY_PER_NODE,
    BY_QUOTA,
    BY_TYPE,
    REASONS,
)
from fleetlab.sim.jit import inner, loop
from fleetlab.sim.layout import AMOUNTS, UNLIMITED, Floats, Ints, NodeView, Record, Records, record
from fleetlab.sim.ledger.holders import Holding, change_holding, divide, track, untrack
from fleetlab.sim.ledger.rules import FITS, OPEN, SiteRules, complete_node, count_run, keeper, keeps_nothing, rule_of
from fleetlab.sim.nodes import give_back, gpu_slots, node_slots, take_gpus
from fleetlab.sim.quota import Quotas, is_barred
from fleetlab.sim.quota import charge as charge_quotas
from fleetlab.sim.schedule_check import RunTable

COUNT = len(REASONS)
BESIDE_GPUS = len(AMOUNTS)
# What is required of a node, one more with each stage: GPUs, each of AMOUNTS, GPU memory, the limit per node.
STAGES = BESIDE_GPUS + 3
STAGE_REASONS = (BY_FRAGMENT, *(REASONS.index(name) for name in AMOUNTS), BY_GPU_MEMORY, BY_PER_NODE)

WAIT = record("job group begin:f end:f")
WAITING_GROUP = record(
    "shape_id instances member queue of_types gpu_milli length slot reason blocked outside since:f waited:f",
    waited=COUNT,
)
#   length: waiting jobs; slot: in the list of waiting groups; blocked: the reason where it fits; outside: it may
#   not even be submitted; waited: seconds by reason up to `since`
SHAPE_ROOM = record("groups slot counted usable possible as_of", usable=STAGES)
#   groups: waiting groups of the shape; slot: in the list of shapes whose slots are counted, if `counted`; usable: for
#   how many instances nodes have what each stage requires; possible: instances that nodes which are up would hold if
#   they were empty, counted at change `as_of` of the nodes


class Switches(NamedTuple):
    """When nodes begin (1) and cease (-1) to take jobs."""

    time: Floats
    node: Ints
    change: Ints


class Waiting(NamedTuple):
    """Waiting jobs by group."""

    waits: Records  # WAIT, in order of begin
    by_end: Ints
    groups: Records  # WAITING_GROUP
    listed: Ints  # groups with waiting jobs
    shapes: Records  # SHAPE_ROOM
    counted: Ints  # shapes whose slots are counted
    ledger: Floats  # [jobs, reasons]
    before: Floats  # [jobs]: seconds that are in the ledger before the replay


class NodeSums(NamedTuple):
    """The nodes as they are, and sums over those that take jobs."""

    now: NodeView
    empty: NodeView
    level: Ints  # [nodes]: takes jobs where it is above 0
    shapes: Records  # SHAPE
    shape_of: Ints  # [jobs]
    class_number: Ints  # [nodes]
    free: Ints  # [node classes, 1 + AMOUNTS]: GPU milli, and what is beside GPUs
    quotas: Quotas
    member: Ints  # [jobs]: -1: in no queue
    scratch: Ints  # [STAGES]
    slots: Ints  # [nodes]: scratch
    sizes: Ints  # [3]: waiting groups, counted shapes, changes of the nodes that take jobs


LISTED, COUNTED, CHANGES = range(3)


@inner
def units_with_memory(shape: Record, node: Record, gpus: Records) -> int:
    """Return for how many instances a node has GPUs with the memory that they need."""
    units = 0
    for g in range(node.first_gpu, node.end_gpu):
        units += min(gpus[g].free // shape.milli, gpus[g].free_memory // shape.gpu_memory)
    return units // shape.gpus


@inner
def add_slots(shape: Record, node: Record, gpus: Records, apps: Ints, sign: int, usable: Ints) -> None:
    """Add to each stage the instances that fit on a node (`sign` 1), or subtract them (-1)."""
    units = UNLIMITED
    if node.exclusive or (shape.exclusive and node.instances) or shape.types & node.node_class == 0:
        return
    if shape.gpus:
        units = gpu_slots(shape, node, gpus) // shape.gpus
    if shape.exclusive:
        units = min(units, 1)
    for k in range(BESIDE_GPUS):
        if units == 0:  # of most nodes no more must be known
            return
        usable[k] += sign * units
        if shape.amounts[k]:
            units = min(units, node.free[k] // shape.amounts[k])
    usable[BESIDE_GPUS] += sign * units
    if shape.gpus and shape.gpu_memory:
        units = min(units, units_with_memory(shape, node, gpus))
    usable[BESIDE_GPUS + 1] += sign * units
    if shape.per_node:
        units = min(units, shape.per_node - apps[shape.app, node.number])
    usable[BESIDE_GPUS + 2] += sign * units


@inner
def count_node(n: int, nodes: NodeSums, waiting: Waiting, sign: int) -> None:
    """Add node `n` to all sums (1) or take it out (-1), before and after it changes."""
    now, node = nodes.now, nodes.now.nodes[n]
    if nodes.level[n] <= 0:
        return
    free = nodes.free[nodes.class_number[n]]
    free[0] += sign * node.free_gpu
    for k in range(BESIDE_GPUS):
        free[k + 1] += sign * node.free[k]
    for i in range(nodes.sizes[COUNTED]):
        s = waiting.counted[i]
        shape = nodes.shapes[s]
        if shape.gpus == 0 or (node.largest_free >= shape.milli and shape.types & node.gpu_type):  # else no call
            add_slots(shape, node, now.gpus, now.apps, sign, waiting.shapes[s].usable)


@inner
def count_shape(s: int, nodes: NodeSums, waiting: Waiting) -> None:
    """Count the slots for a shape on all nodes that take jobs, and keep the count from now on."""
    counts, now = waiting.shapes[s], nodes.now
    counts.usable[:] = 0
    for n in range(len(now.nodes)):
        if nodes.level[n] > 0:
            add_slots(nodes.shapes[s], now.nodes[n], now.gpus, now.apps, 1, counts.usable)
    counts.counted, counts.slot = 1, nodes.sizes[COUNTED]
    waiting.counted[counts.slot] = s
    nodes.sizes[COUNTED] += 1


@inner
def forget_shape(counts: Record, nodes: NodeSums, waiting: Waiting) -> None:
    """Keep the count of a shape no longer."""
    nodes.sizes[COUNTED] -= 1
    last = waiting.counted[nodes.sizes[COUNTED]]
    waiting.counted[counts.slot] = last
    waiting.shapes[last].slot = counts.slot
    counts.counted = 0


@inner
def possible(s: int, nodes: NodeSums, waiting: Waiting) -> int:
    """Return how many instances the nodes that take jobs would hold if they were empty."""
    shape_counts, empty, usable = waiting.shapes[s], nodes.empty, nodes.scratch
    if shape_counts.as_of != nodes.sizes[CHANGES]:
        usable[:] = 0
        for n in range(len(empty.nodes)):
            if nodes.level[n] > 0:
                add_slots(nodes.shapes[s], empty.nodes[n], empty.gpus, empty.apps, 1, usable)
        shape_counts.possible, shape_counts.as_of = usable[STAGES - 1], nodes.sizes[CHANGES]
    return shape_counts.possible


@inner
def free_on(classes: int, nodes: NodeSums, k: int) -> int:
    """Return how much of resource `k` is free on nodes of some classes: GPU milli (0), or what is beside GPUs."""
    total = 0
    for c in range(len(nodes.free)):
        if classes >> c & 1:
            total += nodes.free[c, k]
    return total


@inner
def missing(group: Record, nodes: NodeSums, waiting: Waiting) -> int:
    """Return which resource a group is missing now, the first that applies; or what keeps it, if it would fit."""
    shape, shape_counts, need = nodes.shapes[group.shape_id], waiting.shapes[group.shape_id], group.gpu_milli
    if free_on(-1, nodes, 0) < need:
        return BY_GPU
    if free_on(group.of_types, nodes, 0) < need:
        return BY_TYPE
    if free_on(shape.types, nodes, 0) < need:
        return BY_PARTITION
    if not shape_counts.counted:
        count_shape(group.shape_id, nodes, waiting)
    for stage in range(STAGES):
        if shape_counts.usable[stage] < group.instances:
            if shape.gpus == 0 and 0 < stage <= BESIDE_GPUS:
                need = group.instances * shape.amounts[stage - 1]
                if free_on(shape.types, nodes, stage) >= need:
                    return BY_FRAGMENT
                if free_on(-1, nodes, stage) >= need:
                    return BY_PARTITION
            return BY_FRAGMENT if shape.distinct and stage == STAGES - 1 else STAGE_REASONS[stage]
    return group.blocked


@inner
def count_slots(s: int, nodes: NodeSums) -> None:
    """Count the instances of a shape that fit now on each node that takes jobs, into `slots`."""
    now = nodes.now
    for n in range(len(now.nodes)):
        nodes.slots[n] = node_slots(nodes.shapes[s], now.nodes[n], now.gpus, now.apps) if nodes.level[n] > 0 else 0


@inner
def judge_by_rules(g: int, nodes: NodeSums, waiting: Waiting, rules: SiteRules, now: float) -> int:
    """Return the reason of a waiting group under a site's Slurm."""
    group, t = waiting.groups[g], rules.of_group[g]
    blocking = rule_of(rules, t, now)
    if blocking != OPEN:
        return blocking
    blocking = judge(group, nodes, waiting, now)
    if blocking != group.blocked or keeps_nothing(rules, t):
        return blocking
    count_slots(group.shape_id, nodes)
    blocking = keeper(rules, t, group.instances, nodes.slots, now)
    return group.blocked if blocking == FITS else blocking


@inner
def judge(group: Record, nodes: NodeSums, waiting: Waiting, now: float) -> int:
    """Return the reason of a waiting group."""
    if group.outside or is_barred(nodes.quotas, group.member):
        return BY_QUOTA
    if nodes.sizes[CHANGES] and possible(group.shape_id, nodes, waiting) < group.instances:
        return BY_NODES
    return missing(group, nodes, waiting)


@inner
def charge(group: Record, now: float) -> None:
    """Charge a group for the time since the last charge to its present reason."""
    group.waited[group.reason] += now - group.since
    group.since = now


@inner
def enter(wait: Record, waiting: Waiting, nodes: NodeSums) -> None:
    """A job begins to wait."""
    group, shape_counts = waiting.groups[wait.group], waiting.shapes[waiting.groups[wait.group].shape_id]
    if group.length == 0:
        group.since, group.slot = wait.begin, nodes.sizes[LISTED]
        waiting.listed[group.slot] = wait.group
        nodes.sizes[LISTED] += 1
        shape_counts.groups += 1
    charge(group, wait.begin)
    group.length += 1
    for reason in range(COUNT):
        waiting.ledger[wait.job, reason] -= group.waited[reason]


@inner
def leave(wait: Record, waiting: Waiting, nodes: NodeSums) -> None:
    """A job waits no more."""
    group, shape_counts = waiting.groups[wait.group], waiting.shapes[waiting.groups[wait.group].shape_id]
    charge(group, wait.end)
    group.length -= 1
    for reason in range(COUNT):
        waiting.ledger[wait.job, reason] += group.waited[reason]
    if group.length == 0:
        nodes.sizes[LISTED] -= 1
        last = waiting.listed[nodes.sizes[LISTED]]
        waiting.listed[group.slot] = last
        waiting.groups[last].slot = group.slot
        shape_counts.groups -= 1
        if shape_counts.groups == 0 and shape_counts.counted:
            forget_shape(shape_counts, nodes, waiting)


@inner
def change_run(run: Record, runs: RunTable, nodes: NodeSums, waiting: Waiting, time: float, sign: int) -> None:
    """Let a run begin (1) or end (-1)."""
    shape, now = runs.shapes[run.shape_id], nodes.now
    for i in range(run.first, run.first + run.instances):
        n = runs.node[i]
        count_node(n, nodes, waiting, -1)
        if sign > 0:
            take_gpus(shape, now.nodes[n], now.gpus, now.apps, runs.gpus[i])
        else:
            give_back(shape, now.nodes[n], now.gpus, now.apps, runs.gpus[i])
        count_node(n, nodes, waiting, 1)
    charge_quotas(nodes.quotas, nodes.member[run.job], sign)


@inner
def switch(n: int, change: int, nodes: NodeSums, waiting: Waiting) -> None:
    """Let a node begin or cease to take jobs."""
    count_node(n, nodes, waiting, -1)
    nodes.level[n] += change
    count_node(n, nodes, waiting, 1)
    nodes.sizes[CHANGES] += 1


@inner
def follow_run(run: Record, runs: RunTable, rules: SiteRules, sign: int) -> None:
    """Let a run that begins or ends count in limits; after its end its nodes complete."""
    count_run(rules, run.job, sign)
    if sign < 0 and rules.epilog > 0.0:
        for i in range(run.first, run.first + run.instances):
            complete_node(rules, runs.node[i], 1)


@inner
def next_mark(rules: SiteRules, runs: RunTable, completed: int, marked: int) -> float:
    """Return when an epilog is over, or an advance reservation begins to keep nodes or ceases to."""
    now = rules.marks[marked] if marked < len(rules.marks) else np.inf
    if rules.epilog > 0.0 and completed < len(runs.by_end):
        now = min(now, runs.runs[runs.by_end[completed]].end + rules.epilog)
    return now


@inner
def complete_runs(rules: SiteRules, runs: RunTable, completed: int, now: float) -> int:
    """Let epilogs that are over free their nodes; return how many runs have completed."""
    while completed < len(runs.by_end) and runs.runs[runs.by_end[completed]].end + rules.epilog <= now:
        run = runs.runs[runs.by_end[completed]]
        for i in range(run.first, run.first + run.instances):
            complete_node(rules, runs.node[i], -1)
        completed += 1
    return completed


@loop
def replay_waits(
    runs: RunTable,
    switches: Switches,
    waiting: Waiting,
    nodes: NodeSums,
    holding: Holding | None,
    rules: SiteRules | None,
) -> None:
    """Replay the runs and charge every waiting second.

    At one instant runs end, nodes change, waits end and begin, runs begin; what holds after that is judged. With
    `holding`, the time until the next instant is also divided by holder; with `rules`, those of a site's Slurm hold.
    """
    waits, table, b, e, w, came, departed = waiting.waits, runs.runs, 0, 0, 0, 0, 0
    completed, marked = 0, 0
    classes, before = nodes.class_number, 0.0
    while departed < len(waits):
        now = waits[waiting.by_end[departed]].end
        now = min(now, waits[came].begin) if came < len(waits) else now
        now = min(now, table[runs.by_begin[b]].begin) if b < len(runs.by_begin) else now
        now = min(now, table[runs.by_end[e]].end) if e < len(runs.by_end) else now
        now = min(now, switches.time[w]) if w < len(switches.time) else now
        if rules is not None:
            now = min(now, next_mark(rules, runs, completed, marked))
        if holding is not None and now > before:
            divide(waits, waiting.groups, waiting.listed, nodes.sizes[LISTED], now - before, holding)
        before = now
        while e < len(runs.by_end) and table[runs.by_end[e]].end == now:
            run = table[runs.by_end[e]]
            change_run(run, runs, nodes, waiting, now, -1)
            if rules is not None:
                follow_run(run, runs, rules, -1)
            if holding is not None:
                change_holding(run, runs, waits, nodes.shape_of, classes, holding, -1)
            e += 1
        if rules is not None:
            if rules.epilog > 0.0:
                completed = complete_runs(rules, runs, completed, now)
            while marked < len(rules.marks) and rules.marks[marked] <= now:
                marked += 1
        while w < len(switches.time) and switches.time[w] == now:
            switch(switches.node[w], switches.change[w], nodes, waiting)
            w += 1
        while departed < len(waits) and waits[waiting.by_end[departed]].end == now:
            leave(waits[waiting.by_end[departed]], waiting, nodes)
            if holding is not None:
                untrack(waiting.by_end[departed], holding)
            departed += 1
        while came < len(waits) and waits[came].begin == now:
            enter(waits[came], waiting, nodes)
            if holding is not None:
                track(came, waits[came], nodes.shape_of, holding)
            came += 1
        while b < len(runs.by_begin) and table[runs.by_begin[b]].begin == now:
            run = table[runs.by_begin[b]]
            if run.end > now:
                change_run(run, runs, nodes, waiting, now, 1)
                if rules is not None:
                    follow_run(run, runs, rules, 1)
                if holding is not None:
                    change_holding(run, runs, waits, nodes.shape_of, classes, holding, 1)
            b += 1
        for i in range(nodes.sizes[LISTED]):
            group = waiting.groups[waiting.listed[i]]
            if rules is None:
                reason = judge(group, nodes, waiting, now)
            else:
                reason = judge_by_rules(waiting.listed[i], nodes, waiting, rules, now)
            if reason != group.reason:
                charge(group, now)
                group.reason = reason
    if holding is not None:
        for k in range(b):  # what still runs
            if table[runs.by_begin[k]].end > before:
                change_holding(table[runs.by_begin[k]], runs, waits, nodes.shape_of, classes, holding, -1)
