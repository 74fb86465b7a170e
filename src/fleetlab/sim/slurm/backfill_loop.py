"""Slurm's backfill loop: every `bf_interval` it plans a start for the jobs in the queue, by their time limits.

A plan is a list of spans of time, each with the nodes that no planned job has. A job that can start now on nodes that
are in no plan before its time limit starts; any other gets whole nodes of the plan from its expected start on, rounded
to `bf_resolution`. So a job starts early only where it delays none before it, as far as time limits tell.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fleetlab.sim.jit import inner, inner_loop
from fleetlab.sim.layout import Floats, Ints
from fleetlab.sim.slurm.accounting import Accounting
from fleetlab.sim.slurm.limits import within_limits
from fleetlab.sim.slurm.main_loop import BY_BACKFILL, too_early, usable_nodes, without_completing
from fleetlab.sim.slurm.preemption import preempt_for
from fleetlab.sim.slurm.queue import build_queue, may_start_task, start
from fleetlab.sim.slurm.select import choose, copy_free, sort_by_end, will_start
from fleetlab.sim.slurm.state import NO_PREEMPTION, PENDING, Settings, Slurm

YEAR = 365 * 86_400.0
TRIES = 10_000  # of one job in one cycle
NO_START, STARTED, PLANNED, TOO_LATE = range(4)


class Plan(NamedTuple):
    """Spans of time, linked in order, and the nodes that are free of plans in each."""

    begin: Floats
    end: Floats
    following: Ints  # the next span, 0: none
    free: Ints  # [spans, nodes]
    size: Ints  # [1]: spans


@inner
def on_grid(s: Slurm, time: float, resolution: float) -> float:
    """Return the last moment before a time whose Unix time is a multiple of the resolution."""
    return np.floor((time + s.clock.epoch) / resolution) * resolution - s.clock.epoch


@inner_loop
def new_plan(s: Slurm, settings: Settings) -> Plan:
    """Make a plan with one span, in which every node that is up is free."""
    most = 2 * min(settings.max_jobs, s.clock.pending + 1) + 4
    plan = Plan(
        np.zeros(most), np.zeros(most), np.zeros(most, np.int64), np.zeros((most, len(s.nodes)), np.int64),
        np.ones(1, np.int64),
    )  # fmt: skip
    second, resolution = s.clock.second, settings.resolution
    plan.begin[0] = on_grid(s, second, resolution)
    plan.end[0] = on_grid(s, second + settings.window, resolution)
    for n in range(len(s.nodes)):
        plan.free[0, n] = s.nodes[n].up and not s.nodes[n].drained
    return plan


@inner
def split(plan: Plan, j: int, time: float) -> int:
    """Cut a span in two at a time, and return the second."""
    k = plan.size[0]
    plan.begin[k], plan.end[k], plan.end[j] = time, plan.end[j], time
    for n in range(plan.free.shape[1]):
        plan.free[k, n] = plan.free[j, n]
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
            plan.free[j, s.chosen[k]] = 0
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
        same = True
        for n in range(plan.free.shape[1]):
            same = same and plan.free[j, n] == plan.free[k, n]
        if same:
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
                if not plan.free[j, s.chosen[k]]:
                    return True
        j = plan.following[j]
        if j == 0:
            return False


@inner
def free_of_plans(s: Slurm, plan: Plan, begin: float, end: float) -> float:
    """Leave in `current` the usable nodes that are free from `begin` to `end`; return when to try again, 0: never."""
    later, j = 0.0, 0
    for n in range(len(s.nodes)):
        s.current[n] = s.usable[n]
    while True:
        after = plan.following[j]
        if plan.end[j] > begin and after and later == 0.0:
            for n in range(len(s.nodes)):
                if s.usable[n] and plan.free[after, n] and not (s.current[n] and plan.free[j, n]):
                    later = plan.end[j]
        if plan.end[j] > begin:
            if plan.begin[j] > end:
                break
            for n in range(len(s.nodes)):
                s.current[n] = s.current[n] and plan.free[j, n]
        j = after
        if j == 0:
            break
    return later


@inner
def after_reservations(s: Slurm, t: int, time: float, later: float) -> float:
    """Return the sooner of `later` and the end of a reservation that keeps nodes from a job."""
    job = s.jobs[t]
    for r in range(len(s.reservations)):
        kept = s.reservations[r]
        if r != job.reservation and kept.begin < time + job.limit and kept.end > time:
            later = kept.end + 1.0 if later == 0.0 else min(later, kept.end + 1.0)
    return later


@inner
def gang_time(s: Slurm, t: int, gang_start: Floats) -> float:
    """Return the latest start that is planned for the other parts of a job's gang."""
    job, latest = s.jobs[t], 0.0
    if job.gang < 0:
        return latest
    for k in range(s.gang_first[job.gang], s.gang_first[job.gang + 1]):
        other = s.gang_jobs[k]
        if other != t:
            latest = max(latest, gang_start[other])
    return latest


