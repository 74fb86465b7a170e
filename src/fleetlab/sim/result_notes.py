"""What a reader must know of a run: how it began, what did not end, which rules of the site do not hold."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fleetlab.core import Cluster, Scenario
from fleetlab.core.durations import plural
from fleetlab.core.names import clip
from fleetlab.core.slurm import Slurm
from fleetlab.sim.layout import RUNNING, WAITING
from fleetlab.sim.schedule import Played
from fleetlab.sim.schedulers import instance_notes
from fleetlab.sim.site_notes import site_notes
from fleetlab.sim.world import World

WITHOUT_SITE = (
    "the site's Slurm is not simulated: dependencies are met when the log saw it, and limits, array throttles, states "
    "of partitions and reservations of the site do not hold"
)


def timed_out(world: World, played: Played) -> NDArray[np.bool_]:
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
        return [] if own is None else [WITHOUT_SITE if isinstance(own, Slurm) else f"{own.title} is not simulated"]
    if scenario.slurm is None:
        return [*instance_notes(scenario), *site_notes(scenario)]
    there = set(cluster.frame["partitions"].explode())
    without = sorted(part.name for part in scenario.slurm.partitions if part.name not in there)
    if not without:
        return []
    nodes = "nodes and their partitions are those of the trace or of `cluster`, not of the configuration"
    return [f"no node is in these partitions of the configuration: {clip(', '.join(without))}; {nodes}"]


def beginning(world: World, scenario: Scenario | None) -> str:
    """Return what is in the cluster when the clock starts."""
    if world.before and scenario is not None and scenario.before is not None:
        return f"warm start: {scenario.before.meaning}"
    if world.frame["initial"].any():
        there = int(world.frame["initial"].sum())
        return f"{plural(there, 'job')} that the log begins with are placed first; their waits are not measured"
    return "the cluster starts empty: waits early in the run are too low"


def in_part(world: World, played: Played) -> int:
    """How many jobs of those measured ran with fewer instances than they ask for."""
    if played.segments is None:
        return 0
    fewer = played.segments.instances(world.instances) < world.instances[played.segments.job]
    return int(np.isin(world.measured, played.segments.job[fewer]).sum())


def unfinished(world: World, played: Played) -> str:
    """Return how many jobs run, wait or are yet to be submitted when the simulation stops; empty if none."""
    late, status = (world.submitted > played.stopped)[world.measured], played.status[world.measured]
    counts = {
        "running": int((status == RUNNING).sum()),
        "pending": int(((status == WAITING) & ~late).sum()),
        "not yet submitted": int(late.sum()),
    }
    return ", ".join(f"{count:,} {what}" for what, count in counts.items() if count)
