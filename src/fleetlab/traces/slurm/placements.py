"""On which node each instance of a job ran, as far as the log tells."""

from __future__ import annotations

import polars as pl

from fleetlab.core.trace import PLACEMENTS


def placements(jobs: pl.DataFrame, lists: pl.DataFrame | None) -> pl.LazyFrame | None:
    """One row for each instance of a job, unfolded only when somebody asks: a log of a large machine has many.

    Of a job with more instances than nodes the first node is known, by its batch step, and so is the second of two.
    Where it is not known how many were on a node, there is one row for it: fewer than there were.
    """
    if lists is None or not lists["node"].list.len().sum():
        return None
    ran = jobs.lazy().filter("ran").select("job", "NodeList", "status", "start", "end", "instances", "on_first")
    named = lists.lazy().filter(pl.col("node").list.len() > 0)
    named = named.with_columns(at=pl.int_ranges(pl.col("node").list.len()), hosts=pl.col("node").list.len())
    rows = ran.join(named, on="NodeList", maintain_order="left").explode("node", "at")
    rows = rows.with_columns(row=pl.int_ranges(0, _on_node())).explode("row")
    rows = rows.with_columns(worker=pl.int_range(pl.len()).over("job"))
    return rows.select(list(PLACEMENTS)).cast(PLACEMENTS)  # type: ignore[arg-type]


def _on_node() -> pl.Expr:
    """How many instances were on a node, at least."""
    instances, hosts = pl.col("instances").cast(pl.Int64), pl.col("hosts").cast(pl.Int64)
    first = pl.col("on_first").clip(1, pl.max_horizontal(instances - hosts + 1, 1))
    return (
        pl.when(instances <= hosts).then(1)
        .when(hosts == 1).then(instances)
        .when(pl.col("at") == 0).then(first)
        .when((hosts == 2) & (pl.col("on_first") > 0)).then(instances - first)
        .otherwise(1)
    )  # fmt: skip
