"""Maximum-entropy joint distributions under published constraints, the constraints as data, and bins of quantities.

Papers print margins: a share here, a quantile there, some over jobs and some over instances. Of all joint laws that
agree with them, the one nearest (in relative entropy) to a plain prior adds least of our own. Each number may be missed
by about its `slack`, so that numbers that contradict one another a little still have one answer.

Values are not drawn one by one: those of a pool are ranked by some score, and the ranks are spread over the pool's law.
So the law holds to a part in the pool's size whatever the scores are, and the scores are free to say who is like whom.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl

from fleetlab.core import Cluster

Floats: TypeAlias = npt.NDArray[np.float64]
Ints: TypeAlias = npt.NDArray[np.int64]
Bools: TypeAlias = npt.NDArray[np.bool_]

STEPS = 200
CLOSE = 1e-8
LOOSER = (100.0, 10.0, 1.0)  # firm wishes are come to by way of loose ones: from far off, Newton's steps are short


class Target(NamedTuple):
    """A constraint: the mean of `row` over it is `value`, give or take `slack`."""

    row: Floats  # broadcasts to the law's shape
    value: float
    slack: float


def fit(name: str, prior: Floats, constraints: Sequence[Target], marginal: Floats | None = None) -> Floats:
    """Find the distribution nearest to `prior` that satisfies the constraints; `marginal` fixes sums over last axes.

    It is found from the multipliers that were written down under `name`, so that nearly always one look is enough.

    >>> law = fit("a doctest", np.ones((1, 2)) / 2, [Target(np.array([[0.0, 1.0]]), 0.3, 1e-6)])
    >>> np.round(law, 3)
    array([[0.7, 0.3]])
    """
    weight = np.ones(1) if marginal is None else marginal.ravel()
    start = prior.reshape(weight.size, -1)
    rows = np.stack([np.broadcast_to(w.row, prior.shape).reshape(start.shape) for w in constraints])
    slack = np.array([w.slack for w in constraints])
    value = np.array([w.value for w in constraints])
    at = np.array(multipliers().get(name, []))
    has_multipliers = len(at) == len(constraints)
    at = at if has_multipliers else np.zeros(len(constraints))
    for loosen in (1.0,) if has_multipliers else LOOSER:
        # In units of its slack each wish is as firm as any other, and the system is well conditioned.
        unit = slack * loosen
        at, law = _descend(start, weight, rows / unit[:, None, None], value / unit, at * unit)
        at = at / unit
    multipliers()[name] = at.tolist()
    return law.reshape(prior.shape)


@cache
def multipliers() -> dict[str, list[float]]:
    """What `fit` found for each law, one number a wish: read from disk, and kept up as laws are fitted.

    When a law is changed, `python -m benchmarks.refit_synthetic` looks again and writes them down.
    """
    there = files(__package__).joinpath("multipliers.json")
    saved: dict[str, list[float]] = json.loads(there.read_text("utf-8")) if there.is_file() else {}
    return saved


def _descend(prior: Floats, weight: Floats, rows: Floats, value: Floats, at: Floats) -> tuple[Floats, Floats]:
    """Minimise the convex dual, one multiplier a wish, by damped Newton steps."""
    law, height = _tilted(prior, weight, rows, value, at)
    for _ in range(STEPS):
        slope = rows.reshape(len(value), -1) @ law.ravel() - value + at
        step = np.linalg.solve(_curvature(rows, law, weight), slope)
        # What a full step would still gain; the last steps, near the floor of floating point, gain nothing.
        if slope @ step < CLOSE:
            break
        size = 1.0
        while size > CLOSE:
            tried, tried_height = _tilted(prior, weight, rows, value, at - size * step)
            if tried_height <= height - 1e-4 * size * float(slope @ step):
                break
            size /= 2
        else:
            break
        at, law, height = at - size * step, tried, tried_height
    return at, law


def _tilted(prior: Floats, weight: Floats, rows: Floats, value: Floats, at: Floats) -> tuple[Floats, float]:
    tilt = (at @ rows.reshape(len(at), -1)).reshape(prior.shape)
    top = tilt.max(axis=1, keepdims=True)
    raw = prior * np.exp(tilt - top)
    total = raw.sum(axis=1, keepdims=True)
    live = total[:, 0] > 0
    law = np.where(live[:, None], raw / np.where(total > 0, total, 1) * weight[:, None], 0)
    law[law < 1e-60] = 0  # products of what is left would be denormal, and those are slow
    height = float((weight * (np.log(np.where(total > 0, total, 1)) + top)[:, 0])[live].sum())
    return law, height - float(at @ value) + 0.5 * float(at @ at)


def _curvature(rows: Floats, law: Floats, weight: Floats) -> Floats:
    flat = rows.reshape(len(rows), -1)
    shared = flat * law.ravel()
    means = shared.reshape(rows.shape).sum(axis=2) / np.sqrt(np.where(weight > 0, weight, 1))
    curved: Floats = shared @ flat.T - means @ means.T + np.eye(len(rows))
    return curved


LAWS: Mapping[str, Any] = json.loads(files(__package__).joinpath("laws.json").read_text("utf-8"))
PRINTED: Mapping[str, Any] = LAWS["printed"]
TABLE: Mapping[str, Any] = LAWS["task_table"]

FULL: int = PRINTED["jobs"]
A_DAY = FULL / float(PRINTED["days"])  # jobs a day: the load of the real cluster

# Jobs a second whose run time the log knows: what a simulator has to run.
KNOWN_A_SECOND = A_DAY / 86_400 * (TABLE["status"]["completed"] + TABLE["status"]["failed"]) / TABLE["rows"]

TYPES: tuple[str, ...] = tuple(LAWS["type_share"])
CPU_ONLY = len(TYPES)  # stands for the type of a job without a GPU

REQUESTS: tuple[str, ...] = tuple(LAWS["request_share"])  # classes of GPU request, as the paper cuts them
REQUEST_EDGES = np.array([250, 500, 1000, 1001])  # milli: the first of each class but the lowest

GANG_EDGES = np.array([2, 10, 50])  # instances: the first of each class of gang but the lowest
GANGS = ("1", "2 to 9", "10 to 49", "50 and more")

DAY = 86_400.0
ZONE = "Asia/Shanghai"
EPOCH = 1_593_532_800.0  # Wednesday 2020-07-01 00:00 in Shanghai, the first day of the trace


def gpus(type: str) -> int:
    """How many GPUs of a type there are."""
    return sum(m["nodes"] * m["gpus"] for m in LAWS["machines"] if m["gpu_type"] == type)


def cores(type: str) -> int:
    """How many CPUs the nodes of a type have."""
    return sum(m["nodes"] * m["cpus"] for m in LAWS["machines"] if m["gpu_type"] == type)


def curve(points: Mapping[str, float]) -> tuple[Floats, Floats]:
    """Give the two columns of a published curve."""
    return np.array([float(x) for x in points]), np.array(list(points.values()), dtype=float)


def cluster() -> Cluster:
    """Build the machines of the trace, each as its specification table has it."""
    kinds = [
        pl.DataFrame({"pool": [m["gpu_type"] or "CPU"] * m["nodes"]}).with_columns(
            gpu_type=pl.lit(m["gpu_type"], dtype=pl.String),
            gpus=pl.lit(m["gpus"]),
            gpu_memory_mib=pl.lit(m["gpu_memory_gb"] * 1024),
            cpu_milli=pl.lit(m["cpus"] * 1000),
            memory_mib=pl.lit(m["memory_gb"] * 1024),
        )
        for m in LAWS["machines"]
    ]
    nodes = pl.concat(kinds).with_columns(node=pl.format("node-{}", pl.int_range(pl.len())))
    return Cluster.of(nodes, source="synthesize:pai2020")


def grid(low: float, high: float, bins: int) -> Floats:
    """Edges of bins that are even by factors."""
    return np.geomspace(low, high, bins + 1)


def below(edges: Floats, value: float) -> Floats:
    """Which part of each bin is below `value`."""
    logs = np.log(edges)
    part: Floats = np.clip((np.log(value) - logs[:-1]) / np.diff(logs), 0.0, 1.0)
    return part


def means(edges: Floats) -> Floats:
    """The mean of each bin."""
    mean: Floats = np.diff(edges) / np.diff(np.log(edges))
    return mean


def summed(at: Ints, weight: Floats | Ints, size: int = 0) -> Floats:
    """The sum of the weights at each place."""
    return np.asarray(np.bincount(at, weights=weight.astype(np.float64), minlength=size), dtype=np.float64)


def ranked(pool: Ints, score: Floats) -> Floats:
    """Where each stands in its pool by score, evenly over (0, 1)."""
    order = np.lexsort((score, pool))
    sizes = np.bincount(pool)
    first = np.cumsum(sizes) - sizes
    place = np.empty(len(pool))
    place[order] = np.arange(len(pool)) - first[pool[order]] + 0.5
    return np.asarray(place / sizes[pool])


def at_quantiles(law: Floats, edges: Floats, pool: Ints, at: Floats) -> tuple[Floats, Ints]:
    """The value at quantile `at` of its pool's law, and the bin that it is in."""
    pools, bins = law.shape
    total = law.sum(axis=1, keepdims=True)
    # A pool that the law has no jobs in is drawn from what all pools say together.
    share = np.where(total > 0, law / np.where(total > 0, total, 1), law.sum(axis=0) / law.sum())
    upto = np.cumsum(share, axis=1)
    upto /= upto[:, -1:]
    flat = (upto + np.arange(pools)[:, None]).ravel()
    bin = np.clip(np.searchsorted(flat, pool + at, side="right") - pool * bins, 0, bins - 1)
    part = np.clip(1 - (upto[pool, bin] - at) / np.maximum(share[pool, bin], 1e-300), 0.0, 1.0)
    logs = np.log(edges)
    return np.exp(logs[bin] + part * (logs[bin + 1] - logs[bin])), bin
