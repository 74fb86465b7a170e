"""Clusters of other sizes: which nodes are scaled, whose jobs count, a first guess, and one simulation."""

from __future__ import annotations

import math
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from fleetlab.core import Cluster, Workload, WorkloadError
from fleetlab.queueing import solve
from fleetlab.sim import simulate
from fleetlab.studies._blocks import Blocks, Floats
from fleetlab.studies._lacks import GANG, NOWHERE, lacking
from fleetlab.studies.believed import apart
from fleetlab.studies.capacity._goal import Goal

NEVER = 1e15  # seconds that a job waits that does not fit at all
FAR = NEVER / 1e6  # a statistic beyond has some of those in it
WHOLE = 1000
HARDWARE = "nodes.arrow"
USUAL = 0.8  # the quantile that stands for a mean in the first guess
INSTANTS = 1000  # at which the load is looked at


def chosen(nodes: pl.DataFrame, pool: str | None) -> pl.Series:
    """Which nodes are scaled: those of the pool or GPU type by that name, or all."""
    if pool is None:
        return pl.Series([True] * nodes.height, dtype=pl.Boolean)
    found = ((nodes["pool"] == pool) | (nodes["gpu_type"] == pool)).fill_null(value=False)
    if not found.any():
        names = sorted({*nodes["pool"], *nodes["gpu_type"].drop_nulls()} - {"default"})
        near = get_close_matches(pool, names, 1)
        msg = f"no pool or GPU type by that name: `{pool}`" + (f"; did you mean {near[0]}?" if near else "")
        raise WorkloadError(msg, hint=f"there are {', '.join(names)}")
    return found


def counted(jobs: pl.DataFrame, nodes: pl.DataFrame, pool: str | None) -> pl.Series:
    """Whose wait counts: the jobs that may run on the nodes that are scaled."""
    if pool is None:
        return pl.Series([True] * jobs.height, dtype=pl.Boolean)
    types = nodes.filter(chosen(nodes, pool))["gpu_type"].drop_nulls().unique().to_list()
    asked = pl.col("gpu_types")
    named = pl.any_horizontal([pl.lit(value=False), *(asked.list.contains(t) for t in types)])
    if not types:
        return jobs.select(ok=pl.col("gpu_milli") == 0)["ok"]
    return jobs.select(ok=(pl.col("gpu_milli") > 0) & ((asked.list.len() == 0) | named))["ok"]


def sized(nodes: pl.DataFrame, pool: str | None, size: int) -> pl.DataFrame:
    """So many nodes in the pool, or in all pools in proportion, each kind of node at least once."""
    scaled = chosen(nodes, pool)
    there = int(scaled.sum())
    kinds = [c for c in nodes.columns if c != "node"]
    parts = [nodes.filter(~scaled)]
    for part in nodes.filter(scaled).partition_by(kinds, maintain_order=True):
        count = max(1, math.ceil(part.height * size / there - 1e-9))
        again = part[(np.arange(count) % part.height).tolist()]
        parts.append(again.with_columns(node=pl.format("{}#{}", "node", pl.int_range(pl.len()))))
    return pl.concat(parts)


def guess(workload: Workload, nodes: pl.DataFrame, pool: str | None, goal: Goal) -> int:
    """A first guess: the load of each GPU type if nobody waited, at a busy hour, and square-root staffing for it.

    That is the modified offered load (Jennings and others 1996) with the log's own arrivals, as if every job held as
    many GPUs as they do on average.
    """
    scaled = chosen(nodes, pool)
    jobs = workload.frame.filter(pl.col("runtime").is_not_null() & (pl.col("gpu_milli") > 0))
    there = nodes.filter(scaled & (nodes["gpus"] > 0)).group_by("gpu_type").agg(pl.col("gpus").cast(pl.Int64).sum())
    most = 0.0
    for name, gpus in there.sort("gpu_type").iter_rows():
        asked = pl.col("gpu_types")
        mine = jobs.filter((asked.list.len() == 0) | (asked.list.first() == name))
        most = max(most, (_servers(mine, goal) if mine.height else 0.0) / gpus)
    return max(1, math.ceil(int(scaled.sum()) * most)) if most else int(scaled.sum())


