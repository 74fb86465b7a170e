"""Play a world by a site's Slurm: make its tables, run its loops, and read the schedule from them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, get_type_hints

import numpy as np
import polars as pl

from fleetlab.core import Cluster, PolicyError, Progress
from fleetlab.core.events import Elastic, Event, Spot
from fleetlab.core.queues import DAY
from fleetlab.schedulers.slurm import state
from fleetlab.schedulers.slurm.accounting import Accounting
from fleetlab.schedulers.slurm.config import Partition
from fleetlab.schedulers.slurm.config import Slurm as Site
from fleetlab.schedulers.slurm.cores import MILLI, WORD
from fleetlab.schedulers.slurm.loop import CALL_AGAIN, run
from fleetlab.schedulers.slurm.node_sets import pack
from fleetlab.schedulers.slurm.partition_access import open_partitions, refused_at_submission
from fleetlab.schedulers.slurm.plan import READY_ROWS
from fleetlab.schedulers.slurm.preemption import MOST_REQUEUES
from fleetlab.schedulers.slurm.queue import CHECK_PERIOD
from fleetlab.schedulers.slurm.rule_tables import (
    MODES,
    accounting_of,
    exempt_times,
    grace_times,
    modes,
    occurrences,
    preempts,
    ranks,
    reservation_of,
    reservation_table,
    reserved_nodes,
    rules_of,
    take_accounts,
    weights,
)
from fleetlab.schedulers.slurm.runs import RUN
from fleetlab.schedulers.slurm.state import Free, Settings, Slurm
from fleetlab.sim.events import BACK, DOWN, Outages, draining_of, outages_of
from fleetlab.sim.layout import DONE as ENDED
from fleetlab.sim.layout import RUNNING as RUNS
from fleetlab.sim.layout import WAITING, WHOLE, Floats, Ints, Records, copied, cut, table
from fleetlab.sim.ledger.rules import Looks
from fleetlab.sim.schedule import Schedule, Segments, Up
from fleetlab.sim.world import World

MOST_DRAWS, WORK = 9, 20_000  # orders within a second that are played: of so many jobs in all
# As recorded runs of a real Slurm show: 10 % of jobs that sleep whole seconds are logged with one more; there are
# 1.002 s between two looks of the main loop, and sdiag has 0.4 to 2 ms for each job that a cycle of backfill tries.
OVERHEAD = 0.05, 0.15  # s that a job takes longer than its work, to be launched and cleaned up
BEAT = 1.002  # s between two moments at which the main loop may look: it sleeps a second after each
PER_JOB = 0.0008  # s that a cycle of backfill takes for a job: the next one begins so much later in its second
LOOKS = 20_000  # of the compiled loop between two reports of progress
ALL = "all"  # the partition of a cluster that names none
NO_OUTAGES = Outages(np.zeros(0), np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))
KINDS = get_type_hints(Settings)
DEFAULT_LIMIT = 365 * 86_400.0  # of a job without a time limit in a partition without one: a year, as Slurm counts


def play(
    world: World, site: Site, cluster: Cluster, *, events: Sequence[Event] = (), seed: int = 0,
    epoch: float | None = None, until: float | None = None, progress: Progress | None = None,
    draws: int | None = None,
) -> Schedule:  # fmt: skip
    """Play a world by a site's Slurm; `epoch` is the Unix time of second 0, which its plans are aligned to.

    `draws` is how many orders within a second are played, of which the typical one is returned (default: by the jobs).
    """
    outages = _outages(world, events, cluster, seed)
    idle, accounts = _before(world, site, cluster, outages)

    def once(draw: int) -> Slurm:
        """Play one order of what happened within the same second."""
        s, acct = copied(idle), copied(accounts)
        _place(s, world)
        within = Draw.of(s.jobs, seed, draw)
        s.clock.epoch = math.floor(epoch or 0.0)
        _set_phases(s, site, within.backfill)
        s.jobs.submit += within.submitted
        s.jobs.begin = np.maximum(s.jobs.begin, s.jobs.submit)
        s.jobs.overhead = within.overhead
        settings = settings_of(site, until)._replace(main_phase=within.main, check_phase=within.check)
        order, gang_start = np.argsort(s.jobs.submit, kind="stable"), np.zeros(len(s.jobs))
        while run(s, settings, acct, order, gang_start, LOOKS) == CALL_AGAIN:
            if progress is not None:
                progress("simulating jobs", int(s.clock.finished), (draw + int(s.clock.finished) / len(s.jobs)) / count)
        return s

    count = draws or max(1, min(MOST_DRAWS, WORK // max(1, len(world.submit))))
    runs = [once(draw) for draw in range(count)]
    found = runs[_typical([s.jobs.start for s in runs])]
    return replace(
        played(world, found, until, outages if events else None),
        rules=rules_of(found, accounts, site.epilog), backfill="conservative" if site.backfill.on else "none",
    )  # fmt: skip


def _place(s: Slurm, world: World) -> None:
    """Give the jobs that run when the simulation begins their nodes, and how many of their instances are on each."""
    for t, place in world.places().items():
        nodes, counts = np.unique(place.node, return_counts=True)
        own = slice(int(s.jobs.first_slot[t]), int(s.jobs.first_slot[t]) + len(nodes))
        s.slot_node[own], s.slot_count[own], s.jobs.slots[t] = nodes, counts, len(nodes)


def _set_phases(s: Slurm, site: Site, within: float) -> None:
    """Let both loops go on as they began when slurmctld started, if the site tells when that was."""
    first = float(s.jobs.submit.min(initial=0.0))
    s.clock.next_backfill = within
    if site.boot is None or site.boot > first:
        return
    every = max(1.0, site.main.interval)
    s.clock.last_full = site.boot + math.floor((first - site.boot) / every) * every
    s.clock.next_backfill += site.boot + site.backfill.interval  # it sleeps before its first cycle


def _typical(starts: list[Floats]) -> int:
    """Return which of several schedules is closest to all: to the median of each start."""
    every = np.nan_to_num(np.array(starts), nan=1e9)
    return int(np.abs(every - np.median(every, axis=0)).sum(axis=1).argmin())


@dataclass(frozen=True, slots=True, eq=False)
class Draw:
    """What a log does not tell: the order of what happened within one second.

    Slurm logs whole seconds. A job that took 10.2 s, with what its launch and end cost, is logged with 10 s and ended a
    bit further into its second than it started; or with 11 s, if that was in the next second.
    """

    main: float  # how far into a second the loops look
    backfill: float
    submitted: Floats  # [jobs]: how far into its second a job was submitted, in the order of their numbers
    overhead: Floats  # [jobs]: how much further a job ends than it started
    check: float  # how far into half a minute slurmctld looks for jobs whose time is over

    @classmethod
    def of(cls, jobs: Records, seed: int, draw: int) -> Draw:
        """Draw one; those of one seed differ by `draw`."""
        rng = np.random.default_rng((seed, draw))
        main, backfill = rng.random(2)
        submitted, overhead = in_order(jobs, rng.random(len(jobs))), rng.uniform(*OVERHEAD, len(jobs))
        return cls(float(main), float(backfill), submitted, overhead, float(rng.integers(int(CHECK_PERIOD))))


def in_order(jobs: Records, drawn: Floats) -> Floats:
    """Return drawn fractions of a second so that jobs of one second come in the order of their numbers.

    slurmctld numbers jobs as they come. All tasks of an array, and all parts of a heterogeneous job, come at once.
    """
    number, second = np.argsort(jobs.number, kind="stable"), jobs.submit
    by_number = number[np.argsort(second[number], kind="stable")]
    sorted_ = np.empty(len(jobs))
    sorted_[by_number] = drawn[np.lexsort((drawn, second))]
    alone = np.arange(len(jobs)) + 1 + max(jobs.array.max(initial=-1), jobs.gang.max(initial=-1))
    together = np.where(jobs.array >= 0, jobs.array, np.where(jobs.gang >= 0, -1 - jobs.gang, alone))
    _, which = np.unique(np.stack([second, together.astype(np.float64)]), axis=1, return_inverse=True)
    first = np.full(len(jobs), np.inf)
    np.minimum.at(first, which, sorted_)
    return first[which]


def _outages(world: World, events: Sequence[Event], cluster: Cluster, seed: int) -> Outages:
    if any(isinstance(event, Elastic | Spot) for event in events):
        msg = "Slurm's loops know outages, drains and faults of nodes"
        raise PolicyError(msg, hint="leave elastic pools and spot nodes out, or simulate without scheduler")
    span = float(world.submit.max(initial=0.0) + world.runtime.max(initial=0.0))
    return outages_of(events, cluster, horizon=3.0 * span, seed=seed)


# -- settings ----------------------------------------------------------------------------------------------------------


def settings_of(site: Site, until: float | None) -> Settings:
    """Return the numbers of a configuration."""
    main, bf = site.main, site.backfill
    values = Settings(
        depth=main.depth, partition_depth=main.partition_depth, main_interval=main.interval, delay=main.delay,
        max_start=main.max_start, defer=int(main.defer), backfill=int(bf.on), interval=bf.interval,
        resolution=bf.resolution, window=bf.window, max_jobs=bf.max_jobs, max_jobs_user=bf.max_jobs_user,
        max_jobs_partition=bf.max_jobs_partition, max_jobs_user_partition=bf.max_jobs_user_partition,
        max_jobs_account=bf.max_jobs_account, max_backfill_start=bf.max_start, max_tasks=bf.max_tasks,
        min_age_reserve=bf.min_age_reserve, min_priority_reserve=float(bf.min_priority_reserve),
        one_reservation=bf.one_reservation,
        kill_invalid=int("kill_invalid_depend" in site.parameters),
        limit_stop=int("assoc_limit_stop" in site.parameters), least_loaded=int("CR_LLN" in site.select_flags),
        epilog=site.epilog, complete_wait=site.complete_wait, kill_wait=site.kill_wait, over_time=site.over_time,
        preempt={"none": 0, "qos": state.BY_QOS, "partition": state.BY_PARTITION}[site.preempt],
        youngest_first=int("preempt_youngest_first" in site.parameters),
        strict_order=int("preempt_strict_order" in site.parameters), reorders=_reorders(site), check_phase=0.0,
        until=math.inf if until is None else float(until), main_phase=0.5, beat=BEAT, per_job=PER_JOB,
    )  # fmt: skip
    # Compiled code has one type for each: a file may give 3 or 3.0.
    return Settings(*(KINDS[name](value) for name, value in values._asdict().items()))


def _reorders(site: Site) -> int:
    """Return how often preemptable jobs are sorted anew, to preempt fewer of them."""
    counts = [word.partition("=")[2] for word in site.parameters if word.startswith("preempt_reorder_count=")]
    return int(counts[0]) if counts and counts[0].isdigit() else 1


def partitions_of(site: Site, cluster: Cluster) -> list[Partition]:
    """Return the partitions that nodes are in; where none are named, one of all nodes."""
    names = cluster.frame["partitions"].explode().drop_nulls().unique(maintain_order=True).to_list()
    return [site.partition(name) for name in names] or [Partition(ALL, default=True)]


# -- tables ------------------------------------------------------------------------------------------------------------


def _before(world: World, site: Site, cluster: Cluster, outages: Outages) -> tuple[Slurm, Accounting]:
    """Return the tables and accounts of an idle cluster; for jobs taken from another world, by rows of those of it."""
    origin = world.origin
    if origin is None or len(outages.time) or site.reservations:
        parts = partitions_of(site, cluster)
        s = tables(world, site, cluster, parts, outages)
        return s, accounting_of(world, replace(site, partitions=tuple(parts)), s, cluster)
    if "slurm" not in origin.made:
        origin.made["slurm"] = _before(origin.world, site, cluster, outages)
    every, accounts = origin.made["slurm"]
    s = take(every, origin.rows, world, site)
    return s, take_accounts(accounts, origin.rows, every, s, site)


def take(every: Slurm, rows: Ints, world: World, site: Site) -> Slurm:
    """Return the tables of some jobs of others, each as often as wanted, with the times of a world of these alone."""
    jobs = every.jobs[rows]
    entries, links = cut(jobs.first_partition, jobs.partitions), cut(jobs.first_parent, jobs.parents)
    place = np.full(len(every.jobs) + 1, -1, dtype=np.int64)  # the last is of no job
    place[rows] = np.arange(len(rows))
    jobs.number = np.argsort(np.argsort(jobs.number, kind="stable"), kind="stable")
    jobs.first_partition, jobs.first_parent = (np.cumsum(n) - n for n in (jobs.partitions, jobs.parents))
    jobs.first_slot, jobs.runtime = world.first[:-1], np.ceil(world.to_end)
    jobs.submit, jobs.begin = np.ceil(world.submitted), np.ceil(np.maximum(world.eligible, world.submitted))
    gangs = _members(jobs.gang)
    return every._replace(
        jobs=jobs, partition_of=every.partition_of[entries], entry_open=every.entry_open[entries],
        parent_of=place[every.parent_of[links]], rule_of=every.rule_of[links], delay_of=every.delay_of[links],
        gang_first=gangs[0], gang_jobs=gangs[1],
        **_sized(jobs, len(entries), int(world.first[-1]), every.slot_cores.shape[1], NO_OUTAGES, site),
    )  # fmt: skip


def _sized(jobs: Records, entries: int, slots: int, words: int, outages: Outages, site: Site) -> dict[str, Any]:
    """Return the tables that are empty before the first submission, and as long as there are jobs."""
    count = len(jobs)
    times = MOST_REQUEUES + 4 + math.ceil(len(outages.time) / max(1, count))
    again = site.preempt != "none" or len(outages.time) > 0
    empty = {name: _ints(count) for name in ("pending", "running", "turns", "by_end", "victims", "victim_nodes")}
    empty |= {name: _ints(slots) for name in ("slot_node", "slot_count", "slot_gpus")}
    empty |= {name: _ints(entries) for name in ("queue_job", "queue_part")}
    return empty | {
        "slot_cores": _ints(slots if words else 0, words),
        "queue_priority": np.zeros(entries), "entry_priority": np.zeros(entries),
        "event_keys": np.zeros(times * (2 * count + slots) + 64), "events": _ints(times * (2 * count + slots) + 64),
        "runs": table(times * count if again else 0, RUN), "entries": _ints(times * slots if again else 0, 2),
    }  # fmt: skip


def tables(world: World, site: Site, cluster: Cluster, parts: list[Partition], outages: Outages | None = None) -> Slurm:
    """Make the tables of an idle cluster, before the first submission."""
    jobs, named = _jobs(world, site, parts)
    nodes, slots = len(world.nodes), int(world.first[-1])
    parents, rules, delays = _parents(world)
    gangs = _members(jobs.gang)
    arrays = int(jobs.array.max(initial=-1)) + 1
    cpu, memory = (np.ascontiguousarray(world.nodes[name]) for name in ("free_cpu", "free_memory"))
    rows = _rows(parts, site)
    kept = occurrences(site.reservations, float(world.submitted.max(initial=0.0)) + DAY)
    words = -(-int(cpu.max(initial=0)) // (WORD * MILLI)) if len(rows) else 0
    room = Free(cpu, memory, _gpus(world), _ints(len(rows), nodes, words), _ints(nodes), _ints(nodes))
    allowed, jobs["request"] = _allowed(world)
    jobs["shape_id"], shapes = _shapes(jobs)
    inside, reserved = _in_partition(cluster, parts), reserved_nodes(kept, cluster)
    outages = outages or NO_OUTAGES
    return Slurm(
        clock=table(1, state.CLOCK, last_main=-1e9, last_full=-1e9, last_backfill=-1e9, slice_at=-1e9,
                    suspends=int(suspends(site)))[0],
        jobs=jobs,
        nodes=table(nodes, state.NODE, cpu=room.cpu, memory=room.memory, gpus=room.gpu, up=1,
                    weight=cluster.frame["weight"].to_numpy()),
        parts=_parts(parts, site), free=room, then=Free(*(column.copy() for column in room)),
        shape_room=_ints(shapes, len(parts)), ready_shape=_ints(READY_ROWS), ready_at=np.zeros((READY_ROWS, nodes)),
        partition_of=named, entry_open=open_partitions(world, site, jobs, parts, named), parent_of=parents,
        rule_of=rules, delay_of=delays,
        in_partition=inside, allowed=allowed, partition_set=pack(inside), allowed_set=pack(allowed),
        reservations=reservation_table(kept, site), reserved=reserved, reserved_set=pack(reserved),
        of_user=_ints(len(parts), int(jobs.user.max(initial=0)) + 1),
        array_running=_ints(max(1, arrays)), gang_first=gangs[0], gang_jobs=gangs[1],
        row_part=rows, first_row=np.searchsorted(rows, np.arange(len(parts) + 1)), skip_row=_ints(len(rows)),
        open_bits=_ints(nodes, words), open_cpu=_ints(nodes), joinable=_ints(nodes), active=_ints(nodes),
        gpu_used=_ints(nodes), usable=_ints(nodes), current=_ints(nodes), chosen=_ints(nodes),
        share=_ints(nodes), room=_ints(nodes), sets=_ints(nodes + 1, 7),
        preempts=preempts(site), qos_mode=modes(site), qos_rank=ranks(site), qos_weight=weights(site),
        qos_grace=grace_times(site), qos_exempt=exempt_times(site),
        outage_time=np.ceil(outages.time), outage_node=outages.node, outage_what=outages.what,
        target=_ints(nodes), **_sized(jobs, len(named), slots, words, outages, site),
    )  # fmt: skip


def _jobs(world: World, site: Site, parts: list[Partition]) -> tuple[Records, Ints]:
    frame, shapes = world.frame, world.shapes[world.shape]
    if ((shapes.milli > 0) & (shapes.milli < WHOLE)).any():
        msg = "Slurm gives whole GPUs: a job asks for a fraction of one"
        raise PolicyError(msg, hint="sharing=exclusive rounds fractions up")
    names = [part.name for part in parts]
    lists = [_named(given, names) for given in frame["partitions"].to_list()]
    first = np.append(0, np.cumsum([len(given) for given in lists])).astype(np.int64)
    limit = frame["limit"].to_numpy().astype(np.float64).copy()
    fallback = np.array([_default_limit(parts[given[0]]) for given in lists])
    limit = np.where(np.isnan(limit), fallback, limit)
    number = np.argsort(np.argsort(frame["job"].to_numpy(), kind="stable"), kind="stable")
    qos = {q.name: k for k, q in enumerate(site.qos)}
    first_parent = np.append(0, np.cumsum(frame["depends_on"].list.len().to_numpy())).astype(np.int64)
    jobs = table(
        len(frame), state.JOB, number=number, instances=world.instances, distinct=_flag(frame["distinct_nodes"]),
        exclusive=_flag(frame["exclusive"]), cpu=shapes.cpu, memory=shapes.memory, gpus=shapes.gpus,
        first_partition=first[:-1], partitions=np.diff(first), user=world.user,
        qos=[qos.get(name, qos.get("normal", -1)) for name in frame["qos"].cast(pl.String).to_list()],
        array=_codes(frame["array"]), array_limit=frame["array_limit"].to_numpy(), gang=_codes(frame["gang"]),
        reservation=reservation_of(frame, site), first_parent=first_parent[:-1], parents=np.diff(first_parent),
        first_slot=world.first[:-1], nice=frame["nice"].to_numpy(), submit=np.ceil(world.submitted),
        begin=np.ceil(np.maximum(world.eligible, world.submitted)), eligible=np.inf, first_eligible=np.inf,
        runtime=np.ceil(world.to_end), limit=limit, tolerance=_tolerance(frame, site),
        start=np.nan, end=np.nan, first_start=np.nan, preempted_at=-1.0, grace_end=np.inf, preempts_since=-1e9,
        any_parent=_flag(frame["dependency"].list.first().str.ends_with("?").fill_null(value=False)),
        may_requeue=_flag(frame["requeue"].fill_null(value=site.requeue)),
        killed=(frame["status"] == "failed").to_numpy(), accrue=np.inf,
    )  # fmt: skip
    named = np.array([p for given in lists for p in given], dtype=np.int64)
    jobs.refused = refused_at_submission(world, site, jobs, parts, named)
    return jobs, named


def _tolerance(frame: pl.DataFrame, site: Site) -> Floats:
    """Return how far above its time limit a job may run: limits are looked at twice a minute, and the log tells."""
    return np.where(frame["end"].is_null().to_numpy(), 0.0, 2 * CHECK_PERIOD + site.kill_wait)


def _named(given: Sequence[str], names: list[str]) -> list[int]:
    known = [names.index(name) for name in given if name in names]
    return known or list(range(len(names)))


def _default_limit(part: Partition) -> float:
    limit = part.max_time if part.default_time is None else part.default_time
    return limit if limit < math.inf else DEFAULT_LIMIT


def _flag(column: pl.Series) -> Ints:
    return column.to_numpy().astype(np.int64)


def _codes(column: pl.Series) -> Ints:
    """Number the values from 0 on; null is -1."""
    ranks = column.rank("dense").to_numpy()
    return np.where(np.isnan(ranks.astype(np.float64)), 0, ranks).astype(np.int64) - 1


def _parents(world: World) -> tuple[Ints, Ints, Floats]:
    """Return the rows of the jobs that others depend on (-1: not simulated), by which rule, and how long after."""
    links = world.frame.select("job", "depends_on", "dependency").explode("depends_on", "dependency").drop_nulls()
    row = {job: k for k, job in enumerate(world.frame["job"].to_list())}
    parents = np.array([row.get(job, -1) for job in links["depends_on"]], dtype=np.int64)
    names = ("after", "afterany", "afterok", "afternotok")
    words = [rule.rstrip("?").partition("+") for rule in links["dependency"]]
    rules = np.array([names.index(name) for name, _, _ in words], dtype=np.int64)
    return parents, rules, np.array([60.0 * int(minutes or 0) for _, _, minutes in words])


def _members(codes: Ints) -> tuple[Ints, Ints]:
    rows = np.flatnonzero(codes >= 0)
    rows = rows[np.argsort(codes[rows], kind="stable")]
    count = np.bincount(codes[rows], minlength=0) if len(rows) else np.zeros(0, dtype=np.int64)
    return np.append(0, np.cumsum(count)).astype(np.int64), rows.astype(np.int64)


def _gpus(world: World) -> Ints:
    return (world.nodes.free_gpu // WHOLE).astype(np.int64)


def _allowed(world: World) -> tuple[Ints, Ints]:
    """Return for each distinct request the nodes that have its GPU types and features, and the row of each job."""
    distinct, row = np.unique(world.shapes.types, return_inverse=True)
    allowed = np.array([(world.nodes.node_class & mask) != 0 for mask in distinct], dtype=np.int64)
    return allowed.reshape(len(distinct), len(world.nodes)), row[world.shape].astype(np.int64)


def _shapes(jobs: Records) -> tuple[Ints, int]:
    """Number the distinct requests of jobs, whatever their instances; return the number of each job, and how many."""
    fields = [jobs[name] for name in ("cpu", "memory", "gpus", "distinct", "exclusive", "request")]
    distinct, number = np.unique(np.stack(fields, axis=1), axis=0, return_inverse=True)
    return number.reshape(-1).astype(np.int64), max(1, len(distinct))


def _parts(parts: list[Partition], site: Site) -> Records:
    return table(
        len(parts), state.PARTITION, tier=[p.tier for p in parts], up=[int(p.state in ("up", "drain")) for p in parts],
        max_time=[p.max_time for p in parts],
        over_time=[-1.0 if p.over_time is None else p.over_time for p in parts],
        preempt_mode=[MODES[p.preempt_mode or site.preempt_mode] for p in parts], grace=[int(p.grace) for p in parts],
        exclusive=[int(p.oversubscribe == 0) for p in parts], sharing=[max(1, p.oversubscribe) for p in parts],
    )  # fmt: skip


def suspends(site: Site) -> bool:
    """Return whether jobs of a lower tier are suspended for others."""
    return site.gang and site.preempt == "partition" and site.preempt_mode == "suspend"


def _rows(parts: list[Partition], site: Site) -> Ints:
    """Return the partition of each row of CPUs; none where no CPUs are shared."""
    if not suspends(site) and all(p.oversubscribe < 2 for p in parts):
        return _ints(0)
    return np.repeat(np.arange(len(parts)), [max(1, p.oversubscribe) for p in parts])


def _in_partition(cluster: Cluster, parts: list[Partition]) -> Ints:
    lists = cluster.frame["partitions"].to_list()
    member = [[int(not any(lists) or part.name in given) for given in lists] for part in parts]
    return np.array(member, dtype=np.int64).reshape(len(parts), len(lists))


def _ints(*shape: int) -> Ints:
    return np.zeros(shape, dtype=np.int64)


# -- the schedule ------------------------------------------------------------------------------------------------------


def played(world: World, s: Slurm, until: float | None, outages: Outages | None = None) -> Schedule:
    """Read the schedule from the tables."""
    jobs = s.jobs
    ran = np.isin(jobs.state, (state.RUNNING, state.DONE))
    status = np.where(jobs.state == state.DONE, ENDED, np.where(jobs.state == state.RUNNING, RUNS, WAITING))
    status = np.where(jobs.refused > 0, WAITING, status)
    ran &= jobs.refused == 0
    where, got = np.full(int(world.first[-1]), -1, dtype=np.int64), _ints(int(world.first[-1]))
    for first, slots, gpus in jobs[["first_slot", "slots", "gpus"]][ran].tolist():
        _write_instances(s, range(first, first + slots), gpus, where, got)
    stopped = None
    if not ((status == ENDED) | (jobs.refused > 0)).all():
        stopped = last_change(world, s) if until is None else float(until)
    segments = _segments(s, world, where, got, stopped) if len(s.runs) else None
    return Schedule(
        start=jobs.first_start.copy(), end=np.where(status == ENDED, jobs.end, np.nan), status=status, where=where,
        got=got, preemptions=jobs.requeues - jobs.failures, failures=jobs.failures.copy(), lost=jobs.lost.copy(),
        segments=segments, keys=None, until=stopped, looks=_looks(s),
        eligible=np.maximum(np.floor(jobs.first_eligible), world.submitted), refused=jobs.refused.copy(),
        timed_out=jobs.timed_out.copy(), cut=jobs.cut.copy(),
        up=None if outages is None else up_of(len(s.nodes), outages),
        draining=None if outages is None else draining_of(outages),
    )  # fmt: skip


def last_change(world: World, s: Slurm) -> float:
    """Return when a job was last submitted, became eligible or ended: the loops would look for ever after that."""
    times = np.concatenate([world.submitted, s.jobs.eligible, s.jobs.end, s.runs.end[: s.clock.runs]])
    return float(times[np.isfinite(times)].max(initial=0.0))


def up_of(nodes: int, outages: Outages) -> Up:
    """Return when nodes were up: all but for their outages."""
    begin, spans = dict.fromkeys(range(nodes), -math.inf), []
    for time, node, what in zip(outages.time.tolist(), outages.node.tolist(), outages.what.tolist(), strict=True):
        if what == DOWN and node in begin:
            spans.append((node, begin.pop(node), time))
        elif what == BACK and node not in begin:
            begin[node] = time
    spans += [(node, time, math.inf) for node, time in begin.items()]
    node_, first, last = np.array(spans, dtype=np.float64).reshape(-1, 3).T
    return Up(node_.astype(np.int64), first, last)


def _write_instances(s: Slurm, slots: range, gpus: int, where: Ints, got: Ints) -> None:
    at = slots.start
    for k in slots:
        given = int(s.slot_gpus[k])
        left = [bit for bit in range(given.bit_length()) if given >> bit & 1]
        for _ in range(int(s.slot_count[k])):
            mine, left = left[:gpus], left[gpus:]
            where[at], got[at] = s.slot_node[k], sum(1 << bit for bit in mine)
            at += 1


def _looks(s: Slurm) -> Looks:
    """Return when jobs could start and were looked at, before each run and since the last one."""
    jobs, runs = s.jobs, s.runs[: s.clock.runs]
    now = jobs[jobs.state == state.RUNNING] if len(s.runs) else jobs[~np.isnan(jobs.first_start)]
    again = np.where(np.isinf(jobs.eligible) & (jobs.parents == 0), jobs.begin, jobs.eligible)
    return Looks(
        eligible=np.floor(np.append(runs.eligible, now.eligible)), looked=np.append(runs.looked, now.looked),
        last_eligible=np.floor(again),
        last_looked=np.where(jobs.skipped > 0, jobs.tested, np.maximum(jobs.passed, jobs.tested)),
        skipped=np.append(runs.skipped, now.skipped), last_skipped=jobs.skipped.copy(),
        limited_since=jobs.limited_since.copy(), limited_until=jobs.limited_until.copy(),
    )  # fmt: skip


def _segments(s: Slurm, world: World, where: Ints, got: Ints, stopped: float | None) -> Segments:
    """Return the runs that ended, then those that still run when the loop stops."""
    runs, entries = s.runs[: s.clock.runs], s.entries[: s.clock.entries]
    still = np.flatnonzero(s.jobs.state == state.RUNNING)
    job = np.append(runs.job, still)
    slots = np.concatenate([np.arange(world.first[t], world.first[t + 1]) for t in still] or [_ints(0)])
    end = np.append(runs.end, np.full(len(still), math.inf if stopped is None else stopped))
    return Segments(
        job, np.append(runs.begin, s.jobs.start[still]), end, np.append(0, np.cumsum(s.jobs.instances[job])),
        np.append(entries[:, 0], where[slots]), np.append(entries[:, 1], got[slots]),
    )  # fmt: skip
