"""What jobs used of what they asked for: averages over a job's instances and its runtime."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import numpy as np

from fleetlab.traces.synthesize.joint_law import (
    GANG_EDGES,
    GANGS,
    LAWS,
    PRINTED,
    Floats,
    Ints,
    Target,
    at_quantiles,
    below,
    curve,
    fit,
    grid,
    ranked,
    summed,
)
from fleetlab.traces.synthesize.requests import CPUS, MEMORY, MILLI, RequestShapes, shapes

GPU_MILLI = MILLI[MILLI > 0]
DIGITISED, SURE, STATED = 3e-3, 3e-4, 5e-3
DIGITS = 3  # of a milli or a MiB
ALIKE = 0.3  # how far a job's use is from its group's, of how far groups are from one another

# Bins of what is used: of a milli-GPU, a milli-CPU, a MiB; each request is an edge, so that more than asked is a bin.
EDGES: Mapping[str, Floats] = {
    "gpu": np.unique(np.concatenate([grid(1.0, 1000.0, 36), GPU_MILLI.astype(float)])),
    "cpu": np.unique(np.concatenate([grid(50.0, 64_000.0, 36), CPUS.astype(float)])),
    "memory": np.unique(np.concatenate([grid(100.0, 256_000.0, 36), MEMORY.astype(float)])),
}
UNIT = {"gpu": 1000.0, "cpu": 1000.0, "memory": 1024.0}
REQUESTED: Mapping[str, Ints] = {"gpu": GPU_MILLI, "cpu": CPUS, "memory": MEMORY}


def usage(what: str, shapes: RequestShapes, shape: Ints, group: Ints, rng: np.random.Generator) -> Floats:
    """What each job used of `gpu` (milli), `cpu` (milli) or `memory` (MiB); nothing where it asked for nothing."""
    requested = _requested(what, shapes)[shape]
    some = requested > 0
    pool = _pools(what, requested[some], shapes.instances[shape[some]])
    like = rng.standard_normal(int(group.max()) + 1)[group[some]]
    score = like + ALIKE * rng.standard_normal(len(like))
    used = np.zeros(len(shape))
    # No sensor is so fine; and the last bits of a law depend on the machine that fits it.
    used[some] = np.round(at_quantiles(usage_law(what), EDGES[what], pool, ranked(pool, score))[0], DIGITS)
    return used


def _requested(what: str, shapes: RequestShapes) -> Ints:
    return {"gpu": shapes.gpu_milli, "cpu": shapes.cpu_milli, "memory": shapes.memory_mib}[what]


def _pools(what: str, requested: Ints, instances: Ints) -> Ints:
    gang = np.searchsorted(GANG_EDGES, instances, side="right")
    return np.searchsorted(REQUESTED[what], requested) * len(GANGS) + gang


@cache
def usage_law(what: str) -> Floats:
    """Fit (request × class of gang) × bin to the published quantiles and to how many use more than they asked for."""
    law, edges = shapes(), EDGES[what]
    some = _requested(what, law) > 0
    pool, count = _pools(what, _requested(what, law)[some], law.instances[some]), len(REQUESTED[what]) * len(GANGS)
    share = summed(pool, law.share[some], count) / law.share[some].sum()
    sizes = summed(pool, (law.share * law.instances)[some], count)
    by_instance = (sizes / sizes.sum() / np.maximum(share, 1e-300))[:, None]
    requested = np.repeat(REQUESTED[what], len(GANGS))[:, None]
    over = (edges[None, :-1] >= requested).astype(float)
    constraints = [
        Target(over, PRINTED["over_request_jobs"][what], SURE),
        Target(by_instance * over, PRINTED["over_request_instances"][what], STATED),
    ]
    for percent, value in zip(*curve(LAWS["usage"][what]), strict=True):
        constraints.append(Target(by_instance * below(edges, value * UNIT[what]), percent / 100, DIGITISED))
    return fit(f"usage of {what}", _prior(edges, requested, what), constraints, marginal=share)


def _prior(edges: Floats, requested: Ints, what: str) -> Floats:
    percent, value = curve(LAWS["usage"][what])
    median = float(np.interp(50, percent, value)) * UNIT[what]
    middle = np.log(edges[:-1] * edges[1:])[None, :] / 2
    # Larger requests have somewhat larger usage.
    heart = np.log(median) + 0.3 * np.log(requested / np.median(requested))
    prior: Floats = np.exp(-0.5 * ((middle - heart) / 1.4) ** 2) * np.diff(np.log(edges))
    # A share is of one GPU's time: alone on it, a job may use all of it, and never more than its GPUs have.
    most = np.maximum(requested, 1000) if what == "gpu" else 4 * requested
    return prior * (edges[None, :-1] < most) + 1e-300
