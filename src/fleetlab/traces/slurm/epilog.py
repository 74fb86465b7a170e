"""How long nodes complete after a job: no file of Slurm's says how long an epilog runs, but the log shows it."""

from __future__ import annotations

from dataclasses import replace

import polars as pl

from fleetlab.core.slurm import Slurm

FEW = 50  # starts on a node that had a job before
EARLIEST = 0.01  # of the gaps on a node between the end of a job and the next start: those where a job waited
LONGEST = 600.0  # s


def with_epilog(scheduler: Slurm, placements: pl.LazyFrame | None, jobs: pl.DataFrame) -> Slurm:
    """Return a site's Slurm with the seconds in which a node takes no job after one has ended there."""
    if placements is None:
        return scheduler
    on_node = placements.select("job", "node").unique().collect()
    runs = on_node.join(jobs.select("job", "start", "end").drop_nulls(), on="job")
    ends = runs.select("node", "end").sort("end")
    gaps = (
        runs.select("node", "start")
        .sort("start")
        .join_asof(ends, left_on="start", right_on="end", by="node", strategy="backward", check_sortedness=False)
        .select(gap=pl.col("start") - pl.col("end"))
        .filter((pl.col("gap") > 0) & (pl.col("gap") <= LONGEST))["gap"]  # 0: it may have started just before the end
    )
    if gaps.len() < FEW:
        return scheduler
    shortest = gaps.quantile(EARLIEST)
    return replace(scheduler, epilog=float(shortest or 0.0))
