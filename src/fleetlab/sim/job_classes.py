"""Jobs by class: by what they ask for, how long they run, who they are of; and what kept each class waiting."""

from __future__ import annotations

import math

import polars as pl

from fleetlab.core.catalog import REASONS as WAIT_REASONS
from fleetlab.core.job_classes import GPU_REQUEST, gang_size, gpu_request, gpu_type, in_order, owners, partitions, queue
from fleetlab.sim.codes import REASONS
from fleetlab.stats import POSITIVE, BlockBootstrap

MOST = 20  # rows of a class that has no end of values: the others are one row together
OTHERS = "others"
FARED = ("mean wait", "low", "high", "P90 wait", "mean JCT", "mean bounded slowdown")  # low to high: of the mean wait


def by_class(done: pl.DataFrame, blocks: BlockBootstrap) -> dict[str, pl.DataFrame]:
    """Waits, completions and slowdowns of jobs that are done, by several ways to class them."""
    named = _classed(done).with_row_index("row")
    by_size_of = by_size(done, blocks)
    return {
        f"by {GPU_REQUEST}": by_size_of[f"by {GPU_REQUEST}"],
        "by runtime": _told(named, blocks, "runtime").sort("runtime", descending=True),
        "by GPU type": _told(_foremost(named, "GPU type", pl.len()), blocks, "GPU type"),
        "by gang size": by_size_of["by gang size"],
        **{f"by {name}": _told(_foremost(named, name, pl.len()), blocks, name) for name in owners(done)},
        "by user": _told(_foremost(named, "user", pl.col("GPU time").sum()), blocks, "user"),
    }


def by_size(done: pl.DataFrame, blocks: BlockBootstrap) -> dict[str, pl.DataFrame]:
    """Waits, completions and slowdowns of jobs that are done, by GPUs of an instance and by instances."""
    named = done.select("wait", "jct", "bounded_slowdown", gpu_request(), gang_size()).with_row_index("row")
    return {f"by {name}": _told(named, blocks, name).sort(in_order(name)) for name in (GPU_REQUEST, "gang size")}


def _classed(done: pl.DataFrame) -> pl.DataFrame:
    gpu = pl.col("gpu_milli").cast(pl.Int64) * pl.col("instances")
    short = pl.col("runtime") <= pl.col("runtime").median()
    return done.select(
        "wait",
        "jct",
        "bounded_slowdown",
        pl.when(short).then(pl.lit("up to the median")).otherwise(pl.lit("above the median")).alias("runtime"),
        gpu_type(done),
        partitions(),
        queue(),
        pl.col("user").cast(pl.String).fill_null("unknown"),
        (gpu * pl.col("runtime")).alias("GPU time"),
    )


def _foremost(named: pl.DataFrame, title: str, most: pl.Expr) -> pl.DataFrame:
    """Leave the classes with the most, and make all others one."""
    ranked = named.group_by(title).agg(most.alias("most")).sort("most", title, descending=[True, False])
    if ranked.height <= MOST:
        return named
    frequent = pl.col(title).is_in(ranked[title].head(MOST).to_list())
    return named.with_columns(pl.when(frequent).then(title).otherwise(pl.lit(OTHERS)).alias(title))


def _told(named: pl.DataFrame, blocks: BlockBootstrap, title: str) -> pl.DataFrame:
    """A row for each class: how many, and how they fared; the interval is of the mean wait."""
    columns = named.select(title, "row", "wait", "jct", "bounded_slowdown")
    parts = columns.partition_by(title, as_dict=True, maintain_order=True)
    rows = [(name, *_row(part, blocks)) for (name,), part in parts.items()]
    schema = {title: pl.String, "jobs": pl.Int64} | dict.fromkeys(FARED, pl.Float64)
    table = pl.DataFrame(rows, schema=schema, orient="row")
    return table.sort(pl.col(title) == OTHERS, -pl.col("jobs"), title)


def _row(part: pl.DataFrame, blocks: BlockBootstrap) -> tuple[object, ...]:
    wait = part["wait"].to_numpy()
    mean = blocks.part(part["row"].to_numpy()).mean(wait, POSITIVE).interval()
    means = (part["jct"].mean(), part["bounded_slowdown"].mean())
    limits = (None, None) if math.isnan(mean.low) else mean[1:]
    return part.height, mean.value, *limits, part["wait"].quantile(0.9, "linear"), *means


def waiting(ledger: pl.DataFrame) -> pl.DataFrame:
    """Waited seconds by reason, their share of all waiting, and the jobs of which it is the main reason."""
    seconds = ledger.select(pl.col(REASONS).sum())
    largest = ledger.select(pl.col(REASONS)).with_columns(most=pl.max_horizontal(REASONS))
    first = pl.coalesce(pl.when((pl.col("most") > 0) & (pl.col(r) == pl.col("most"))).then(pl.lit(r)) for r in REASONS)
    jobs = dict(largest.select(first.alias("reason")).group_by("reason").len().iter_rows())
    columns = {"reason": REASONS, "total wait": seconds.row(0)}
    frame = pl.DataFrame(columns, schema_overrides={"total wait": pl.Float64})
    frame = frame.with_columns(share=_of_all(pl.col("total wait"), pl.col("total wait").sum()))
    counted = pl.Series("jobs with this main reason", [jobs.get(r, 0) for r in REASONS], dtype=pl.Int64)
    meaning = pl.Series("meaning", [WAIT_REASONS[r].meaning for r in REASONS])
    frame = frame.with_columns(counted, meaning).filter(pl.col("total wait") > 0)
    return frame.sort("total wait", descending=True, maintain_order=True)


def waiting_by_request(jobs: pl.DataFrame, ledger: pl.DataFrame) -> pl.DataFrame:
    """What each kind of request waited for: the share of its waiting, by reason."""
    both = pl.concat([jobs.select(gpu_request()), ledger.select(REASONS)], how="horizontal")
    sums = both.group_by(GPU_REQUEST).agg(pl.col(REASONS).sum()).sort(in_order(GPU_REQUEST))
    total, some = pl.sum_horizontal(REASONS), [r for r in REASONS if sums[r].sum() > 0]
    return sums.select(GPU_REQUEST, total.alias("total wait"), *(_of_all(pl.col(r), total).alias(r) for r in some))


def _of_all(part: pl.Expr, whole: pl.Expr) -> pl.Expr:
    return pl.when(whole > 0).then(part / whole)


def refusals(refused: pl.DataFrame) -> pl.DataFrame:
    """How many jobs could never run, and why."""
    counted = refused.group_by("reason").agg(pl.len().alias("jobs"))
    return counted.sort("jobs", "reason", descending=[True, False])
