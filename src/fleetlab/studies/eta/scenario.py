"""The scenario of replays: the jobs of an instant, on a clock on which it is second 0."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl

from fleetlab.core import Scenario, Workload
from fleetlab.core.catalog import SHARINGS
from fleetlab.core.slurm import Slurm
from fleetlab.sim.world import World, world
from fleetlab.studies.eta.history import Snapshot
from fleetlab.studies.eta.jobs import NODE, Present


def scenario_of(present: Present, frame: pl.DataFrame, horizon: float | None) -> Scenario:
    """Return the scenario of these jobs, up to a horizon."""
    given, log = present.scenario, present.scenario.workload
    epoch = None if log.epoch is None else log.epoch + present.snapshot.at
    own = given.replace(estimate="oracle", events=(), window="", warm_up="none")
    if given.slurm is not None:
        own = own.replace(scheduler=_as_of(given.slurm, present.snapshot, float(frame["submit"].min() or 0.0)))  # type: ignore[arg-type]
    if present.bound:
        named = given.cluster.frame.with_columns(features=pl.concat_list("features", NODE + pl.col("node")))
        own = replace(own.replace(cluster=replace(given.cluster, frame=named)), nodes="")
    made = own.on(Workload(frame, log.source, epoch, log.zone), np.arange(frame.height))
    return replace(made, until=horizon)


def _as_of(site: Slurm, snapshot: Snapshot, first: float) -> Slurm:
    """Return a site's Slurm on a clock on which the instant is second 0 and `first` the first submission.

    Its backfill loop goes on from the last cycle in which it started a job, where the log tells that.
    """
    at, cycles, every = snapshot.at, snapshot.history.cycles, max(1.0, site.backfill.interval)
    boot = None if site.boot is None else site.boot - at
    if cycles is not None and (count := int(np.searchsorted(cycles, at, side="right"))):
        last = float(cycles[count - 1]) - at
        boot = last - every * np.ceil((last - first) / every + 2)
    kept = tuple(replace(r, begin=r.begin - at, end=r.end - at) for r in site.reservations)
    return replace(site, boot=boot, reservations=kept)


def world_of(scenario: Scenario) -> World:
    """Return the world of the jobs of a scenario, whose times and estimates are not yet known."""
    return world(scenario.workload, scenario.cluster, part=SHARINGS[scenario.policy.sharing].granularity)
