"""The clock of a simulated Slurm: jobs are submitted and end, and its two loops look when the real ones would.

slurmctld looks at its list of wishes once a second: there the main loop starts after a submission or an end,
`batch_sched_delay` seconds after its last look at the soonest, and every `sched_interval` for the whole queue. Where a
site runs an epilog, each node tells when its own is over, and the main loop looks at that very moment, unless `defer`
is set. The backfill loop sleeps `bf_interval` seconds after each cycle, so that it begins later in a second each time;
and then goes on sleeping, a second at a time, while no job and no node changes.
"""

from __future__ import annotations

import numpy as np

from fleetlab.schedulers.slurm.accounting import (
    Accounting,
    leave,
    may_submit,
    minutes_are_used,
    pass_over_usage,
    set_priority,
    usage_may_fall,
)
from fleetlab.schedulers.slurm.backfill_loop import backfill
from fleetlab.schedulers.slurm.cores import open_cores
from fleetlab.schedulers.slurm.gang import next_slice, release_job, start_job
from fleetlab.schedulers.slurm.main_loop import look
from fleetlab.schedulers.slurm.preemption import mode_of
from fleetlab.schedulers.slurm.queue import BY_MAIN, END, EPILOG, GRACE, KINDS, SLICE, enter, next_check
from fleetlab.schedulers.slurm.runs import log_run
from fleetlab.schedulers.slurm.select import look_in, room_on
from fleetlab.schedulers.slurm.state import CANCEL, DONE, RUNNING, Settings, Slurm
from fleetlab.sim.events import BACK, DRAIN
from fleetlab.sim.heap import pop
from fleetlab.sim.jit import inner, loop
from fleetlab.sim.layout import Floats, Ints
from fleetlab.sim.reference_type import by_reference

CALL_AGAIN, FINISHED = range(2)
ROUNDING = 1e-9  # of a moment that is one already
REQUEUE_DELAY = 121.0  # s until a requeued job is eligible again


@inner
def next_at(time: float, first: float, every: float) -> float:
    """Return the first moment from `time` on that is a multiple of so many seconds after another."""
    return np.ceil((time - first) / every - ROUNDING) * every + first


@inner
def next_look(s: Slurm, settings: Settings) -> float:
    """Return when the main loop looks next: once a second, and a bit."""
    clock = s.clock
    if not clock.pending:
        return np.inf
    whole_queue = clock.last_full + settings.main_interval
    wanted = min(clock.last_main + settings.delay, whole_queue) if clock.requested else whole_queue
    return next_at(max(wanted, clock.now), settings.main_phase, settings.beat)


@inner
def next_cycle(s: Slurm, settings: Settings) -> float:
    """Return when the backfill loop wakes next and finds that something has changed."""
    clock = s.clock
    if not settings.backfill or not clock.pending or clock.changed < clock.last_backfill:
        return np.inf
    return next_at(max(clock.next_backfill, clock.now), clock.next_backfill, 1.0)  # it naps while there is no work


@inner
def next_instant(s: Slurm, settings: Settings, order: Ints, acct: Accounting) -> float:
    """Return when something happens next."""
    clock = s.clock
    time = s.event_keys[0] if clock.events else np.inf
    if clock.next_job < len(order):
        time = min(time, s.jobs[order[clock.next_job]].submit)
    if clock.next_outage < len(s.outage_time):
        time = min(time, s.outage_time[clock.next_outage])
    time = min(time, next_look(s, settings), next_cycle(s, settings))
    if acct.multifactor and (clock.pending or clock.running):
        time = min(time, max(acct.pass_at[0], clock.now))
    if acct.groups.kills and clock.running:
        time = min(time, next_kill(s, settings))
    return time


@inner
def next_kill(s: Slurm, settings: Settings) -> float:
    """Return when running jobs are looked at next for minutes that their groups have used."""
    return max(next_check(settings, s.clock.last_kill + 1.0), s.clock.now)


@inner
def end_of(s: Slurm, settings: Settings, acct: Accounting, t: int) -> None:
    """A job has ended."""
    job = s.jobs[t]
    release_job(s, settings, acct, t)
    job.state = DONE
    if job.times_out:
        job.killed, job.timed_out = 1, 1
    leave(s, acct, t)
    s.clock.finished += 1
    log_run(s, t)
    if settings.epilog == 0:
        s.clock.requested = 1


@inner
def end_used_up(s: Slurm, settings: Settings, acct: Accounting) -> None:
    """End the running jobs whose groups have used their minutes."""
    s.clock.last_kill = s.clock.second
    k = 0
    while k < s.clock.running:
        t = s.running[k]
        if minutes_are_used(s, acct, t):
            s.jobs[t].end, s.jobs[t].times_out = s.clock.second, 1
            end_of(s, settings, acct, t)
        else:
            k += 1


