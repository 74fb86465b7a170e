"""Nodes that fail, are drained or reclaimed, and elastic pools that are switched on and off."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fleetlab.sim.events import BACK, DRAIN, RECLAIM
from fleetlab.sim.jit import inner, inner_loop, value
from fleetlab.sim.layout import NOW, Ints, NodeView, Records
from fleetlab.sim.nodes import holds, node_slots, take
from fleetlab.sim.reference.allocation import list_freed, release, requeue
from fleetlab.sim.reference.state import Rules, Simulation, on_tick, set_timer

OFF, BOOTING, ON = range(3)  # power of a node
IN_SERVICE, DRAINING, OUT = range(3)  # service of a node
IDLE, GROW, BOOTED = range(3)  # timers of a node or pool; at one time in this order
FAILURE_EVENT, TIMER, POOLS = range(3)  # what `handle` is called for


class NodeEvents(NamedTuple):
    """What happens to nodes."""

    failure_events: Records  # NODE_EVENT: failures, drains, reclaims and returns, in order of time
    pools: Records  # POOL
    empty_nodes: Records  # NODE: the rows of empty nodes
    uptimes: Records  # UPTIME: when nodes were up, emptied by Python when full


@inner
def update_up(sim: Simulation, events: NodeEvents, n: int, now: NodeView) -> None:
    """Let node `n` take jobs if it is on and in service, and log when it goes down or comes up."""
    status, node, clock = sim.nodes[n], now.nodes[n], sim.clock
    up = status.power == ON and status.service == IN_SERVICE
    if up and not node.up:
        list_freed(sim, n)
    node.up = up
    there = status.power == ON and status.service != OUT
    if there and status.up_since == np.inf:
        status.up_since = clock.now
    elif not there and status.up_since < np.inf:
        log_uptime(sim, events, n, clock.now)
        status.up_since = np.inf


@inner
def log_uptime(sim: Simulation, events: NodeEvents, n: int, end: float) -> None:
    """Log that a node was up until `end`."""
    uptime = events.uptimes[sim.clock.uptimes]
    uptime.node, uptime.begin, uptime.end = n, sim.nodes[n].up_since, end
    sim.clock.uptimes += 1


# -- failures, drains, reclaims --------------------------------------------------------------------------------------


@inner
def runs_on(sim: Simulation, t: int, n: int) -> bool:
    """Return whether a job has an instance on node `n`."""
    job = sim.jobs[t]
    for i in range(job.first_instance, job.first_instance + job.instances):  # noqa: SIM110
        if sim.instances[i].node[NOW] == n:
            return True
    return False


@inner
def fail_jobs(sim: Simulation, rules: Rules, n: int, now: NodeView, saved: int) -> None:
    """Requeue all jobs on node `n`: of a gang all instances."""
    k = 0
    while k < sim.clock.running:
        t = sim.running[k]
        if runs_on(sim, t, n):
            release(sim, rules, t, now, NOW)
            requeue(sim, rules, t, now, saved)
            sim.jobs[t].failures += 1
        else:
            k += 1


@inner
def apply_failure_events(sim: Simulation, rules: Rules, events: NodeEvents, now: NodeView) -> None:
    """Apply the failure events of this instant."""
    clock = sim.clock
    while clock.node_events < len(events.failure_events):
        event = events.failure_events[clock.node_events]
        if event.time != clock.now:
            break
        status = sim.nodes[event.node]
        if event.action == BACK:
            status.service = IN_SERVICE
        elif event.action == DRAIN:
            status.service = max(status.service, DRAINING)
        else:
            status.service = OUT
            fail_jobs(sim, rules, event.node, now, 1 if event.action == RECLAIM else 0)
        update_up(sim, events, event.node, now)
        clock.node_events += 1


# -- elastic pools ---------------------------------------------------------------------------------------------------


@inner
def timer_of(sim: Simulation, kind: int, n: int) -> int:
    """Return the timer for a node that is IDLE, a pool that may GROW or a node that has BOOTED."""
    return 2 * len(sim.jobs) + kind * len(sim.nodes) + n


@inner
def is_needed(sim: Simulation, rules: Rules, n: int, nodes: Records, now: NodeView) -> bool:
    """Return whether a job waits of which node `n`, as `nodes` has it, could hold an instance."""
    for k in range(sim.clock.waiting):
        group = sim.groups[sim.waiting[k]]
        if not group.over_quota and holds(rules.shapes[group.shape_id], nodes[n], now.gpus, now.apps):
            return True
    return False


@inner_loop
def fill_node(sim: Simulation, rules: Rules, events: NodeEvents, n: int, now: NodeView, missing: Ints) -> bool:
    """Fill node `n`, taken as empty, with waiting instances that are `left`; return whether it took any."""
    nodes, gpus, apps = events.empty_nodes.copy(), now.gpus.copy(), now.apps.copy()
    filled = False
    for k in range(sim.clock.waiting):
        shape = rules.shapes[sim.groups[sim.waiting[k]].shape_id]
        count = min(missing[k], node_slots(shape, nodes[n], gpus, apps))
        for _ in range(count):
            take(shape, nodes[n], gpus, apps, -1)
        missing[k] -= count
        filled = filled or count > 0
    return filled


@inner_loop
def grow(sim: Simulation, rules: Rules, events: NodeEvents, p: int, now: NodeView) -> None:
    """Boot as many nodes of a pool as the waiting jobs need, beside those that boot already."""
    missing = np.empty(sim.clock.waiting, np.int64)
    for k in range(sim.clock.waiting):
        group = sim.groups[sim.waiting[k]]
        missing[k] = 0 if group.over_quota else group.length * group.instances
    for power in (BOOTING, OFF):
        for n in range(len(sim.nodes)):
            status = sim.nodes[n]
            if status.pool != p or status.power != power or status.service != IN_SERVICE:
                continue
            if fill_node(sim, rules, events, n, now, missing) and power == OFF:
                status.power = BOOTING
                set_timer(sim, timer_of(sim, BOOTED, n), sim.clock.now + events.pools[p].boot)


@inner_loop
def fire_timer(sim: Simulation, rules: Rules, events: NodeEvents, item: int, now: NodeView) -> None:
    """Handle a timer of a node or a pool; idle nodes are looked at after every pass anyway."""
    nodes, n = len(sim.nodes), item - 2 * len(sim.jobs)
    if n >= BOOTED * nodes:
        sim.nodes[n - BOOTED * nodes].power = ON
        update_up(sim, events, n - BOOTED * nodes, now)
    elif n >= GROW * nodes:
        grow(sim, rules, events, n - GROW * nodes, now)


@inner_loop
def resize_pools(sim: Simulation, rules: Rules, events: NodeEvents, now: NodeView) -> None:
    """After a pass: switch off nodes that were idle too long, and set a timer to grow where jobs wait."""
    time, on = sim.clock.now, np.zeros(len(events.pools), np.int64)
    for n in range(len(sim.nodes)):
        if sim.nodes[n].pool >= 0 and sim.nodes[n].power == ON:
            on[sim.nodes[n].pool] += 1
    for n in range(len(sim.nodes) - 1, -1, -1):  # the last to be booted first
        status = sim.nodes[n]
        if status.pool < 0 or status.power == BOOTING:
            continue
        pool = events.pools[status.pool]
        if status.power == OFF:
            timer = timer_of(sim, GROW, status.pool)
            idle = sim.due[timer] == np.inf and status.service == IN_SERVICE
            if idle and is_needed(sim, rules, n, events.empty_nodes, now):
                set_timer(sim, timer, on_tick((np.floor(time / pool.every) + 1) * pool.every))
        elif now.nodes[n].instances or status.service != IN_SERVICE:
            status.idle_since = np.inf
            sim.due[timer_of(sim, IDLE, n)] = np.inf
        elif status.idle_since == np.inf:
            status.idle_since = time
            set_timer(sim, timer_of(sim, IDLE, n), time + pool.idle)
        elif (
            time >= status.idle_since + pool.idle
            and on[status.pool] > pool.least
            and not is_needed(sim, rules, n, now.nodes, now)
        ):
            status.power, status.idle_since = OFF, np.inf
            on[status.pool] -= 1
            update_up(sim, events, n, now)


@value
def handle(sim: Simulation, now: NodeView, rules: Rules, events: NodeEvents, what: int, item: int) -> int:
    """Do all that this module does. It is compiled by itself, and only where something happens to nodes."""
    if what == FAILURE_EVENT:
        apply_failure_events(sim, rules, events, now)
    elif what == TIMER:
        fire_timer(sim, rules, events, item, now)
    else:
        resize_pools(sim, rules, events, now)
    return 0
