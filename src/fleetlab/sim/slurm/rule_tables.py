"""The rules of a site's Slurm as the wait ledger takes them."""

from __future__ import annotations

import numpy as np

from fleetlab.sim.layout import Floats, Ints
from fleetlab.sim.ledger.rules import Rules
from fleetlab.sim.slurm.accounting import Accounting
from fleetlab.sim.slurm.limits import TYPES
from fleetlab.sim.slurm.state import Slurm


def rules_of(s: Slurm, accounts: Accounting, epilog: float) -> Rules:
    """Return the rules that jobs of a schedule wait by, before anything runs."""
    jobs, kept = s.jobs, s.reservations
    first, entries, profile = _open_partitions(s, accounts)
    limits = np.ascontiguousarray(jobs.limit)
    return Rules(
        groups=accounts.groups, profile=profile, run_profile=_profiles(s, accounts), amounts=_amounts(s, accounts),
        array=np.ascontiguousarray(jobs.array), array_limit=np.ascontiguousarray(jobs.array_limit),
        array_running=np.zeros_like(s.array_running), first_partition=first, partition_of=entries,
        several=(jobs.partitions > 1).astype(np.int64),
        in_partition=s.in_partition, reservation=np.ascontiguousarray(jobs.reservation), limit=limits,
        kept_begin=np.ascontiguousarray(kept.begin), kept_end=np.ascontiguousarray(kept.end),
        kept_group=np.ascontiguousarray(kept.group), flex=np.ascontiguousarray(kept.flex), reserved=s.reserved,
        marks=_marks(kept.begin, kept.end, limits), epilog=float(epilog),
        completing=np.zeros(len(s.nodes), dtype=np.int64), of_group=np.zeros(0, dtype=np.int64),
        sizes=np.zeros(1, dtype=np.int64),
    )  # fmt: skip


def _open_partitions(s: Slurm, accounts: Accounting) -> tuple[Ints, Ints, Ints]:
    """Return the partitions of each job that are up and take it, and its limits in each."""
    job = np.repeat(np.arange(len(s.jobs)), s.jobs.partitions)
    is_open = (s.parts.up[s.partition_of] == 1) & (s.entry_open == 1)
    count = np.bincount(job[is_open], minlength=len(s.jobs))
    return (
        np.append(0, np.cumsum(count)).astype(np.int64), s.partition_of[is_open], accounts.groups.profile[is_open],
    )  # fmt: skip


def _profiles(s: Slurm, accounts: Accounting) -> Ints:
    """Return the limits that a job counts in while it runs: those of the partition it ran in last."""
    jobs, profile = s.jobs, accounts.groups.profile
    found = profile[jobs.first_partition]
    job = np.repeat(np.arange(len(jobs)), jobs.partitions)
    ran = np.flatnonzero(s.partition_of == jobs.part[job])
    found[job[ran]] = profile[ran]
    return found


def _amounts(s: Slurm, accounts: Accounting) -> Floats:
    """Return what jobs count for in limits, with the types of the GPUs that they got last."""
    amounts, of_type = accounts.amounts.copy(), accounts.groups.node_type
    amounts[:, TYPES:] = 0.0
    started = np.flatnonzero(~np.isnan(s.jobs.start))
    slots = s.jobs.slots[started]
    job = np.repeat(started, slots)
    slot = np.repeat(s.jobs.first_slot[started] - np.cumsum(slots) + slots, slots) + np.arange(len(job))
    kind = of_type[s.slot_node[slot]]
    named = kind >= 0
    np.add.at(amounts, (job[named], kind[named]), (s.slot_count[slot] * s.jobs.gpus[job])[named])
    return amounts


def _marks(begin: Floats, end: Floats, limits: Floats) -> Floats:
    """Return when advance reservations begin and end, and from when on jobs would reach into them."""
    reach = begin[:, None] - np.unique(limits)[None, :]
    return np.unique(np.concatenate((begin, end, reach.ravel())))