@inner
def submit(s: Slurm, settings: Settings, acct: Accounting, t: int) -> None:
    """A job is submitted: it is pending, or it is refused; one that has nodes already runs on them."""
    job = s.jobs[t]
    if not job.refused and may_submit(s, acct, t):
        set_priority(s, acct, t)
        enter(s, t)
        if job.slots:
            run_on_its_nodes(s, settings, acct, t)
        return
    job.refused = max(job.refused, 1)
    job.state, job.killed = DONE, 1
    s.clock.finished += 1


@inner
def run_on_its_nodes(s: Slurm, settings: Settings, acct: Accounting, t: int) -> None:
    """Start a job on the nodes that its slots name, in the first of its partitions that has them, if it fits there."""
    job = s.jobs[t]
    nodes, job.slots = job.slots, 0
    for p in range(len(s.parts)):
        look_in(s, t, p)
        fits = False
        for k in range(job.first_partition, job.first_partition + job.partitions):
            fits |= s.partition_of[k] == p
        s.joinable[:] = 0
        for k in range(nodes):
            n = s.slot_node[job.first_slot + k]
            s.chosen[k], s.share[k], s.joinable[n] = n, s.slot_count[job.first_slot + k], 1
            fits &= s.in_partition[p, n] == 1 and room_on(job, n, s.free, s) >= s.share[k]
        if fits:
            if len(s.free.cores):
                s.skip_row[:] = 1
                open_cores(s, s.free, s.joinable)
            start_job(s, settings, acct, t, p, nodes, BY_MAIN)
            return


@inner
def cut_short(s: Slurm, settings: Settings, acct: Accounting, t: int) -> None:
    """A running job loses its nodes, and what it has done."""
    job = s.jobs[t]
    release_job(s, settings, acct, t)
    job.end = s.clock.second
    job.lost += job.end - job.start
    job.requeues += 1
    log_run(s, t)


@inner
def requeue(s: Slurm, settings: Settings, acct: Accounting, t: int) -> None:
    """A running job is put back into the queue, and starts over; it is eligible again after two minutes."""
    cut_short(s, settings, acct, t)
    job = s.jobs[t]
    job.preempted_at, job.grace_end = -1.0, np.inf
    job.begin, job.eligible, job.accrue = s.clock.second + REQUEUE_DELAY, np.inf, np.inf
    enter(s, t)


@inner
def end_early(s: Slurm, settings: Settings, acct: Accounting, t: int) -> None:
    """A running job ends before its time, and does not run again."""
    cut_short(s, settings, acct, t)
    job = s.jobs[t]
    job.state, job.killed, job.cut = DONE, 1, 1
    leave(s, acct, t)
    s.clock.finished += 1
    s.clock.requested = 1


@inner
def apply_event(s: Slurm, settings: Settings, acct: Accounting, n: int, what: int) -> None:
    """A node goes down, with the jobs on it; is drained; or comes back."""
    node = s.nodes[n]
    s.clock.changed, s.clock.requested = s.clock.second, 1
    if what == BACK:
        node.up, node.drained = 1, 0
    elif what == DRAIN:
        node.drained = 1
    else:
        node.up = 0
        k = 0
        while k < s.clock.running:
            t = s.running[k]
            if holds(s, t, n):
                s.jobs[t].failures += 1
                if not s.jobs[t].may_requeue:
                    end_early(s, settings, acct, t)
                    continue
                requeue(s, settings, acct, t)
                if not acct.multifactor:
                    set_priority(s, acct, t)
            else:
                k += 1


@inner
def holds(s: Slurm, t: int, n: int) -> bool:
    """Return whether a running job has a node."""
    job = s.jobs[t]
    for k in range(job.first_slot, job.first_slot + job.slots):  # noqa: SIM110  compiled, a loop is quicker
        if s.slot_node[k] == n:
            return True
    return False


@inner
def preempted(s: Slurm, settings: Settings, acct: Accounting, t: int) -> None:
    """A running job is preempted: it is requeued and starts over, or it is cancelled."""
    job = s.jobs[t]
    if job.state != RUNNING or job.preempted_at < 0 or job.grace_end > s.clock.now:
        return  # it has ended by itself, and may even run again
    if mode_of(s, settings, t) == CANCEL or not job.may_requeue:
        end_early(s, settings, acct, t)
    else:
        requeue(s, settings, acct, t)


