"""Requests that fit on no node, and the most that any node has."""

from __future__ import annotations

import polars as pl

from fleetlab.core.catalog import GPU_AMOUNTS, NODE_AMOUNTS

WHOLE = 1000  # milli of one GPU
# Reasons of `simulate` for jobs that can never run.
NOWHERE, GANG = "an instance fits on no node", "its instances do not all fit at once"
CANNOT_RUN = [NOWHERE, GANG]
AMOUNTS = (*GPU_AMOUNTS, *NODE_AMOUNTS)


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
