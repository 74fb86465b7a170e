"""Events of the quick loops: the next instant, completions, starts, and what the nodes freed in an instant can hold."""

from __future__ import annotations

import numpy as np

from fleetlab.sim.engine.fit import release
from fleetlab.sim.engine.state import Events, Jobs, Resources, ScheduleTable
from fleetlab.sim.heap import pop, push
from fleetlab.sim.jit import inline, inner
from fleetlab.sim.layout import WHOLE, Ints, NodeView, Record, Records
from fleetlab.sim.nodes import holds


@inline
def next_instant(jobs: Jobs, events: Events, until: float) -> bool:
    """Set the clock to the next completion or arrival; return False if there is none before `until`, or no need."""
    clock, arrived = events.clock, events.clock.arrived
    now = events.ends[0] if clock.running else np.inf
    if arrived < len(jobs.submit) and jobs.submit[arrived] < now:
        now = jobs.submit[arrived]
    if now > until or now == np.inf or clock.over:
        return False
    clock.now = now
    clock.instant += 1
    clock.freed = clock.candidates = 0
    return True


@inline
def complete(jobs: Jobs, resources: Resources, events: Events, schedule: ScheduleTable, list_freed: bool) -> None:  # noqa: FBT001
    """Free the nodes of the jobs that end now, and list those nodes if someone waits for them."""
    clock, placed = events.clock, schedule.placed
    while clock.running and events.ends[0] == clock.now:
        j = events.running[0]
        pop(events.ends, events.running, 0, clock.running)
        clock.running -= 1
        kind = jobs.kinds[jobs.kind[j]]
        release(resources.shapes[kind.shape_id], kind.instances, resources, placed, jobs.first[j])
        if jobs.learner[j] >= 0:
            learn(jobs.learners, jobs.learner[j], jobs.runtime[j])
        if list_freed:
            for i in range(jobs.first[j], jobs.first[j + 1]):
                n = placed.node[i]
                if events.freed_at[n] != clock.instant:
                    events.freed_at[n] = clock.instant
                    events.freed[clock.freed] = n
                    clock.freed += 1


@inline
def start(j: int, jobs: Jobs, events: Events, schedule: ScheduleTable) -> None:
    """Start a job that has its nodes."""
    clock = events.clock
    schedule.start[j] = clock.now
    if j == clock.last_job:
        clock.over = 1
    push(events.ends, events.running, 0, clock.running, clock.now + jobs.runtime[j], j)
    clock.running += 1


# -- estimates -------------------------------------------------------------------------------------------------------


@inner
def learn(learners: Records, of: int, runtime: float) -> None:
    """Remember the runtime of a finished job."""
    for i in (of, len(learners) - 1):
        learner = learners[i]
        learner.count += 1
        learner.average += (runtime - learner.average) / learner.count


@inner
def estimate(learners: Records, of: int) -> float:
    """Return the mean runtime of finished jobs of the same learner; of all finished jobs if there are none."""
    return learners[of if learners[of].count else len(learners) - 1].average


# -- freed nodes -----------------------------------------------------------------------------------------------------


@inner
def summarize_freed(clock: Record, freed: Ints, nodes: Records) -> None:
    """Find the most CPU, memory, GPU and idle GPUs on one of the freed nodes, and all their types."""
    clock.freed_cpu = clock.freed_memory = clock.freed_gpu = clock.freed_idle = clock.freed_types = 0
    for i in range(clock.freed):
        node = nodes[freed[i]]
        clock.freed_cpu = max(clock.freed_cpu, node.free_cpu)
        clock.freed_memory = max(clock.freed_memory, node.free_memory)
        clock.freed_gpu = max(clock.freed_gpu, node.largest_free)
        clock.freed_idle = max(clock.freed_idle, node.idle_gpus)
        clock.freed_types |= node.gpu_type


@inner
def exceeds_freed(shape: Record, clock: Record) -> bool:
    """Return whether a shape requests more than any freed node has."""
    if shape.cpu > clock.freed_cpu or shape.memory > clock.freed_memory:
        return True
    if shape.gpus == 0:
        return False
    if shape.types & clock.freed_types == 0:
        return True
    return shape.milli > clock.freed_gpu or (shape.milli == WHOLE and shape.gpus > clock.freed_idle)


@inner
def fits_freed(shape: Record, now: NodeView, freed: Ints, count: int) -> bool:
    """Return whether one of the freed nodes holds an instance. If none does, what did not fit before does not now."""
    for i in range(count):  # noqa: SIM110  compiled, a loop is quicker than a generator
        if holds(shape, now.nodes[freed[i]], now.gpus, now.apps):
            return True
    return False
