"""How schedulers with rules of their own are simulated: one entry each.

An entry takes the scenario, its world and progress, and hands back what every loop does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl

from fleetlab.core import PolicyError, Progress, Scenario
from fleetlab.core.durations import plural
from fleetlab.core.kai import Kai
from fleetlab.core.kubernetes import KubeScheduler
from fleetlab.core.kueue import Kueue
from fleetlab.core.schedulers import Scheduler
from fleetlab.core.slurm import Slurm
from fleetlab.core.volcano import Volcano
from fleetlab.sim.layout import WHOLE
from fleetlab.sim.schedule import Played
from fleetlab.sim.world import World

Player = Callable[[Any, Scenario, World, Progress | None, int | None], Played]


def play_by(scheduler: Scheduler, s: Scenario, jobs: World, progress: Progress | None, draws: int | None) -> Played:
    """Simulate a scenario by a scheduler of its own rules; `draws` is how many orders within a second Slurm plays."""
    if s.policy.queues is not None:
        msg = f"{scheduler.title} takes queues from its own configuration, and no others"
        raise PolicyError(msg, hint="scheduler=event simulates queues; or leave `queues` out")
    return PLAYERS[type(scheduler)](scheduler, s, jobs, progress, draws)


def _slurm(site: Slurm, s: Scenario, jobs: World, progress: Progress | None, draws: int | None) -> Played:
    from fleetlab.sim.jit import compile_notice
    from fleetlab.sim.slurm.play import play

    with compile_notice():
        return play(
            jobs, site, s.cluster, events=s.node_events, seed=s.seed, epoch=s.workload.epoch, until=s.until,
            progress=progress, draws=draws,
        )  # fmt: skip


def _kubernetes(profile: KubeScheduler, s: Scenario, jobs: World, progress: Progress | None, _: int | None) -> Played:
    from fleetlab.sim.kubernetes.play import play
    from fleetlab.sim.kubernetes.specs import Specs

    _refuse_events(profile, s)
    return play(jobs, profile, s.cluster, specs=Specs.of(s), seed=s.seed, until=s.until, progress=progress)


def _kueue(site: Kueue, s: Scenario, jobs: World, progress: Progress | None, _: int | None) -> Played:
    from fleetlab.sim.kubernetes.specs import Specs
    from fleetlab.sim.kueue.play import play

    _refuse_events(site, s)
    return play(jobs, site, s.cluster, specs=Specs.of(s), seed=s.seed, until=s.until, progress=progress)


def _gangs(site: Volcano | Kai, s: Scenario, jobs: World, progress: Progress | None, _: int | None) -> Played:
    from fleetlab.sim.gangs.world import play
    from fleetlab.sim.kubernetes.specs import Specs

    _refuse_events(site, s)
    return play(jobs, site, s.cluster, specs=Specs.of(s), seed=s.seed, until=s.until, progress=progress)


def _refuse_events(scheduler: Scheduler, s: Scenario) -> None:
    if s.events or s.policy.recovery:
        msg = f"{scheduler.title} is simulated without node events and checkpoints"
        raise PolicyError(msg, hint="leave events and recovery out, or simulate with scheduler=event")


PLAYERS: dict[type, Player] = {
    Slurm: _slurm,
    KubeScheduler: _kubernetes,
    Kueue: _kueue,
    Volcano: _gangs,
    Kai: _gangs,
}


def instances_apart(frame: pl.DataFrame) -> pl.DataFrame:
    """Return a row of one instance for each instance of jobs."""
    rows = np.repeat(np.arange(frame.height), frame["instances"].to_numpy())
    return frame[rows].with_columns(instances=pl.lit(1, dtype=frame.schema["instances"]))


def instance_notes(s: Scenario) -> list[str]:
    """Say what became of jobs with several instances, and with fractions of a GPU."""
    notes: list[str] = []
    if s.scheduler is None:
        return notes
    if s.instances_apart is not None:
        split = int((s.trace.workload.frame["instances"] > 1).sum())
        notes.append(
            f"{s.scheduler.title} places pod by pod and knows no gangs: the instances of {plural(split, 'job')} are "
            "pods that start and end on their own, and a row here is a pod"
        )
    fractions = int(s.workload.frame["gpu_milli"].is_between(1, WHOLE - 1).sum())
    if s.scheduler.whole_gpus and fractions:
        notes.append(
            f"{s.scheduler.title} counts whole GPUs: {plural(fractions, 'pod')} that request a part of one hold it all"
        )
    return notes
