"""The built-in queue orders, each a policy of a few lines: the lowest key first, ties by arrival.

What they mean is here. Those whose keys do not change while a job waits are expressions of columns, and the loops get
the keys of all jobs at once (`fixed_ranks`); for the others the loops have quicker ways.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fleetlab.sim.jit import inner, value
from fleetlab.sim.layout import WHOLE, Floats, Ints
from fleetlab.sim.policy import BuiltInOrder, State, order, state_of
from fleetlab.sim.world import World

ENOUGH = 3600.0  # GPU-seconds: whoever has had less goes first under `las`


@order
def fifo(s: State, job: int, now: float) -> float:
    """First come, first served."""
    return s.submit[job]


@order
def sjf(s: State, job: int, now: float) -> float:
    """Shortest estimated runtime first."""
    return s.estimate[job]


@order
def smallest(s: State, job: int, now: float) -> float:
    """The fewest GPUs first, those of the whole gang."""
    return s.instances[job] * s.gpu_milli[job]


@order
def largest(s: State, job: int, now: float) -> float:
    """The most GPUs first, those of the whole gang."""
    return -s.instances[job] * s.gpu_milli[job]


@order
def priority(s: State, job: int, now: float) -> float:
    """The highest priority first."""
    return -s.priority[job]


@order
def fair(s: State, job: int, now: float) -> float:
    """The user who holds least first, by dominant share."""
    return s.usage[s.user[job]]


@order
def srpt(s: State, job: int, now: float) -> float:
    """Shortest estimated remaining runtime first."""
    return s.remaining[job]


def aging(weight: float = 1.0) -> order:
    """Shortest first, but each second of waiting takes `weight` seconds off."""

    # All wait at the same pace, so who leads whom never changes: the same ranking as estimate - weight × waited.
    @order
    def aging(s: State, job: int, now: float) -> float:
        """Shortest first, but waiting counts."""
        return s.estimate[job] + weight * s.submit[job]

    return aging


def las(enough: float = ENOUGH) -> order:
    """Least attained service first, in two queues: who has had fewer than `enough` GPU-seconds goes first."""

    @order
    def las(s: State, job: int, now: float) -> float:
        """Least attained service first, in two queues."""
        return s.attained[job] >= enough

    return las


@inner
def wfp3(s: State, job: int, now: float) -> float:
    """The most (wait / estimated runtime)³ × size first: large jobs, once they have waited as long as they run."""
    # The size: GPUs in all, or instances where they have none. No function of its own: plain Python asks this one too.
    size = s.instances[job] * (s.gpu_milli[job] if s.gpu_milli[job] > 0 else WHOLE) / WHOLE
    waited = (now - s.submit[job]) / max(1.0, s.estimate[job])
    return -waited * waited * waited * size


@inner
def unicef(s: State, job: int, now: float) -> float:
    """The most wait / (log2(size) × estimated runtime) first; a size below 2, whose logarithm is 0, counts as 2."""
    # Cobalt rounds the logarithm up, and counts it from its smallest partition: 64 nodes are what 2 GPUs are here.
    size = s.instances[job] * (s.gpu_milli[job] if s.gpu_milli[job] > 0 else WHOLE) / WHOLE
    return (s.submit[job] - now) / (math.log2(max(2.0, size)) * max(1.0, s.estimate[job]))


@value
def rank_wfp3(s: State, jobs: Ints, n: int, now: float, keys: Floats) -> int:
    """Fill in the keys of `n` jobs."""
    for k in range(n):
        keys[k] = wfp3(s, jobs[k], now)
    return 1


@value
def rank_unicef(s: State, jobs: Ints, n: int, now: float, keys: Floats) -> int:
    """Fill in the keys of `n` jobs."""
    for k in range(n):
        keys[k] = unicef(s, jobs[k], now)
    return 1


TIMED = {"wfp3": BuiltInOrder(wfp3, rank_wfp3), "unicef": BuiltInOrder(unicef, rank_unicef)}
BY_NAME = {
    "fifo": fifo,
    "sjf": sjf,
    "smallest": smallest,
    "largest": largest,
    "priority": priority,
    "aging": aging(),
    "las": las(),
    "fair": fair,
    "srpt": srpt,
    **TIMED,
}


def fixed_ranks(name: str, columns: Any) -> Floats:  # noqa: ANN401
    """Return the rank of every job by an order whose ranks do not change; `columns` has the jobs as `State` has them.

    >>> from types import SimpleNamespace
    >>> fixed_ranks("largest", SimpleNamespace(instances=np.array([1, 2]), gpu_milli=np.array([500, 1000])))
    array([ -500., -2000.])
    """
    if name == "fifo":  # ties go by arrival
        return np.zeros(len(columns.submit))
    return np.asarray(BY_NAME[name].rank(columns, slice(None), 0.0), dtype=np.float64)


def world_ranks(name: str, world: World) -> Floats:
    """Return the ranks of a world's jobs, as `fixed_ranks`; without the estimate where that is learnt."""
    count = len(world.submit)
    if name == "fifo":
        return np.zeros(count)
    blank = np.zeros(count)
    estimate = world.estimate if world.learners == 0 else blank
    usage = np.zeros(len(world.users))
    return fixed_ranks(
        name, state_of(world, world.nodes, estimate=estimate, attained=blank, remaining=blank, usage=usage)
    )
