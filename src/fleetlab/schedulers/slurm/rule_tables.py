"""The rules of a site's Slurm as the wait ledger takes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import polars as pl

from fleetlab.core import Cluster
from fleetlab.core.queues import DAY
from fleetlab.schedulers.slurm import state
from fleetlab.schedulers.slurm.accounting import Accounting
from fleetlab.schedulers.slurm.config import Reservation
from fleetlab.schedulers.slurm.config import Slurm as Site
from fleetlab.schedulers.slurm.limit_tables import groups_of, requests_of, resource_names
from fleetlab.schedulers.slurm.priority import FIRST_BASIC, priority_rules
from fleetlab.schedulers.slurm.state import Slurm
from fleetlab.schedulers.slurm.usage import billing_rules, new_usage, usage_rules
from fleetlab.sim.associations import associations_of, places, usage_of
from fleetlab.sim.layout import Floats, Ints, Records, cut, table
from fleetlab.sim.ledger.rules import SiteRules
from fleetlab.sim.limits import TYPES
from fleetlab.sim.world import World

OF_JOBS = ("amounts", "cpus", "nodes", "association", "qos_row", "factor", "rate")  # columns of `Accounting`

# -- the accounts of a site, as its loops take them: limits, usage and priorities --------------------------------------


def accounting_of(world: World, site: Site, s: Slurm, cluster: Cluster) -> Accounting:
    """Return the accounts of a site before the first submission; `site` has the partitions of `s`."""
    rows = places(site.queues)
    rules = usage_rules(site.priority, site.enforce)
    associations = associations_of(site.queues, fair_tree=bool(rules.fair_tree))
    names = world.frame.select(pl.col("queue", "user").cast(pl.String))
    queues = [site.queues.of(account, user) for account, user in names.iter_rows()]
    qos = s.jobs.qos
    resources = resource_names(cluster.frame)
    amounts = requests_of(world, s, resources)
    classes = {q.name: len(associations.parent) + k for k, q in enumerate(site.qos)}
    factor = np.array([*(q.usage_factor for q in site.qos), 1.0])
    return Accounting(
        groups=groups_of(world, site, s, resources, cluster.frame["gpu_type"].to_list()),
        multifactor=int(site.priority.multifactor), period=max(1.0, float(site.priority.calc_period)),
        always=int("ACCRUE_ALWAYS" in {flag.upper() for flag in site.priority.flags}),
        pass_at=_passes(site, s), lowest=np.array([FIRST_BASIC], dtype=np.int64),
        associations=associations, usage=new_usage(associations, site.qos, len(resources), usage_of(site.queues)),
        usage_rules=rules, billing=billing_rules(site, resources),
        rules=priority_rules(site, resources, _totals(cluster.frame), _of_partitions(site, cluster)), amounts=amounts,
        cpus=amounts[:, 0].copy(), nodes=amounts[:, 2].copy(),
        association=np.array([rows[queue.name] if queue else 0 for queue in queues], dtype=np.int64),
        partition_row=np.array([classes.get(part.qos or "", -1) for part in site.partitions], dtype=np.int64),
        qos_row=np.where(qos >= 0, qos + len(associations.parent), -1), factor=factor[qos],
        rate=np.full(len(s.jobs), -1.0),
    )  # fmt: skip


def take_accounts(every: Accounting, rows: Ints, tables: Slurm, s: Slurm, site: Site) -> Accounting:
    """Return the accounts of some jobs of those that `tables` has, in the order of `s`."""
    jobs, groups = tables.jobs[rows], every.groups
    profile = groups.profile[cut(jobs.first_partition, jobs.partitions)]
    own = {name: getattr(every, name)[rows] for name in OF_JOBS}
    groups = groups._replace(profile=profile, minutes=groups.minutes[rows], requests=groups.requests[rows])
    return every._replace(groups=groups, pass_at=_passes(site, s), **own)


def _passes(site: Site, s: Slurm) -> Floats:
    """Return when the accounts are ranked first, and the phase of later passes: they count from slurmctld's start."""
    begin = np.floor(s.jobs.submit.min(initial=0.0))
    return np.array([begin, begin if site.boot is None else site.boot])


def _totals(nodes: pl.DataFrame) -> dict[str, float]:
    cpu, memory, gpus = (float(nodes[name].cast(pl.Int64).sum()) for name in ("cpu_milli", "memory_mib", "gpus"))
    return {"cpu": max(1.0, cpu / 1000), "memory": memory, "node": max(1.0, float(nodes.height)), "gpu": gpus}


def _of_partitions(site: Site, cluster: Cluster) -> dict[str, dict[str, float]]:
    inside = pl.col("partitions").list
    named = cluster.frame["partitions"].list.len().max()
    return {
        part.name: _totals(cluster.frame.filter(inside.contains(part.name)) if named else cluster.frame)
        for part in site.partitions
    }


# -- who preempts whom, and how: from a site's classes of service ------------------------------------------------------

MODES = {None: state.OFF, "off": state.OFF, "requeue": state.REQUEUE, "cancel": state.CANCEL, "suspend": state.SUSPEND}
MOST_WEIGHT = 0xFFFF  # of a class of service, when jobs to preempt are chosen


def preempts(site: Site) -> Ints:
    """Return which class may preempt which: 1, or WITHIN for those that do so among themselves."""
    names = [q.name for q in site.qos]
    within = [state.WITHIN if q.within or site.within else 0 for q in site.qos]
    table_ = [[within[k] if q.name == other else int(other in q.preempts) for other in names]
              for k, q in enumerate(site.qos)]  # fmt: skip
    return np.array(table_, dtype=np.int64).reshape(len(names), len(names))


