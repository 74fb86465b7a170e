"""Where is more held than there is? Every beginning and end of a holding, in order of time."""

from __future__ import annotations

import polars as pl

MOST = 1000  # violations whose jobs are named
NAMED = 50  # jobs of one violation that are named
VIOLATIONS: dict[str, pl.DataType] = {
    "check": pl.String(),
    "where": pl.String(),
    "from": pl.Float64(),
    "until": pl.Float64(),
    "held": pl.Float64(),
    "there is": pl.Float64(),
    "jobs": pl.List(pl.Int64()),
}


def exceeded(held: pl.DataFrame, room: pl.DataFrame) -> pl.DataFrame:
    """The longest intervals in which more is held somewhere than there is, with the height of each and its instant.

    `held` has where, start, end and amount; `room` has where and room. At one instant ends come before beginnings,
    and what takes no time holds nothing.
    """
    held = held.filter((pl.col("amount") > 0) & (pl.col("end") > pl.col("start")))
    begin = held.select("where", time="start", change="amount")
    end = held.select("where", time="end", change=-pl.col("amount"))
    level = (
        pl.concat([begin, end])
        .group_by("where", "time")
        .agg(pl.col("change").sum())
        .sort("where", "time")
        .with_columns(held=pl.col("change").cum_sum().over("where"), until=pl.col("time").shift(-1).over("where"))
        .join(room, on="where", how="left", maintain_order="left")
        .with_columns(over=pl.col("held") > pl.col("room").fill_null(0))
    )
    level = level.with_columns(spell=pl.struct("where", "over").rle_id())
    return (
        level.filter("over")
        .group_by("spell", maintain_order=True)
        .agg(
            pl.col("where").first(),
            pl.col("time").first().alias("from"),
            pl.col("until").last(),
            pl.col("held").max().cast(pl.Float64),
            pl.col("room").first().fill_null(0).cast(pl.Float64).alias("there is"),
            pl.col("time").get(pl.col("held").arg_max()).alias("at"),
        )
        .drop("spell")
    )


def violations(check: str, held: pl.DataFrame, room: pl.DataFrame) -> pl.DataFrame:
    """What `exceeded` finds, with the jobs that hold something when most is held; `held` has a column `job` too."""
    found = exceeded(held, room).sort("from", "where").with_row_index("row")
    jobs = _jobs_at(held, found.head(MOST))
    found = found.join(jobs, on="row", how="left", maintain_order="left").with_columns(check=pl.lit(check))
    return found.select(pl.col(name).cast(kind) for name, kind in VIOLATIONS.items())


def _jobs_at(held: pl.DataFrame, found: pl.DataFrame) -> pl.DataFrame:
    """The jobs that hold something at the height of each violation."""
    some = held.join(found.select("where").unique(), on="where", how="semi")
    parts = some.partition_by("where", as_dict=True)
    rows = []
    for row, where, at in found.select("row", "where", "at").iter_rows():
        part = parts[(where,)]
        there = (pl.col("start") <= at) & (pl.col("end") > at) & (pl.col("amount") > 0)
        rows.append((row, part.filter(there)["job"].unique().sort().head(NAMED).to_list()))
    return pl.DataFrame(rows, schema={"row": pl.UInt32, "jobs": pl.List(pl.Int64)}, orient="row")
