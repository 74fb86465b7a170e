"""The scheduling pass with preemption: a job that does not fit may evict running jobs that rank after it."""

from __future__ import annotations

import numpy as np

from fleetlab.sim.codes import NO_BACKFILL
from fleetlab.sim.heap import push
from fleetlab.sim.jit import inner, inner_loop, value
from fleetlab.sim.layout import NOW, UNLIMITED, Ints, NodeView
from fleetlab.sim.reference.allocation import copy, fits, occupy, release, requeue, slots, slots_gained, start
from fleetlab.sim.reference.passes import end_pass, find_able, try_all
from fleetlab.sim.reference.queue import block, open_classes, open_partitions, over_quota, ranks_after
from fleetlab.sim.reference.ranking import next_job, rank_all, running_worst_first
from fleetlab.sim.reference.state import Policies, Rules, Simulation

NO_VIEW = -2  # there is no preemptible view yet


@inner_loop
def preemptible_view(sim: Simulation, rules: Rules, t: int, now: NodeView, worst: Ints) -> tuple[NodeView, int]:
    """Return what would be free without the jobs that rank after `t`, and the place in `worst` of the best of them."""
    view, k = copy(now), 0
    while k < len(worst) and (worst[k] < 0 or ranks_after(sim.jobs, worst[k], t)):
        if worst[k] >= 0:
            release(sim, rules, worst[k], view, NOW)
        k += 1
    return view, k - 1


@inner
def narrow_view(sim: Simulation, rules: Rules, t: int, view: NodeView, worst: Ints, best: int) -> int:
    """Put jobs of `worst` that do not rank after `t` back into the view, as the queue goes on to later ranks."""
    while best >= 0 and (worst[best] < 0 or not ranks_after(sim.jobs, worst[best], t)):
        if worst[best] >= 0:
            occupy(sim, rules, worst[best], view, NOW)
        best -= 1
    return best


@inner
def choose_victims(sim: Simulation, rules: Rules, t: int, now: NodeView, worst: Ints, victims: Ints) -> int:
    """Release running jobs, the last-ranked first, until `t` fits, as it will; return how many of them it needs."""
    shape, count, n, chosen = rules.shapes[sim.jobs[t].shape_id], sim.jobs[t].instances, 0, 0
    free_slots = slots(shape, UNLIMITED, now)
    while free_slots < count:
        if worst[n] >= 0:
            free_slots += slots_gained(sim, rules, shape, worst[n], now, NOW, 1)
        n += 1
    for k in range(n - 1, -1, -1):  # the best-ranked stay if they can
        if worst[k] >= 0:
            more = slots_gained(sim, rules, shape, worst[k], now, NOW, -1)
            if free_slots + more >= count:
                free_slots += more
            else:
                slots_gained(sim, rules, shape, worst[k], now, NOW, 1)
                victims[chosen], worst[k] = worst[k], -1
                chosen += 1
    return chosen


@inner
def evict(sim: Simulation, rules: Rules, t: int, now: NodeView, size: int) -> int:
    """Let a running job that was released wait again; it may be tried again in this pass: return how many are tried."""
    job, group = sim.jobs[t], sim.groups[sim.jobs[t].group]
    if group.length == 0:
        group.tried = 1
    requeue(sim, rules, t, now, 1)
    job.preemptions += 1
    group.retry = group.able = 1  # a job ahead of it was started
    push(sim.keys, sim.heap, 0, size, job.key, t)
    return size + 1


@value
def pass_preempt(sim: Simulation, now: NodeView, rules: Rules, policies: Policies) -> int:
    """Start jobs in order, and evict running jobs that rank after them where that makes them fit."""
    head = -1
    find_able(sim, rules, now)
    open_partitions(sim)
    try_all(sim)
    size = rank_all(sim, rules, policies)
    worst = running_worst_first(sim)
    victims, view, best = np.empty(len(worst), np.int64), now, NO_VIEW
    while size:
        t, size = next_job(sim, rules, size)
        job, group = sim.jobs[t], sim.groups[sim.jobs[t].group]
        shape, count = rules.shapes[job.shape_id], job.instances
        if not group.tried or over_quota(sim, job.group) or open_classes(sim, rules, group.queue) == 0:
            continue
        if not fits(shape, count, now):
            if best == NO_VIEW:
                view, best = preemptible_view(sim, rules, t, now, worst)
            best = narrow_view(sim, rules, t, view, worst, best)
            if not fits(shape, count, view):
                group.tried = 0
                if rules.backfill == NO_BACKFILL and len(rules.queues) == 1:
                    head = t
                    break
                if rules.backfill == NO_BACKFILL:
                    block(sim, rules, group.queue)
                continue
            for k in range(choose_victims(sim, rules, t, now, worst, victims)):
                size = evict(sim, rules, victims[k], now, size)
        start(sim, rules, policies, t, now)
        if best > NO_VIEW:
            occupy(sim, rules, t, view, NOW)
    if rules.backfill == NO_BACKFILL:
        sim.clock.head, sim.clock.outranked = head, 0
    end_pass(sim, rules, now)
    return 0
