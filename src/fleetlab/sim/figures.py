"""What a replay found, to be drawn: how waits are spread, how full the GPUs were, and what jobs waited for."""

from __future__ import annotations

import numpy as np
import polars as pl

from fleetlab.core import Figure
from fleetlab.core.job_classes import GPU_REQUEST
from fleetlab.sim.layout import Floats
from fleetlab.stats import BlockBootstrap

POINTS = 120  # of a curve
DAY = 86_400.0
MINUTE = 60.0
WAITS, WAITS_SHARE = "How long jobs wait", "share of jobs that wait no longer, %"


def figures(
    waits: Floats, blocks: BlockBootstrap, by_request: pl.DataFrame, timeline: pl.DataFrame, waiting: pl.DataFrame
) -> dict[str, Figure]:
    """Draw what there is: waits of jobs in order of arrival, the state of the cluster over time, the ledger."""
    charts = {}
    if len(waits):
        charts["waits"] = _spread(waits, blocks)
        charts["mean wait by request"] = _by_request(by_request)
    if timeline["up"].sum() > 0:
        charts["allocation"] = _allocation(timeline)
    if timeline["waiting"].sum() > 0:
        charts["queue"] = _queue(timeline)
    if waiting.height:
        charts["waiting by reason"] = _reasons(waiting)
    return charts


def wait_distribution(waits: Floats, blocks: BlockBootstrap) -> pl.DataFrame:
    """Return the share of jobs, %, that wait no longer than `x` s, with its pointwise 95 % band."""
    at = np.geomspace(1.0, max(float(waits.max()), 10.0), POINTS)
    cell = np.minimum(np.searchsorted(at, waits), POINTS - 1)
    cells = np.bincount(blocks.index * POINTS + cell, minlength=blocks.blocks * POINTS).astype(np.float64)
    cells = cells.reshape(blocks.blocks, POINTS)
    level = np.cumsum(cells.sum(axis=0)) / len(waits)
    columns = {"x": at, "y": 100 * level}
    if blocks.enough:
        low, high = blocks.cdf_band(cells, level)
        columns |= {"low": 100 * low, "high": 100 * high}
    return pl.DataFrame(columns)


def _spread(waits: Floats, blocks: BlockBootstrap) -> Figure:
    alt = f"{np.mean(waits <= MINUTE):.0%} of the jobs wait a minute or less, {np.mean(waits == 0):.0%} not at all"
    return Figure(WAITS, "line", wait_distribution(waits, blocks), "wait, s", WAITS_SHARE, alt, log_x=True)


def _by_request(by_request: pl.DataFrame) -> Figure:
    frame = by_request.select(x=GPU_REQUEST, y="mean wait", low="low", high="high")
    alt = "; ".join(f"{name}: {wait:,.0f} s" for name, wait in frame.select("x", "y").iter_rows())
    return Figure(f"Mean wait by {GPU_REQUEST}", "bar", frame, GPU_REQUEST, "mean wait, s", alt)


def _allocation(timeline: pl.DataFrame) -> Figure:
    up = timeline.filter(pl.col("up") > 0)
    frame = up.select(x=pl.col("time") / DAY, y=100 * pl.col("allocated") / pl.col("up"))
    allocated = frame["y"].to_numpy()
    alt = f"at {len(allocated)} instants between {allocated.min():.0f} and {allocated.max():.0f} % of the GPUs are held"
    return Figure("GPU allocation", "line", frame, "day", "GPU allocation, %", alt)


def _queue(timeline: pl.DataFrame) -> Figure:
    frame = timeline.select(x=pl.col("time") / DAY, y=pl.col("waiting").cast(pl.Float64))
    alt = f"up to {frame['y'].to_numpy().max():,.0f} jobs wait at one of {frame.height} instants"
    return Figure("How many jobs wait", "line", frame, "day", "jobs waiting", alt)


def _reasons(waiting: pl.DataFrame) -> Figure:
    frame = waiting.select(x="reason", y=100 * pl.col("share"))
    alt = "; ".join(f"{reason} {share:.0f} %" for reason, share in frame.iter_rows())
    return Figure("What jobs wait for", "bar", frame, "reason", "share of all waiting, %", alt)
