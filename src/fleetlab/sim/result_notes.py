"""What a reader must know of a run: how it began, what did not end, which rules of the site do not hold."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fleetlab.core import Cluster, Scenario
from fleetlab.core.durations import plural
from fleetlab.core.schedulers import Feature, Scheduler
from fleetlab.sim.layout import RUNNING, WAITING, WHOLE
from fleetlab.sim.schedule import Schedule
from fleetlab.sim.world import World


def timed_out(world: World, played: Schedule) -> NDArray[np.bool_]:
    """Which jobs their time limits have ended."""
    if played.timed_out is not None:
        return np.asarray(played.timed_out > 0)
    return np.asarray((world.to_end > world.runtime) & ~np.isnan(played.end))


def scheduler_notes(scenario: Scenario | None, cluster: Cluster) -> list[str]:
    """Return what of the configuration of a scheduler does not hold here, or holds otherwise than one may think."""
    if scenario is None:
        return []
    if scenario.scheduler is None:
        own = scenario.trace.scheduler
        return [] if own is None else [own.not_simulated()]
    return [*_instance_notes(scenario, scenario.scheduler), *scenario.scheduler.notes(scenario, cluster)]


def _instance_notes(s: Scenario, scheduler: Scheduler) -> list[str]:
    """Say what became of jobs with several instances, and with fractions of a GPU."""
    notes, one = [], scheduler.schedules.removesuffix("s")
    if s.split_instances is not None:
        split = int((s.trace.workload.frame["instances"] > 1).sum())
        notes.append(
            f"{scheduler.title} places {one} by {one} and knows no gangs: the instances of {plural(split, 'job')} are "
            f"{one}s that start and end on their own, and a row here is a {one}"
        )
    fractions = int(s.workload.frame["gpu_milli"].is_between(1, WHOLE - 1).sum())
    if Feature.FRACTIONS not in scheduler.honors and fractions:
        notes.append(
            f"{scheduler.title} counts whole GPUs: {plural(fractions, one)} that request a part of one hold it all"
        )
    return notes


def beginning(world: World, scenario: Scenario | None) -> str:
    """Return what is in the cluster when the clock starts."""
    if world.before and scenario is not None and scenario.before is not None:
        return f"warm start: {scenario.before.meaning}"
    if world.frame["initial"].any():
        there = int(world.frame["initial"].sum())
        return f"{plural(there, 'job')} that the log begins with are placed first; their waits are not measured"
    return "the cluster starts empty: waits early in the run are too low"


def in_part(world: World, played: Schedule) -> int:
    """How many jobs of those measured ran with fewer instances than they ask for."""
    if played.segments is None:
        return 0
    fewer = played.segments.instances(world.instances) < world.instances[played.segments.job]
    return int(np.isin(world.measured, played.segments.job[fewer]).sum())


def unfinished(world: World, played: Schedule) -> str:
    """Return how many jobs run, wait or are yet to be submitted when the simulation stops; empty if none."""
    late, status = (world.submitted > played.stopped)[world.measured], played.status[world.measured]
    counts = {
        "running": int((status == RUNNING).sum()),
        "pending": int(((status == WAITING) & ~late).sum()),
        "not yet submitted": int(late.sum()),
    }
    return ", ".join(f"{count:,} {what}" for what, count in counts.items() if count)
