"""How long jobs wait, as published by type and by request."""

from __future__ import annotations

from functools import cache

import numpy as np

from fleetlab.traces.synthesize.joint_law import (
    CPU_ONLY,
    GANG_EDGES,
    GANGS,
    LAWS,
    PRINTED,
    REQUESTS,
    TYPES,
    Floats,
    Ints,
    Target,
    below,
    curve,
    fit,
    grid,
    means,
    summed,
)
from fleetlab.traces.synthesize.requests import request_class, shapes

# Whole seconds while waits are the scheduler's own latency, and even by factors after that.
EDGES = np.concatenate([np.arange(0.5, 16.0), grid(15.5, 400_000.0, 44)[1:]])
POOLS = len(TYPES) * len(REQUESTS) * len(GANGS)
BY_TYPE, BY_REQUEST, BY_INSTANCE, SURE = 2e-3, 4e-3, 1.2e-2, 5e-4
HALF = 0.5  # a second: where many quantiles are one whole second, the curve steps there


def pools(type: Ints, milli: Ints, instances: Ints) -> Ints:
    """Number the pool of type, class of request and class of gang that a job waits in."""
    gang = np.searchsorted(GANG_EDGES, instances, side="right")
    return (type * len(REQUESTS) + request_class(milli)) * len(GANGS) + gang


@cache
def wait_law() -> Floats:
    """Fit pool × bin of wait to the curves by type and by request, of jobs and, more loosely, of instances."""
    law = shapes()
    gpu = law.type < CPU_ONLY
    pool = pools(law.type[gpu], law.gpu_milli[gpu], law.instances[gpu])
    share = summed(pool, law.share[gpu], POOLS) / law.share[gpu].sum()
    sizes = summed(pool, (law.share * law.instances)[gpu], POOLS) / law.share[gpu].sum()
    type, request = np.divmod(np.arange(POOLS) // len(GANGS), len(REQUESTS))
    constraints = [
        Target(below(EDGES, PRINTED["gpu_wait_median"])[None, :], 0.5, SURE),
        Target(means(EDGES)[None, :], PRINTED["gpu_wait_mean"], 1.0),
    ]
    size = sizes / np.maximum(share, 1e-300)
    for names, index, key, slack in ((TYPES, type, "type", BY_TYPE), (REQUESTS, request, "request", BY_REQUEST)):
        for k, name in enumerate(names):
            mine = (index == k) * 1.0
            constraints += _curve(mine / (mine @ share), LAWS["wait"][key][name], slack)
            by_instance = mine * size / (mine @ sizes)
            constraints += _curve(by_instance, LAWS["wait"][f"instance_{key}"][name], BY_INSTANCE)
    return fit("waits", np.broadcast_to(_prior(), (POOLS, len(EDGES) - 1)) * 1.0, constraints, marginal=share)


def _curve(weight: Floats, points: dict[str, float], slack: float) -> list[Target]:
    """Ask for a curve of quantiles; equal ones are a step, which is asked for at its foot and its head."""
    percent, value = curve(points)
    constraints = []
    for at in np.unique(value):
        there = percent[value == at] / 100
        if len(there) == 1:
            constraints.append(Target(weight[:, None] * below(EDGES, at), float(there[0]), slack))
        else:
            constraints.append(Target(weight[:, None] * below(EDGES, at - HALF), float(there[0]) / 2, slack * 10))
            constraints.append(Target(weight[:, None] * below(EDGES, at + HALF), float(there[-1]) + 0.03, slack))
    return constraints


def _prior() -> Floats:
    # A scheduler's own latency of about eight seconds, and a long tail of real waits.
    middle = np.log(EDGES[:-1] * EDGES[1:]) / 2
    widths = np.diff(np.log(EDGES))
    latency = np.exp(-0.5 * ((middle - np.log(8)) / 0.6) ** 2) * widths
    queued = np.exp(-0.5 * ((middle - np.log(120)) / 2.3) ** 2) * widths
    prior: Floats = 0.75 * latency / latency.sum() + 0.25 * queued / queued.sum()
    return prior