@inner
def count_nodes(usable: Ints) -> int:
    """Return how many nodes are left."""
    count = 0
    for n in range(len(usable)):
        count += usable[n] != 0
    return count


@inner
def completes(s: Slurm, nodes: int) -> bool:
    """Return whether an epilog runs on one of the chosen nodes."""
    for k in range(nodes):  # noqa: SIM110  compiled, a loop is quicker
        if s.nodes[s.chosen[k]].completing:
            return True
    return False


@inner
def expected(s: Slurm, settings: Settings, acct: Accounting, t: int, p: int, begin: float, running: int) -> float:
    """Return when a job can start on the nodes in `current`, -1: not at all; at once where it preempts others."""
    over_time = settings.over_time if s.parts[p].over_time < 0 else s.parts[p].over_time
    when = will_start(s, t, s.current, running, settings.kill_wait, over_time, settings.least_loaded)
    if when > s.clock.second and begin <= s.clock.second and settings.preempt != NO_PREEMPTION:
        if preempt_for(s, settings, acct, t, p, s.current):
            return s.clock.second
        will_start(s, t, s.current, running, settings.kill_wait, over_time, settings.least_loaded)
    return max(when, begin) if when >= 0 else when


@inner
def try_job(
    s: Slurm, settings: Settings, acct: Accounting, plan: Plan, t: int, p: int, running: int, gang_start: Floats,
    no_reserve: int,
) -> int:  # fmt: skip
    """Start a job, or plan its start."""
    job, now = s.jobs[t], s.clock.second
    least = job.instances if job.distinct else 1
    begin, before = now, job.planned
    if job.reservation >= 0:
        if too_early(s, t) and s.clock.now >= s.reservations[job.reservation].end:
            return NO_START
        begin = max(begin, s.reservations[job.reservation].begin)
    begin = max(begin, gang_time(s, t, gang_start))
    if begin > now + settings.window:
        return NO_START
    for _ in range(TRIES):
        usable_nodes(s, t, p, begin, s.usable)
        later = free_of_plans(s, plan, begin, begin + job.limit)
        later = after_reservations(s, t, begin, later)
        when = -1.0
        if count_nodes(s.current) >= least:
            when = expected(s, settings, acct, t, p, begin, running)
        if when < 0:
            if later and not no_reserve:
                begin = later
                continue
            return NO_START
        nodes = s.sets[0, 0]
        if when <= now and completes(s, nodes):
            when, later = now + 1.0, 0.0
        if when <= now and job.gang < 0 and not job.preempting:
            start(s, settings, acct, t, p, nodes, BY_BACKFILL)
            return STARTED
        if job.gang >= 0:
            gang_start[t] = when
        if when > now and no_reserve:
            return NO_START
        if later and when > later and not job.preempting:
            begin = later
            continue
        if when > now + settings.window:
            return NO_START
        first = on_grid(s, when, settings.resolution)
        last = on_grid(s, when + job.limit, settings.resolution)
        if when > now and overlaps_plan(s, plan, first, last, nodes):
            begin = when
            continue
        if plan.size[0] + 2 >= len(plan.begin):
            return TOO_LATE
        reserve(s, plan, first, last, nodes, settings.resolution)
        job.planned = when if before == 0 else min(before, when)
        return PLANNED
    return NO_START


