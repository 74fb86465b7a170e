"""Limits of accounts, users, classes of service and partitions: what jobs may hold together.

A *group* is whatever has a limit: all jobs of a class of service, those of one user in it, an account with all below
it. A job counts in each of its groups, and starts only where none would exceed a limit.
"""

from __future__ import annotations

from typing import NamedTuple

from fleetlab.sim.jit import inner
from fleetlab.sim.layout import Ints


class Groups(NamedTuple):
    """Groups of jobs, what they hold, and the most that they may."""

    first: Ints  # [jobs + 1]: entries of `of`
    of: Ints  # the groups of each job
    asks: Ints  # [jobs, resources]: the first is 1 for the job itself
    used: Ints  # [groups, resources]
    most: Ints  # [groups, resources]; -1: no limit
    in_partition: Ints  # [partitions, 2]: the group of all jobs in a partition and that of its users, -1: none


@inner
def within_limits(g: Groups, t: int) -> bool:
    """Return whether a job may start."""
    for k in range(g.first[t], g.first[t + 1]):
        group = g.of[k]
        for r in range(g.asks.shape[1]):
            if g.most[group, r] >= 0 and g.asks[t, r] and g.used[group, r] + g.asks[t, r] > g.most[group, r]:
                return False
    return True


@inner
def count_job(g: Groups, t: int, sign: int) -> None:
    """Count a job that starts, or with `sign` -1 one that ends."""
    for k in range(g.first[t], g.first[t + 1]):
        for r in range(g.asks.shape[1]):
            g.used[g.of[k], r] += sign * g.asks[t, r]
