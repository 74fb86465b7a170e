"""The scheduling pass by queue: queues decide which job is next, and jobs within a quota reclaim what others borrow.

Which job is next
-----------------
Among the first jobs of all queues, one that needs to borrow less far up the tree goes first; then the one of the queue
with the lower share among its siblings, level by level; then the first in the order of all jobs. The queue's own jobs
are in that order, too.

Who gives back
--------------
A job that may not start, or does not fit, preempts running jobs where the rules of its queue allow it: jobs of queues
that hold more than their quota, then jobs of its own; of each the lowest priority first, then those that started last.
A queue that is back within its quota is left alone. When the job fits, those that it does not need go on, the last
chosen first. A job that was started or preempted at an instant preempts, or is preempted, no more in that instant.
"""

from __future__ import annotations

import numpy as np

from fleetlab.sim.codes import NO_BACKFILL
from fleetlab.sim.heap import pop, push
from fleetlab.sim.jit import inner, inner_loop, value
from fleetlab.sim.layout import NOW, UNLIMITED, Ints, NodeView
from fleetlab.sim.quota import (
    ANY,
    NEVER,
    NEWER,
    Quotas,
    borrowing_level,
    borrows,
    hold,
    is_barred,
    share_of,
    siblings,
    stays_within,
)
from fleetlab.sim.reference.allocation import fits, requeue, slots, slots_gained, start
from fleetlab.sim.reference.passes import end_pass, forget_freed
from fleetlab.sim.reference.queue import block, open_classes, open_partitions, ranks_after
from fleetlab.sim.reference.ranking import gather, rank, update_running
from fleetlab.sim.reference.state import Policies, Rules, Simulation

OTHERS, OWN = range(2)  # queues

# -- which job is next -------------------------------------------------------------------------------------------------


@inner
def member_of(sim: Simulation, t: int) -> int:
    """Return the member that a job is of."""
    return sim.groups[sim.jobs[t].group].member


@inner
def row_of(sim: Simulation, t: int) -> int:
    """Return the queue of a job."""
    return sim.quotas.members[member_of(sim, t)].queue


@inner_loop
def rank_by_queue(sim: Simulation, rules: Rules, policies: Policies) -> int:
    """Put all waiting jobs into a heap of their queue; return how many."""
    for k in range(sim.clock.waiting):
        sim.groups[sim.waiting[k]].tried = 1
    n, queues, first = gather(sim), sim.quotas.queues, 0
    update_running(sim, rules)
    keys = np.empty(n)
    rank(sim, rules, policies, n, keys)
    if sim.clock.policy_error:
        return 0
    for row in range(len(queues)):
        queues[row].jobs = queues[row].blocked = 0
    for k in range(n):
        queues[row_of(sim, sim.to_rank[k])].jobs += 1
    for row in range(len(queues)):
        queues[row].first = first
        first += queues[row].jobs
        queues[row].jobs = 0
    for k in range(n):
        t = sim.to_rank[k]
        queue = queues[row_of(sim, t)]
        sim.jobs[t].key = keys[k]
        push(sim.keys, sim.heap, queue.first, queue.jobs, keys[k], t)
        queue.jobs += 1
    return n


@inner
def head_of(sim: Simulation, row: int) -> int:
    """Return the first job of a queue."""
    return sim.heap[sim.quotas.queues[row].first]


@inner
def compared_at(q: Quotas, best: int, parent: int) -> int:
    """Return the queue below `parent` whose share stands for `best`; -1: none has shares of its own."""
    at, row = best, -1
    while at != parent:
        if q.queues[at].shown:
            row = at
        at = q.queues[at].parent
    return row


@inner
def goes_before(sim: Simulation, a: int, b: int, parent: int) -> bool:
    """Return whether the first job of queue `a` is before that of queue `b`, both below `parent`."""
    q = sim.quotas
    head_a, head_b = head_of(sim, a), head_of(sim, b)
    level_a, level_b = borrowing_level(q, member_of(sim, head_a)), borrowing_level(q, member_of(sim, head_b))
    if level_a != level_b:
        return level_a < level_b
    of_a, of_b = compared_at(q, a, parent), compared_at(q, b, parent)
    share_a, share_b = share_of(q, of_a) if of_a >= 0 else 0.0, share_of(q, of_b) if of_b >= 0 else 0.0
    if share_a != share_b:
        return share_a < share_b
    return ranks_after(sim.jobs, head_b, head_a)


