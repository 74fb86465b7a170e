"""Classes of jobs, the same in every table: by GPUs per instance, GPU types allowed, gang size, partition and queue."""

from __future__ import annotations

import polars as pl

NO_GPU, FRACTION, ONE, SEVERAL = "no GPU", "fraction of a GPU", "1 GPU", "2 GPUs or more"
GPU_REQUEST = "GPUs per instance"  # the heading of this class in every table
GPU_REQUESTS = (NO_GPU, FRACTION, ONE, SEVERAL)
GANG_SIZES = {"1": 1, "2 to 7": 2, "8 to 31": 8, "32 and more": 32}  # by their fewest instances
JOB_SIZES = {"2 to 7 GPUs": 2, "8 to 31 GPUs": 8, "32 GPUs and more": 32}  # of all instances, by their fewest GPUs
WHOLE = 1000  # milli of one GPU


def gpu_request() -> pl.Expr:
    """Return the class of what an instance requests."""
    gpu = pl.col("gpu_milli")
    small = pl.when(gpu == 0).then(pl.lit(NO_GPU)).when(gpu < WHOLE).then(pl.lit(FRACTION))
    return small.when(gpu == WHOLE).then(pl.lit(ONE)).otherwise(pl.lit(SEVERAL)).alias(GPU_REQUEST)


def gang_size() -> pl.Expr:
    """Return the class of the number of instances."""
    gang = pl.lit("1")
    for name, fewest in GANG_SIZES.items():
        gang = pl.when(pl.col("instances") >= fewest).then(pl.lit(name)).otherwise(gang)
    return gang.alias("gang size")


def job_size() -> pl.Expr:
    """Return the class of the GPUs that all instances of a job request together."""
    gpus = pl.col("gpu_milli").cast(pl.Int64) * pl.col("instances") / WHOLE
    size = pl.when(gpus == 0).then(pl.lit(NO_GPU)).when(gpus < 1).then(pl.lit(FRACTION)).otherwise(pl.lit(ONE))
    for name, fewest in JOB_SIZES.items():
        size = pl.when(gpus >= fewest).then(pl.lit(name)).otherwise(size)
    return size.alias("size")


def gpu_type(jobs: pl.DataFrame) -> pl.Series:
    """Return the GPU types that each job may use, as text."""
    # Few lists are distinct: as text, each is joined once.
    lists = jobs["gpu_types"].unique().to_frame().with_columns(named=pl.col("gpu_types").list.join(", "))
    named = jobs.select("gpu_types").join(lists, on="gpu_types", how="left", maintain_order="left")["named"]
    word = pl.when(pl.col("gpu_milli") == 0).then(pl.lit(NO_GPU)).when(named == "").then(pl.lit("any"))
    return jobs.select(word.otherwise(named).alias("GPU type"))["GPU type"]


def partitions() -> pl.Expr:
    """Return the partitions that each job names, as text."""
    named = pl.col("partitions").list.sort().list.join(", ")
    return pl.when(named == "").then(pl.lit("any")).otherwise(named).alias("partitions")


def queue() -> pl.Expr:
    """Return the queue of each job: its team, account or virtual cluster."""
    return pl.col("queue").cast(pl.String).fill_null("none").alias("queue")


def owners(jobs: pl.DataFrame) -> tuple[str, ...]:
    """Return which of partition and queue tell some of the jobs apart."""
    return tuple(
        name for name, of in (("partitions", partitions()), ("queue", queue())) if jobs.select(of.n_unique()).item() > 1
    )


def in_order(name: str) -> pl.Expr:
    """Return the place of a class among the others of its kind; text, where they have no order."""
    places = {n: k for k, n in enumerate((*GPU_REQUESTS, *GANG_SIZES))}
    return pl.col(name).replace_strict(places, default=len(places), return_dtype=pl.Int64)
