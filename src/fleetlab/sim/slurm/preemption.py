"""Preemption by class of service or partition: which running jobs make room for one that is pending."""

from __future__ import annotations

from fleetlab.sim.jit import inner
from fleetlab.sim.layout import Ints
from fleetlab.sim.slurm.accounting import Accounting
from fleetlab.sim.slurm.queue import GRACE, add_event
from fleetlab.sim.slurm.select import choose, copy_free, give_back, overlaps
from fleetlab.sim.slurm.state import BY_QOS, OFF, Settings, Slurm

PATIENCE = 10.0  # s: MessageTimeout
MOST_REQUEUES = 40  # of one job: then it is left alone


@inner
def mode_of(s: Slurm, settings: Settings, t: int) -> int:
    """Return how a running job would be preempted."""
    job = s.jobs[t]
    if settings.preempt == BY_QOS:
        return s.qos_mode[job.qos] if job.qos >= 0 else OFF
    return s.parts[job.part].preempt_mode


@inner
def may_preempt(s: Slurm, settings: Settings, t: int, p: int, other: int) -> bool:
    """Return whether a pending job may preempt a running one."""
    mine, theirs = s.jobs[t], s.jobs[other]
    if mode_of(s, settings, other) == OFF or theirs.preempted_at >= 0 or theirs.requeues >= MOST_REQUEUES:
        return False
    if settings.preempt == BY_QOS:
        return mine.qos >= 0 and theirs.qos >= 0 and s.preempts[mine.qos, theirs.qos] == 1
    return s.parts[p].tier > s.parts[theirs.part].tier


@inner
def list_victims(s: Slurm, settings: Settings, t: int, p: int) -> int:
    """List the running jobs that a job may preempt: of low priority first, then small ones, then the youngest."""
    count = 0
    for k in range(s.clock.running):
        other = s.running[k]
        if not may_preempt(s, settings, t, p, other):
            continue
        j = count
        while j and is_preferred(s, other, s.victims[j - 1]):
            s.victims[j] = s.victims[j - 1]
            j -= 1
        s.victims[j] = other
        count += 1
    return count


@inner
def is_preferred(s: Slurm, a: int, b: int) -> bool:
    """Return whether job `a` is preempted before job `b`."""
    first, second = s.jobs[a], s.jobs[b]
    if s.qos_rank[first.qos] != s.qos_rank[second.qos]:
        return s.qos_rank[first.qos] > s.qos_rank[second.qos]
    return first.slots < second.slots


@inner
def preempt_for(s: Slurm, settings: Settings, acct: Accounting, t: int, p: int, usable: Ints) -> bool:
    """Preempt jobs until a pending one fits; it starts when their nodes are free."""
    job = s.jobs[t]
    if s.clock.second - job.preempts_since < settings.kill_wait + PATIENCE:
        return False  # those it preempted may still be ending
    count = list_victims(s, settings, t, p)
    copy_free(s)
    for k in range(count):
        other = s.victims[k]
        if not overlaps(s, other, usable):
            continue
        give_back(s, other, s.then, 1)
        nodes = choose(s, t, usable, s.then, settings.least_loaded)
        if nodes:
            put_off(s, settings, k + 1, nodes)
            job.preempting, job.preempts_since = 1, s.clock.second
            return True
    return False


@inner
def put_off(s: Slurm, settings: Settings, count: int, nodes: int) -> None:
    """Preempt those of the listed jobs that hold one of the chosen nodes."""
    for k in range(count):
        other = s.victims[k]
        job, shared = s.jobs[other], False
        for slot in range(job.first_slot, job.first_slot + job.slots):
            for j in range(nodes):
                shared = shared or s.slot_node[slot] == s.chosen[j]
        mode = mode_of(s, settings, other)
        if shared and mode != OFF:
            job.preempted_at = s.clock.now
            add_event(s, s.clock.now, GRACE, other)
