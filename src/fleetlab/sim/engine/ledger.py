"""The ledger: every waited second of a job is charged to one reason.

Jobs of one kind wait for the same reason, so time is charged to the kind. A job gets the difference between what its
kind had waited for when the job arrived and when it started.
"""

from __future__ import annotations

from fleetlab.sim.codes import REASONS
from fleetlab.sim.engine.state import Queues
from fleetlab.sim.jit import inner
from fleetlab.sim.layout import Floats, Record

COUNT = len(REASONS)


@inner
def charge(queue: Record, now: float) -> None:
    """Charge the time that a kind has waited since the last charge to its present reason."""
    queue.waited[queue.reason] += now - queue.since
    queue.since = now


@inner
def transfer(j: int, queue: Record, sign: int, ledger: Floats) -> None:
    """Add to a job what its kind has waited for (1: it leaves), or subtract it (-1: it arrives)."""
    for reason in range(COUNT):
        ledger[j, reason] += sign * queue.waited[reason]


@inner
def close_ledger(queues: Queues, ledger: Floats, until: float) -> None:
    """Charge jobs that still wait when the loop stops."""
    for k in range(len(queues.kinds)):
        queue = queues.kinds[k]
        if queue.length:
            charge(queue, until)
            for i in range(queue.first, queue.first + queue.length):
                transfer(queues.jobs[i], queue, 1, ledger)
