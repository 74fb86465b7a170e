"""Slurm's backfill loop: every `bf_interval` it plans a start for the jobs in the queue, by their time limits.

A plan is a list of spans of time, each with the nodes that no planned job has. A job that can start now on nodes that
are in no plan before its time limit starts; any other gets whole nodes of the plan from its expected start on, rounded
to `bf_resolution`. So a job starts early only where it delays none before it, as far as time limits tell.
"""

from __future__ import annotations

import numpy as np

from fleetlab.schedulers.slurm.accounting import Accounting, count_trial, within_limits
from fleetlab.schedulers.slurm.gang import start_job
from fleetlab.schedulers.slurm.main_loop import opens_at, usable_nodes, without_completing
from fleetlab.schedulers.slurm.node_sets import copy_set, count_nodes, list_nodes, reaches, same_set, usable_set
from fleetlab.schedulers.slurm.plan import (
    Plan,
    free_of_plans,
    is_too_early,
    may_start_now,
    new_plan,
    on_grid,
    overlaps_plan,
    reserve,
    span_at,
)
from fleetlab.schedulers.slurm.preemption import mark_gone, preempt_for, unmark_gone
from fleetlab.schedulers.slurm.queue import BY_BACKFILL, build_queue, may_start_task
from fleetlab.schedulers.slurm.select import add_by_end, choose, copy_free, look_in, room_up_to, sort_by_end, will_start
from fleetlab.schedulers.slurm.state import FUTURE, NO_PREEMPTION, PENDING, Settings, Slurm
from fleetlab.sim.codes import (
    BY_BF_ASSOC,
    BY_BF_PARTITION,
    BY_BF_START,
    BY_BF_TASKS,
    BY_BF_TEST,
    BY_BF_USER,
    BY_BF_USER_PARTITION,
)
from fleetlab.sim.jit import inner, inner_loop
from fleetlab.sim.layout import UNLIMITED, Floats, Record
from fleetlab.sim.limits import UNKNOWN_NODES, copy_counts

TRIES = 10_000  # of one job in one cycle
AT_LIMIT = 500.0  # s until a job at a limit is planned, where nothing else is known (assoc_limit_stop)
NO_START, STARTED, PLANNED, TOO_LATE = range(4)


@inner
def after_reservations(s: Slurm, t: int, time: float, later: float) -> float:
    """Return the sooner of `later` and the end of a reservation that keeps nodes from a job."""
    job = s.jobs[t]
    for r in range(len(s.reservations)):
        kept = s.reservations[r]
        if kept.group != job.reservation and kept.known <= s.clock.now and reaches(s, r, time, job.limit):
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
def completes(s: Slurm, nodes: int) -> bool:
    """Return whether an epilog runs on one of the chosen nodes."""
    for k in range(nodes):  # noqa: SIM110  compiled, a loop is quicker
        if s.nodes[s.chosen[k]].completing:
            return True
    return False


@inner
def expected(s: Slurm, settings: Settings, t: int, p: int, begin: float, running: int) -> float:
    """Return when a job can start on the nodes in `current`, -1: not at all; at once where it preempts others."""
    over_time = settings.over_time if s.parts[p].over_time < 0 else s.parts[p].over_time
    count = 0
    if settings.preempt != NO_PREEMPTION and not choose(s, t, s.current, s.free, settings.least_loaded):
        if begin <= s.clock.second and preempt_for(s, settings, t, p, s.current, 1):
            return s.clock.second
        count = mark_gone(s, settings, t, p)
    when = will_start(s, t, s.current, running, settings.kill_wait, over_time, settings.least_loaded)
    unmark_gone(s, count)
    return max(when, begin) if when >= 0 else when


@inner
def may_skip_tries(s: Slurm, settings: Settings, t: int) -> bool:
    """Return whether it is known from the room on nodes when a job may start: nobody is preempted or shares CPUs."""
    job = s.jobs[t]
    return job.gang < 0 and job.whole == job.exclusive and settings.preempt == NO_PREEMPTION and not len(s.free.cores)


