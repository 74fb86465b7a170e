"""Why does an instance fit on no node? What it asks for, beside the most that any node has."""

from __future__ import annotations

import polars as pl

from fleetlab.core.catalog import GPU_AMOUNTS, NODE_AMOUNTS

WHOLE = 1000  # milli of one GPU
NOWHERE, GANG = "an instance fits on no node", "its instances do not all fit at once"  # why `simulate` refuses a job
AMOUNTS = (*GPU_AMOUNTS, *NODE_AMOUNTS)


def lacking(jobs: pl.DataFrame, nodes: pl.DataFrame) -> str:
    """What no node has enough of, and for how many of these jobs, the most common first; nothing where there is none.

    >>> jobs = {name: [0] for name in AMOUNTS[1:]} | {"gpu_milli": [16_000], "gpu_types": [["T4"]]}
    >>> nodes = {name: [8] for name in AMOUNTS} | {"gpu_type": ["T4"]}
    >>> lacking(pl.DataFrame(jobs), pl.DataFrame(nodes))
    '1 ask for more `gpus` than any node has (8)'
    """
    asks = jobs.with_columns(gpus=(pl.col("gpu_milli") + WHOLE - 1) // WHOLE)
    most = {name: int(nodes[name].max() or 0) for name in AMOUNTS}  # type: ignore[arg-type]
    found = [
        (int((asks[name] > most[name]).sum()), f"ask for more `{name}` than any node has ({most[name]:,})")
        for name in AMOUNTS
    ]
    there = nodes["gpu_type"].drop_nulls().unique().to_list()
    types = pl.col("gpu_types").list
    strange = (pl.col("gpu_milli") > 0) & (types.len() > 0) & ~types.eval(pl.element().is_in(there)).list.any()
    found.append((asks.filter(strange).height, "name only GPU types that no node has"))
    return ", ".join(f"{count:,} {what}" for count, what in sorted(found, key=lambda f: -f[0]) if count)
