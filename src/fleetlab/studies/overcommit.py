"""Overcommitment of a recorded schedule: when is more allocated than there is?"""

from __future__ import annotations

import polars as pl

MOST = 1000  # violations whose jobs are listed
LISTED = 50  # jobs listed per violation
VIOLATIONS: dict[str, pl.DataType] = {
    "check": pl.String(),
    "where": pl.String(),
    "from": pl.Float64(),
    "until": pl.Float64(),
    "allocated": pl.Float64(),
    "capacity": pl.Float64(),
    "jobs": pl.List(pl.Int64()),
}


def overcommitted(allocations: pl.DataFrame, capacity: pl.DataFrame) -> pl.DataFrame:
    """Return the maximal intervals in which more is allocated than there is, with the peak and its instant.

    `allocations` has where, start, end and amount; `capacity` has where and capacity. At one instant ends come before
    starts, and an allocation of no duration counts for nothing.
    """
    allocations = allocations.filter((pl.col("amount") > 0) & (pl.col("end") > pl.col("start")))
    begin = allocations.select("where", time="start", change="amount")
    end = allocations.select("where", time="end", change=-pl.col("amount"))
    level = (
        pl.concat([begin, end])
        .group_by("where", "time")
        .agg(pl.col("change").sum())
        .sort("where", "time")
        .with_columns(allocated=pl.col("change").cum_sum().over("where"), until=pl.col("time").shift(-1).over("where"))
        .join(capacity, on="where", how="left", maintain_order="left")
        .with_columns(over=pl.col("allocated") > pl.col("capacity").fill_null(0))
    )
    level = level.with_columns(interval=pl.struct("where", "over").rle_id())
    return (
        level.filter("over")
        .group_by("interval", maintain_order=True)
        .agg(
            pl.col("where").first(),
            pl.col("time").first().alias("from"),
            pl.col("until").last(),
            pl.col("allocated").max().cast(pl.Float64),
            pl.col("capacity").first().fill_null(0).cast(pl.Float64),
            pl.col("time").get(pl.col("allocated").arg_max()).alias("at"),
        )
        .drop("interval")
    )


def violations(check: str, allocations: pl.DataFrame, capacity: pl.DataFrame) -> pl.DataFrame:
    """Return what `overcommitted` does, with the jobs at each peak; `allocations` has a column `job` too."""
    rows = overcommitted(allocations, capacity).sort("from", "where").with_row_index("row")
    jobs = _jobs_at(allocations, rows.head(MOST))
    rows = rows.join(jobs, on="row", how="left", maintain_order="left").with_columns(check=pl.lit(check))
    return rows.select(pl.col(name).cast(kind) for name, kind in VIOLATIONS.items())


def _jobs_at(allocations: pl.DataFrame, peaks: pl.DataFrame) -> pl.DataFrame:
    """Return the jobs with an allocation at the peak of each violation."""
    some = allocations.join(peaks.select("where").unique(), on="where", how="semi")
    parts = some.partition_by("where", as_dict=True)
    rows = []
    for row, where, at in peaks.select("row", "where", "at").iter_rows():
        now = (pl.col("start") <= at) & (pl.col("end") > at) & (pl.col("amount") > 0)
        rows.append((row, parts[(where,)].filter(now)["job"].unique().sort().head(LISTED).to_list()))
    return pl.DataFrame(rows, schema={"row": pl.UInt32, "jobs": pl.List(pl.Int64)}, orient="row")
