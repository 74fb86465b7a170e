"""Slurm's queue: who is pending, may run, and comes first."""

from __future__ import annotations

import numpy as np

from fleetlab.schedulers.slurm.accounting import Accounting, charge_begin, charge_end
from fleetlab.schedulers.slurm.cores import take_cores
from fleetlab.schedulers.slurm.select import give_back
from fleetlab.schedulers.slurm.state import BY_QOS, DONE, DROPPED, PENDING, RUNNING, Settings, Slurm
from fleetlab.sim.heap import push
from fleetlab.sim.jit import inner, inner_loop
from fleetlab.sim.layout import Ints

AFTER, AFTER_ANY, AFTER_OK, AFTER_NOT_OK = range(4)  # what a dependency waits for
WAITS, MET, NEVER_MET = range(3)
END, EPILOG, NODE_EVENT, KILL, GRACE, SLICE = range(6)  # kinds of events
KINDS = 8
BY_MAIN, BY_BACKFILL = 1, 2  # the loop that starts a job
CHECK_PERIOD = 30.0  # s between two looks at time limits and grace times: PERIODIC_TIMEOUT


@inner
def add_event(s: Slurm, time: float, kind: int, item: int) -> None:
    """Put an event on the heap."""
    push(s.event_keys, s.events, 0, s.clock.events, time, item * KINDS + kind)
    s.clock.events += 1


@inner
def insert(listed: Ints, count: int, t: int, s: Slurm) -> None:
    """Insert a job into a list that is in order of submission."""
    k = count
    while k and s.jobs[listed[k - 1]].number > s.jobs[t].number:
        listed[k] = listed[k - 1]
        k -= 1
    listed[k] = t


@inner
def remove(listed: Ints, count: int, t: int) -> None:
    """Take a job out of a list."""
    k = 0
    while listed[k] != t:
        k += 1
    for j in range(k, count - 1):
        listed[j] = listed[j + 1]


@inner
def dependency_of(s: Slurm, k: int) -> int:
    """Return whether one dependency is met, or never will be; a job that is not simulated is taken to have ended."""
    if s.parent_of[k] < 0:
        return MET
    parent, rule = s.jobs[s.parent_of[k]], s.rule_of[k]
    if rule == AFTER and parent.state == DROPPED:  # some minutes after its start is never
        return WAITS if s.delay_of[k] else MET
    if rule == AFTER:
        return MET if parent.first_start + s.delay_of[k] <= s.clock.now else WAITS
    if parent.state != DONE and parent.state != DROPPED:
        return WAITS
    wrong = (rule == AFTER_OK and parent.killed) or (rule == AFTER_NOT_OK and not parent.killed)
    return NEVER_MET if wrong else MET


@inner
def dependencies_of(s: Slurm, t: int) -> int:
    """Return whether the dependencies of a job are met, all of them or any one, or never will be."""
    job, met, never = s.jobs[t], 0, 0
    for k in range(job.first_parent, job.first_parent + job.parents):
        one = dependency_of(s, k)
        met += one == MET
        never += one == NEVER_MET
    decides, other = (met, never) if job.any_parent else (never, met)
    if decides:
        return MET if job.any_parent else NEVER_MET
    if other == job.parents:
        return NEVER_MET if job.any_parent else MET
    return WAITS


@inner
def drop_invalid(s: Slurm) -> None:
    """Cancel pending jobs whose dependencies can never be met, and then those that depend on them."""
    k = 0
    while k < s.clock.pending:
        t = s.pending[k]
        job = s.jobs[t]
        if job.parents and job.eligible == np.inf and dependencies_of(s, t) == NEVER_MET:
            job.state, job.killed = DROPPED, 1
            remove(s.pending, s.clock.pending, t)
            s.clock.pending -= 1
            s.clock.finished += 1
            k = 0
        else:
            k += 1


@inner
def is_independent(s: Slurm, t: int) -> bool:
    """Return whether the jobs that a job depends on have got as far as it waits for; sets when it became eligible."""
    job = s.jobs[t]
    if job.eligible < np.inf:
        return True
    if job.begin > s.clock.now:
        return False
    if job.parents and dependencies_of(s, t) != MET:
        return False
    job.eligible = s.clock.second if job.parents else max(job.submit, job.begin)
    job.first_eligible = min(job.first_eligible, job.eligible)
    return True


@inner
def may_start_task(s: Slurm, t: int) -> bool:
    """Return whether the array of a job has fewer tasks running than it may."""
    job = s.jobs[t]
    return job.array < 0 or job.array_limit == 0 or s.array_running[job.array] < job.array_limit


