"""The reference loop: everything a simulation can have, simply. What the quick loops know too comes out the same.

One event through the loop
--------------------------
`run` moves the clock from instant to instant. At each instant, in this order:

1. `next_instant` finds the time of the next completion, arrival, node event or timer.
2. Node events are applied (`node_events`): a node that fails releases its jobs, and they wait again.
3. `complete`: a job that ends gives its nodes back (`allocation.release`), its run is logged, and its nodes are listed
   as freed. This comes before arrivals, so a new job finds what was freed.
4. `arrive`: a new job gets an estimate, a rank, and enters the queue of its group (`queue.enter`).
5. Other timers ring: a job enters the next queue of `las`, a node has booted, a pool may grow.
6. `schedule` is one pass of `passes` or `preemption`. It finds the groups that freed nodes may help, ranks their jobs
   (`ranking`), and for each in order tests whether it fits (`allocation.fits`), places it (`allocation.place`) and
   starts it (`allocation.begin`: it leaves the queue, its user is charged, a timer is set for its end).
7. Elastic pools are tended.

The loop owns the truth: a placement policy is asked only about nodes that hold an instance, so nothing is allocated
twice. Node state is in `layout.NodeView`, everything else in `state.Simulation`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fleetlab.sim.jit import inner, loop
from fleetlab.sim.layout import DONE, NOW, NodeView
from fleetlab.sim.policy import Arrivals, show
from fleetlab.sim.reference.allocation import end_run, log_run, release, set_level_timer
from fleetlab.sim.reference.node_events import FAILURE_EVENT, POOLS, TIMER, NodeEvents, log_uptime
from fleetlab.sim.reference.passes import forget_freed
from fleetlab.sim.reference.queue import enter, estimate, learn
from fleetlab.sim.reference.ranking import key_at_arrival
from fleetlab.sim.reference.state import Policies, Rules, Simulation, next_timer
from fleetlab.sim.reference.work import lost_so_far, run_length

Pass = Callable[[Simulation, NodeView, Rules, Policies], int]
Handler = Callable[[Simulation, NodeView, Rules, NodeEvents, int, int], int]
FINISHED, CALL_AGAIN, POLICY_ERROR = range(3)  # results of `run`; CALL_AGAIN: after emptying the logs
INSTANTS = 250  # after so many `run` returns to Python, which reports progress and may stop


@inner
def next_instant(sim: Simulation, events: NodeEvents) -> float:
    """Return when something happens next."""
    clock, when = sim.clock, next_timer(sim)
    if clock.arrived < len(sim.jobs):
        when = min(when, sim.jobs[clock.arrived].submit)
    if clock.node_events < len(events.failure_events):
        when = min(when, events.failure_events[clock.node_events].time)
    return when


@inner
def complete(sim: Simulation, rules: Rules, now: NodeView) -> None:
    """End the jobs that are done. Timers of one time ring in order: completions of jobs before others."""
    clock = sim.clock
    while next_timer(sim) == clock.now and sim.timers[0] < len(sim.jobs):
        t = sim.timers[0]
        job = sim.jobs[t]
        release(sim, rules, t, now, NOW)
        job.lost += run_length(rules, job) - job.work
        end_run(sim, rules, t, now)
        job.status, job.end, job.work, sim.remaining[t] = DONE, clock.now, 0.0, 0.0
        learn(sim.learners, job)
        clock.finished += 1


@inner
def arrive(sim: Simulation, rules: Rules, policies: Policies, arrivals: Arrivals) -> None:
    """Let jobs that are submitted now wait."""
    clock = sim.clock
    while clock.arrived < len(sim.jobs) and sim.jobs[clock.arrived].submit == clock.now:
        t = clock.arrived
        clock.arrived += 1
        show(arrivals, t)
        estimate(sim, t)
        sim.remaining[t] = sim.estimate[t]
        sim.jobs[t].key = key_at_arrival(sim, rules, policies, t)
        enter(sim, t)


@inner
def logs_are_full(sim: Simulation, events: NodeEvents) -> bool:
    """Return whether one instant might log more than the logs can hold."""
    clock = sim.clock
    if len(sim.runs) and (
        clock.runs + clock.running > len(sim.runs) or clock.entries + clock.instances_running > len(sim.entries)
    ):
        return True
    return clock.uptimes + 2 * len(sim.nodes) > len(events.uptimes)


@inner
def finish(sim: Simulation, rules: Rules, events: NodeEvents, stop: float) -> None:
    """Bring all tables up to the moment at which the loop stopped."""
    for k in range(sim.clock.running):
        t = sim.running[k]
        sim.jobs[t].lost += lost_so_far(rules, sim.jobs[t], stop)
        if len(sim.runs):
            log_run(sim, t, stop)
    for n in range(len(sim.nodes)):
        if sim.nodes[n].up_since <= stop:
            log_uptime(sim, events, n, stop)


@loop
def run(
    sim: Simulation, now: NodeView, rules: Rules, events: NodeEvents, schedule: Pass, handle: Handler,
    policies: Policies, arrivals: Arrivals,
) -> int:  # fmt: skip
    """Play all events from where the clock stands, with one scheduling pass (`schedule`) at each instant."""
    clock, jobs, instants, failures = sim.clock, len(sim.jobs), INSTANTS, events.failure_events
    while clock.finished < jobs:
        if instants == 0 or logs_are_full(sim, events):
            return CALL_AGAIN
        instants -= 1
        time = next_instant(sim, events)
        if time == np.inf or time > rules.until:
            break
        clock.now = time
        if clock.node_events < len(failures) and failures[clock.node_events].time == time:
            handle(sim, now, rules, events, FAILURE_EVENT, 0)
        complete(sim, rules, now)
        arrive(sim, rules, policies, arrivals)
        while next_timer(sim) == time:
            item = sim.timers[0]
            sim.due[item] = np.inf
            if item < 2 * jobs:
                set_level_timer(sim, rules, item - jobs)
            else:
                handle(sim, now, rules, events, TIMER, item)
        if clock.waiting:
            schedule(sim, now, rules, policies)
        else:
            forget_freed(sim)
        if clock.policy_error:
            return POLICY_ERROR
        if len(events.pools):
            handle(sim, now, rules, events, POOLS, 0)
    over = clock.finished == jobs or rules.until == np.inf
    finish(sim, rules, events, clock.now if over else rules.until)
    return FINISHED
