"""Queues as compiled code takes them: what a job may have beside what others hold, and who is asked to give back.

A *member* is all jobs that count in the same queues and limits and request the same: they may start or wait together.
What is held by a queue and those below it counts against its *quota*: its own guarantee, and what those below lend. A
part of it may be *kept* from the parent; what exceeds that part counts against the quota of the parent, too.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fleetlab.sim.jit import inner
from fleetlab.sim.layout import Floats, Ints, Records, record, writable

NO_LIMIT = -1
UNBOUND = 1 << 60  # the quota of a resource that no queue of the tree guarantees
QUOTA, KEPT, MOST, USED = range(4)  # of a queue
HELD = 1  # of a limit, beside MOST as its row 0
AT_MOST, SPENT, SINCE = range(3)  # of a limit in resource-seconds
BASE, SCALE = range(2)  # a queue's share is what it holds above its base, over its scale
NEVER, LOWER, NEWER, ANY = range(4)  # whom jobs preempt

MEMBER = record("queue first_limit end_limit")  # its limits are entries of `limits_of`
QUEUE_ROW = record("parent depth shown reclaim within borrow strict first jobs best blocked")
#   parent: -1 of a root; shown: has shares of its own; first, jobs: its waiting jobs in the heap of a pass; best: the
#   queue among those below whose job is next, -1: none; blocked: its jobs wait for the rest of a pass


class Quotas(NamedTuple):
    """The tree of queues, limits, and what is held now."""

    members: Records  # MEMBER
    queues: Records  # QUEUE_ROW, parents before children; the last is of jobs in no queue
    asks: Ints  # [members, resources]: the first is 1 for the job itself
    limits_of: Ints  # limits of each member, one after the other
    amounts: Ints  # [queues, 4, resources]: QUOTA, KEPT, MOST, USED
    limits: Ints  # [limits, 2, resources]: the most, NO_LIMIT, and HELD
    seconds: Floats  # [limits, 3, resources]: AT_MOST resource-seconds, infinity, SPENT so far, SINCE when not counted
    shares: Floats  # [queues, 2, resources]: BASE, SCALE
    submitted: Ints  # [limits, 2]: the most jobs that may be pending or running, NO_LIMIT, and how many are


def copied(quotas: Quotas) -> Quotas:
    """Return tables that may change."""
    return Quotas(*(writable(array) for array in quotas))


# -- may a job start? ------------------------------------------------------------------------------------------------


@inner
def at_limit(q: Quotas, m: int, now: float) -> bool:
    """Return whether a job would exceed a limit."""
    member = q.members[m]
    for k in range(member.first_limit, member.end_limit):
        limit, seconds = q.limits[q.limits_of[k]], q.seconds[q.limits_of[k]]
        for r in range(q.asks.shape[1]):
            ask = q.asks[m, r]
            if ask and limit[0, r] >= 0 and limit[HELD, r] + ask > limit[0, r]:
                return True
            spent = seconds[SPENT, r] + limit[HELD, r] * (now - seconds[SINCE, r])
            if ask and seconds[AT_MOST, r] < np.inf and spent >= seconds[AT_MOST, r]:
                return True
    return False


@inner
def above_quota(q: Quotas, m: int) -> bool:
    """Return whether a job would exceed what its queue may hold, of its own and borrowed."""
    for r in range(q.asks.shape[1]):
        at, need = q.members[m].queue, q.asks[m, r]
        while at >= 0 and need > 0:
            of = q.amounts[at]
            if of[MOST, r] >= 0 and of[USED, r] + need > of[MOST, r]:
                return True
            need -= min(need, max(0, of[KEPT, r] - of[USED, r]))
            at = q.queues[at].parent
    return False


@inner
def is_barred(q: Quotas, m: int, now: float) -> bool:
    """Return whether the queues and limits of a member keep its jobs from starting; -1: it has none."""
    return m >= 0 and (at_limit(q, m, now) or above_quota(q, m))


@inner
def is_admitted(q: Quotas, m: int) -> bool:
    """Return whether one more job of a member may be pending or running."""
    if m < 0:
        return True
    for k in range(q.members[m].first_limit, q.members[m].end_limit):
        limit = q.submitted[q.limits_of[k]]
        if limit[0] >= 0 and limit[HELD] >= limit[0]:
            return False
    return True


@inner
def submit(q: Quotas, m: int, sign: int) -> None:
    """Count a job that is pending or running (1), or no more (-1)."""
    if m >= 0:
        for k in range(q.members[m].first_limit, q.members[m].end_limit):
            q.submitted[q.limits_of[k], HELD] += sign


# -- what is held ----------------------------------------------------------------------------------------------------


@inner
def hold(q: Quotas, m: int, sign: int) -> None:
    """Count what a job holds (1), or no more (-1); time is counted by `charge`."""
    member = q.members[m]
    for k in range(member.first_limit, member.end_limit):
        for r in range(q.asks.shape[1]):
            q.limits[q.limits_of[k], HELD, r] += sign * q.asks[m, r]
    for r in range(q.asks.shape[1]):
        at, change = member.queue, sign * q.asks[m, r]
        while at >= 0 and change != 0:
            of = q.amounts[at]
            passed_on = max(0, of[USED, r] - of[KEPT, r])
            of[USED, r] += change
            change = max(0, of[USED, r] - of[KEPT, r]) - passed_on
            at = q.queues[at].parent


@inner
def count_seconds(q: Quotas, m: int, now: float) -> None:
    """Bring the resource-seconds of the limits of a member up to now."""
    member = q.members[m]
    for k in range(member.first_limit, member.end_limit):
        limit, seconds = q.limits[q.limits_of[k]], q.seconds[q.limits_of[k]]
        for r in range(q.asks.shape[1]):
            seconds[SPENT, r] += limit[HELD, r] * (now - seconds[SINCE, r])
            seconds[SINCE, r] = now


@inner
def charge(q: Quotas, m: int, now: float, sign: int) -> None:
    """Let a job begin to hold what it requests (1), or end (-1); a member below 0 is in no queue."""
    if m >= 0:
        count_seconds(q, m, now)
        hold(q, m, sign)


# -- which job is next, and who gives back -----------------------------------------------------------------------------


@inner
def borrowing_level(q: Quotas, m: int) -> int:
    """Return how far up the tree a job has to borrow: 0 within the quota of its queue, 1 within its parent's, …"""
    level = 0
    for r in range(q.asks.shape[1]):
        at, need, up = q.members[m].queue, q.asks[m, r], 0
        while at >= 0 and need > 0 and q.amounts[at, USED, r] + need > q.amounts[at, QUOTA, r]:
            need -= min(need, max(0, q.amounts[at, KEPT, r] - q.amounts[at, USED, r]))
            at, up = q.queues[at].parent, up + 1
        level = max(level, up)
    return level