@inner
def try_job(
    s: Slurm, settings: Settings, acct: Accounting, plan: Plan, t: int, p: int, running: int, gang_start: Floats,
    no_reserve: int, limited: int,
) -> int:  # fmt: skip
    """Start a job, or plan its start."""
    job, now = s.jobs[t], s.clock.second
    look_in(s, t, p)
    least = job.instances if job.distinct else 1
    begin, before = now, job.planned
    if job.reservation >= 0:
        begin = opens_at(s, job.reservation, now)
        if begin == np.inf:
            return NO_START
    begin = max(begin, gang_time(s, t, gang_start))
    if begin > now + settings.window:
        return NO_START
    span, when, may_skip = 0, -1.0, may_skip_tries(s, settings, t)
    plan.tried[0] = -1  # no set
    for _ in range(TRIES):
        usable_set(s, t, p, begin, plan.up, plan.usable)
        span = span_at(plan, span, begin)
        later = free_of_plans(plan, span, begin, begin + job.limit, least)
        later = after_reservations(s, t, begin, later)
        if count_nodes(plan.current) < least:
            when = -1.0
            plan.tried[0] = -1
        elif same_set(plan.current, plan.tried) and begin > now:
            when = max(when, begin) if when >= 0 else when  # as before, on the same nodes
        elif may_skip and later and is_too_early(
            s, plan, t, later, least, running
        ):  # fmt: skip
            when = -1.0  # or after `later`, which is the same
            plan.tried[0] = -1
        else:
            copy_set(plan.current, plan.tried)
            list_nodes(plan.current, s.current)
            when = expected(s, settings, t, p, begin, running)
        if when < 0:
            if later and not no_reserve:
                begin = later
                continue
            return NO_START
        nodes = s.sets[0, 0]
        if when <= now and completes(s, nodes):
            when, later = now + 1.0, 0.0
        if when <= now and (limited or not within_limits(s, acct, t, p, nodes)):
            if not settings.limit_stop:
                return NO_START
            when = later if later else now + AT_LIMIT
        if when <= now and job.gang < 0 and not job.preempting:
            start_job(s, settings, acct, t, p, nodes, BY_BACKFILL)
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


@inner
def last_candidate(s: Slurm, settings: Settings, plan: Plan, k: int, last: int) -> int:
    """Return where in the queue those end that might start in this cycle; it is after `k`, and not after `last`.

    In a cycle jobs start and are planned, and none end: a job without room has none later in it.
    """
    if settings.preempt != NO_PREEMPTION or len(s.free.cores):
        return last
    while last > k + 1:
        t, p = s.queue_job[last - 1], s.queue_part[last - 1]
        job = s.jobs[t]
        look_in(s, t, p)
        if s.shape_room[job.shape_id, p] < 0:
            s.shape_room[job.shape_id, p] = room_in_partition(s, job, p)
        room = s.shape_room[job.shape_id, p] >= job.instances
        if job.gang >= 0 or (room and job.state == PENDING and may_start_now(s, plan, t, p)):
            break
        last -= 1
    return last


@inner
def room_in_partition(s: Slurm, job: Record, p: int) -> int:
    """Return how many instances of a job the nodes of a partition hold now."""
    room = 0
    for n in range(len(s.nodes)):
        if s.in_partition[p, n] and s.allowed[job.request, n]:
            room += room_up_to(1 if job.distinct else UNLIMITED, job, n, s.free, s)
    return room


