"""The state of the reference loop, its rules, and its timers. The tables and their fields are in `layout`.

Jobs that request the same are a *group* (with quotas: that count in the same): they fit or fail together and wait for
the same reason. Everything in this package also runs as plain Python, with the same result.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fleetlab.sim.heap import pop, push
from fleetlab.sim.jit import inner
from fleetlab.sim.layout import TICK, Floats, Ints, NodeView, Record, Records, Scoring
from fleetlab.sim.policy import Fill, State
from fleetlab.sim.quota import Quotas

TICKS = 1 / TICK  # in a second
BAD_ORDER, BAD_PLACEMENT = 1, 2  # clock.policy_error: the result of a policy was not a number


class Simulation(NamedTuple):
    """All that changes, but for the nodes. Few arrays: each makes every call that passes them slower to compile."""

    clock: Record  # COUNTERS
    jobs: Records  # JOB
    instances: Records  # INSTANCE
    groups: Records  # GROUP
    users: Records  # USER
    quotas: Quotas
    partitions: Records  # PARTITION
    nodes: Records  # NODE_STATUS
    learners: Records  # LEARNER; the last is of all jobs
    running: Ints  # [jobs]: list of running jobs
    waiting: Ints  # [groups]: list of groups with waiting jobs
    freed: Ints  # [nodes]: list of nodes with more free than at the last pass
    last_tenant: Ints  # [GPUs]: the instance that came last to share it, -1: none
    due: Floats  # when what is due: completions of jobs, then other timers; inf: not at all
    timer_keys: Floats  # a heap of all that is due; an entry whose key is not its `due` is stale
    timers: Ints
    keys: Floats  # [jobs]: heap of the jobs to be tried in a pass
    heap: Ints
    to_rank: Ints  # [jobs]: list
    runs: Records  # RUN: runs that have ended, emptied by Python when full
    entries: Ints  # [instances, 2]: node and GPUs of each instance of those runs
    steps: Records  # STEP: the plan of conservative backfill
    estimate: Floats  # [jobs]
    attained: Floats  # [jobs]: GPU-seconds
    remaining: Floats  # [jobs]: estimated seconds
    usage: Floats  # [users]: dominant share
    accounts: Records  # ACCOUNT; empty: no policy asks


class Rules(NamedTuple):
    """What does not change."""

    order: int
    moving: int  # ranks are computed in every pass
    backfill: int
    placement: int
    preempt: int
    sharing: int  # jobs on one GPU slow each other
    quota: int  # there are quotas
    plan_stands: int  # from pass to pass, since no job runs longer than estimated
    checkpoint_every: float
    save: float
    restart: float
    until: float
    cpu: float  # of the cluster
    memory: float
    gpu: float
    decay: float  # of the usage of accounts: 1/s
    aging_weight: float
    levels: Floats  # GPU-seconds between the queues of `las`
    alone: Floats  # [classes]: speed
    pair: Floats  # [classes, classes]: the part of its speed that a job of the first keeps beside one of the second
    shapes: Records  # SHAPE; where there are several queues, the last is for a copy
    queues: Ints  # [queues, most partitions of one]: the partitions that its jobs name, then -1
    scoring: Scoring
    empty: NodeView


class Policies(NamedTuple):
    """The user's own policies, and what they see."""

    order: Fill
    placement: Fill
    state: State


@inner
def on_tick(time: float) -> float:
    """Return the first tick at or after a time."""
    return np.ceil(time * TICKS) * TICK


@inner
def set_timer(sim: Simulation, item: int, time: float) -> None:
    """Let `item` be due at `time`, and no more at another."""
    keys, items, due, size = sim.timer_keys, sim.timers, sim.due, sim.clock.timers
    due[item] = time
    if size == len(items):  # full of stale entries
        size = 0
        for k in range(len(due)):
            if k != item and due[k] < np.inf:
                push(keys, items, 0, size, due[k], k)
                size += 1
    push(keys, items, 0, size, time, item)
    sim.clock.timers = size + 1


@inner
def next_timer(sim: Simulation) -> float:
    """Return when something is due next."""
    keys, items, due, size = sim.timer_keys, sim.timers, sim.due, sim.clock.timers
    while size and due[items[0]] != keys[0]:
        pop(keys, items, 0, size)
        size -= 1
    sim.clock.timers = size
    return keys[0] if size else np.inf