@inner
def share_of(q: Quotas, row: int) -> float:
    """Return the weighted share of a queue: the largest over resources."""
    most = 0.0
    for r in range(q.asks.shape[1]):
        above = q.amounts[row, USED, r] - q.shares[row, BASE, r]
        if above > 0:
            most = max(most, above / q.shares[row, SCALE, r] if q.shares[row, SCALE, r] > 0 else np.inf)
    return most


@inner
def borrows(q: Quotas, row: int, m: int, other: int) -> bool:
    """Return whether a queue holds more than its quota of something that both members request."""
    for r in range(q.asks.shape[1]):
        if q.asks[m, r] and q.asks[other, r] and q.amounts[row, USED, r] > q.amounts[row, QUOTA, r]:
            return True
    return False


@inner
def stays_within(q: Quotas, row: int, m: int) -> bool:
    """Return whether a queue, the member's own or one above it, stays within its quota with one more of its jobs."""
    for r in range(q.asks.shape[1]):
        at, need = q.members[m].queue, q.asks[m, r]
        while at != row and need > 0:
            need -= min(need, max(0, q.amounts[at, KEPT, r] - q.amounts[at, USED, r]))
            at = q.queues[at].parent
        if need > 0 and q.amounts[row, USED, r] + need > q.amounts[row, QUOTA, r]:
            return False
    return True


@inner
def siblings(q: Quotas, a: int, b: int) -> tuple[int, int]:
    """Return the two queues, of those and all above them, that have the same parent; -1: they share no root."""
    while q.queues[a].parent != q.queues[b].parent:
        if q.queues[a].depth >= q.queues[b].depth:
            a = q.queues[a].parent
        else:
            b = q.queues[b].parent
        if a < 0 or b < 0:
            return -1, -1
    return (-1, -1) if q.queues[a].parent < 0 else (a, b)