@inner
def skip_rest(s: Slurm, first: int, count: int, limit: int) -> None:
    """Note for the jobs of the queue that a cycle does not come to by which limit."""
    for k in range(first, count):
        if s.jobs[s.queue_job[k]].state == PENDING:
            s.jobs[s.queue_job[k]].skipped = limit


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
    s.shape_room[:] = -1
    s.ready_shape[:] = -1
    last = last_candidate(s, settings, plan, -1, count)
    rejected, rejected_part, tasks, task_array = -1, -1, 0, -1
    of_part, of_user = np.zeros(len(s.parts), np.int64), s.of_user
    of_user[:] = 0
    of_account = np.zeros(int(acct.association.max()) + 2, np.int64)
    for k in range(count):
        t, p = s.queue_job[k], s.queue_part[k]
        job = s.jobs[t]
        if tested >= settings.max_jobs:
            skip_rest(s, k, count, BY_BF_TEST)
            break
        if job.state != PENDING or job.preempting:
            continue
        limited = not within_limits(s, acct, t, p, UNKNOWN_NODES)
        if limited and not settings.limit_stop:
            continue
        if job.array >= 0:
            if not may_start_task(s, t):
                continue
            if job.array == rejected and p == rejected_part:
                job.tested = s.clock.second  # with the task before it
                continue
            tasks = tasks + 1 if job.array == task_array else 1
            task_array = job.array
            if tasks > settings.max_tasks:
                job.skipped = BY_BF_TASKS
                continue
            rejected, rejected_part = job.array, p
        of_part[p] += 1
        of_user[p, job.user] += 1
        of_account[acct.association[t] + 1] += 1
        job.skipped = 0
        if settings.max_jobs_partition and of_part[p] > settings.max_jobs_partition:
            job.skipped = BY_BF_PARTITION
        elif settings.max_jobs_user and of_user[:, job.user].sum() > settings.max_jobs_user:
            job.skipped = BY_BF_USER
        elif settings.max_jobs_user_partition and of_user[p, job.user] > settings.max_jobs_user_partition:
            job.skipped = BY_BF_USER_PARTITION
        elif settings.max_jobs_account and of_account[acct.association[t] + 1] > settings.max_jobs_account:
            job.skipped = BY_BF_ASSOC
        if job.skipped:
            continue
        no_reserve = (
            (settings.min_priority_reserve > 0 and job.priority < settings.min_priority_reserve)
            or (settings.min_age_reserve > 0 and s.clock.second - job.eligible < settings.min_age_reserve)
            or (settings.one_reservation and job.planned > 0)
        )
        tested += 1
        if k < last:  # behind it none can start: what is planned for them changes nothing
            done = try_job(
                s, settings, acct, plan, t, p, running, gang_start, 1 if no_reserve else 0, 1 if limited else 0
            )
        else:
            done = NO_START
        if done == TOO_LATE:
            break
        job.tested = s.clock.second
        if done != NO_START:
            rejected = -1
            last = last_candidate(s, settings, plan, k, last)
        if done == STARTED:
            s.ready_shape[:] = -1
            add_by_end(s, running, t)
            running += 1
            started += 1
            if settings.max_backfill_start and started >= settings.max_backfill_start:
                skip_rest(s, k + 1, count, BY_BF_START)
                break
    start_gangs(s, settings, acct, gang_start)
    s.clock.tested = tested
    return started


# -- gangs: heterogeneous jobs ---------------------------------------------------------------------------------------


@inner_loop
def start_gangs(s: Slurm, settings: Settings, acct: Accounting, gang_start: Floats) -> None:
    """Start the gangs of which every part can start now.

    A part that lost its node starts over without those that run or have ended.
    """
    for g in range(len(s.gang_first) - 1):
        ready, waiting = True, 0
        for k in range(s.gang_first[g], s.gang_first[g + 1]):
            t = s.gang_jobs[k]
            waits = s.jobs[t].state == PENDING
            waiting += waits
            ready = ready and s.jobs[t].state != FUTURE and (not waits or 0.0 < gang_start[t] <= s.clock.second)
        if ready and waiting and all_fit(s, settings, acct, g):
            for k in range(s.gang_first[g], s.gang_first[g + 1]):
                t = s.gang_jobs[k]
                if s.jobs[t].state != PENDING:
                    continue
                p = s.partition_of[s.jobs[t].first_partition]
                usable_nodes(s, t, p, s.clock.now, s.usable)
                without_completing(s, s.usable)
                start_job(s, settings, acct, t, p, choose(s, t, s.usable, s.free, settings.least_loaded), BY_BACKFILL)


@inner
def all_fit(s: Slurm, settings: Settings, acct: Accounting, g: int) -> bool:
    """Return whether all parts of a gang fit now, one after the other, and are within the limits together."""
    copy_free(s)
    copy_counts(acct.groups, acct.groups.kept)
    fit = parts_fit(s, settings, acct, g)
    copy_counts(acct.groups.kept, acct.groups)
    return fit


@inner
def parts_fit(s: Slurm, settings: Settings, acct: Accounting, g: int) -> bool:
    """Return whether all parts of a gang fit; each takes its nodes, and counts in its groups, before the next."""
    for k in range(s.gang_first[g], s.gang_first[g + 1]):
        t = s.gang_jobs[k]
        job = s.jobs[t]
        if job.state != PENDING:
            continue
        p = s.partition_of[job.first_partition]
        usable_nodes(s, t, p, s.clock.now, s.usable)
        without_completing(s, s.usable)
        nodes = choose(s, t, s.usable, s.then, settings.least_loaded)
        if not nodes or not within_limits(s, acct, t, p, nodes):
            return False
        count_trial(s, acct, t, p, nodes)
        for j in range(nodes):
            n = s.chosen[j]
            s.then.cpu[n] -= s.nodes[n].cpu if job.exclusive else s.share[j] * job.cpu
            s.then.memory[n] -= s.share[j] * job.memory
            s.then.gpu[n] -= s.nodes[n].gpus if job.exclusive else s.share[j] * job.gpus
    return True
