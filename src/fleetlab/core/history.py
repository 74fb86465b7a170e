"""What was known of a job when it was submitted: the run times of those that had ended."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl


def past_mean(jobs: pl.DataFrame, keys: Sequence[str]) -> pl.Series:
    """For each job the mean runtime of those with its keys that had ended when it came; null where none had.

    Where a start is not known, a job is taken to have started as it came. A job whose first key is null has no mean.
    """
    end = pl.coalesce("start", "submit") + pl.col("runtime")
    ended = jobs.filter(pl.col("runtime").is_not_null()).sort(end, maintain_order=True)
    count, total = pl.int_range(1, pl.len() + 1), pl.col("runtime").cum_sum()
    means = ended.select(*keys, end=end, mean=(total / count).over(keys) if keys else total / count)
    came = jobs.with_row_index("row").sort("submit", maintain_order=True)
    last = came.join_asof(means, left_on="submit", right_on="end", by=keys or None, check_sortedness=False)
    named = pl.col(keys[0]).is_not_null() if keys else pl.lit(True)  # noqa: FBT003
    return last.sort("row").select(pl.when(named).then("mean").alias("mean"))["mean"]