@inner
def happen(s: Slurm, settings: Settings, acct: Accounting) -> None:
    """Let the events of this instant happen: ends first, as they lie on the heap."""
    clock = s.clock
    while clock.events and s.event_keys[0] <= clock.now:
        time, kind, item = s.event_keys[0], s.events[0] % KINDS, s.events[0] // KINDS
        pop(s.event_keys, s.events, 0, clock.events)
        clock.events -= 1
        if kind == END and s.jobs[item].state == RUNNING and s.jobs[item].end == np.floor(time):
            end_of(s, settings, acct, item)
        elif kind == EPILOG:
            s.nodes[item].completing -= 1
            clock.changed = clock.second
            if settings.defer:
                clock.requested = 1
            else:
                clock.at_once = 1
        elif kind == GRACE:
            preempted(s, settings, acct, item)
        elif kind == SLICE:
            next_slice(s, settings)


@inner
def is_stuck(s: Slurm, settings: Settings, order: Ints) -> bool:
    """Return whether nothing runs or will be submitted, and both loops found nothing to start."""
    clock = s.clock
    if clock.running or clock.events or clock.next_job < len(order) or clock.next_outage < len(s.outage_time):
        return False
    return clock.last_full > clock.changed and (not settings.backfill or clock.last_backfill > clock.changed)


@inner
def minutes_after(s: Slurm, t: int) -> float:
    """Return when the minutes are over that a job waits for after the start of another, inf: it waits for none."""
    job, time = s.jobs[t], np.inf
    for k in range(job.first_parent, job.first_parent + job.parents):
        if s.parent_of[k] >= 0 and s.delay_of[k] > 0:
            moment = np.ceil(s.jobs[s.parent_of[k]].first_start + s.delay_of[k])
            if moment > s.clock.second:  # not a number: it has not started
                time = min(time, moment)
    return time


@inner
def gang_waits(s: Slurm) -> bool:
    """Return whether a part of a heterogeneous job is pending."""
    for k in range(s.clock.pending):  # noqa: SIM110  compiled, a loop is quicker
        if s.jobs[s.pending[k]].gang >= 0:
            return True
    return False


@inner
def wait_for_begin(s: Slurm, settings: Settings) -> bool:
    """Go on when a pending job may begin, or a reservation begins or ends; return whether there is such a moment."""
    time = np.inf
    if settings.backfill and s.clock.serial % 2 == 0 and gang_waits(s):
        s.clock.changed = s.clock.last_backfill  # parts were planned after each other; the next cycle plans anew
        return True
    for k in range(s.clock.pending):
        begin = s.jobs[s.pending[k]].begin
        if begin > s.clock.second:
            time = min(time, begin)
        time = min(time, minutes_after(s, s.pending[k]))
    for r in range(len(s.reservations)):
        for moment in (s.reservations[r].begin, s.reservations[r].end):
            if moment > s.clock.second:
                time = min(time, moment)
    if time == np.inf:
        return False
    clock = s.clock
    clock.last_full = time - settings.main_interval
    clock.changed = time
    if clock.next_backfill < time:  # cycles that find nothing new are not taken
        clock.next_backfill += np.ceil((time - clock.next_backfill) / settings.interval) * settings.interval
    return True


@loop
def run(tables: Slurm, rules: Settings, accounts: Accounting, order: Ints, gang_start: Floats, most: int) -> int:
    """Run until all jobs are done, or `most` looks were taken; `order` has the jobs by submission."""
    s, settings, acct = by_reference(tables), by_reference(rules), by_reference(accounts)
    clock, looks = s.clock, 0
    while looks < most:
        clock.now = next_instant(s, settings, order, acct)
        if clock.now >= settings.until or clock.now == np.inf:
            return FINISHED
        clock.second = np.floor(clock.now)
        looks += 1
        if acct.multifactor and acct.pass_at[0] <= clock.now:
            pass_over_usage(s, acct)
        while clock.next_job < len(order) and s.jobs[order[clock.next_job]].submit <= clock.now:
            submit(s, settings, acct, order[clock.next_job])
            clock.next_job += 1
        while clock.next_outage < len(s.outage_time) and s.outage_time[clock.next_outage] <= clock.now:
            apply_event(s, settings, acct, s.outage_node[clock.next_outage], s.outage_what[clock.next_outage])
            clock.next_outage += 1
        happen(s, settings, acct)
        if acct.groups.kills and clock.running and next_kill(s, settings) <= clock.now:
            end_used_up(s, settings, acct)
        if next_look(s, settings) <= clock.now:
            full = clock.now >= clock.last_full + settings.main_interval
            clock.requested = 0
            clock.last_main = clock.second
            if full:
                clock.last_full = clock.second
            look(s, settings, acct, 1 if full else 0)
        elif clock.at_once:
            look(s, settings, acct, 0)
        clock.at_once = 0
        if next_cycle(s, settings) <= clock.now:
            backfill(s, settings, acct, gang_start)
            clock.last_backfill = clock.second
            clock.next_backfill = clock.now + settings.interval + clock.tested * settings.per_job
        if is_stuck(s, settings, order) and not usage_may_fall(acct) and not wait_for_begin(s, settings):
            return FINISHED
    return CALL_AGAIN
