"""What verbs ask of a site's Slurm: to simulate it, what of it does not hold, and which of its settings to change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl

from fleetlab.core import Cluster, Progress, Scenario
from fleetlab.core.names import clip
from fleetlab.core.queues import Limits, Qos, QueueTree
from fleetlab.core.resample import Floats
from fleetlab.core.schedulers import SettingChange
from fleetlab.schedulers.kubernetes.reader.objects import kinds_in
from fleetlab.schedulers.slurm.config import BackfillLoop, MainLoop, Slurm
from fleetlab.schedulers.slurm.reader.conf import kind_of_conf
from fleetlab.schedulers.slurm.reader.conf_keys import KEYS, LINES, PARAMETERS, spelled
from fleetlab.schedulers.slurm.reader.conf_writer import scheduler_parameters
from fleetlab.sim.schedule import Schedule
from fleetlab.sim.world import World

BEGINNING = 65_536  # characters of a file by which it is recognized
LEAST_CYCLES = 20  # of the backfill loop, to tell how far apart they are
SECOND = 1.0  # s: between two looks of loops that are quick


def recognizes(path: Path) -> bool:
    """Whether a path is a folder, a `.conf` with settings, or a file that begins as those of Slurm do."""
    if path.is_dir():
        return True
    text = path.read_text("utf-8", errors="replace")
    words = (line.strip().split("=")[0].split()[-1:] for line in text.splitlines() if "=" in line)
    keys = (*KEYS, *PARAMETERS, *LINES)
    is_conf = path.suffix == ".conf" or any(word and spelled(word[0], keys) for word in words)
    return not kinds_in(path) and "=" in text and (is_conf or kind_of_conf(path.name, text[:BEGINNING]) is not None)


def simulate(site: Slurm, s: Scenario, world: World, progress: Progress | None, draws: int | None) -> Schedule:
    """Simulate by the compiled loops, which are compiled when first used."""
    from fleetlab.schedulers.slurm.play import play
    from fleetlab.sim.jit import compile_notice

    log = s.workload if s.window else s.trace.workload  # whose run times may have to be drawn, or not
    with compile_notice():
        return play(
            world, site, s.cluster, events=s.node_events, seed=s.seed, epoch=log.epoch, until=s.until,
            progress=progress, draws=draws,
        )  # fmt: skip


def notes(site: Slurm, cluster: Cluster) -> list[str]:
    """Return which partitions have no nodes."""
    there = set(cluster.frame["partitions"].explode())
    without = sorted(part.name for part in site.partitions if part.name not in there)
    if not without:
        return []
    nodes = "nodes and their partitions are those of the trace or of `cluster`, not of the configuration"
    return [f"no node is in these partitions of the configuration: {clip(', '.join(without))}; {nodes}"]


def as_of(site: Slurm, at: float, first: float, cycles: Floats | None) -> Slurm:
    """Return a site on a clock on which `at` is second 0 and `first` the first submission.

    Its backfill loop goes on from the last cycle in which it started a job, where the log tells that.
    """
    every = max(1.0, site.backfill.interval)
    boot = None if site.boot is None else site.boot - at
    if cycles is not None and (count := int(np.searchsorted(cycles, at, side="right"))):
        last = float(cycles[count - 1]) - at
        boot = last - every * np.ceil((last - first) / every + 2)
    reservations = tuple(
        replace(r, begin=r.begin - at, end=r.end - at, known=None if r.known is None else r.known - at)
        for r in site.reservations
    )
    return replace(site, boot=boot, reservations=reservations)


# -- what a log may tell of it -----------------------------------------------------------------------------------------

DELAYS, EPILOGS = (0.0, 1.0, 3.0, 6.0), (0.0, 1.0, 2.0, 5.0, 10.0)  # s
PHASES = 4  # of the backfill loop, where the log does not tell when it began
IMPLIED = "implied"  # the class of service that has the limits which a log implies


def variants(site: Slurm, cycles: Floats | None, quotas: Sequence[float | Mapping[str, float]]) -> tuple[Slurm, ...]:
    """Return a site with other loops, another epilog, or limits of GPUs that a log implies."""
    main, bf = site.main, site.backfill
    found = [replace(site, main=replace(main, delay=s)) for s in DELAYS if s != main.delay]
    found += [replace(site, epilog=s) for s in EPILOGS if s != site.epilog]
    if bf.on:
        intervals = {max(SECOND, bf.interval / 2), bf.interval * 2} | _intervals(cycles)
        found += [replace(site, backfill=replace(bf, interval=s)) for s in sorted(intervals - {bf.interval})]
        if site.boot is None and bf.interval > SECOND:
            found += [replace(site, boot=-bf.interval * (1 + k / PHASES)) for k in range(PHASES)]
    return tuple(found + [one for quota in quotas for one in _limited(site, quota)])


def _intervals(cycles: Floats | None) -> set[float]:
    """Return the shortest usual time between cycles of the backfill loop that started jobs."""
    gaps = np.diff(np.unique(cycles)) if cycles is not None else np.zeros(0)
    gaps = gaps[gaps > SECOND]
    return {float(np.round(np.quantile(gaps, 0.25)))} if len(gaps) >= LEAST_CYCLES else set()


def _limited(site: Slurm, quota: float | Mapping[str, float]) -> list[Slurm]:
    """Return the site with a limit of GPUs for users that have none: for those that its accounts name, or for all."""
    if isinstance(quota, Mapping) and quota.keys() & {queue.user for queue in site.queues.values()}:
        queues = [
            replace(q, limits=replace(q.limits, resources={"gpu": quota[q.user], **q.limits.resources}))
            if q.user is not None and q.user in quota
            else q
            for q in site.queues.values()
        ]
        limited = replace(site, queues=QueueTree(queues))
        return [limited] if limited != site else []
    if any(part.qos for part in site.partitions) or not site.partitions:
        return []
    most = max(quota.values()) if isinstance(quota, Mapping) else quota
    partitions = tuple(replace(part, qos=IMPLIED) for part in site.partitions)
    implied = Qos(IMPLIED, per_user=Limits(resources={"gpu": most}))
    return [replace(site, partitions=partitions, qos=(*site.qos, implied))]


# -- what a diagnosis changes ------------------------------------------------------------------------------------------


def _without_limits(site: Slurm) -> Slurm:
    none = Limits()
    qos = tuple(replace(q, limits=none, per_user=none, per_account=none) for q in site.qos)
    queues = QueueTree(replace(queue, limits=none, per_user=none) for queue in site.queues.values())
    return replace(site, qos=qos, queues=queues)


RAISED = {  # a limit of the backfill loop, by its parameter: the field, and a value that never binds
    "bf_max_job_user": ("max_jobs_user", 0),
    "bf_max_job_part": ("max_jobs_partition", 0),
    "bf_max_job_user_part": ("max_jobs_user_partition", 0),
    "bf_max_job_assoc": ("max_jobs_account", 0),
    "bf_max_job_array_resv": ("max_tasks", 10_000),
    "bf_max_job_test": ("max_jobs", 10_000),
    "bf_max_job_start": ("max_start", 0),
}


def _raised(site: Slurm) -> Iterator[SettingChange]:
    """Give a change for each limit that may keep the backfill loop from looking at jobs."""
    for name, (field, most) in RAISED.items():
        now = getattr(site.backfill, field)
        if site.backfill.on and now not in (0, most):
            raised = replace(site, backfill=replace(site.backfill, **{field: most}))  # type: ignore[arg-type]
            yield SettingChange(
                name, f"no {name}", f"raise {name}, which is {now}", "a line of slurm.conf", (name,), raised,
                line=f"SchedulerParameters={','.join(scheduler_parameters(raised))}",
            )  # fmt: skip


def _shorter_loops(site: Slurm) -> Slurm:
    """Return it with loops that look every second, plan in seconds, and look as deep as by default at least."""
    usual, bf = BackfillLoop(), site.backfill
    main = replace(site.main, delay=0.0, depth=max(site.main.depth, MainLoop().depth), defer=False)
    bf = replace(bf, interval=min(bf.interval, SECOND), resolution=min(bf.resolution, SECOND), goes_on=True,
                 max_jobs=max(bf.max_jobs, usual.max_jobs), max_jobs_user=0, max_jobs_partition=0,
                 max_jobs_user_partition=0, max_jobs_account=0, max_start=0)  # fmt: skip
    return replace(site, main=main, backfill=bf)


def what_ifs(site: Slurm) -> tuple[SettingChange, ...]:
    """Return changes of its limits, loops, epilog and advance reservations."""
    shorter = _shorter_loops(site)
    return (
        SettingChange(
            "limits", "no limits of accounts, QOS and arrays", "raise the limits of accounts and QOS, and of arrays",
            "a setting", ("limit",), _without_limits(site), (pl.lit(0, dtype=pl.Int32).alias("array_limit"),),
        ),
        SettingChange(
            "loops", "shorter scheduler loops", "shorten the loops of the scheduler, as far as slurmctld keeps up",
            "a setting", ("scheduler", "reservation"), shorter,
            line=f"SchedulerParameters={','.join(scheduler_parameters(shorter))}",
        ),
        *_raised(site),
        SettingChange(
            "epilog", "no epilog", "shorten the epilog, or let it clean up later", "a change of the epilog",
            ("completing",), replace(site, epilog=0.0),
        ),
        SettingChange(
            "reservations", "no advance reservations", "make advance reservations shorter or smaller, or FLEX",
            "changes of the reservations", ("advance_reservation",), replace(site, reservations=()),
            (pl.lit(None, dtype=pl.String).alias("reservation"),),
        ),
    )  # fmt: skip
