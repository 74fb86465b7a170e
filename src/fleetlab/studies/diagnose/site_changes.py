"""Changes of a site's Slurm that a diagnosis simulates: its limits, loops, epilog and advance reservations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import polars as pl

from fleetlab.core import Scenario
from fleetlab.core.queues import Limits, QueueTree
from fleetlab.core.slurm import Slurm

NOT_SLURM = "the scenario has no Slurm of its own"
SECOND = 1.0  # s: between two looks of loops that are quick


@dataclass(frozen=True, slots=True)
class SiteChange:
    """One change: what to do, what it requires, which wait reasons it removes, and how it is made."""

    name: str
    title: str
    action: str
    requires: str
    removes: tuple[str, ...]
    change: Callable[[Slurm], Slurm]
    columns: tuple[pl.Expr, ...] = ()  # of jobs that change with it

    def apply(self, scenario: Scenario) -> Scenario:
        """Return the scenario with the change."""
        site = scenario.slurm
        assert site is not None
        workload = scenario.workload
        frame = workload.frame.with_columns(*self.columns)
        changed = scenario.replace(scheduler=self.change(site))
        return changed if frame.equals(workload.frame) else changed.on(replace(workload, frame=frame))

    def changes_nothing(self, scenario: Scenario) -> bool:
        """Return whether the site has nothing to change, or no Slurm."""
        site = scenario.slurm
        if site is None:
            return True
        jobs = scenario.workload.frame
        return self.change(site) == site and jobs.with_columns(*self.columns).equals(jobs)


def _without_limits(site: Slurm) -> Slurm:
    none = Limits()
    qos = tuple(replace(q, limits=none, per_user=none, per_account=none) for q in site.qos)
    queues = QueueTree(replace(queue, limits=none, per_user=none) for queue in site.queues.values())
    return replace(site, qos=qos, queues=queues)


def _at_once(site: Slurm) -> Slurm:
    bf, main = site.backfill, site.main
    main = replace(main, delay=0.0, interval=min(main.interval, 5 * SECOND), depth=max(main.depth, 10_000), defer=False)
    bf = replace(bf, interval=min(bf.interval, SECOND), max_jobs=max(bf.max_jobs, 10_000), max_jobs_user=0,
                 max_jobs_partition=0, max_jobs_user_partition=0, max_jobs_account=0, max_start=0)  # fmt: skip
    return replace(site, main=main, backfill=bf)


SITE_CHANGES = (
    SiteChange(
        "limits", "no limits of accounts, QOS and arrays", "raise the limits of accounts and QOS, and of arrays",
        "a setting", ("limit",), _without_limits, (pl.lit(0, dtype=pl.Int32).alias("array_limit"),),
    ),
    SiteChange(
        "loops", "a scheduler that looks every second",
        "shorten bf_interval and batch_sched_delay, or raise bf_max_job_test, as far as slurmctld keeps up",
        "a setting", ("scheduler",), _at_once,
    ),
    SiteChange(
        "epilog", "no epilog", "shorten the epilog, or let it clean up later", "a change of the epilog",
        ("completing",), lambda site: replace(site, epilog=0.0),
    ),
    SiteChange(
        "reservations", "no advance reservations", "make advance reservations shorter or smaller, or FLEX",
        "changes of the reservations", ("advance_reservation",), lambda site: replace(site, reservations=()),
        (pl.lit(None, dtype=pl.String).alias("reservation"),),
    ),
)  # fmt: skip
