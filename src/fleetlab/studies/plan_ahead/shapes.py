"""Instances to place, from a forecast number of them: shapes in the proportions of the recent log."""

from __future__ import annotations

import math
from dataclasses import replace

import polars as pl

from fleetlab.core import Workload
from fleetlab.core.catalog import REQUESTS
from fleetlab.core.nodes import proportional
from fleetlab.forecast import InstancesAhead
from fleetlab.plan import present

SHAPE = ("app", *REQUESTS, "gpu_types", "max_per_node")
NEW = "forecast"


def population(workload: Workload, ahead: InstancesAhead) -> pl.DataFrame:
    """Return the instances that run and wait when the forecast begins, by part."""
    part = workload.frame.select(
        "job", part=pl.Series([ahead.parts[k].part for k in ahead.of.tolist()], dtype=pl.String)
    )
    running, waiting = present(workload, ahead.now)
    frame = pl.DataFrame({"part": [one.part for one in ahead.parts]})
    for name, jobs in (("running", running), ("waiting", waiting)):
        counts = jobs.join(part, on="job").group_by("part").agg(pl.col("instances").cast(pl.Int64).sum().alias(name))
        frame = frame.join(counts, on="part", how="left", maintain_order="left")
    return frame.with_columns(pl.col("running", "waiting").fill_null(0))


def new_instances(demand: pl.DataFrame, target: str, column: str) -> list[int]:
    """Return how many instances of each part are placed beside those that run and wait.

    Of a level only what exceeds them is new: they are part of it.
    """
    there = (demand["running"] + demand["waiting"]).to_list() if target == "level" else [0] * demand.height
    return [max(0, math.ceil(value - 1e-6) - has) for value, has in zip(demand[column], there, strict=True)]


def recent_shapes(workload: Workload, ahead: InstancesAhead, recent: float) -> pl.DataFrame:
    """Return the shapes of instances that were requested in the time before the forecast, with their counts.

    A part without a request in that time takes the shapes of the whole log.
    """
    jobs = workload.frame.with_columns(number=pl.Series(ahead.of))
    last = pl.col("submit").is_between(ahead.now - recent, ahead.now, closed="left") & ~pl.col("initial")
    parts = []
    for number, one in enumerate(ahead.parts):
        mine = jobs.filter(pl.col("number") == number)
        some = mine.filter(last)
        some = some if some.height else mine
        counted = some.group_by(SHAPE, maintain_order=True).agg(requested=pl.col("instances").cast(pl.Int64).sum())
        # The most frequent first: where remainders are equal, they are rounded up.
        counted = counted.sort("requested", descending=True, maintain_order=True)
        parts.append(counted.select(pl.lit(one.part).alias("part"), pl.all()))
    return pl.concat(parts)


def in_shapes(shapes: pl.DataFrame, counts: dict[str, int]) -> pl.Series:
    """Return how many instances of each shape make so many of each part, by largest remainders."""
    split: list[int] = []
    for (part,), rows in shapes.group_by("part", maintain_order=True):
        split += proportional(counts[str(part)], rows["requested"].to_list())
    return pl.Series(split, dtype=pl.Int64)


def to_place(workload: Workload, ahead: InstancesAhead, shapes: pl.DataFrame, counts: pl.Series | None) -> Workload:
    """Return the jobs that run and wait, and after them new instances of each shape; `None`: no new ones."""
    running, waiting = present(workload, ahead.now)
    frames = [running, waiting]
    if counts is not None and counts.sum():
        rows = shapes.select(SHAPE, instances=counts, submit=pl.lit(0.0)).filter(pl.col("instances") > 0)
        first = int(workload.frame["job"][-1]) + 1
        new = Workload.of(rows, source=NEW).frame
        frames.append(new.with_columns(job=first + pl.int_range(pl.len(), dtype=pl.Int64)))
    return replace(workload, frame=pl.concat(frames), source=f"{workload.source} at {ahead.now:.0f} s", notes=())
