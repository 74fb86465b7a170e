"""The nodes that a trace is simulated on: its own, or assumed ones where its log names none."""

from __future__ import annotations

import math

import polars as pl

from fleetlab.core import Cluster, Trace, Workload
from fleetlab.core.catalog import NODE_AMOUNTS
from fleetlab.core.nodes import CPU_ONLY
from fleetlab.web.messages import NodeMenu

BUSY = 0.7  # GPU allocation of assumed nodes
GPUS = 8  # per assumed node
MOST_NODES = 50_000
AMPLE = dict.fromkeys(NODE_AMOUNTS, 1_000_000_000) | {"cpu_milli": 10_000_000, "memory_mib": 100_000_000}
WHOLE = 1000  # milli-GPU


def node_groups(cluster: Cluster) -> list[NodeMenu]:
    """Return nodes and GPUs by GPU type, most GPUs first; nodes without a GPU last."""
    name = pl.when(pl.col("gpus") > 0).then("gpu_type").otherwise(pl.lit(CPU_ONLY)).alias("name")
    counts = cluster.frame.group_by(name).agg(pl.len().alias("nodes"), pl.col("gpus").cast(pl.Int64).sum())
    rows = counts.sort("gpus", "name", descending=[True, False]).iter_rows()
    return [{"name": name, "nodes": nodes, "gpus": gpus} for name, nodes, gpus in rows]


def cluster_of(trace: Trace) -> tuple[Cluster, str]:
    """Return the cluster of a trace; where it has none, an assumed one and a note that says so."""
    if trace.cluster is not None:
        return trace.cluster, ""
    note = (
        f"The log names no nodes. Assumed: nodes with {GPUS} GPUs each, as many as give a GPU allocation of "
        f"{100 * BUSY:g} % over the trace, with ample CPU and memory."
    )
    return _assumed(trace.workload), note


def _assumed(workload: Workload) -> Cluster:
    frame, gpu_type = workload.frame, pl.col("gpu_types").list.first().fill_null("GPU")
    jobs = frame.filter((pl.col("gpu_milli") > 0) & pl.col("runtime").is_not_null())
    span = max(float(frame["submit"].max() or 0.0), 1.0)  # type: ignore[arg-type]
    gpus = pl.col("gpu_milli") * pl.col("instances").cast(pl.Int64) / WHOLE
    demand = jobs.group_by(gpu_type.alias("type")).agg(seconds=(gpus * pl.col("runtime")).sum(), largest=gpus.max())
    frames = [_uniform("GPU", 1)] if demand.is_empty() else []
    for name, seconds, largest in demand.sort("type").iter_rows():
        count = max(math.ceil(seconds / span / BUSY / GPUS), math.ceil(largest / GPUS))
        frames.append(_uniform(name, min(count, MOST_NODES)))
    nodes = pl.concat(frames).with_columns(node=pl.format("node-{}", pl.int_range(pl.len())))
    return Cluster.of(nodes, source="assumed")


def _uniform(gpu_type: str, nodes: int) -> pl.DataFrame:
    return Cluster.uniform(nodes, GPUS, gpu_type=gpu_type, **AMPLE).frame
