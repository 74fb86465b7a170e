"""Queue orders as numbers: the built-in ones; what they mean is in `orders`.

Some ranks are fixed when a job arrives and are kept with it; the others are computed in every pass.
"""

from __future__ import annotations

import numpy as np

from fleetlab.sim.codes import AGING, FAIR, LAS, OWN_ORDER, SERVER_FILLING, SERVER_FILLING_SRPT, SJF
from fleetlab.sim.heap import pop, push
from fleetlab.sim.jit import inner, inner_loop
from fleetlab.sim.layout import Floats, Ints
from fleetlab.sim.policy import arrived
from fleetlab.sim.reference.state import BAD_ORDER, Policies, Rules, Simulation
from fleetlab.sim.reference.work import update_attained
from fleetlab.sim.site_view import update_accounts


@inner
def key_at_arrival(sim: Simulation, rules: Rules, policies: Policies, t: int) -> float:
    """Return the rank of a job that is fixed from now on; the job has it already if it depends on no estimate."""
    if rules.order == OWN_ORDER:
        if rules.moving:
            return 0.0
        sim.to_rank[0] = t
        if policies.order(arrived(policies.state, sim.clock.arrived), sim.to_rank, 1, sim.clock.now, sim.keys) == 0:
            sim.clock.policy_error, sim.clock.error_job = BAD_ORDER, t
        return sim.keys[0]
    if rules.order == SJF:
        return sim.estimate[t]
    if rules.order == AGING:  # all wait at the same pace, so the time they have waited so far may be left out
        return sim.estimate[t] + rules.aging_weight * sim.jobs[t].submit
    return sim.jobs[t].key


@inner
def level_of(attained: float, levels: Floats) -> float:
    """Return the queue of `las` that a job with so many attained GPU-seconds is in."""
    level = 0
    while level < len(levels) and attained >= levels[level]:
        level += 1
    return float(level)


@inner_loop
def fill_servers(sim: Simulation, rules: Rules, n: int, keys: Floats) -> None:
    """Rank the first `n` of `to_rank` as ServerFilling does: the shortest prefix that fills the cluster, largest first.

    The prefix is of arrivals, or (SRPT) of GPUs times estimated seconds left; `keys` gets places in the queue.
    """
    order, heap = np.empty(n), np.empty(n, np.int64)
    for k in range(n):
        t = sim.to_rank[k]
        size = float(t)
        if rules.order == SERVER_FILLING_SRPT:
            size = sim.jobs[t].gpu_milli * sim.remaining[t]
        push(order, heap, 0, k, size, t * n + k)  # ties to who came first
    total, remaining, chosen = 0, n, 0
    needs, line = np.empty(n), np.empty(n, np.int64)
    while remaining:
        k = heap[0] % n
        pop(order, heap, 0, remaining)
        remaining -= 1
        need = sim.jobs[sim.to_rank[k]].gpu_milli
        if total < rules.gpu:
            total += need
            push(needs, line, 0, chosen, -float(need), chosen * n + k)
            chosen += 1
        else:
            keys[k] = float(n - remaining)
    for at in range(chosen):
        keys[line[0] % n] = float(at)
        pop(needs, line, 0, chosen - at)


@inner
def rank(sim: Simulation, rules: Rules, policies: Policies, n: int, keys: Floats) -> None:
    """Fill in the keys of the first `n` of `to_rank`: the lowest goes first, ties to the lower job."""
    jobs, order, to_rank = sim.jobs, rules.order, sim.to_rank
    if not rules.moving:
        for k in range(n):
            keys[k] = jobs[to_rank[k]].key
    elif order == OWN_ORDER:
        if policies.order(arrived(policies.state, sim.clock.arrived), to_rank, n, sim.clock.now, keys) == 0:
            sim.clock.policy_error, sim.clock.error_job = BAD_ORDER, n
    elif order == LAS:
        for k in range(n):
            keys[k] = level_of(sim.attained[to_rank[k]], rules.levels)
    elif order == FAIR:
        for k in range(n):
            keys[k] = sim.usage[jobs[to_rank[k]].user]
    else:
        for k in range(n):
            keys[k] = sim.remaining[to_rank[k]]


@inner
def update_running(sim: Simulation, rules: Rules) -> None:
    """Update what is known of running jobs, where ranks may depend on it."""
    if rules.moving and rules.order != FAIR:
        for k in range(sim.clock.running):
            update_attained(sim, sim.running[k])
        update_accounts(sim.accounts, rules.decay, sim.clock.now)


@inner
def gather(sim: Simulation) -> int:
    """Put the waiting jobs of the groups to be tried into `to_rank`; return how many."""
    n = 0
    for k in range(sim.clock.waiting):
        group = sim.groups[sim.waiting[k]]
        if group.tried:
            t = group.newest
            while t >= 0:
                sim.to_rank[n] = t
                n += 1
                t = sim.jobs[t].next
    return n


@inner_loop
def rank_waiting(sim: Simulation, rules: Rules, policies: Policies) -> int:
    """Put the waiting jobs of the groups to be tried into the heap; return how many."""
    n = gather(sim)
    update_running(sim, rules)
    keys = np.empty(n)
    rank(sim, rules, policies, n, keys)
    if sim.clock.policy_error:
        return 0
    for k in range(n):
        push(sim.keys, sim.heap, 0, k, keys[k], sim.to_rank[k])
    return n


@inner_loop
def rank_all(sim: Simulation, rules: Rules, policies: Policies) -> int:
    """Rank waiting and running jobs together and keep their keys; put waiting jobs into the heap: return how many."""
    n = gather(sim)
    total = n + sim.clock.running
    for k in range(n, total):
        sim.to_rank[k] = sim.running[k - n]
    update_running(sim, rules)
    keys = np.empty(total)
    if rules.order == SERVER_FILLING or rules.order == SERVER_FILLING_SRPT:  # never without preemption
        fill_servers(sim, rules, total, keys)
    else:
        rank(sim, rules, policies, total, keys)
    if sim.clock.policy_error:
        return 0
    for k in range(total):
        sim.jobs[sim.to_rank[k]].key = keys[k]
        if k < n:
            push(sim.keys, sim.heap, 0, k, keys[k], sim.to_rank[k])
    return n


@inner_loop
def running_worst_first(sim: Simulation) -> Ints:
    """Return the running jobs, the last-ranked first."""
    n = sim.clock.running
    keys, heap, line = np.empty(n), np.empty(n, np.int64), np.empty(n, np.int64)
    for k in range(n):
        push(keys, heap, 0, k, -sim.jobs[sim.running[k]].key, -sim.running[k])
    for k in range(n):
        line[k] = -heap[0]
        pop(keys, heap, 0, n - k)
    return line


@inner
def next_job(sim: Simulation, rules: Rules, size: int) -> tuple[int, int]:
    """Return the next job of the heap, and how many are left in it; -1: none."""
    while size:
        t, key = sim.heap[0], sim.keys[0]
        pop(sim.keys, sim.heap, 0, size)
        size -= 1
        if rules.order == FAIR and not rules.preempt:
            share = sim.usage[sim.jobs[t].user]
            if share > key:  # a job of the same user has started since: back into the queue
                push(sim.keys, sim.heap, 0, size, share, t)
                size += 1
                continue
        return t, size
    return -1, 0
