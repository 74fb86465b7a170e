"""Scheduling passes where jobs wait in several queues, which may share nodes: one for each set of partitions.

A job that names several partitions waits in each of them.
"""

from __future__ import annotations

from fleetlab.sim.jit import inner, value
from fleetlab.sim.layout import NodeView
from fleetlab.sim.reference.allocation import fits, start
from fleetlab.sim.reference.conservative import clear_plan, count_able
from fleetlab.sim.reference.passes import end_pass, find_able, try_able, try_all
from fleetlab.sim.reference.plan import new_search, plan_job, start_beside_plan
from fleetlab.sim.reference.queue import block, open_classes, open_partitions, over_quota
from fleetlab.sim.reference.ranking import next_job, rank_waiting
from fleetlab.sim.reference.state import Policies, Rules, Simulation


@inner
def shape_on(sim: Simulation, rules: Rules, t: int, classes: int) -> int:
    """Return the shape of a job that may use some classes of nodes alone: its own, or a copy in the last row."""
    own, last = sim.jobs[t].shape_id, len(rules.shapes) - 1
    if rules.shapes[own].types & ~classes == 0:
        return own
    rules.shapes[last] = rules.shapes[own]
    rules.shapes[last].types &= classes
    return last


@value
def pass_none_by_partition(sim: Simulation, now: NodeView, rules: Rules, policies: Policies) -> int:
    """Start jobs in order; one that does not fit blocks its partitions, and all jobs behind it wait there.

    A job that names several partitions uses those that are not blocked.
    """
    able = find_able(sim, rules, now)
    if able:
        open_partitions(sim)
        try_all(sim)
        size = rank_waiting(sim, rules, policies)
        try_able(sim)
        while able and size:
            t, size = next_job(sim, rules, size)
            job, group = sim.jobs[t], sim.groups[sim.jobs[t].group]
            classes, own = open_classes(sim, rules, group.queue), job.shape_id
            if classes == 0 or over_quota(sim, job.group):
                continue
            if group.tried and not fits(rules.shapes[own], job.instances, now):
                group.tried = 0
                able -= 1
            shape = shape_on(sim, rules, t, classes)
            if group.tried and fits(rules.shapes[shape], job.instances, now):
                job.shape_id = shape
                start(sim, rules, policies, t, now)
                job.shape_id = own
            else:
                block(sim, rules, group.queue)
    end_pass(sim, rules, now)
    return 0


@value
def pass_easy_by_partition(sim: Simulation, now: NodeView, rules: Rules, policies: Policies) -> int:
    """Start jobs in order; the first of each queue that cannot start has a reservation, and no other may delay one.

    Reservations are made in the order of the queue, each beside those before it.
    """
    able = find_able(sim, rules, now)
    if able:
        open_partitions(sim)
        try_all(sim)
        size = rank_waiting(sim, rules, policies)
        try_able(sim)
        clear_plan(sim, now)
        search = new_search(now)
        while able and size:
            t, size = next_job(sim, rules, size)
            group, running = sim.groups[sim.jobs[t].group], sim.clock.running
            if over_quota(sim, sim.jobs[t].group):
                continue
            if open_classes(sim, rules, group.queue) == 0:
                if group.tried:
                    start_beside_plan(sim, rules, policies, t, now, search)
            else:
                plan_job(sim, rules, policies, t, now, search)
                if sim.clock.running == running:
                    block(sim, rules, group.queue)
            if sim.clock.running > running:
                able = count_able(sim, rules, now)
    end_pass(sim, rules, now)
    return 0