@inner
def next_queue(sim: Simulation) -> int:
    """Return the queue whose first job is next: at each level of the tree the best of those below; -1: none waits."""
    queues, best = sim.quotas.queues, -1
    for row in range(len(queues)):
        queues[row].best = row if queues[row].jobs else -1
    for row in range(len(queues) - 1, -1, -1):
        queue = queues[row]
        if queue.best < 0:
            continue
        if queue.parent < 0:
            if best < 0 or goes_before(sim, queue.best, best, -1):
                best = queue.best
        else:
            above = queues[queue.parent]
            if above.best < 0 or goes_before(sim, queue.best, above.best, queue.parent):
                above.best = queue.best
    return best


@inner
def pop_queue(sim: Simulation, row: int) -> int:
    """Return the first job of a queue, and take it out."""
    queue, t = sim.quotas.queues[row], head_of(sim, row)
    pop(sim.keys, sim.heap, queue.first, queue.jobs)
    queue.jobs -= 1
    return t


@inner
def drop_alike(sim: Simulation, row: int) -> int:
    """Take jobs out of a queue that cannot start, as those before them could not; return how many."""
    queue, dropped = sim.quotas.queues[row], 0
    while queue.jobs and (queue.blocked or not sim.groups[sim.jobs[head_of(sim, row)].group].tried):
        pop_queue(sim, row)
        dropped += 1
    return dropped


# -- who gives back --------------------------------------------------------------------------------------------------


@inner_loop
def victims_first(sim: Simulation) -> Ints:
    """Return the running jobs, the lowest priority first, then those that started last."""
    n = sim.clock.running
    line, by_start = np.empty(n, np.int64), np.empty(n, np.int64)
    keys, heap = np.empty(n), np.empty(n, np.int64)
    for k in range(n):
        push(keys, heap, 0, k, -sim.jobs[sim.running[k]].run_start, -sim.running[k])
    for k in range(n):
        by_start[k] = -heap[0]
        pop(keys, heap, 0, n - k)
    for k in range(n):
        push(keys, heap, 0, k, float(sim.jobs[by_start[k]].priority), k)
    for k in range(n):
        line[k] = by_start[heap[0]]
        pop(keys, heap, 0, n - k)
    return line


@inner
def ranks_lower(sim: Simulation, rule: int, v: int, t: int) -> bool:
    """Return whether a rule lets job `t` preempt job `v`."""
    mine, other = sim.jobs[t].priority, sim.jobs[v].priority
    return rule == ANY or (rule != NEVER and (other < mine or (rule == NEWER and other == mine and v > t)))


@inner
def may_reclaim(sim: Simulation, v: int, t: int) -> bool:
    """Return whether job `t` may preempt job `v` of another queue."""
    q, mine, other = sim.quotas, member_of(sim, t), member_of(sim, v)
    row = q.members[mine].queue
    a, b = siblings(q, row, q.members[other].queue)
    if a < 0 or a == b:
        return False
    at = q.members[other].queue
    while at != q.queues[b].parent:
        if not borrows(q, at, mine, other):
            return False
        at = q.queues[at].parent
    if stays_within(q, a, mine):
        return ranks_lower(sim, q.queues[row].reclaim, v, t)
    return ranks_lower(sim, q.queues[row].borrow, v, t)


@inner
def may_preempt(sim: Simulation, v: int, t: int, side: int) -> bool:
    """Return whether job `t` may preempt job `v`: of OTHERS, or of its OWN queue."""
    row = row_of(sim, t)
    if row_of(sim, v) == row:
        return side == OWN and ranks_lower(sim, sim.quotas.queues[row].within, v, t)
    return side == OTHERS and may_reclaim(sim, v, t)


@inner
def give(sim: Simulation, rules: Rules, t: int, v: int, now: NodeView, sign: int) -> int:
    """Let job `v` give back what it holds (1), or have it again (-1); return how many more instances of `t` fit."""
    hold(sim.quotas, member_of(sim, v), -sign)
    return slots_gained(sim, rules, rules.shapes[sim.jobs[t].shape_id], v, now, NOW, sign)


@inner
def choose_victims(
    sim: Simulation, rules: Rules, t: int, now: NodeView, line: Ints, victims: Ints, first: int
) -> int:  # fmt: skip
    """Let running jobs give back until `t` may start and fits, as it will; return how many it needs, 0: it cannot.

    With `first` OTHERS, jobs of other queues come first, then those of its own; else those of its OWN alone.
    """
    m, count, n = member_of(sim, t), sim.jobs[t].instances, 0
    free_slots = slots(rules.shapes[sim.jobs[t].shape_id], UNLIMITED, now)
    ready = False
    for side in range(first, 2):
        for k in range(len(line)):
            if not ready and line[k] >= 0 and may_preempt(sim, line[k], t, side):
                victims[n], line[k] = line[k], -1 - line[k]
                free_slots += give(sim, rules, t, victims[n], now, 1)
                n += 1
                ready = free_slots >= count and not is_barred(sim.quotas, m, sim.clock.now)
    for k in range(n - 1, -1, -1):  # the last chosen go on if they can; all of them if it was for nothing
        free_slots += give(sim, rules, t, victims[k], now, -1)
        if ready and (free_slots < count or is_barred(sim.quotas, m, sim.clock.now)):
            free_slots += give(sim, rules, t, victims[k], now, 1)
        else:
            victims[k] = -1
    return settle(sim, line, victims, n)


