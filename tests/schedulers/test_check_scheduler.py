"""Every scheduler keeps the laws of a simulation, and each law refuses a scheduler that breaks it."""

import itertools
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest

from fleetlab import PolicyError, Scheduler, WakeAt, check_scheduler
from fleetlab.core import Feature
from fleetlab.schedulers.kueue.config import ClusterQueue, Kueue, ResourceGroup, ResourceQuota
from fleetlab.sim.engine import play as engine

GPU = "nvidia.com/gpu"
QUOTA = ResourceGroup((GPU,), {"any": {GPU: ResourceQuota(12)}})


class Greedy:
    def decide(self, view):
        return [start for job in view.waiting if (start := view.try_start(job))]


@dataclass(frozen=True)
class WidestFirst(Scheduler):
    name: ClassVar[str] = "widest-first"
    title: ClassVar[str] = "Widest First"
    honors: ClassVar[frozenset[Feature]] = frozenset({Feature.FRACTIONS, Feature.GANGS})

    def order(self, scenario, world):
        return -(world.shapes.gpus[world.shape] * world.instances).astype(np.float64)

    def simulate(self, scenario, world, *, progress=None, draws=None):
        return engine.play(
            world, order=self.order(scenario, world), backfill="greedy", placement="best_fit", seed=scenario.seed,
            until=self.until(scenario),
        )  # fmt: skip

    def until(self, scenario):
        return scenario.until


KEEP = {
    "its own": Greedy, "a class of the contract": WidestFirst(), "event": "event", "kubernetes": "kubernetes",
    "kueue": Kueue.of(ClusterQueue("all", (QUOTA,))), "volcano": "volcano", "kai": "kai",
}  # fmt: skip


@pytest.mark.parametrize("which", KEEP)
def test_a_scheduler_keeps_the_laws(which):
    check_scheduler(KEEP[which])


# -- those that break one ----------------------------------------------------------------------------------------------


class Forgets:
    """Starts only jobs that fit when they arrive."""

    def decide(self, view):
        return [start for job in view.arrived if (start := view.try_start(job))]


class Counts(Greedy):
    """Another order in each simulation."""

    simulations = itertools.count()

    def __init__(self):
        self.number = None

    def decide(self, view):
        self.number = next(self.simulations) if self.number is None else self.number
        jobs = sorted(view.waiting, key=lambda job: (job.id * (self.number % 7 + 3)) % 11)
        return [start for job in jobs if (start := view.try_start(job))]


class Peeks:
    """Looks behind the view at how long the last job runs."""

    def decide(self, view):
        last = view._loop.world.runtime[-1]
        jobs = sorted(view.waiting, key=lambda job: (job.id * (int(last) % 7 + 3)) % 11)
        return [start for job in jobs if (start := view.try_start(job))]


class KnowsRunTimes:
    """The job first that runs for the shortest time, though that is not known."""

    def decide(self, view):
        jobs = sorted(view.waiting, key=lambda job: view._loop.world.runtime[job.id])
        return [start for job in jobs if (start := view.try_start(job))]


class NeverStops(WidestFirst):
    def until(self, scenario):
        return None


class KnowsTheLast(WidestFirst):
    def order(self, scenario, world):
        return -super().order(scenario, world) if world.runtime[-1] > 100.0 else super().order(scenario, world)


class Twice(WidestFirst):
    """Every job where the first is."""

    def simulate(self, scenario, world, *, progress=None, draws=None):
        schedule = super().simulate(scenario, world)
        return replace(schedule, where=np.zeros_like(schedule.where), got=np.minimum(schedule.got, 1))


class Shortens(WidestFirst):
    def simulate(self, scenario, world, *, progress=None, draws=None):
        schedule = super().simulate(scenario, world)
        return replace(schedule, end=(schedule.start + schedule.end) / 2)


class IgnoresNodeEvents(WidestFirst):
    honors: ClassVar[frozenset[Feature]] = WidestFirst.honors | {Feature.NODE_EVENTS}


class IgnoresRunningJobs(WidestFirst):
    honors: ClassVar[frozenset[Feature]] = WidestFirst.honors | {Feature.RUNNING_JOBS}


class OnlyWakes:
    def decide(self, view):
        return [WakeAt(view.now + 3600.0)]


BREAK = {
    "forgets": (Forgets, "every job runs to its end: job [0-9]+ never starts at"),
    "never starts any": (OnlyWakes, "while no job runs or comes, and starts none"),
    "another each time": (Counts, "the same seed gives the same schedule: job [0-9]+ starts on"),
    "peeks": (Peeks, "nothing that a job brings is known before it arrives, as its runtime: job"),
    "knows run times": (KnowsRunTimes, "how long a job runs is not known before it ends, by `estimate`: job"),
    "ignores until": (NeverStops(), "nothing happens after `until`: job [0-9]+ starts or ends after 150 s"),
    "knows the last": (KnowsTheLast(), "nothing that a job brings is known before it arrives, as its runtime"),
    "allocates twice": (Twice(), "nothing is allocated twice: job [0-9]+ on node"),
    "shortens": (Shortens(), "a job runs as long as its work takes: job [0-9]+ has run"),
    "ignores running jobs": (IgnoresRunningJobs(), "a job that runs when a simulation begins goes on where it is: job"),
    "ignores node events": (IgnoresNodeEvents(), "a node that is (down|drained): job [0-9]+ "),
}


@pytest.mark.parametrize("which", BREAK)
def test_a_scheduler_that_breaks_a_law_is_refused(which, monkeypatch):
    monkeypatch.setattr("fleetlab.sim.kernel.decide.MOST_IDLE", 500)
    scheduler, law = BREAK[which]
    with pytest.raises(PolicyError, match=law):
        check_scheduler(scheduler)
