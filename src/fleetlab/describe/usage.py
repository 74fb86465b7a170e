"""Measured usage, joined to requests."""

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
    return [column for column, _, _ in AMOUNTS.values() if column in there and "job" in there]


def used_by_job(usage: pl.LazyFrame | None, jobs: pl.DataFrame) -> pl.DataFrame | None:
    """What an instance of each job used on average, in the order of the jobs; null where no sensor saw it."""
    if usage is None or not (found := _columns(usage)):
        return None
    means = usage.group_by("job", maintain_order=True).agg(pl.col(found).cast(pl.Float64).fill_nan(None).mean())
    return jobs.select("job").join(means.collect(), on="job", how="left", maintain_order="left")


def used_by_row(usage: pl.LazyFrame | None, jobs: pl.DataFrame) -> pl.DataFrame | None:
    """One row a sensor row, with what its job asked for, and `weight`: the instances that it stands for."""
    if usage is None or not (found := _columns(usage)):
        return None
    rows = usage.select("job", pl.col(found).cast(pl.Float64).fill_nan(None)).collect()
    requested = jobs.select("job", "submit", "instances", pl.col(found).name.prefix("asked_"))
    counts = rows.group_by("job").agg(pl.len().alias("rows"))
    joined = rows.join(requested, on="job", maintain_order="left").join(counts, on="job", maintain_order="left")
    return joined.with_columns(weight=pl.col("instances") / pl.col("rows")).drop("instances", "rows")
