"""Slurm's main loop: strictly in order within each partition, whenever a job is submitted or ends.

Where a job does not fit, no other job of its partition is looked at, and its partition's nodes are kept from jobs of
other partitions too. A job at a limit is passed over.
"""

from __future__ import annotations

import numpy as np

from fleetlab.schedulers.slurm.accounting import Accounting, within_limits
from fleetlab.schedulers.slurm.gang import start_job
from fleetlab.schedulers.slurm.preemption import preempt_for
from fleetlab.schedulers.slurm.queue import BY_MAIN, build_queue, may_start_task
from fleetlab.schedulers.slurm.select import choose, look_in
from fleetlab.schedulers.slurm.state import NO_PREEMPTION, PENDING, Settings, Slurm
from fleetlab.sim.jit import inner, inner_loop
from fleetlab.sim.layout import Ints
from fleetlab.sim.limits import UNKNOWN_NODES


@inner
def usable_nodes(s: Slurm, t: int, p: int, time: float, into: Ints) -> int:
    """Find the nodes that a job may use from a time on for its time limit: partition, request, state, reservations."""
    job, count = s.jobs[t], 0
    look_in(s, t, p)
    for n in range(len(s.nodes)):
        node = s.nodes[n]
        into[n] = s.in_partition[p, n] and s.allowed[job.request, n] and node.up and not node.drained
        for r in range(len(s.reservations)):
            kept = s.reservations[r]
            if into[n] and s.reserved[r, n] and kept.group != job.reservation and kept.known <= s.clock.now:
                into[n] = not (kept.begin < time + job.limit and kept.end > time)
        if into[n] and job.reservation >= 0:
            into[n] = is_reserved_for(s, job.reservation, n, time)
        count += into[n]
    return count


@inner
def is_reserved_for(s: Slurm, group: int, n: int, time: float) -> bool:
    """Return whether jobs of a reservation may use a node at a time."""
    for r in range(len(s.reservations)):
        kept = s.reservations[r]
        if kept.group == group and time < kept.end and (kept.flex or (s.reserved[r, n] and kept.begin <= time)):
            return True
    return False


@inner
def opens_at(s: Slurm, group: int, time: float) -> float:
    """Return from when on after a time jobs of a reservation may start, inf: it is over."""
    first = np.inf
    for r in range(len(s.reservations)):
        kept = s.reservations[r]
        if kept.group == group and time < kept.end:
            first = min(first, time if kept.flex else max(time, kept.begin))
    return first


@inner
def without_completing(s: Slurm, usable: Ints) -> None:
    """Leave out nodes on which an epilog runs."""
    for n in range(len(s.nodes)):
        if s.nodes[n].completing:
            usable[n] = 0


@inner
def too_early(s: Slurm, t: int) -> bool:
    """Return whether the reservation of a job has not begun, or has ended."""
    group = s.jobs[t].reservation
    return group >= 0 and opens_at(s, group, s.clock.now) > s.clock.now


@inner_loop
def look(s: Slurm, settings: Settings, acct: Accounting, full: int) -> int:
    """Start jobs in order; return how many."""
    count = build_queue(s, settings)
    failed, tried = np.zeros(len(s.parts), np.int64), np.zeros(len(s.parts), np.int64)
    available = np.ones(len(s.nodes), np.int64)
    rejected, rejected_part, depth, started = -1, -1, 0, 0
    wait_for_completing(s, settings, failed, available)
    for k in range(count):
        t, p = s.queue_job[k], s.queue_part[k]
        job = s.jobs[t]
        if job.state != PENDING or job.preempting:
            continue
        if job.gang >= 0:  # the backfill loop alone starts them
            fail(s, p, failed, available)
            continue
        if job.array >= 0:
            if job.array == rejected and p == rejected_part:
                continue
            rejected, rejected_part = job.array, p
            if not may_start_task(s, t):
                continue
        if settings.max_start and started >= settings.max_start:
            break
        tried[p] += 1
        if settings.partition_depth and tried[p] > settings.partition_depth:
            continue
        depth += 1
        if not full and depth > settings.depth + 1:
            break
        if failed[p] and job.reservation < 0:
            job.passed = s.clock.second
            continue
        if not within_limits(s, acct, t, p, UNKNOWN_NODES):
            if settings.limit_stop:
                fail(s, p, failed, available)
            continue
        nodes = 0
        if not too_early(s, t):
            usable_nodes(s, t, p, s.clock.now, s.usable)
            without_completing(s, s.usable)
            for n in range(len(s.nodes)):
                s.usable[n] = s.usable[n] and available[n]
            nodes = choose(s, t, s.usable, s.free, settings.least_loaded)
            if acct.groups.counts_nodes and not within_limits(s, acct, t, p, nodes):
                if settings.limit_stop:
                    fail(s, p, failed, available)
                continue
            if not nodes and settings.preempt != NO_PREEMPTION:
                preempt_for(s, settings, t, p, s.usable, 0)
        if nodes:
            start_job(s, settings, acct, t, p, nodes, BY_MAIN)
            rejected = -1
            started += 1
            continue
        job.passed = s.clock.second
        if job.reservation < 0 and blocks(s, settings, t):
            fail(s, p, failed, available)
    return started


@inner
def wait_for_completing(s: Slurm, settings: Settings, failed: Ints, available: Ints) -> None:
    """Start nothing in partitions of which a node completes, for so long as CompleteWait says."""
    if settings.complete_wait <= 0:
        return
    for n in range(len(s.nodes)):
        node = s.nodes[n]
        if node.completing and s.clock.second - node.completes <= settings.complete_wait:
            for p in range(len(s.parts)):
                if s.in_partition[p, n]:
                    fail(s, p, failed, available)


@inner
def blocks(s: Slurm, settings: Settings, t: int) -> bool:
    """Return whether a job that does not fit keeps later ones of its partition waiting."""
    job = s.jobs[t]
    if settings.min_age_reserve and s.clock.second - job.eligible < settings.min_age_reserve:
        return False
    return not (settings.min_priority_reserve and job.priority < settings.min_priority_reserve)


@inner
def fail(s: Slurm, p: int, failed: Ints, available: Ints) -> None:
    """Start no more jobs of a partition in this pass, nor others on its nodes."""
    if failed[p]:
        return
    failed[p] = 1
    for n in range(len(s.nodes)):
        if s.in_partition[p, n]:
            available[n] = 0
