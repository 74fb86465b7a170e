"""Preemption by class of service or partition: which running jobs make room for one that is pending.

Candidates are tried one after the other, those of low priority and few nodes first, until the job fits. Then they are
sorted anew, the last one first, and it is tried again: so fewer jobs are preempted. A job with a grace time is told to
go, and goes when its time is over: then slurmctld, which looks every half minute, ends it, or whoever wants its nodes.
"""

from __future__ import annotations

from fleetlab.schedulers.slurm.queue import GRACE, add_event, next_check
from fleetlab.schedulers.slurm.select import choose, copy_free, give_back, overlaps
from fleetlab.schedulers.slurm.state import BY_QOS, CANCEL, OFF, REQUEUE, WITHIN, Settings, Slurm
from fleetlab.sim.jit import inner
from fleetlab.sim.layout import Ints

PATIENCE = 10.0  # s: MessageTimeout
MOST_REQUEUES = 40  # of one job: then it is left alone
NEVER = -1e9
LAST = 99_999  # more nodes than any: the job whose preemption sufficed


@inner
def mode_of(s: Slurm, settings: Settings, t: int) -> int:
    """Return how a running job would be preempted."""
    job = s.jobs[t]
    if settings.preempt == BY_QOS:
        return s.qos_mode[job.qos] if job.qos >= 0 else OFF
    return s.parts[job.part].preempt_mode


@inner
def outranks(s: Slurm, settings: Settings, t: int, p: int, other: int) -> bool:
    """Return whether a pending job is of a class, or a partition, that preempts that of a running one."""
    mine, theirs = s.jobs[t], s.jobs[other]
    if settings.preempt != BY_QOS:
        return s.parts[p].tier > s.parts[theirs.part].tier
    if mine.qos < 0 or theirs.qos < 0:
        return False
    rule = s.preempts[mine.qos, theirs.qos]
    return rule == 1 or (rule == WITHIN and mine.priority > theirs.priority)


@inner
def may_preempt(s: Slurm, settings: Settings, t: int, p: int, other: int) -> bool:
    """Return whether a pending job may have a running one requeued or cancelled."""
    theirs = s.jobs[other]
    mode = mode_of(s, settings, other)
    if (mode != REQUEUE and mode != CANCEL) or theirs.grace_end < 0 or theirs.requeues >= MOST_REQUEUES:
        return False
    exempt = s.qos_exempt[theirs.qos]  # -1, of a job without a class, is the last: the cluster's own
    return theirs.start + exempt <= s.clock.second and outranks(s, settings, t, p, other)


@inner
def list_victims(s: Slurm, settings: Settings, t: int, p: int) -> int:
    """List the running jobs that a job may preempt, those to be preempted first at the beginning."""
    count = 0
    for k in range(s.clock.running):
        other = s.running[k]
        if not may_preempt(s, settings, t, p, other):
            continue
        j = count
        while j and is_preferred(s, settings, other, s.victims[j - 1]):
            s.victims[j] = s.victims[j - 1]
            j -= 1
        s.victims[j] = other
        count += 1
    return count


@inner
def is_preferred(s: Slurm, settings: Settings, a: int, b: int) -> bool:
    """Return whether job `a` is preempted before job `b`: the younger, or that of less priority or fewer nodes."""
    first, second = s.jobs[a], s.jobs[b]
    if settings.youngest_first:
        return first.start > second.start
    if settings.preempt == BY_QOS:
        mine, theirs = s.qos_weight[first.qos], s.qos_weight[second.qos]
    else:
        mine, theirs = s.parts[first.part].tier, s.parts[second.part].tier
    return mine < theirs if mine != theirs else first.slots < second.slots


@inner
def without_all(s: Slurm, settings: Settings, t: int, count: int, usable: Ints) -> bool:
    """Find where a job would go without any of the candidates, into `target`; return whether it fits."""
    copy_free(s)
    for k in range(count):
        if overlaps(s, s.victims[k], usable):
            give_back(s, s.victims[k], s.then, 1)
    nodes = choose(s, t, usable, s.then, settings.least_loaded)
    for n in range(len(s.nodes)):
        s.target[n] = 0
    for k in range(nodes):
        s.target[s.chosen[k]] = 1
    return nodes > 0


