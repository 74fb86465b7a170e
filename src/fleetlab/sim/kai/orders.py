"""Whose turn it is: the order of queues next to each other, and of groups in a queue."""

from __future__ import annotations

from collections.abc import Mapping

from fleetlab.core.pod_groups import Amounts
from fleetlab.sim.gangs.amounts import add, minus
from fleetlab.sim.gangs.tasks import Job
from fleetlab.sim.kai.shares import RESOURCES, QueueState, at_most

Change = tuple[Amounts, Amounts]  # what a queue's next group asks for, and what its victims hold


def compare_queues(left: QueueState, right: QueueState, changes: tuple[Change, Change], total: Amounts) -> int:
    """Negative where the left queue comes first: by fair share, quota, priority, and dominant share; then by age."""
    one, other = changes
    steps = (
        _less(_is_over(left), _is_over(right)),
        _less(not _is_starved(left, one[0]), not _is_starved(right, other[0])),
        right.queue.priority - left.queue.priority,
        _less(_has_no_share(left, one[0]), _has_no_share(right, other[0])),
        _less(left.dominant(total, minus(*one)), right.dominant(total, minus(*other))),
        _less(left.dominant(total), right.dominant(total)),
        _smaller_share(left, right),
    )
    for step in steps:
        if step:
            return step
    mine, yours = (left.queue.created, left.name), (right.queue.created, right.name)
    return -1 if mine < yours else 1


def _less(left: float, right: float) -> int:
    return (left > right) - (left < right)


def _is_over(state: QueueState) -> bool:
    """Whether it holds more than its fair share of everything."""
    return all(share.fair < share.allocated for share in state.shares.values())


def _is_starved(state: QueueState, asked: Amounts) -> bool:
    """Whether it stays within its quota with its next group."""
    return at_most(add(state.amounts("allocated"), asked), state.amounts("deserved"))


def _has_no_share(state: QueueState, asked: Amounts) -> bool:
    """Whether it would hold something that it has no share of."""
    held: Mapping[str, float] = add(state.amounts("allocated"), asked)
    return any(state.shares[name].allocatable == 0 and held.get(name, 0) > 0 for name in RESOURCES)


def _smaller_share(left: QueueState, right: QueueState) -> int:
    mine, yours = left.amounts("allocatable"), right.amounts("allocatable")
    if at_most(mine, yours) and not at_most(yours, mine):
        return -1
    return int(at_most(yours, mine) and not at_most(mine, yours))


def turn(job: Job) -> tuple[float, float, str]:
    """The order of groups in a queue: by priority, then by age."""
    return -job.group.priority, job.group.created, job.name
