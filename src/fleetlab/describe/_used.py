"""What tasks used: sensor rows joined to what was asked for."""

from __future__ import annotations

from typing import Final

import polars as pl

# What it is called: its column, how many of it make one, and the unit of one.
AMOUNTS: Final = {
    "GPUs": ("gpu_milli", 1000.0, "GPUs"),
    "CPUs": ("cpu_milli", 1000.0, "CPUs"),
    "memory": ("memory_mib", 1024.0, "GiB"),
}


def _columns(usage: pl.LazyFrame) -> list[str]:
    there = usage.collect_schema().names()
    return [column for column, _, _ in AMOUNTS.values() if column in there and "task" in there]


def used_by_task(usage: pl.LazyFrame | None, tasks: pl.DataFrame) -> pl.DataFrame | None:
    """What an instance of each task used on average, in the order of the tasks; null where no sensor saw it."""
    if usage is None or not (found := _columns(usage)):
        return None
    means = usage.group_by("task", maintain_order=True).agg(pl.col(found).cast(pl.Float64).fill_nan(None).mean())
    return tasks.select("task").join(means.collect(), on="task", how="left", maintain_order="left")


def used_by_row(usage: pl.LazyFrame | None, tasks: pl.DataFrame) -> pl.DataFrame | None:
    """One row a sensor row, with what its task asked for, and `weight`: the instances that it stands for."""
    if usage is None or not (found := _columns(usage)):
        return None
    rows = usage.select("task", pl.col(found).cast(pl.Float64).fill_nan(None)).collect()
    asked = tasks.select("task", "submit", "instances", pl.col(found).name.prefix("asked_"))
    seen = rows.group_by("task").agg(pl.len().alias("rows"))
    joined = rows.join(asked, on="task", maintain_order="left").join(seen, on="task", maintain_order="left")
    return joined.with_columns(weight=pl.col("instances") / pl.col("rows")).drop("instances", "rows")