@inner
def remove_until_it_fits(s: Slurm, settings: Settings, t: int, count: int, usable: Ints) -> int:
    """Remove candidates in order until a job fits; return the place of the last one, -1: it does not fit."""
    copy_free(s)
    for k in range(count):
        if not overlaps(s, s.victims[k], usable):
            continue
        give_back(s, s.victims[k], s.then, 1)
        if choose(s, t, usable, s.then, settings.least_loaded):
            return k
    return -1


@inner
def count_chosen(s: Slurm, t: int, nodes: int) -> int:
    """Return how many of the chosen nodes a job holds."""
    job, count = s.jobs[t], 0
    for slot in range(job.first_slot, job.first_slot + job.slots):
        for j in range(nodes):
            count += s.slot_node[slot] == s.chosen[j]
    return count


@inner
def reorder(s: Slurm, settings: Settings, count: int, last: int, nodes: int) -> None:
    """Put the last removed candidate first, then those that hold most of the chosen nodes."""
    for k in range(count):
        s.victim_nodes[k] = LAST if k == last else 0
        if k < last and not settings.strict_order:
            s.victim_nodes[k] = count_chosen(s, s.victims[k], nodes)
    for k in range(1, count):
        other, mine, j = s.victims[k], s.victim_nodes[k], k
        while j and s.victim_nodes[j - 1] < mine:
            s.victims[j], s.victim_nodes[j] = s.victims[j - 1], s.victim_nodes[j - 1]
            j -= 1
        s.victims[j], s.victim_nodes[j] = other, mine


@inner
def preempt_for(s: Slurm, settings: Settings, t: int, p: int, usable: Ints, at_once: int) -> bool:
    """Preempt jobs so that a pending one fits, and return whether it can; it starts when their nodes are free.

    The backfill loop first takes all candidates away `at_once`, and then looks at the nodes that it found. These nodes
    are in `chosen`, and their number where `will_start` leaves it.
    """
    job = s.jobs[t]
    count = list_victims(s, settings, t, p)
    if not count or (at_once and not without_all(s, settings, t, count, usable)):
        return False
    where = s.target if at_once else usable
    passes, last, nodes = 0, -1, 0
    while True:
        last = remove_until_it_fits(s, settings, t, count, where)
        if last < 0:
            return False
        nodes = choose(s, t, where, s.then, settings.least_loaded)
        passes += 1
        if passes - 1 > settings.reorders or count <= passes:
            break
        reorder(s, settings, count, last, nodes)
    # Those that it preempted may still be ending: then none is told to go, but it waits for them all the same.
    is_early = s.clock.second - job.preempts_since < settings.kill_wait + PATIENCE
    for k in range(last + 1):
        if not is_early and count_chosen(s, s.victims[k], nodes):
            put_off(s, settings, s.victims[k])
    s.sets[0, 0] = nodes
    job.preempting = 1
    if job.preempts_since == NEVER:
        job.preempts_since = s.clock.second
    return True


@inner
def mark_gone(s: Slurm, settings: Settings, t: int, p: int) -> int:
    """Mark the jobs that a pending one may preempt, and return how many: plans are made without them."""
    count = list_victims(s, settings, t, p)
    for k in range(count):
        s.jobs[s.victims[k]].gone = 1
    return count


@inner
def unmark_gone(s: Slurm, count: int) -> None:
    """Take those marks away."""
    for k in range(count):
        s.jobs[s.victims[k]].gone = 0


@inner
def put_off(s: Slurm, settings: Settings, t: int) -> None:
    """Tell a running job to go, or end it where its grace is over or it has none."""
    job = s.jobs[t]
    if job.preempted_at < 0:
        grace = s.qos_grace[job.qos] if settings.preempt == BY_QOS else float(s.parts[job.part].grace)
        job.preempted_at = s.clock.second
        job.grace_end = s.clock.second + grace
        job.expected_end = min(job.expected_end, job.grace_end)
        if grace > 0:
            add_event(s, next_check(settings, job.grace_end), GRACE, t)
    if job.grace_end <= s.clock.second:
        job.grace_end = -1.0
        add_event(s, s.clock.now, GRACE, t)
