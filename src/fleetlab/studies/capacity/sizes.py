"""Clusters of other sizes: the jobs that a goal is measured on, and the simulation of one size."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import polars as pl

from fleetlab.core import Cluster, Scenario
from fleetlab.core.catalog.reasons import FITS_NOWHERE, GANG_TOO_LARGE
from fleetlab.core.nodes import chosen
from fleetlab.sim import simulate
from fleetlab.stats import BlockBootstrap, Floats
from fleetlab.studies.capacity.goal import ServiceGoal
from fleetlab.studies.requests import unmet_requests

NEVER = 1e15  # seconds that stand for a wait without end
FAR = NEVER / 1e6  # a statistic above it includes some of those


def node_count(cluster: Cluster, pool: str | None) -> int:
    """Return how many nodes are scaled: those of the pool or GPU type of that name, or all."""
    return int(chosen(cluster.frame, pool).sum())


def scaled(cluster: Cluster, pool: str | None, size: int) -> Cluster:
    """Return so many nodes in the pool, or in all pools in proportion, with at least one of each kind."""
    return cluster.scaled(Fraction(size, node_count(cluster, pool)), pool)


def measured_jobs(jobs: pl.DataFrame, cluster: Cluster, pool: str | None) -> pl.Series:
    """Return which jobs a goal is measured on: those that may run on the nodes that are scaled."""
    if pool is None:
        return pl.repeat(value=True, n=jobs.height, eager=True, dtype=pl.Boolean)
    types = cluster.frame.filter(chosen(cluster.frame, pool))["gpu_type"].drop_nulls().unique().to_list()
    gpu_types = pl.col("gpu_types")
    named = pl.any_horizontal([pl.lit(value=False), *(gpu_types.list.contains(t) for t in types)])
    if not types:
        return jobs.select(ok=pl.col("gpu_milli") == 0)["ok"]
    return jobs.select(ok=(pl.col("gpu_milli") > 0) & ((gpu_types.list.len() == 0) | named))["ok"]


def measure(scenario: Scenario, size: int, pool: str | None, slo: str) -> dict[str, Any]:
    """Simulate one size: the statistic with its interval, jobs that never run, and the best that more nodes can do."""
    goal, cluster, jobs = ServiceGoal.read(slo), scenario.cluster, scenario.workload.frame
    result = simulate(scenario.replace(cluster=scaled(cluster, pool, size), nodes="", min_coverage=0.0))
    measured = measured_jobs(jobs, cluster, pool)
    ran = result.jobs.filter(measured.gather(result.jobs["job"]) & ~pl.col("initial"))
    ended = pl.col("status").is_in(["done", "cut short"])
    done, left = ran.filter(ended).drop_nulls(goal.column), ran.filter(~ended)
    refused = jobs.filter(measured & ~pl.col("initial")).join(result.refused, on="job", maintain_order="left")
    gangs, nowhere = (refused.filter(pl.col("reason") == why) for why in (GANG_TOO_LARGE, FITS_NOWHERE))
    never = left.height + gangs.height + nowhere.height
    values = np.concatenate((done[goal.column].to_numpy(), np.full(never, NEVER)))
    best = np.concatenate((*(at_best(part, goal) for part in (done, left, gangs)), np.full(nowhere.height, NEVER)))
    submit = np.concatenate([part["submit"].to_numpy() for part in (done, left, gangs, nowhere)])
    blocks = BlockBootstrap.of_times(submit, float(jobs["submit"][-1]))
    statistic = goal.statistic(values, blocks)
    reasons = result.ledger.filter(pl.col("job").is_in(ran["job"].implode())).drop("job").sum()
    return {
        "statistic": np.array([statistic.value, statistic.below, statistic.above, statistic.df]),
        "best": np.array(goal.statistic(best, blocks).interval()), "jobs": np.array(len(values)),
        "never": np.array(never), "nowhere": np.array(nowhere.height),
        "unmet": np.array(unmet_requests(nowhere, cluster.frame)), "gpus": np.array(result.cluster.gpus),
        "nodes": np.array(len(result.cluster) - len(cluster) + node_count(cluster, pool)),
        "reason": np.array(reasons.columns[int(np.argmax(reasons.to_numpy()))]),
    }  # fmt: skip


def at_best(jobs: pl.DataFrame, goal: ServiceGoal) -> Floats:
    """Return the metric of each job if it does not wait: no number of nodes does better."""
    runtime = jobs["runtime"].to_numpy()
    return {"wait": np.zeros(len(runtime)), "JCT": runtime}.get(goal.metric, np.ones(len(runtime)))
