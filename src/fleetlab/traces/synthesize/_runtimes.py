"""How long tasks run, and how they end.

The law is by type and gang size; inside a pool of both, a group's tasks are near one another, some groups more so than
others, as far as the published accuracy of predicting a task from its group says.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from fleetlab.traces.synthesize._binned import below, drawn, grid, means, ranked, summed
from fleetlab.traces.synthesize._groups import Groups
from fleetlab.traces.synthesize._joint import Bools, Floats, Ints, Wish, fit
from fleetlab.traces.synthesize._laws import CPU_ONLY, GANG_EDGES, GANGS, LAWS, PRINTED, TABLE, TYPES, curve
from fleetlab.traces.synthesize._requests import Shapes, shapes

EDGES = grid(3.0, PRINTED["gpu_run_time_max"], 96)
POOLS = (CPU_ONLY + 1) * len(GANGS)
DIGITISED, SURE = 3e-3, 5e-4

# Kinds of groups: their share, and how far a task's run time is from its group's, in logarithms.
STEADINESS = np.array([0.43, 0.35, 0.22])
SPREAD = np.array([0.05, 0.15, 0.8])
ALIKE = 64  # groups of about one weight that share out the quantiles among them


def pools(type: Ints, instances: Ints) -> Ints:
    """Number the pool of type and class of gang that a task runs in."""
    return type * len(GANGS) + np.searchsorted(GANG_EDGES, instances, side="right")


@dataclass(frozen=True, slots=True)
class Pooled:
    """What the law of shapes says of each pool: its share of tasks, and the mean size of a gang there."""

    share: Floats
    size: Floats


@cache
def pooled() -> Pooled:
    """Sum the law of shapes over pools."""
    law = shapes()
    pool = pools(law.type, law.instances)
    share = summed(pool, law.share, POOLS)
    sizes = summed(pool, law.share * law.instances, POOLS)
    return Pooled(share, sizes / np.maximum(share, 1e-300))


@cache
def run_times() -> Floats:
    """Fit pool × (completed, failed) × bin of run time to what is published by type, by task and by instance."""
    share, size = pooled().share, pooled().size
    gpu = np.arange(POOLS) < CPU_ONLY * len(GANGS)
    failed = TABLE["status"]["failed"] / (TABLE["status"]["failed"] + TABLE["status"]["completed"])
    some = (gpu / share[gpu].sum())[:, None, None]
    wishes = [
        Wish(np.array([0.0, 1.0])[None, :, None], failed, SURE),
        Wish(some * below(EDGES, PRINTED["gpu_run_time_median"]), 0.5, SURE),
        Wish(some * means(EDGES), PRINTED["gpu_run_time_mean"], 5.0),
    ]
    for percent, value in zip(*curve(LAWS["run_time"]["task"]), strict=True):
        wishes.append(Wish(below(EDGES, value)[None, None, :], percent / 100, DIGITISED))
    weight = (size / (share @ size))[:, None, None]
    for percent, value in zip(*curve(LAWS["run_time"]["instance"]), strict=True):
        wishes.append(Wish(weight * below(EDGES, value), percent / 100, DIGITISED))
    completed = np.array([1.0, 0.0])[None, :, None]
    for k, name in enumerate(TYPES):
        of_type = (np.arange(POOLS) // len(GANGS) == k)[:, None, None] * completed
        of_type = of_type / (share[np.arange(POOLS) // len(GANGS) == k].sum() * (1 - failed))
        for percent, value in zip(*curve(LAWS["run_time"]["type"][name]), strict=True):
            wishes.append(Wish(of_type * (below(EDGES, value) - percent / 100), 0.0, DIGITISED))
    return fit("run times", _prior(failed), wishes, given=share)


def _prior(failed: float) -> Floats:
    # The lognormal that fits the figure best as a whole; what fails, fails a little earlier.
    middle = np.log(EDGES[:-1] * EDGES[1:]) / 2
    ends = [np.exp(-0.5 * ((middle - mu) / 2.13) ** 2) for mu in (6.34, 5.95)]
    weight = np.array([1 - failed, failed])[:, None] * np.array([e / e.sum() for e in ends])
    return np.broadcast_to(weight, (POOLS, *weight.shape)) * 1.0


def services(groups: Groups, shapes: Shapes, of: Ints, known: Bools, rng: np.random.Generator) -> tuple[Floats, Bools]:
    """Run time of each task (`of` its group), and whether it failed; not a number where it is not `known`."""
    law = run_times()
    both = law.sum(axis=1)
    row = shapes.first[groups.kind]
    pool = pools(shapes.type[row], shapes.instances[row])
    base, part = _bases(groups, pool, groups.tasks * shapes.instances[row], rng)
    heart, low, high = (np.log(drawn(both, EDGES, pool, at)[0]) for at in (base, base - part / 2, base + part / 2))
    spread = SPREAD[rng.choice(len(SPREAD), size=len(heart), p=STEADINESS)]
    # Ranking will spread a group over its own part of the law: that much of its spread is there already.
    spread = np.sqrt(np.maximum(spread**2 - (high - low) ** 2 / 12, 0.0))
    mine = of[known]
    score = heart[mine] + spread[mine] * rng.standard_normal(len(mine))
    value, bin = drawn(both, EDGES, pool[mine], ranked(pool[mine], score))
    chance = law[:, 1] / np.maximum(both, 1e-300)
    service, failed = np.full(len(of), np.nan), np.zeros(len(of), dtype=bool)
    service[known] = np.maximum(1.0, np.rint(value))
    failed[known] = rng.random(len(mine)) < chance[pool[mine], bin]
    return service, failed


def _bases(groups: Groups, pool: Ints, weight: Ints, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Give each group a quantile and a part of its pool, where all groups lie side by side in some order.

    Groups of like weight share out the order among them, so that no end of the law hangs on a few heavy ones.
    """
    by_weight = np.lexsort((rng.random(len(pool)), -weight, pool))
    block = np.empty(len(pool), dtype=np.int64)
    # Blocks must not cross pools.
    block[by_weight] = np.arange(len(pool)) // ALIKE
    _, block = np.unique(block * POOLS + pool, return_inverse=True)
    order = np.lexsort((ranked(block, rng.random(len(pool))), pool))
    total = summed(pool, groups.tasks, POOLS)
    base = np.empty(len(pool))
    base[order] = np.cumsum(groups.tasks[order]) - groups.tasks[order] / 2
    return (base - (np.cumsum(total) - total)[pool]) / total[pool], groups.tasks / total[pool]
