"""Logs whose truth is known: random worlds that our own simulator scheduled."""

from dataclasses import replace

import numpy as np
import polars as pl

import fleetlab
from fleetlab import Cluster, Workload
from fleetlab.core.catalog import BACKFILLS, ORDERS

# Each order and backfill rule that can be combined, with two placements.
POLICIES = [
    {"order": order.name, "backfill": backfill.name, "placement": placement}
    for order in ORDERS
    for backfill in BACKFILLS
    for placement in ("best_fit", "worst_fit")
    if not (order.preemptive and backfill.reserves)
]


def nodes(count: int) -> Cluster:
    return Cluster.uniform(count, 8, gpu_type="V100", cpu_milli=48_000, memory_mib=131_072)


def random_jobs(seed: int, count: int, *, gpus: int, load: float, gangs: bool = True) -> pl.DataFrame:
    """Jobs of six users that load so many GPUs: fractions to whole nodes, some gangs, run times of minutes to hours."""
    rng = np.random.default_rng(seed)
    milli = rng.choice([500, 1000, 1000, 2000, 4000, 8000], count)
    instances = np.where((rng.random(count) < 0.1) & gangs, rng.integers(2, 4, count), 1)
    runtime = np.round(np.exp(rng.normal(6.5, 1.2, count))) + 1
    span = (milli * instances * runtime).sum() / 1000 / gpus / load
    submit = np.round(np.sort(rng.uniform(0, span, count)))
    return pl.DataFrame(
        {
            "submit": submit - submit[0],
            "runtime": runtime,
            "gpu_milli": milli,
            "instances": instances,
            "cpu_milli": milli * rng.integers(2, 8, count),
            "memory_mib": milli * 8,
            "priority": rng.integers(0, 5, count),
            "user": [f"u{k}" for k in np.minimum(rng.geometric(0.35, count) - 1, 5)],
        }
    )


def recorded(jobs: pl.DataFrame, cluster: Cluster, **words) -> Workload:
    """A log of these jobs: their starts and ends are those of a simulation."""
    workload = Workload.of(jobs, source="a world of our own")
    times = fleetlab.simulate(workload, cluster, **words).jobs.select("job", "start", "end")
    frame = workload.frame.drop("start", "end").join(times, on="job", how="left", maintain_order="left")
    return replace(workload, frame=frame.select(workload.frame.columns))


def world(seed: int, **words) -> tuple[Workload, Cluster]:
    """A random world of 300 to 480 jobs on three to eight nodes, lightly to heavily loaded."""
    cluster = nodes(int(np.random.default_rng(seed).integers(3, 9)))
    jobs = random_jobs(seed, 300 + 20 * (seed % 10), gpus=cluster.gpus, load=(0.8, 1.0, 1.2)[seed % 3])
    return recorded(jobs, cluster, **words), cluster


def named(found: fleetlab.Result) -> list[str]:
    """The policies that a calibration names: the best one, and those with the same starts."""
    table = found.tables()["policies"]
    return table.filter(pl.col("verdict").is_in(["best", "same starts"]))["policy"].to_list()