def modes(site: Site) -> Ints:
    """Return how jobs of each class are preempted; the last is for jobs without one."""
    known = [MODES[site.preempt_mode if q.preempt_mode in (None, "cluster") else q.preempt_mode] for q in site.qos]
    return np.array([*known, MODES[site.preempt_mode]], dtype=np.int64)


def ranks(site: Site) -> Ints:
    """Return how deep each class of service is below those that preempt it."""
    below = {q.name: {other.name for other in site.qos if q.name in other.preempts} for q in site.qos}
    rank = dict.fromkeys(below, 0)
    for _ in site.qos:
        rank = {name: max([0, *(rank[other] + 1 for other in above if other in rank)]) for name, above in below.items()}
        rank = {name: min(value, len(rank)) for name, value in rank.items()}
    return np.array([*rank.values(), 0], dtype=np.int64)


def weights(site: Site) -> Ints:
    """Return the priority of each class, by which jobs to preempt are chosen."""
    return np.array([*(min(q.priority, MOST_WEIGHT) for q in site.qos), 0], dtype=np.int64)


def exempt_times(site: Site) -> Floats:
    """Return how long jobs of a class are not preempted: its own time before the cluster's."""
    return np.array([*(site.exempt if q.exempt is None else q.exempt for q in site.qos), site.exempt])


def grace_times(site: Site) -> Floats:
    """Return how long jobs of a class stay when they have been told to go."""
    return np.array([*(q.grace for q in site.qos), 0.0])


# -- when which nodes are kept for whom: from a site's reservations ----------------------------------------------------

RECURS = {"hourly": 3600.0, "daily": DAY, "weekly": 7 * DAY}  # s between two of a reservation


def occurrences(reservations: Sequence[Reservation], until: float) -> list[Reservation]:
    """Return reservations with those that recur each time until a time, as far as the log does not have them."""
    listed = {(r.name, r.begin): r for r in reservations}
    for r in reservations:
        flags = {flag.lower() for flag in r.flags}
        step = next((seconds for flag, seconds in RECURS.items() if flag in flags), 0.0)
        for k in range(1, int((until - r.begin) // step) + 1 if step else 0):
            again = replace(r, begin=r.begin + k * step, end=r.end + k * step)
            listed.setdefault((again.name, again.begin), again)
    return list(listed.values())


def _groups(site: Site) -> dict[str, int]:
    """Number the reservations by name: one of a name may come several times."""
    return {name: k for k, name in enumerate(dict.fromkeys(r.name for r in site.reservations))}


def reservation_table(kept: list[Reservation], site: Site) -> Records:
    """Return the times of reservations, and what they are."""
    groups = _groups(site)
    return table(
        len(kept), state.RESERVATION, begin=[r.begin for r in kept], end=[r.end for r in kept],
        known=[-np.inf if r.known is None else r.known for r in kept],
        group=[groups[r.name] for r in kept], flex=[int("flex" in {f.lower() for f in r.flags}) for r in kept],
    )  # fmt: skip


def reserved_nodes(kept: list[Reservation], cluster: Cluster) -> Ints:
    """Return which nodes each reservation keeps."""
    names = cluster.frame["node"].to_list()
    rows = [[int(name in r.nodes) for name in names] for r in kept]
    return np.array(rows, dtype=np.int64).reshape(len(rows), len(names))


def reservation_of(frame: pl.DataFrame, site: Site) -> Ints:
    """Return the reservation that each job names, -1: none."""
    places = _groups(site)
    return np.array([places.get(name or "", -1) for name in frame["reservation"].to_list()], dtype=np.int64)


def rules_of(s: Slurm, accounts: Accounting, epilog: float) -> SiteRules:
    """Return the rules that jobs of a schedule wait by, before anything runs."""
    jobs, kept = s.jobs, s.reservations
    first, entries, profile = _open_partitions(s, accounts)
    limits = np.ascontiguousarray(jobs.limit)
    return SiteRules(
        groups=accounts.groups, profile=profile, run_profile=_profiles(s, accounts), amounts=_amounts(s, accounts),
        array=np.ascontiguousarray(jobs.array), array_limit=np.ascontiguousarray(jobs.array_limit),
        array_running=np.zeros_like(s.array_running), first_partition=first, partition_of=entries,
        several=(jobs.partitions > 1).astype(np.int64),
        in_partition=s.in_partition, reservation=np.ascontiguousarray(jobs.reservation), limit=limits,
        kept_begin=np.ascontiguousarray(kept.begin), kept_end=np.ascontiguousarray(kept.end),
        kept_known=np.ascontiguousarray(kept.known),
        kept_group=np.ascontiguousarray(kept.group), flex=np.ascontiguousarray(kept.flex), reserved=s.reserved,
        marks=_marks(kept.begin, kept.end, kept.known, limits), epilog=float(epilog),
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
    slot = cut(s.jobs.first_slot[started], slots)
    kind = of_type[s.slot_node[slot]]
    named = kind >= 0
    np.add.at(amounts, (job[named], kind[named]), (s.slot_count[slot] * s.jobs.gpus[job])[named])
    return amounts


def _marks(begin: Floats, end: Floats, known: Floats, limits: Floats) -> Floats:
    """Return when advance reservations are made, begin and end, and from when on jobs would reach into them."""
    reach = begin[:, None] - np.unique(limits)[None, :]
    return np.unique(np.concatenate((begin, end, known[np.isfinite(known)], reach.ravel())))
