"""The cluster of a log that lists no nodes: those that its jobs ran on, else as many as ran at once."""

from __future__ import annotations

import math

import polars as pl

from fleetlab.core import Cluster, Trace
from fleetlab.core.catalog import NODE_AMOUNTS
from fleetlab.core.durations import plural

GPUS = 8  # of a node, where no job names one
BUSY = 0.7  # GPU allocation of nodes, where the log has no starts
MOST_NODES = 50_000
WHOLE = 1000  # milli-GPU
SIZES = (1, 2, 4, 8, 10, 16)  # GPUs of nodes that are built
AMPLE = dict.fromkeys(NODE_AMOUNTS, 1_000_000_000) | {"cpu_milli": 10_000_000, "memory_mib": 100_000_000}


def guessed_cluster(trace: Trace) -> tuple[Cluster, str]:
    """Return nodes on which the jobs of a trace could have run, and a sentence that says how they were guessed."""
    if trace.placements is not None:
        placed = trace.placements.select("job", pl.col("node").cast(pl.String)).unique().collect()
        if placed.height:
            return _named(trace, placed)
    return _by_peak(trace)


def _named(trace: Trace, placed: pl.DataFrame) -> tuple[Cluster, str]:
    """Give each node that a job ran on what ran on it at once, rounded up to a size that is built."""
    jobs = trace.workload.frame
    hosts = placed.group_by("job").len("hosts")
    share = pl.col("instances") / pl.col("hosts")
    amounts = {
        "gpus": pl.col("gpu_milli") / WHOLE * share,
        **{n: pl.col(n) * share for n in ("cpu_milli", "memory_mib")},
    }
    ran = placed.join(hosts, on="job").join(
        jobs.select("job", "start", "end", "instances", "gpu_milli", "cpu_milli", "memory_mib", "gpu_types"), on="job"
    )
    ran = ran.filter(pl.col("start").is_not_null()).with_columns(**amounts, end=pl.col("end").fill_null(math.inf))
    ends = [
        ran.select("node", at=at, **{n: sign * pl.col(n) for n in amounts}) for at, sign in (("start", 1), ("end", -1))
    ]
    events = pl.concat(ends).group_by("node", "at").agg(pl.col(*amounts).sum()).sort("node", "at")
    peaks = events.group_by("node", maintain_order=True).agg(pl.col(*amounts).cum_sum().max())
    types = (
        ran.filter(pl.col("gpus") > 0)
        .group_by("node")
        .agg(pl.col("gpu_types").list.first().drop_nulls().mode().first())
    )
    rows = peaks.join(types, on="node", how="left").with_columns(
        gpus=pl.col("gpus").map_elements(_size, return_dtype=pl.Int64), gpu_type=pl.col("gpu_types").fill_null("GPU")
    )
    alike = [pl.col(n).max().over("gpus", "gpu_type").ceil().cast(pl.Int64) for n in ("cpu_milli", "memory_mib")]
    rows = rows.with_columns(alike).with_columns(
        pl.when(pl.col(n) > 0).then(n).otherwise(AMPLE[n]).alias(n) for n in ("cpu_milli", "memory_mib")
    )
    ample = {n: pl.lit(AMPLE[n]) for n in NODE_AMOUNTS if n not in ("cpu_milli", "memory_mib")}
    kept = rows.select("node", "gpus", "cpu_milli", "memory_mib", gpu_type=pl.when(pl.col("gpus") > 0).then("gpu_type"))
    cluster = Cluster.of(kept.with_columns(**ample), source="guessed from the nodes of jobs")
    note = "each with as many GPUs as ran on it at once" if cluster.gpus else "without GPUs"
    return cluster, f"{_size_of(cluster)} that jobs ran on, {note}"


def _size(gpus: float) -> int:
    needed = math.ceil(gpus - 1e-9)
    return next((size for size in SIZES if size >= needed), needed) if needed > 0 else 0


def _by_peak(trace: Trace) -> tuple[Cluster, str]:
    """Take nodes of 8 GPUs, as many as ran at once; without starts, as many as are busy to 70 %."""
    jobs = trace.workload.frame.with_columns(
        gpus=pl.col("gpu_milli") * pl.col("instances").cast(pl.Int64) / WHOLE,
        type=pl.col("gpu_types").list.first().fill_null("GPU"),
    ).filter(pl.col("gpu_milli") > 0)
    started = jobs["start"].null_count() < jobs.height
    rows = [_uniform("GPU", 1)] if jobs.is_empty() else []
    span = max(float(trace.workload.frame["submit"].max() or 0.0), 1.0)  # type: ignore[arg-type]
    for (name,), mine in jobs.group_by("type", maintain_order=True):
        ran = mine.filter(pl.col("start").is_not_null()).with_columns(pl.col("end").fill_null(math.inf))
        ends = [ran.select(at=at, change=sign * pl.col("gpus")) for at, sign in (("start", 1), ("end", -1))]
        changes = pl.concat(ends).group_by("at").agg(pl.col("change").sum()).sort("at")
        demand = float((mine["gpus"] * mine["runtime"].fill_null(0.0)).sum()) / span / BUSY
        peak = float(changes["change"].cum_sum().max() or 0.0) if started else demand  # type: ignore[arg-type]
        largest = float(mine["gpus"].max())  # type: ignore[arg-type]
        rows.append(_uniform(str(name), min(math.ceil(max(peak, largest) / GPUS - 1e-9) or 1, MOST_NODES)))
    nodes = pl.concat(rows).with_columns(node=pl.format("node-{}", pl.int_range(pl.len())))
    how = "as many as jobs held at once" if started else f"as many as give a GPU allocation of {100 * BUSY:g} %"
    cluster = Cluster.of(nodes, source="guessed from what ran at once" if started else "guessed from demand")
    return cluster, f"{_size_of(cluster)}, {how}; nodes of {GPUS} GPUs with ample CPU and memory"


def _uniform(gpu_type: str, nodes: int) -> pl.DataFrame:
    return Cluster.uniform(nodes, GPUS, gpu_type=gpu_type, **AMPLE).frame


def _size_of(cluster: Cluster) -> str:
    return f"{plural(len(cluster), 'node')} with {plural(cluster.gpus, 'GPU')}"
