"""The rules of a site's Slurm as the wait ledger takes them."""

from __future__ import annotations

import numpy as np

from fleetlab.sim.layout import Floats, Ints
from fleetlab.sim.ledger.rules import Rules
from fleetlab.sim.slurm.limits import Groups
from fleetlab.sim.slurm.state import Slurm


def rules_of(s: Slurm, groups: Groups, epilog: float) -> Rules:
    """Return the rules that jobs of a schedule wait by, before anything runs."""
    jobs, kept = s.jobs, s.reservations
    first, entries = _open_partitions(s)
    limits = np.ascontiguousarray(jobs.limit)
    return Rules(
        groups=groups, array=np.ascontiguousarray(jobs.array), array_limit=np.ascontiguousarray(jobs.array_limit),
        array_running=np.zeros_like(s.array_running), first_partition=first, partition_of=entries,
        several=(jobs.partitions > 1).astype(np.int64),
        in_partition=s.in_partition, reservation=np.ascontiguousarray(jobs.reservation), limit=limits,
        kept_begin=np.ascontiguousarray(kept.begin), kept_end=np.ascontiguousarray(kept.end), reserved=s.reserved,
        marks=_marks(kept.begin, kept.end, limits), epilog=float(epilog),
        completing=np.zeros(len(s.nodes), dtype=np.int64), of_group=np.zeros(0, dtype=np.int64),
        sizes=np.zeros(1, dtype=np.int64),
    )  # fmt: skip


def _open_partitions(s: Slurm) -> tuple[Ints, Ints]:
    """Return the partitions of each job that are up and take jobs of its time limit and size."""
    job = np.repeat(np.arange(len(s.jobs)), s.jobs.partitions)
    jobs, parts = s.jobs[job], s.parts[s.partition_of]
    small = (jobs.distinct == 0) | (jobs.instances <= parts.max_nodes)
    is_open = (parts.up == 1) & (jobs.limit <= parts.max_time) & small
    count = np.bincount(job[is_open], minlength=len(s.jobs))
    return np.append(0, np.cumsum(count)).astype(np.int64), s.partition_of[is_open]


def _marks(begin: Floats, end: Floats, limits: Floats) -> Floats:
    """Return when advance reservations begin and end, and from when on jobs would reach into them."""
    reach = begin[:, None] - np.unique(limits)[None, :]
    return np.unique(np.concatenate((begin, end, reach.ravel())))
