"""Who holds what a waiting job is missing: each waiting second is divided by what running jobs have allocated of it.

Of the resource that a job is missing (GPUs where the reason is GPUs, their type or fragmentation), on the nodes that it
may use, some is allocated to jobs that ran before it began to wait, some to jobs ahead of it in the queue order, some
to jobs behind it that overtook it. A second is divided in these proportions; by user in the same way.
"""

from __future__ import annotations

from typing import NamedTuple

from fleetlab.core.catalog import REASONS, RESOURCES
from fleetlab.sim.jit import inner
from fleetlab.sim.layout import AMOUNTS, Floats, Ints, Record, Records
from fleetlab.sim.schedule_check import RunTable

HELD = ("gpu", *AMOUNTS, "gpu_memory")  # resources that are held
assert set(HELD) == set(RESOURCES.names)
WIDTH = len(HELD)
RESOURCE_OF = tuple(HELD.index(r.resource) if r.resource else -1 for r in REASONS)  # by the number of a reason
BEFORE, AHEAD, OVERTOOK, NOBODY = range(4)


class Holding(NamedTuple):
    """What is held, by whom, and the seconds that were divided so far."""

    keys: Floats  # [jobs]: rank in the queue
    tracked: Ints  # list of the waits that are divided; its length is in `sizes`
    slot: Ints  # [waits]: place in that list; -1: this one is not divided
    amounts: Ints  # [waits that wait at once, 3, resources]: held by each kind of job, on nodes that the job may use
    of_class: Ints  # [node classes, resources]: all that is held, on nodes of each class
    of_run: Ints  # [node classes, resources]: scratch
    masks: Ints  # [masks]: node classes that shapes may use, as bits; -1: all
    mask_of: Ints  # [shapes]
    waiting: Floats  # [masks, resources]: jobs that wait for it now
    clock: Floats  # [masks, resources]: integral of waiting jobs over what is held
    seconds: Floats  # [jobs, 4]: divided by holder
    by_user: Floats  # [users]
    sizes: Ints  # [1]


@inner
def sum_run(run: Record, runs: RunTable, class_number: Ints, holding: Holding) -> None:
    """Sum what a run holds, by the class of its nodes, into `of_run`."""
    shape, of_run = runs.shapes[run.shape_id], holding.of_run
    of_run[:] = 0
    for i in range(run.first, run.first + run.instances):
        row = of_run[class_number[runs.node[i]]]
        row[0] += shape.gpus * shape.milli
        for k in range(len(AMOUNTS)):
            row[k + 1] += shape.amounts[k]
        row[WIDTH - 1] += shape.gpus * shape.gpu_memory


@inner
def change_holding(
    run: Record, runs: RunTable, waits: Records, shape_of: Ints, classes: Ints, holding: Holding, sign: int
) -> None:
    """Let a run hold its resources (1) or give them back (-1), as every waiting job sees it."""
    sum_run(run, runs, classes, holding)
    for c in range(len(holding.of_run)):
        part = holding.of_run[c]
        if part[0] == 0 and part[1] == 0 and part[2] == 0:
            continue
        for r in range(WIDTH):
            holding.of_class[c, r] += sign * part[r]
        for m in range(len(holding.masks)):
            if run.user >= 0 and holding.masks[m] >> c & 1:
                for r in range(WIDTH):
                    holding.by_user[run.user] -= sign * part[r] * holding.clock[m, r]
        for k in range(holding.sizes[0]):
            wait = waits[holding.tracked[k]]
            if holding.masks[holding.mask_of[shape_of[wait.job]]] >> c & 1:
                kind = BEFORE
                if run.begin >= wait.begin:
                    a, b = holding.keys[run.job], holding.keys[wait.job]
                    kind = AHEAD if a < b or (a == b and run.job < wait.job) else OVERTOOK
                for r in range(WIDTH):
                    holding.amounts[k, kind, r] += sign * part[r]


@inner
def track(w: int, wait: Record, shape_of: Ints, holding: Holding) -> None:
    """Begin to divide a wait: what is held now was held before it."""
    if holding.slot[w] < 0:
        return
    k = holding.sizes[0]
    holding.tracked[k], holding.slot[w] = w, k
    holding.amounts[k, :, :] = 0
    for c in range(len(holding.of_class)):
        if holding.masks[holding.mask_of[shape_of[wait.job]]] >> c & 1:
            for r in range(WIDTH):
                holding.amounts[k, BEFORE, r] += holding.of_class[c, r]
    holding.sizes[0] += 1


@inner
def untrack(w: int, holding: Holding) -> None:
    """Divide a wait no more."""
    if holding.slot[w] < 0:
        return
    holding.sizes[0] -= 1
    k, last = holding.slot[w], holding.sizes[0]
    holding.tracked[k] = holding.tracked[last]
    holding.slot[holding.tracked[k]] = k
    for kind in range(NOBODY):
        for r in range(WIDTH):
            holding.amounts[k, kind, r] = holding.amounts[last, kind, r]


@inner
def resource_of(group: Record) -> int:
    """Return the resource that a group is missing; -1: none."""
    r = RESOURCE_OF[group.reason]
    return 1 if r == 0 and group.gpu_milli == 0 else r  # who needs no GPUs lacks CPU


@inner
def divide(waits: Records, groups: Records, listed: Ints, count: int, seconds: float, holding: Holding) -> None:
    """Divide the time until the next instant: of each wait by holder, of all of them by user."""
    for k in range(holding.sizes[0]):
        wait = waits[holding.tracked[k]]
        r = resource_of(groups[wait.group])
        held = 0
        if r >= 0:
            held = holding.amounts[k, BEFORE, r] + holding.amounts[k, AHEAD, r] + holding.amounts[k, OVERTOOK, r]
        if held == 0:
            holding.seconds[wait.job, NOBODY] += seconds
            continue
        for kind in range(NOBODY):
            holding.seconds[wait.job, kind] += seconds * holding.amounts[k, kind, r] / held
    holding.waiting[:] = 0.0
    for i in range(count):
        group = groups[listed[i]]
        r = resource_of(group)
        if r >= 0:
            holding.waiting[holding.mask_of[group.shape_id], r] += group.length
    for m in range(len(holding.masks)):
        for r in range(WIDTH):
            if holding.waiting[m, r] > 0:
                held = 0
                for c in range(len(holding.of_class)):
                    if holding.masks[m] >> c & 1:
                        held += holding.of_class[c, r]
                if held > 0:
                    holding.clock[m, r] += seconds * holding.waiting[m, r] / held
