"""How many nodes run at least one instance, at chosen instants."""

from __future__ import annotations

import numpy as np
import polars as pl

from fleetlab.sim import SimResult
from fleetlab.stats import Floats


def allocations(result: SimResult) -> pl.DataFrame:
    """Return node, start and end of every simulated instance."""
    times = result.jobs.select("job", "start", "end")
    return result.placements.select("job", "node").join(times, on="job").select("node", "start", "end")


def running(rows: pl.DataFrame, times: Floats) -> Floats:
    """Return how many rows have started and not ended."""
    begun, ended = (np.sort(rows[c].to_numpy()) for c in ("start", "end"))
    count = np.searchsorted(begun, times, side="right") - np.searchsorted(ended, times, side="right")
    return count.astype(np.float64)


def busy_nodes(rows: pl.DataFrame, times: Floats) -> Floats:
    """Return how many nodes run something, from the intervals in which a node is never empty."""
    ordered = rows.sort("node", "start")
    # An interval begins where nothing that started earlier on this node is still running.
    before = pl.col("end").cum_max().shift(1).over("node")
    interval = (pl.col("start") > before).fill_null(value=True).cum_sum().over("node")
    intervals = (
        ordered.with_columns(interval=interval)
        .group_by("node", "interval")
        .agg(pl.col("start").min(), pl.col("end").max())
    )
    return running(intervals, times)
