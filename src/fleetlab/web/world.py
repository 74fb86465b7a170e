"""A scenario applied to a trace: jobs at another load, nodes in other numbers, and nodes where a log names none."""

from __future__ import annotations

import math

import numpy as np
import polars as pl

from fleetlab.core import Cluster, Trace, Workload, WorkloadError
from fleetlab.core.catalog import NODE_AMOUNTS
from fleetlab.web.scenario import MOST_NODES, Scenario, clipped

NO_GPU = "no GPU"  # what nodes without GPUs are called
BUSY = 0.7  # how busy the nodes are that are assumed where a log names none
GPUS = 8  # of such a node
PLENTY = dict.fromkeys(NODE_AMOUNTS, 1_000_000_000) | {"cpu_milli": 10_000_000, "memory_mib": 100_000_000}
WHOLE = 1000


def beginning(workload: Workload, jobs: int) -> Workload:
    """The first jobs alone, as if no others came."""
    if jobs >= len(workload):
        return workload
    source = f"{workload.source}, the first {jobs:,} jobs"
    return Workload.of(workload.frame.head(jobs).drop("job"), source=source, epoch=workload.epoch, zone=workload.zone)


def loaded(workload: Workload, load: float) -> Workload:
    """The same jobs, coming `load` times as fast: their order and sizes stay, so that runs can be compared by job."""
    if load == 1:
        return workload
    frame = workload.frame.drop("job").with_columns(
        submit=pl.col("submit") / load, start=pl.lit(None, dtype=pl.Float64), end=pl.lit(None, dtype=pl.Float64)
    )
    source = f"{workload.source}, {load:g} times as fast"
    return Workload.of(frame, source=source, epoch=workload.epoch, zone=workload.zone)


def by_type(cluster: Cluster) -> pl.DataFrame:
    """Nodes and GPUs of each GPU type, most GPUs first; those without GPUs last."""
    kind = pl.when(pl.col("gpus") > 0).then("gpu_type").otherwise(pl.lit(NO_GPU)).alias("gpu_type")
    counted = cluster.frame.group_by(kind).agg(pl.len().alias("nodes"), pl.col("gpus").cast(pl.Int64).sum())
    return counted.sort("gpus", "gpu_type", descending=[True, False])


def sized(cluster: Cluster, nodes: tuple[tuple[str, int], ...]) -> Cluster:
    """So many nodes of each type that is named, like those that are there, taken evenly over them."""
    if not nodes:
        return cluster
    kind = pl.when(pl.col("gpus") > 0).then("gpu_type").otherwise(pl.lit(NO_GPU))
    frame, wanted = cluster.frame.with_columns(kind=kind), dict(nodes)
    if unknown := [name for name in wanted if name not in set(frame["kind"])]:
        msg = f"no node of that GPU type: `{clipped(unknown[0])}`"
        raise WorkloadError(msg, hint=f"there are {', '.join(by_type(cluster)['gpu_type'])}")
    parts = [_as_many(part, wanted.get(name)) for (name,), part in frame.group_by("kind", maintain_order=True)]
    found = pl.concat(parts).drop("kind")
    if not 0 < found.height <= MOST_NODES:
        msg = f"a cluster has from 1 to {MOST_NODES:,} nodes, not: {found.height:,}"
        raise WorkloadError(msg, hint="move a slider back")
    said = ", ".join(f"{count:,} {name}" for name, count in nodes)
    return Cluster.of(found, source=f"{cluster.source} with {said} nodes")


def _as_many(like: pl.DataFrame, count: int | None) -> pl.DataFrame:
    if count is None or count == like.height:
        return like
    if count < like.height:
        return like[(np.arange(count) * like.height // max(count, 1)).tolist()]
    again = like[(np.arange(count) % like.height).tolist()]
    turn = pl.int_range(pl.len()) // like.height
    name = pl.when(turn == 0).then("node").otherwise(pl.format("{}+{}", "node", turn))
    return again.with_columns(node=name)


def cluster_of(trace: Trace) -> tuple[Cluster, str]:
    """The cluster of a trace; where it has none, one that is assumed, and what must be said of that."""
    if trace.cluster is not None:
        return trace.cluster, ""
    said = (
        f"The log names no nodes. Assumed are nodes of {GPUS} GPUs, as many as the jobs would keep "
        f"{100 * BUSY:g} % busy, with CPU and memory in plenty."
    )
    return _assumed(trace.workload), said


def _assumed(workload: Workload) -> Cluster:
    frame, kind = workload.frame, pl.col("gpu_types").list.first().fill_null("GPU")
    jobs = frame.filter((pl.col("gpu_milli") > 0) & pl.col("runtime").is_not_null())
    span = max(float(frame["submit"].max() or 0.0), 1.0)  # type: ignore[arg-type]
    gpus = pl.col("gpu_milli") * pl.col("instances").cast(pl.Int64) / WHOLE
    asked = jobs.group_by(kind.alias("kind")).agg(work=(gpus * pl.col("runtime")).sum(), largest=gpus.max())
    rows = [_like(kind="GPU", nodes=1)] if asked.is_empty() else []
    for name, work, largest in asked.sort("kind").iter_rows():
        count = max(math.ceil(work / span / BUSY / GPUS), math.ceil(largest / GPUS))
        rows.append(_like(kind=name, nodes=min(count, MOST_NODES)))
    nodes = pl.concat(rows).with_columns(node=pl.format("node-{}", pl.int_range(pl.len())))
    return Cluster.of(nodes, source="assumed")


def _like(*, kind: str, nodes: int) -> pl.DataFrame:
    return Cluster.uniform(nodes, GPUS, gpu_type=kind, **PLENTY).frame


def world(trace: Trace, scenario: Scenario, workload: Workload | None = None) -> tuple[Workload, Cluster]:
    """What a scenario plays, of all jobs or of those that are given; the nodes are there for all."""
    return loaded(workload or trace.workload, scenario.load), sized(cluster_of(trace)[0], scenario.nodes)