def _servers(jobs: pl.DataFrame, goal: Goal) -> float:
    """GPUs so that few wait at a busy hour: as busy, and as few, as the goal's quantile says."""
    q = USUAL if goal.quantile is None else goal.quantile
    submit, runtime = jobs["submit"].to_numpy(), jobs["runtime"].to_numpy()
    gpus = jobs["gpu_milli"].to_numpy() * jobs["instances"].to_numpy() / WHOLE
    load = float(np.quantile(_held(submit, submit + runtime, gpus), q))
    if not load:
        return 0.0
    each = float(gpus @ runtime / runtime.sum())
    return (
        each * solve("square-root staffing", lam=load / each, mu=1.0, chance=1 - q)["servers by the square-root rule"]
    )


def _held(begin: Floats, end: Floats, gpus: Floats) -> Floats:
    """GPUs that would be held if nobody waited, at instants while jobs arrive."""
    times = np.linspace(0.0, float(begin.max()), INSTANTS)
    held = np.zeros(INSTANTS)
    for at, sign in ((begin, 1), (end, -1)):
        by = np.argsort(at, kind="stable")
        held += sign * np.append(0.0, np.cumsum(gpus[by]))[np.searchsorted(at[by], times, side="right")]
    return held


def one(
    folder: str, jobs: str, size: int, pool: str | None, slo: str, rules: Mapping[str, str], seed: int
) -> dict[str, Any]:
    """Simulate one size: the statistic with its interval, who never fits, and the best that more nodes can bring."""
    frame, nodes = (pl.read_ipc(Path(folder) / f) for f in (jobs, HARDWARE))
    alone, told_by = apart(frame, rules)
    goal, workload = Goal.read(slo), Workload.of(alone, source="jobs")
    cluster = Cluster.of(sized(nodes, pool, size), source=f"{size} nodes")
    run = simulate(workload, cluster, **told_by, seed=seed)
    mine = counted(workload.frame, nodes, pool)
    done = run.jobs.filter(mine.gather(run.jobs["job"])).drop_nulls(goal.column)
    refused = workload.frame.filter(mine).join(run.refused, on="job", maintain_order="left")
    gangs, nowhere = (refused.filter(pl.col("reason") == why) for why in (GANG, NOWHERE))
    values = np.concatenate((done[goal.column].to_numpy(), np.full(gangs.height + nowhere.height, NEVER)))
    best = np.concatenate((at_best(done, goal), at_best(gangs, goal), np.full(nowhere.height, NEVER)))
    blocks = Blocks.cut(np.concatenate([part["submit"].to_numpy() for part in (done, gangs, nowhere)]), seed=seed)
    told, least = (goal.between(x, blocks) if len(x) else (math.nan,) * 3 for x in (values, best))
    reasons = run.ledger.drop("job").sum()
    return {
        "told": np.array(told), "best": np.array(least), "jobs": np.array(len(values)),
        "never": np.array(gangs.height + nowhere.height), "nowhere": np.array(nowhere.height),
        "lacks": np.array(lacking(nowhere, nodes)),
        "gpus": np.array(cluster.gpus), "nodes": np.array(len(cluster) - int((~chosen(nodes, pool)).sum())),
        "reason": np.array(reasons.columns[int(np.argmax(reasons.to_numpy()))]),
    }  # fmt: skip


def at_best(jobs: pl.DataFrame, goal: Goal) -> Floats:
    """What counts of each job if nobody waits: no number of nodes does better."""
    runtime = jobs["runtime"].to_numpy()
    return {"wait": np.zeros(len(runtime)), "response": runtime, "slowdown": np.ones(len(runtime))}[goal.measure]
