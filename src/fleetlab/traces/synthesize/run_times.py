"""How long jobs run, and how they end.

The law is by type and gang size; inside a pool of both, a group's jobs are near one another, some groups more so than
others, as far as the published accuracy of predicting a job from its group says.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from fleetlab.traces.synthesize.groups import Groups
from fleetlab.traces.synthesize.joint_law import (
    CPU_ONLY,
    GANG_EDGES,
    GANGS,
    LAWS,
    PRINTED,
    TABLE,
    TYPES,
    Bools,
    Floats,
    Ints,
    Target,
    at_quantiles,
    below,
    curve,
    fit,
    grid,
    means,
    ranked,
    summed,
)
from fleetlab.traces.synthesize.requests import RequestShapes, shapes

EDGES = grid(3.0, PRINTED["gpu_run_time_max"], 96)
POOLS = (CPU_ONLY + 1) * len(GANGS)
DIGITISED, SURE = 3e-3, 5e-4

# Kinds of groups: their share, and how far a job's run time is from its group's, in logarithms.
STEADINESS = np.array([0.43, 0.35, 0.22])
SPREAD = np.array([0.05, 0.15, 0.8])
ALIKE = 64  # groups of about one weight that share out the quantiles among them

NEAR = 0.02  # how far the groups of a user lie about the user's own place, of the way from the shortest to the longest
OTHER = 0.5  # how far the second half of a group may lie from the first, to both sides together
HELD = tuple(TYPES.index(name) for name in PRINTED["gpus_allocated"])  # types of which it is published
EVEN = 0.04  # the part by which what a type's jobs hold may miss its mean
# How often run times are drawn for that: at least, at most, and how many in all; of fewer jobs more is left to chance.
LEAST, MOST, WORK = 4, 100, 2_000_000


def pools(type: Ints, instances: Ints) -> Ints:
    """Number the pool of type and class of gang that a job runs in."""
    return type * len(GANGS) + np.searchsorted(GANG_EDGES, instances, side="right")


@dataclass(frozen=True, slots=True)
class PoolShares:
    """What the law of shapes says of each pool: its share of jobs, and the mean size of a gang there."""

    share: Floats
    size: Floats


@cache
def pooled() -> PoolShares:
    """Sum the law of shapes over pools."""
    law = shapes()
    pool = pools(law.type, law.instances)
    share = summed(pool, law.share, POOLS)
    sizes = summed(pool, law.share * law.instances, POOLS)
    return PoolShares(share, sizes / np.maximum(share, 1e-300))


@cache
def run_times() -> Floats:
    """Fit pool × (completed, failed) × bin of run time to what is published by type, by job and by instance."""
    share, size = pooled().share, pooled().size
    gpu = np.arange(POOLS) < CPU_ONLY * len(GANGS)
    failed = TABLE["status"]["failed"] / (TABLE["status"]["failed"] + TABLE["status"]["completed"])
    some = (gpu / share[gpu].sum())[:, None, None]
    constraints = [
        Target(np.array([0.0, 1.0])[None, :, None], failed, SURE),
        Target(some * below(EDGES, PRINTED["gpu_run_time_median"]), 0.5, SURE),
        Target(some * means(EDGES), PRINTED["gpu_run_time_mean"], 5.0),
    ]
    for percent, value in zip(*curve(LAWS["run_time"]["job"]), strict=True):
        constraints.append(Target(below(EDGES, value)[None, None, :], percent / 100, DIGITISED))
    weight = (size / (share @ size))[:, None, None]
    for percent, value in zip(*curve(LAWS["run_time"]["instance"]), strict=True):
        constraints.append(Target(weight * below(EDGES, value), percent / 100, DIGITISED))
    completed = np.array([1.0, 0.0])[None, :, None]
    for k, name in enumerate(TYPES):
        of_type = (np.arange(POOLS) // len(GANGS) == k)[:, None, None] * completed
        of_type = of_type / (share[np.arange(POOLS) // len(GANGS) == k].sum() * (1 - failed))
        for percent, value in zip(*curve(LAWS["run_time"]["type"][name]), strict=True):
            constraints.append(Target(of_type * (below(EDGES, value) - percent / 100), 0.0, DIGITISED))
    return fit("run times", _prior(failed), constraints, marginal=share)


def _prior(failed: float) -> Floats:
    # The lognormal that fits the figure best as a whole; what fails, fails a little earlier.
    middle = np.log(EDGES[:-1] * EDGES[1:]) / 2
    ends = [np.exp(-0.5 * ((middle - mu) / 2.13) ** 2) for mu in (6.34, 5.95)]
    weight = np.array([1 - failed, failed])[:, None] * np.array([e / e.sum() for e in ends])
    return np.broadcast_to(weight, (POOLS, *weight.shape)) * 1.0


@dataclass(frozen=True, slots=True)
class TypeGroups:
    """The groups that run on one type, one entry a group."""

    jobs: Ints
    pool: Ints
    instances: Ints
    place: Floats  # of its user: some run short jobs and some run long ones, on whatever type


def sample_run_times(
    groups: Groups, shapes: RequestShapes, shape: Ints, has_runtime: Bools, rng: np.random.Generator
) -> tuple[Floats, Bools]:
    """Run time of each job, and whether it failed; not a number without `has_runtime`. Jobs stand by group."""
    law = run_times()
    chance = law[:, 1] / np.maximum(law.sum(axis=1), 1e-300)
    row, of = shapes.first[groups.kind], np.repeat(np.arange(len(groups.jobs)), groups.jobs)
    type, instances = shapes.type[row], shapes.instances[row]
    requests, due = np.stack([shapes.gpu_milli, shapes.cpu_milli]) * shapes.instances, held_a_job()
    runtime, failed = np.full(len(of), np.nan), np.zeros(len(of), dtype=bool)
    place = rng.random(int(groups.user.max()) + 1)[groups.user]
    # With another GPU share a group runs for another time.
    place = np.clip(place + groups.second * OTHER * (rng.random(len(place)) - 0.5), 0.0, 1.0)
    for k, stream in enumerate(rng.spawn(CPU_ONLY + 1)):
        mine, which = type == k, np.flatnonzero((type[of] == k) & has_runtime)
        if not len(which):
            continue
        members = TypeGroups(groups.jobs[mine], pools(type, instances)[mine], instances[mine], place[mine])
        mine_of = (np.cumsum(mine) - 1)[of[which]]
        target = due[:, k] * np.count_nonzero(has_runtime) if k in HELD else None
        runtime[which], bin = _spread_evenly(members, mine_of, requests[:, shape[which]], target, stream)
        failed[which] = stream.random(len(which)) < chance[members.pool[mine_of], bin]
    return runtime, failed


@cache
def held_a_job() -> Floats:
    """Milli-seconds of GPUs and of CPUs that each type is held for, a job of any type, as the laws have it."""
    law, both = shapes(), run_times().sum(axis=1)
    mean = both @ means(EDGES) / np.maximum(both.sum(axis=1), 1e-300)
    seconds = law.share * law.instances * mean[pools(law.type, law.instances)]
    return np.stack([summed(law.type, seconds * amount, CPU_ONLY + 1) for amount in (law.gpu_milli, law.cpu_milli)])


def _spread_evenly(
    members: TypeGroups, of: Ints, requests: Ints, target: Floats | None, rng: np.random.Generator
) -> tuple[Floats, Ints]:
    """Draw run times until the GPUs and CPUs of `requests` are held about as long as `target`, or take the nearest.

    A few groups of large gangs hold a good part of a small pool: left to chance, one seed has it a third full and
    another two thirds.
    """
    if target is None:
        return _sample(members, of, NEAR, rng)
    nearest = np.inf
    for k in range(min(max(WORK // len(of), LEAST), MOST)):
        # A user of large gangs may run for too long or too short a time: the farther off, the more chance decides.
        value, bin = _sample(members, of, NEAR * (1 + k), rng)
        miss = float(np.abs(requests @ value / target - 1).max())
        if miss < nearest:
            nearest, best = miss, (value, bin)
        if miss <= EVEN:
            break
    return best


def _sample(members: TypeGroups, of: Ints, near: float, rng: np.random.Generator) -> tuple[Floats, Ints]:
    """Whole seconds that each job runs, and the bin of the law that they are in."""
    both = run_times().sum(axis=1)
    base, part = _bases(members, near, rng)
    heart, low, high = (
        np.log(at_quantiles(both, EDGES, members.pool, at)[0]) for at in (base, base - part / 2, base + part / 2)
    )
    spread = SPREAD[rng.choice(len(SPREAD), size=len(heart), p=STEADINESS)]
    # Ranking will spread a group over its own part of the law: that much of its spread is there already.
    spread = np.sqrt(np.maximum(spread**2 - (high - low) ** 2 / 12, 0.0))
    score = heart[of] + spread[of] * rng.standard_normal(len(of))
    pool = members.pool[of]
    value, bin = at_quantiles(both, EDGES, pool, ranked(pool, score))
    return np.maximum(1.0, np.rint(value)), bin


def _bases(members: TypeGroups, near: float, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Give each group a quantile and a part of its pool, where all groups lie side by side in some order.

    Groups of like weight share out the order among them, so that no end of the law hangs on a few heavy ones.
    """
    pool = members.pool
    by_weight = np.lexsort((rng.random(len(pool)), -members.jobs * members.instances, pool))
    block = np.empty(len(pool), dtype=np.int64)
    # Blocks must not cross pools.
    block[by_weight] = np.arange(len(pool)) // ALIKE
    _, block = np.unique(block * POOLS + pool, return_inverse=True)
    score = members.place + near * rng.random(len(pool))
    order = np.lexsort((ranked(block, score), pool))
    total = summed(pool, members.jobs, POOLS)
    base = np.empty(len(pool))
    base[order] = np.cumsum(members.jobs[order]) - members.jobs[order] / 2
    return (base - (np.cumsum(total) - total)[pool]) / total[pool], members.jobs / total[pool]