@inner_loop
def backfill(s: Slurm, settings: Settings, acct: Accounting, gang_start: Floats) -> int:
    """One cycle: start the jobs that delay none before them; return how many."""
    count, plan = build_queue(s, settings), new_plan(s, settings)
    for k in range(s.clock.pending):
        s.jobs[s.pending[k]].planned = 0.0
    for g in range(len(gang_start)):
        if s.clock.serial % 2 == 0:
            gang_start[g] = 0.0
    s.clock.serial += 1
    running, tested, started = sort_by_end(s), 0, 0
    rejected, rejected_part, tasks, task_array = -1, -1, 0, -1
    of_part, of_user = np.zeros(len(s.parts), np.int64), np.zeros(int(s.jobs.user.max()) + 1, np.int64)
    for k in range(count):
        t, p = s.queue_job[k], s.queue_part[k]
        job = s.jobs[t]
        if tested >= settings.max_jobs:
            break
        if job.state != PENDING or job.preempting or not within_limits(acct.groups, t):
            continue
        if job.array >= 0:
            if (job.array == rejected and p == rejected_part) or not may_start_task(s, t):
                continue
            tasks = tasks + 1 if job.array == task_array else 1
            task_array = job.array
            if tasks > settings.max_tasks:
                continue
            rejected, rejected_part = job.array, p
        of_part[p] += 1
        of_user[job.user] += 1
        if settings.max_jobs_partition and of_part[p] > settings.max_jobs_partition:
            continue
        if settings.max_jobs_user and of_user[job.user] > settings.max_jobs_user:
            continue
        no_reserve = (
            (settings.min_priority_reserve > 0 and job.priority < settings.min_priority_reserve)
            or (settings.min_age_reserve > 0 and s.clock.second - job.eligible < settings.min_age_reserve)
            or (settings.one_reservation and job.planned > 0)
        )
        tested += 1
        done = try_job(s, settings, acct, plan, t, p, running, gang_start, 1 if no_reserve else 0)
        if done == TOO_LATE:
            break
        if done != NO_START:
            rejected = -1
        if done == STARTED:
            running = sort_by_end(s)
            started += 1
            if settings.max_backfill_start and started >= settings.max_backfill_start:
                break
    start_gangs(s, settings, acct, gang_start)
    s.clock.tested = tested
    return started


# -- gangs: heterogeneous jobs ---------------------------------------------------------------------------------------


@inner_loop
def start_gangs(s: Slurm, settings: Settings, acct: Accounting, gang_start: Floats) -> None:
    """Start the gangs of which every part can start now."""
    for g in range(len(s.gang_first) - 1):
        ready = True
        for k in range(s.gang_first[g], s.gang_first[g + 1]):
            t = s.gang_jobs[k]
            ready = ready and s.jobs[t].state == PENDING and 0.0 < gang_start[t] <= s.clock.second
        if ready and all_fit(s, settings, acct, g):
            for k in range(s.gang_first[g], s.gang_first[g + 1]):
                t = s.gang_jobs[k]
                p = s.partition_of[s.jobs[t].first_partition]
                usable_nodes(s, t, p, s.clock.now, s.usable)
                without_completing(s, s.usable)
                start(s, settings, acct, t, p, choose(s, t, s.usable, s.free, settings.least_loaded), BY_BACKFILL)


@inner
def all_fit(s: Slurm, settings: Settings, acct: Accounting, g: int) -> bool:
    """Return whether all parts of a gang fit now, one after the other."""
    copy_free(s)
    for k in range(s.gang_first[g], s.gang_first[g + 1]):
        t = s.gang_jobs[k]
        job = s.jobs[t]
        usable_nodes(s, t, s.partition_of[job.first_partition], s.clock.now, s.usable)
        without_completing(s, s.usable)
        nodes = choose(s, t, s.usable, s.then, settings.least_loaded)
        if not nodes or not within_limits(acct.groups, t):
            return False
        for j in range(nodes):
            n = s.chosen[j]
            s.then.cpu[n] -= s.share[j] * job.cpu
            s.then.memory[n] -= s.share[j] * job.memory
            s.then.gpu[n] -= s.share[j] * job.gpus
    return True
