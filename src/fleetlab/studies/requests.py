"""Jobs that are left out of a simulation; requests that fit on no node, and the most that any node has."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from fleetlab.core.catalog import GPU_AMOUNTS, NODE_AMOUNTS
from fleetlab.core.catalog.reasons import (
    ABOVE_JOB_LIMIT,
    ABOVE_QUEUE,
    ABOVE_QUOTA,
    CANCELLED,
    FITS_NOWHERE,
    GANG_TOO_LARGE,
    UNKNOWN_RUNTIME,
)

WHOLE = 1000  # milli of one GPU
CANNOT_RUN = [FITS_NOWHERE, GANG_TOO_LARGE]  # jobs that can never run on the cluster
NEVER_RUN = "jobs that cannot run"  # their count, in a table
AMOUNTS = (*GPU_AMOUNTS, *NODE_AMOUNTS)


def never_run(refused: pl.DataFrame) -> pl.Series:
    """Return the jobs that cannot run, of those that a simulation leaves out; one of unknown runtime could."""
    return refused.filter(~pl.col("reason").is_in([UNKNOWN_RUNTIME, CANCELLED]))["job"]


def left_out(reasons: Mapping[str, int]) -> list[str]:
    """Return how many jobs are left out of a simulation, by reason, as parts of a sentence.

    >>> left_out({"runtime unknown": 189, "an instance fits on no node": 2})
    ['2 cannot run on the cluster', '189 left out: runtime unknown']
    """
    texts = {
        UNKNOWN_RUNTIME: "left out: runtime unknown",
        CANCELLED: "were cancelled before they started",
        ABOVE_QUOTA: "request more GPUs than their quota",
        ABOVE_QUEUE: "request more than their queue may ever have",
        ABOVE_JOB_LIMIT: "are larger, smaller or longer than a job of their queue may be",
    }
    never = sum(reasons.get(name, 0) for name in CANNOT_RUN)
    parts = [f"{never:,} cannot run on the cluster"] if never else []
    return parts + [f"{count:,} {text}" for name, text in texts.items() if (count := reasons.get(name, 0))]


def unmet_requests(jobs: pl.DataFrame, nodes: pl.DataFrame) -> str:
    """Return what no node has enough of, and for how many of these jobs, the most common first; empty where none.

    >>> jobs = {name: [0] for name in AMOUNTS[1:]} | {"gpu_milli": [16_000], "gpu_types": [["T4"]]}
    >>> nodes = {name: [8] for name in AMOUNTS} | {"gpu_type": ["T4"]}
    >>> unmet_requests(pl.DataFrame(jobs), pl.DataFrame(nodes))
    '1 request more `gpus` than any node has (8)'
    """
    requests = jobs.with_columns(gpus=(pl.col("gpu_milli") + WHOLE - 1) // WHOLE)
    most = {name: int(nodes[name].max() or 0) for name in AMOUNTS}  # type: ignore[arg-type]
    counts = [
        (int((requests[name] > most[name]).sum()), f"request more `{name}` than any node has ({most[name]:,})")
        for name in AMOUNTS
    ]
    there = nodes["gpu_type"].drop_nulls().unique().to_list()
    types = pl.col("gpu_types").list
    unknown = (pl.col("gpu_milli") > 0) & (types.len() > 0) & ~types.eval(pl.element().is_in(there)).list.any()
    counts.append((requests.filter(unknown).height, "name only GPU types that no node has"))
    return ", ".join(f"{count:,} {what}" for count, what in sorted(counts, key=lambda f: -f[0]) if count)
