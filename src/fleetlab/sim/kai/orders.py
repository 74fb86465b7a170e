"""Whose turn it is: the order of queues next to each other, and of groups in a queue."""

from __future__ import annotations

from collections.abc import Mapping

from fleetlab.core.pod_groups import Amounts
from fleetlab.sim.gangs.amounts import add, minus
from fleetlab.sim.gangs.tasks import Job
from fleetlab.sim.kai.shares import RESOURCES, QueueState, at_most

Change = tuple[Amounts, Amounts]  # what a queue's next group asks for, and what its victims hold


Rank = tuple[float, ...]


def compare_queues(left: QueueState, right: QueueState, changes: tuple[Change, Change], total: Amounts) -> int:
    """Negative where the left queue comes first: by fair share, quota, priority, and dominant share; then by age."""
    return compare_ranked(left, right, (rank(left, changes[0], total), rank(right, changes[1], total)))


def rank(state: QueueState, change: Change, total: Amounts) -> Rank:
    """What queues are ordered by first, the lowest first, as far as it is of one queue alone."""
    asked = change[0]
    return (
        _is_over(state),
        not _is_starved(state, asked),
        -state.queue.priority,
        _has_no_share(state, asked),
        state.dominant(total, minus(*change)),
        state.dominant(total),
    )


def compare_ranked(left: QueueState, right: QueueState, ranks: tuple[Rank, Rank]) -> int:
    """Negative where the left queue comes first."""
    if ranks[0] != ranks[1]:
        return -1 if ranks[0] < ranks[1] else 1
    if smaller := _smaller_share(left, right):
        return smaller
    mine, yours = (left.queue.created, left.name), (right.queue.created, right.name)
    return -1 if mine < yours else 1


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