@inner
def settle(sim: Simulation, line: Ints, victims: Ints, n: int) -> int:
    """Leave the victims alone in `victims`; return how many. They hold quota until their run ends."""
    count = 0
    for k in range(n):
        if victims[k] >= 0:
            victims[count] = victims[k]
            hold(sim.quotas, member_of(sim, victims[k]), 1)
            count += 1
    for k in range(len(line)):
        if line[k] < 0:
            v = -1 - line[k]
            gone = False
            for i in range(count):
                gone = gone or victims[i] == v
            if not gone and not evicted_now(sim, v):
                line[k] = v
    return count


@inner
def evicted_now(sim: Simulation, t: int) -> bool:
    """Return whether a job was preempted at this instant."""
    return sim.jobs[t].evicted == sim.clock.now


@inner
def evict(sim: Simulation, rules: Rules, t: int, now: NodeView) -> None:
    """Let a job that gave back its nodes wait again."""
    requeue(sim, rules, t, now, 1)
    sim.jobs[t].preemptions += 1
    sim.jobs[t].evicted = sim.clock.now


@inner
def preempt_for(sim: Simulation, rules: Rules, t: int, now: NodeView, line: Ints, victims: Ints) -> bool:
    """Preempt running jobs so that `t` may start and fits; return whether it could."""
    queue = sim.quotas.queues[row_of(sim, t)]
    if evicted_now(sim, t) or len(line) == 0:
        return False
    chosen = 0
    if queue.reclaim or queue.borrow:
        chosen = choose_victims(sim, rules, t, now, line, victims, OTHERS)
    if chosen == 0 and queue.within:
        chosen = choose_victims(sim, rules, t, now, line, victims, OWN)
    for k in range(chosen):
        evict(sim, rules, victims[k], now)
    return chosen > 0


@inner
def is_busy(sim: Simulation, rules: Rules) -> bool:
    """Return whether so many GPUs are allocated that some may be reclaimed."""
    if rules.busy == 0:
        return True
    allocated = 0
    for u in range(len(sim.users)):
        allocated += sim.users[u].gpu
    return allocated > rules.busy


# -- the pass --------------------------------------------------------------------------------------------------------


@inner_loop
def try_job(
    sim: Simulation, now: NodeView, rules: Rules, policies: Policies, t: int, line: Ints, victims: Ints
) -> bool:  # fmt: skip
    """Start a job if it may and fits, or others can be preempted for it; return whether some were."""
    job, group = sim.jobs[t], sim.groups[sim.jobs[t].group]
    barred = is_barred(sim.quotas, group.member, sim.clock.now)
    ready, preempts = not barred and fits(rules.shapes[job.shape_id], job.instances, now), False
    if not ready and is_busy(sim, rules):
        ready = preempts = preempt_for(sim, rules, t, now, line, victims)
    if ready:
        start(sim, rules, policies, t, now)
        return preempts
    queue = sim.quotas.queues[row_of(sim, t)]
    group.tried, queue.blocked = 0, queue.strict
    if rules.backfill == NO_BACKFILL and not barred:
        block(sim, rules, group.queue)
    return False


@inner_loop
def try_queues(
    sim: Simulation, now: NodeView, rules: Rules, policies: Policies, line: Ints, victims: Ints
) -> bool:  # fmt: skip
    """Start jobs in order; return whether some were preempted, so that others may fit now."""
    size, again = rank_by_queue(sim, rules, policies), False
    while size:
        row = next_queue(sim)
        t = pop_queue(sim, row)
        if open_classes(sim, rules, sim.groups[sim.jobs[t].group].queue):
            again = try_job(sim, now, rules, policies, t, line, victims) or again
        size -= 1 + drop_alike(sim, row)
    return again


@value
def pass_by_queue(sim: Simulation, now: NodeView, rules: Rules, policies: Policies) -> int:
    """Start jobs in the order of queues; jobs within their guarantee preempt those that borrow, as the rules say."""
    forget_freed(sim)
    line = victims_first(sim)
    victims, again = np.empty(len(line), np.int64), True
    while again and not sim.clock.policy_error:
        open_partitions(sim)
        again = try_queues(sim, now, rules, policies, line, victims)
    end_pass(sim, rules, now)
    return 0
