"""What one job could have requested instead: each is the same scenario with this job changed, and no other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from fleetlab.core import Cluster, Scenario
from fleetlab.core.catalog import BACKFILLS, ORDERS, SHARINGS
from fleetlab.core.durations import duration, plural
from fleetlab.core.schedulers import Feature

WHOLE = 1000  # milli of one GPU
FEW = 6  # types, partitions, queues that are tried one by one: those with the most GPUs, or the most jobs
MINUTE = 60.0
NAMES = pl.List(pl.String)


@dataclass(frozen=True, slots=True)
class Alternative:
    """One other request of a job: what it is called, the columns that change, and the estimate where that does."""

    kind: str  # type, instances, GPUs, partition, queue, QOS, limit
    title: str
    columns: dict[str, pl.Expr]
    estimate: float | None = None  # s


def alternatives(scenario: Scenario, job: int) -> list[Alternative]:
    """Return what a job could have requested instead, where that could matter."""
    row = scenario.workload.frame.row(job, named=True)
    return [
        *_types(scenario.cluster, row),
        *_sizes(scenario, row),
        *_partitions(scenario, row),
        *_queues(scenario, row),
        *_limits(scenario, row, job),
    ]


def scenario_with(scenario: Scenario, job: int, other: Alternative) -> Scenario:
    """Return the scenario with one job changed, after the same warm-up and with the same seed."""
    workload, mine = scenario.workload, pl.col("job") == job
    columns = {
        name: pl.when(mine).then(to).otherwise(name).cast(workload.frame.schema[name])
        for name, to in other.columns.items()
    }
    changed = same_state(scenario, scenario.on(replace(workload, frame=workload.frame.with_columns(**columns))))
    estimates = scenario.estimate
    if other.estimate is None or isinstance(estimates, str):
        return changed
    measured = estimates.slice(scenario.first_row, len(workload)).clone()
    return changed.replace(estimate=measured.scatter(job, other.estimate))


def same_state(scenario: Scenario, changed: Scenario) -> Scenario:
    """Return a scenario made from another with what runs before it, and its node events."""
    return changed.after(scenario, node_events=() if scenario.events else scenario.node_events)


# -- GPU types -------------------------------------------------------------------------------------------------------


def _types(cluster: Cluster, row: dict[str, Any]) -> Iterator[Alternative]:
    there = cluster.frame.filter(pl.col("gpus") > 0).drop_nulls("gpu_type").group_by("gpu_type")
    types = there.agg(pl.col("gpus").cast(pl.Int64).sum()).sort("gpus", "gpu_type", descending=[True, False])[
        "gpu_type"
    ]
    own = list(row["gpu_types"])
    if not row["gpu_milli"] or len(types) < 2:
        return
    if own:
        yield Alternative("type", "any GPU type", {"gpu_types": _names([])})
    for name in types.head(FEW):
        if own != [name]:
            yield Alternative("type", f"GPU type {name}", {"gpu_types": _names([name])})


# -- sizes -----------------------------------------------------------------------------------------------------------


def _sizes(scenario: Scenario, row: dict[str, Any]) -> Iterator[Alternative]:
    instances, milli = int(row["instances"]), int(row["gpu_milli"])
    if instances > 1:
        half = instances // 2
        yield Alternative(
            "instances", f"{plural(half, 'instance')} instead of {instances}", {"instances": pl.lit(half)}
        )
    fraction = SHARINGS[scenario.policy.sharing].granularity < WHOLE and scenario.scheduler is None
    if milli > WHOLE or (milli == WHOLE and fraction):
        half = milli // 2 // WHOLE * WHOLE if milli > WHOLE else WHOLE // 2
        each = " each" if instances > 1 else ""
        title = f"{plural(half / WHOLE if half < WHOLE else half // WHOLE, 'GPU')}{each} instead of {milli // WHOLE}"
        yield Alternative("GPUs", title, {"gpu_milli": pl.lit(half)})


# -- where it is submitted to ----------------------------------------------------------------------------------------


def _partitions(scenario: Scenario, row: dict[str, Any]) -> Iterator[Alternative]:
    nodes = scenario.cluster.frame.select("gpus", "partitions").explode("partitions").drop_nulls()
    sizes = nodes.group_by("partitions").agg(pl.col("gpus").cast(pl.Int64).sum())
    names = sizes.sort("gpus", "partitions", descending=[True, False])["partitions"].to_list()
    own = list(row["partitions"])
    if len(names) < 2:
        return
    if own and set(own) < set(names) and scenario.scheduler is None:
        yield Alternative("partition", "any partition", {"partitions": _names([])})
    for name in names[:FEW]:
        if own != [name]:
            yield Alternative("partition", f"partition {name}", {"partitions": _names([name])})


def _queues(scenario: Scenario, row: dict[str, Any]) -> Iterator[Alternative]:
    if scenario.policy.quota is None and not scenario.honors(Feature.LIMITS):
        return  # no rule looks at them
    for column, kind in (("queue", "queue"), ("qos", "QOS")):
        for name in _used(scenario, row, column):
            yield Alternative(kind, f"{kind} {name}", {column: pl.lit(name)})


def _used(scenario: Scenario, row: dict[str, Any], column: str) -> list[str]:
    """Return the other queues that jobs name; where accounts have limits those of its user, who has none elsewhere."""
    frame = scenario.workload.frame
    if scenario.honors(Feature.LIMITS):
        frame = frame.filter(pl.col("user").cast(pl.String).eq_missing(pl.lit(row["user"], dtype=pl.String)))
    counts = frame[column].cast(pl.String).drop_nulls().value_counts(sort=True)
    return [name for name in counts[column].head(FEW + 1).to_list() if name != row[column]][:FEW]


# -- time ------------------------------------------------------------------------------------------------------------


def _limits(scenario: Scenario, row: dict[str, Any], job: int) -> Iterator[Alternative]:
    """Halve the time limit, or the estimate that came with the job, but not below its run time."""
    runtime = row["runtime"] or 0.0
    if scenario.honors(Feature.TIME_LIMITS):
        limit = row["limit"]
        if limit and (shorter := max(limit / 2, _whole_minutes(runtime))) < limit:
            title = f"time limit {duration(shorter)} instead of {duration(limit)}"
            yield Alternative("limit", title, {"limit": pl.lit(shorter)})
        return
    estimates = scenario.estimate
    if isinstance(estimates, str) or not _uses_estimates(scenario):
        return  # the scheduler learns estimates, or knows the run time: a user cannot change them
    estimate = estimates[scenario.first_row + job]
    if estimate and (shorter := max(estimate / 2, runtime)) < estimate:
        title = f"estimate {duration(shorter)} instead of {duration(estimate)}"
        yield Alternative("limit", title, {}, shorter)


def _whole_minutes(seconds: float) -> float:
    return -(-seconds // MINUTE) * MINUTE


def _uses_estimates(scenario: Scenario) -> bool:
    order = scenario.policy.order
    ranks = isinstance(order, str) and order in ORDERS and ORDERS[order].needs_estimate
    return ranks or BACKFILLS[scenario.policy.backfill].reserves


def _names(values: list[str]) -> pl.Expr:
    return pl.lit(values, dtype=NAMES)