@inner_loop
def build_queue(s: Slurm, settings: Settings) -> int:
    """List pending jobs that may run, once for each of their partitions, the first first; return how many."""
    count = 0
    if settings.kill_invalid:
        drop_invalid(s)
    for k in range(s.clock.pending):
        t = s.pending[k]
        job = s.jobs[t]
        job.preempting = 0
        if not is_independent(s, t):
            continue
        job.accrue = min(job.accrue, job.eligible)  # its age counts once a loop has seen it
        for j in range(job.first_partition, job.first_partition + job.partitions):
            p = s.partition_of[j]
            if s.parts[p].up and s.entry_open[j]:
                s.queue_job[count], s.queue_part[count], s.queue_priority[count] = t, p, s.entry_priority[j]
                count += 1
    jobs, parts, priority = s.queue_job[:count].copy(), s.queue_part[:count].copy(), s.queue_priority[:count].copy()
    keys = np.empty(count)
    order = np.arange(count)
    for stage in range(4):  # stable: the last stage counts most
        if (
            (stage == 1 and len(s.parts) == 1)
            or (stage == 2 and len(s.reservations) == 0)
            or (stage == 3 and settings.preempt != BY_QOS)
        ):
            continue  # all are equal
        rising = True
        for k in range(count):
            job = s.jobs[jobs[order[k]]]
            if stage == 0:
                keys[k] = -priority[order[k]]
            elif stage == 1:
                keys[k] = -s.parts[parts[order[k]]].tier
            elif stage == 2:
                keys[k] = 0.0 if job.reservation >= 0 else 1.0
            else:
                keys[k] = s.qos_rank[job.qos] if settings.preempt == BY_QOS and job.qos >= 0 else 0.0
            rising = rising and (k == 0 or keys[k - 1] <= keys[k])
        if not rising:
            order = order[np.argsort(keys, kind="mergesort")]
    for k in range(count):
        s.queue_job[k], s.queue_part[k] = jobs[order[k]], parts[order[k]]
    return count


# -- jobs come and go ------------------------------------------------------------------------------------------------


@inner
def give_gpus(s: Slurm, n: int, count: int) -> int:
    """Mark the first free GPUs of a node as used, and return them as bits."""
    got, bit = 0, 1
    while count:
        if not s.gpu_used[n] & bit:
            got |= bit
            count -= 1
        bit <<= 1
    s.gpu_used[n] |= got
    return got


@inner
def start(s: Slurm, settings: Settings, acct: Accounting, t: int, p: int, nodes: int, by: int) -> None:
    """Start a job on the nodes in `chosen`."""
    job, now = s.jobs[t], s.clock.second
    job.slots = nodes
    for k in range(nodes):
        slot, n = job.first_slot + k, s.chosen[k]
        s.slot_node[slot], s.slot_count[slot] = n, s.share[k]
        s.slot_gpus[slot] = give_gpus(s, n, s.nodes[n].gpus if job.whole else s.share[k] * job.gpus)
    if len(s.free.cores):
        take_cores(s, t)
    give_back(s, t, s.free, -1)
    if job.array >= 0:
        s.array_running[job.array] += 1
    job.state, job.part, job.start, job.end, job.started_by = RUNNING, p, now, now + job.runtime, by
    if np.isnan(job.first_start):
        job.first_start = now
    job.expected_end = s.clock.second + min(job.limit, s.parts[p].max_time)
    job.looked = job.tested if by == BY_BACKFILL or job.skipped else max(job.passed, job.tested)
    job.preempting, job.preempts_since, job.preempted_at, job.grace_end = 0, -1e9, -1.0, np.inf
    end_at_limit(s, settings, t, p)
    charge_begin(s, acct, t)
    remove(s.pending, s.clock.pending, t)
    s.clock.pending -= 1
    insert(s.running, s.clock.running, t, s)
    s.clock.running += 1
    s.clock.changed = s.clock.second
    add_event(s, job.end + (s.clock.now - now + job.overhead) % 1.0, END, t)


@inner
def next_check(settings: Settings, time: float) -> float:
    """Return when Slurm looks next, from a moment on, for jobs whose time is over."""
    return np.ceil((time - settings.check_phase) / CHECK_PERIOD) * CHECK_PERIOD + settings.check_phase


@inner
def end_at_limit(s: Slurm, settings: Settings, t: int, p: int) -> None:
    """Let a job that starts end at its time limit, if it would run longer and the log did not see it do so."""
    job = s.jobs[t]
    over_time = settings.over_time if s.parts[p].over_time < 0 else s.parts[p].over_time
    job.times_out = 0
    if job.runtime > job.limit + over_time + job.tolerance:
        killed = next_check(settings, job.start + job.limit + over_time)
        if killed < job.end:
            job.end, job.times_out = killed, 1


@inner
def release(s: Slurm, settings: Settings, acct: Accounting, t: int) -> None:
    """A running job leaves its nodes; they complete while the epilog runs, which keeps other jobs off them."""
    job, now = s.jobs[t], s.clock.now
    charge_end(s, acct, t)
    give_back(s, t, s.free, 1)
    if job.array >= 0:
        s.array_running[job.array] -= 1
    for k in range(job.first_slot, job.first_slot + job.slots):
        n = s.slot_node[k]
        s.gpu_used[n] &= ~s.slot_gpus[k]
        if settings.epilog > 0:
            s.nodes[n].completing, s.nodes[n].completes = s.nodes[n].completing + 1, s.clock.second
            add_event(s, now + settings.epilog, EPILOG, n)
    remove(s.running, s.clock.running, t)
    s.clock.running -= 1
    s.clock.changed = s.clock.second


@inner
def enter(s: Slurm, t: int) -> None:
    """A job is pending."""
    job = s.jobs[t]
    job.skipped = 0
    job.state, job.passed, job.tested, job.limited_since, job.limited_until = PENDING, -np.inf, -np.inf, np.inf, -np.inf
    insert(s.pending, s.clock.pending, t, s)
    s.clock.pending += 1
    s.clock.requested = 1
    s.clock.changed = s.clock.second
