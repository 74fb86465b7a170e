"""Gang scheduling: which of the jobs that hold the same CPUs run, and which are suspended.

Jobs of a higher tier run. Those of a lower one run beside them, in order, as long as their CPUs together are not more
than the node has; the others are suspended, keep their memory and their GPUs, and go on when CPUs are free. Every half
minute (SchedulerTimeSlice) those that ran go behind those that did not. As Slurm does without task affinity, CPUs are
counted: which of them a job holds does not matter here.
"""

from __future__ import annotations

import numpy as np

from fleetlab.schedulers.slurm.accounting import Accounting
from fleetlab.schedulers.slurm.queue import END, SLICE, add_event, release, remove, start
from fleetlab.schedulers.slurm.state import Settings, Slurm
from fleetlab.sim.jit import inner

TIME_SLICE = 30.0  # s: SchedulerTimeSlice
OUT, ACTIVE, FILLER = range(3)  # whether a job has its turn: not, since a slice began, or because there was room


@inner
def cpus_on(s: Slurm, t: int, k: int) -> int:
    """Return the CPU milli of a job in one of its slots."""
    job = s.jobs[t]
    return s.nodes[s.slot_node[k]].cpu if job.whole else s.slot_count[k] * job.cpu


@inner
def fits_beside(s: Slurm, t: int) -> bool:
    """Return whether the CPUs of a job are left by those that run, as counted in `active`."""
    job = s.jobs[t]
    for k in range(job.first_slot, job.first_slot + job.slots):
        n = s.slot_node[k]
        if s.active[n] and s.active[n] + cpus_on(s, t, k) > s.nodes[n].cpu:
            return False
    return True


@inner
def add_active(s: Slurm, t: int) -> None:
    """Count a job that runs."""
    job = s.jobs[t]
    for k in range(job.first_slot, job.first_slot + job.slots):
        n = s.slot_node[k]
        s.active[n] = min(s.active[n] + cpus_on(s, t, k), s.nodes[n].cpu)


@inner
def cast_shadows(s: Slurm, p: int) -> None:
    """Count the jobs that run in partitions of a higher tier."""
    for n in range(len(s.nodes)):
        s.active[n] = 0
    for k in range(s.clock.turns):
        job = s.jobs[s.turns[k]]
        if s.parts[job.part].tier > s.parts[p].tier and not job.suspended:
            add_active(s, s.turns[k])


@inner
def suspend(s: Slurm, settings: Settings, t: int) -> None:
    """Stop a running job; it keeps what it holds."""
    job = s.jobs[t]
    job.turn = OUT
    if job.suspended:
        return
    job.suspended, job.suspended_at, job.left, job.end = 1, s.clock.second, job.end - s.clock.second, np.inf
    if s.clock.slice_at <= s.clock.now:
        phase = settings.check_phase
        s.clock.slice_at = (np.floor((s.clock.now - phase) / TIME_SLICE) + 1.0) * TIME_SLICE + phase
        add_event(s, s.clock.slice_at, SLICE, 0)


@inner
def resume(s: Slurm, t: int) -> None:
    """Let a suspended job go on."""
    job, clock = s.jobs[t], s.clock
    if not job.suspended:
        return
    job.suspended, job.end = 0, clock.second + job.left
    job.expected_end += clock.second - job.suspended_at
    add_event(s, job.end + (clock.now - clock.second + job.overhead) % 1.0, END, t)


@inner
def update_partition(s: Slurm, settings: Settings, p: int) -> None:
    """Suspend jobs of a partition that have no CPUs left, then let others go on that have."""
    cast_shadows(s, p)
    for turn in (ACTIVE, FILLER, OUT):
        for k in range(s.clock.turns):
            t = s.turns[k]
            job = s.jobs[t]
            if job.part != p or job.turn != turn or job.checked == s.clock.checks:
                continue
            job.checked = s.clock.checks
            if not fits_beside(s, t):
                suspend(s, settings, t)
                continue
            add_active(s, t)
            job.turn = FILLER if turn == OUT else turn
            resume(s, t)


@inner
def update_all(s: Slurm, settings: Settings) -> None:
    """Look at all partitions, those of the highest tier first."""
    s.clock.checks += 1
    tier = 1 << 40
    while True:
        best = -1
        for p in range(len(s.parts)):
            if s.parts[p].tier < tier:
                best = max(best, s.parts[p].tier)
        if best < 0:
            return
        tier = best
        for p in range(len(s.parts)):
            if s.parts[p].tier == tier:
                update_partition(s, settings, p)


@inner
def join_gang(s: Slurm, settings: Settings, t: int) -> None:
    """A job has started: it runs, and others may have to wait for it."""
    s.turns[s.clock.turns] = t
    s.clock.turns += 1
    s.jobs[t].turn, s.jobs[t].suspended = FILLER, 0
    update_all(s, settings)


@inner
def leave_gang(s: Slurm, settings: Settings, t: int) -> None:
    """A job has left its nodes: others may go on."""
    remove(s.turns, s.clock.turns, t)
    s.clock.turns -= 1
    s.jobs[t].suspended = 0
    update_all(s, settings)


@inner
def next_slice(s: Slurm, settings: Settings) -> None:
    """Let jobs take turns, where some of a partition are suspended."""
    last = s.clock.slice_at
    waits = False
    for p in range(len(s.parts)):
        waits = take_turns(s, settings, p) or waits
    if waits and s.clock.slice_at <= last:
        s.clock.slice_at = last + TIME_SLICE
        add_event(s, s.clock.slice_at, SLICE, 0)


@inner
def take_turns(s: Slurm, settings: Settings, p: int) -> bool:
    """Let the jobs of a partition that had their turn go behind the others; return whether some are suspended."""
    waits, count, moved = False, s.clock.turns, 0
    for k in range(count):
        waits = waits or (s.jobs[s.turns[k]].part == p and s.jobs[s.turns[k]].suspended == 1)
    if not waits:
        return False
    k = 0
    while k + moved < count:
        t = s.turns[k]
        if s.jobs[t].part == p and s.jobs[t].turn == ACTIVE:
            remove(s.turns, count, t)
            s.turns[count - 1] = t
            moved += 1
        else:
            k += 1
    cast_shadows(s, p)
    for k in range(count):
        t = s.turns[k]
        if s.jobs[t].part == p:
            s.jobs[t].turn = OUT
            if fits_beside(s, t):
                add_active(s, t)
                s.jobs[t].turn = ACTIVE
    for k in range(count):
        t = s.turns[k]
        if s.jobs[t].part == p:
            if s.jobs[t].turn == OUT:
                suspend(s, settings, t)
            else:
                resume(s, t)
    return True


# -- jobs come and go ------------------------------------------------------------------------------------------------


@inner
def start_job(s: Slurm, settings: Settings, acct: Accounting, t: int, p: int, nodes: int, by: int) -> None:
    """Start a job on the nodes in `chosen`; others may have to wait for it."""
    start(s, settings, acct, t, p, nodes, by)
    if s.clock.suspends:
        join_gang(s, settings, t)


@inner
def release_job(s: Slurm, settings: Settings, acct: Accounting, t: int) -> None:
    """A running job leaves its nodes; others may go on."""
    release(s, settings, acct, t)
    if s.clock.suspends:
        leave_gang(s, settings, t)
