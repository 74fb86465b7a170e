"""Orders that change with time in the quick loops: waiting jobs are ranked anew at each instant in which one may start.

A key may depend on the job itself and on the time; what depends on more is for the reference loop.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from fleetlab.sim.engine.state import Jobs, Queues
from fleetlab.sim.heap import heapify
from fleetlab.sim.jit import inner
from fleetlab.sim.layout import Floats, Ints, Record
from fleetlab.sim.policy import NO_ORDER, Fill, State, no_state


class Timed(NamedTuple):
    """An order that changes with time, and what it sees."""

    changes: int  # 0: the order is another, and this one is not asked
    order: Fill
    state: State


def no_timed() -> Timed:
    """Return what a loop takes whose order does not change."""
    nobody: Any = NO_ORDER
    return Timed(0, nobody, no_state())


@inner
def rank_anew(jobs: Jobs, keys: Floats, heap: Ints, n: int, timed: Timed, clock: Record) -> None:
    """Rank `n` waiting jobs as of now, and make a heap of them again."""
    if timed.order(timed.state, heap, n, clock.now, keys) == 0:
        clock.policy_error = clock.over = 1
    for i in range(n):
        jobs.key[heap[i]] = keys[i]
    heapify(keys, heap, n)


@inner
def rank_kind(k: int, jobs: Jobs, queues: Queues, timed: Timed, clock: Record) -> None:
    """Rank the waiting jobs of a kind."""
    queue = queues.kinds[k]
    first, end = queue.first, queue.first + queue.length
    rank_anew(jobs, queues.keys[first:end], queues.jobs[first:end], queue.length, timed, clock)
