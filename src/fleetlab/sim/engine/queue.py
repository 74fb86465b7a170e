"""Queues of waiting jobs: a heap for each kind, and lists of the kinds and shapes that wait."""

from __future__ import annotations

from fleetlab.sim.engine.events import estimate
from fleetlab.sim.engine.state import Jobs, Queues
from fleetlab.sim.heap import pop, push
from fleetlab.sim.jit import inline, inner
from fleetlab.sim.layout import Record


@inline
def learn_key(j: int, jobs: Jobs, by_estimate: int) -> None:
    """Estimate the runtime of a job that arrives, if it is learnt, and add it to the rank if the order is by it."""
    if jobs.learner[j] >= 0:
        jobs.estimate[j] = estimate(jobs.learners, jobs.learner[j])
        if by_estimate:
            jobs.key[j] += jobs.estimate[j]


@inline
def add_candidate(k: int, queues: Queues, clock: Record) -> None:
    """Let a kind be looked at in this instant."""
    queues.candidates[clock.candidates] = k
    queues.kinds[k].candidate = 1
    clock.candidates += 1


@inline
def enqueue(j: int, queue: Record, jobs: Jobs, queues: Queues) -> None:
    """Add a job to the queue of its kind."""
    push(queues.keys, queues.jobs, queue.first, queue.length, jobs.key[j], j)
    queue.length += 1


@inline
def dequeue(queue: Record, queues: Queues) -> None:
    """Remove the first job from the queue of its kind."""
    pop(queues.keys, queues.jobs, queue.first, queue.length)
    queue.length -= 1


@inline
def contend(queue: Record, queues: Queues, size: int) -> int:
    """Put the first job of a kind into the heap of jobs to be started; return how many are in it."""
    push(queues.ranks, queues.first_jobs, 0, size, queues.keys[queue.first], queues.jobs[queue.first])
    return size + 1


@inner
def list_kind(k: int, s: int, queues: Queues, clock: Record) -> None:
    """A kind waits: put it first in the chain of its shape, and the shape into the list."""
    queue, shape = queues.kinds[k], queues.shapes[s]
    queue.slot, queue.next, queue.previous = 0, shape.first_kind, -1
    if shape.first_kind < 0:
        shape.slot = clock.listed
        queues.listed[clock.listed] = s
        clock.listed += 1
    else:
        queues.kinds[shape.first_kind].previous = k
    shape.first_kind = k


@inner
def unlist_kind(k: int, s: int, queues: Queues, clock: Record) -> None:
    """Undo `list_kind`."""
    queue, shape = queues.kinds[k], queues.shapes[s]
    queue.slot = -1
    if queue.previous >= 0:
        queues.kinds[queue.previous].next = queue.next
    else:
        shape.first_kind = queue.next
    if queue.next >= 0:
        queues.kinds[queue.next].previous = queue.previous
    if shape.first_kind < 0:
        clock.listed -= 1
        last = queues.listed[clock.listed]
        queues.listed[shape.slot] = last
        queues.shapes[last].slot = shape.slot
