"""Some jobs of a world, each as often as wanted, with other times: many worlds of the same jobs at little cost.

Making a world from a workload takes longer than to play a small one: what jobs request and what nodes there are is the
same in all worlds of one set of jobs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fleetlab.sim import layout
from fleetlab.sim.layout import Floats, Ints
from fleetlab.sim.world import Origin, World

SAME = ("learner", "shape", "gpu_milli", "kind", "user", "priority", "queue", "of_types", "requested")


@dataclass(frozen=True, slots=True, eq=False)
class Times:
    """When jobs come and how long they run, in seconds, one entry a job."""

    submitted: Floats
    look: Floats  # when the scheduler first looks at it
    runtime: Floats  # to its time limit at most
    estimate: Floats  # what the scheduler takes it to run
    latency: Floats  # of its start-up, before it runs


def take(
    world: World, rows: Ints, times: Times, *, frame: bool, made: dict[str, Any] | None = None
) -> tuple[World, Ints]:
    """Return a world of these rows in order of arrival, and where each of them is in it.

    `frame` keeps all columns of the jobs, which queues and rules of a user's own need. In `made` schedulers keep what
    they make of the jobs of `world`, for others that are taken from it.
    """
    order = np.argsort(times.look, kind="stable")
    place = np.empty(len(rows), dtype=np.int64)
    place[order] = np.arange(len(rows))
    mine = rows[order]
    look, runtime = _on_tick(times.look[order]), _on_tick((times.runtime + times.latency)[order])
    instances = world.instances[mine]
    columns = {name: getattr(world, name)[mine] for name in SAME}
    jobs = world.frame[mine] if frame else world.frame.select("job")[mine]
    part = replace(
        world, frame=jobs, measured=np.arange(len(rows)), refused=world.refused.clear(),
        submit=look, submitted=_on_tick(times.submitted[order]), eligible=look,
        runtime=runtime, to_end=runtime, estimate=_on_tick((times.estimate + times.latency)[order]),
        instances=instances, first=np.append(0, np.cumsum(instances)),
        latency=_on_tick(times.latency[order]), unseen=np.zeros(len(rows)),
        origin=None if made is None else Origin(world, mine, made), **columns,
    )  # fmt: skip
    return part, place


def _on_tick(seconds: Floats) -> Floats:
    return np.asarray(np.rint(seconds / layout.TICK) * layout.TICK)
