"""The demand of jobs in nodes at each step, as if no job waited."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from fleetlab.core import Cluster, Scenario, Workload, WorkloadError
from fleetlab.core.catalog import NODE_AMOUNTS
from fleetlab.stats import Floats, Ints

MOST = 200_000  # steps


@dataclass(frozen=True, slots=True, eq=False)
class PoolDemand:
    """The jobs that a pool of equal nodes is for, and their demand."""

    scenario: Scenario  # with these jobs
    fraction: Floats  # [jobs, resources]: of a node, all instances together; the last is of its GPUs
    every: float  # seconds in a step
    level: Floats  # [steps]: the highest demand in each step, in nodes
    flows: Floats  # [steps, 2]: demand that arrives and departs in each step, in nodes
    end: float  # of the last step
    left_out: int  # jobs that can never run on these nodes, or with an unknown runtime

    @property
    def most(self) -> int:
        """The nodes that hold the highest demand, if jobs packed perfectly."""
        return math.ceil(float(self.level.max(initial=0.0)) - 1e-9)


def pool_demand(scenario: Scenario, *, every: float) -> PoolDemand:
    """Return the jobs that may run on the nodes, and their demand; a pool with GPUs is for jobs that request some."""
    nodes, workload = scenario.cluster, scenario.workload
    node = _one_kind(nodes)
    frame = workload.frame.with_row_index("row").filter(pl.col("runtime").is_not_null())
    if node["gpus"]:
        types = pl.col("gpu_types")
        may = (types.list.len() == 0) | types.list.contains(node["gpu_type"])
        frame = frame.filter((pl.col("gpu_milli") > 0) & may)
    frame = frame.filter(pl.col("instances") <= _slots(node) * len(nodes))
    if frame.height < 2:
        msg = f"{workload.source}: too few jobs can run on these nodes: {frame.height}"
        raise WorkloadError(msg, hint="a job must fit on a node and have a runtime; GPU nodes are for jobs with GPUs")
    first = float(frame["submit"][0])
    jobs = frame.drop("row", "job").with_columns(pl.col("submit") - first)
    kept = Workload.of(jobs, source=workload.source)
    fraction = _fraction(jobs, node) * jobs["instances"].to_numpy()[:, None]
    end = float(jobs["submit"][-1])
    steps = math.ceil(end / every) if every > 0 else 0
    if not 0 < steps <= MOST:
        msg = f"submissions over {end:,.0f} s make {steps:,} steps of {every:g} s: not between 1 and {MOST:,}"
        raise WorkloadError(msg, hint="--every 5m makes 288 a day")
    submit, runtime = jobs["submit"].to_numpy(), jobs["runtime"].to_numpy()
    level = peaks(submit, submit + runtime, fraction, every, steps)
    scarce = fraction[:, int((fraction * runtime[:, None]).sum(axis=0).argmax())]
    flows = np.column_stack([_in_steps(when, scarce, every, steps) for when in (submit, submit + runtime)])
    rows = frame["row"].to_numpy().astype(np.int64)
    cold = scenario.on(kept, rows).replace(warm_up="none")  # the days that count come after those of learning
    return PoolDemand(cold, fraction, every, level, flows, steps * every, len(workload) - frame.height)


def _one_kind(nodes: Cluster) -> dict[str, Any]:
    kinds = nodes.frame.drop("node", "pool").unique()
    if kinds.height != 1:
        msg = f"a pool that is scaled has nodes of one kind, not: {kinds.height}"
        raise WorkloadError(msg, hint="one [[node]] entry, its count the most nodes that there may be")
    return kinds.row(0, named=True)


def _slots(node: dict[str, Any]) -> pl.Expr:
    """Return how many instances of a job an empty node holds."""
    gpu, memory, limit = (pl.col(name).cast(pl.Int64) for name in ("gpu_milli", "gpu_memory_mib", "max_per_node"))
    each = 1000 // pl.min_horizontal(gpu, 1000)  # on one GPU
    each = pl.when(memory > 0).then(pl.min_horizontal(each, node["gpu_memory_mib"] // memory)).otherwise(each)
    limits = [(pl.col(name) > 0, node[name] // pl.col(name)) for name in NODE_AMOUNTS]
    limits += [(gpu > 0, node["gpus"] * each // pl.max_horizontal(gpu // 1000, 1)), (limit > 0, limit)]
    return pl.min_horizontal(pl.lit(MOST), *(pl.when(some).then(slots) for some, slots in limits))


def _fraction(frame: pl.DataFrame, node: dict[str, Any]) -> Floats:
    """Return the fraction of a node that one instance takes, of each resource; infinite where the node has none."""
    parts = [_ratio(frame[name].to_numpy(), node[name]) for name in NODE_AMOUNTS]
    return np.column_stack([*parts, _ratio(frame["gpu_milli"].to_numpy(), 1000 * node["gpus"])])


def _ratio(amount: Ints, capacity: int) -> Floats:
    return np.where(amount > 0, amount / capacity if capacity else np.inf, 0.0).astype(np.float64)


def _in_steps(when: Floats, amount: Floats, every: float, steps: int) -> Floats:
    at = (when // every).astype(np.int64)
    return np.bincount(at[at < steps], weights=amount[at < steps], minlength=steps).astype(np.float64)


def peaks(begin: Floats, end: Floats, amount: Floats, every: float, steps: int) -> Floats:
    """Return the highest level in each step, of the scarcest resource; each amount is there from its begin to its end.

    >>> peaks(np.array([0.0, 15.0]), np.array([12.0, 18.0]), np.array([[2.0], [1.0]]), 10.0, 3)
    array([2., 2., 0.])
    """
    when = np.concatenate((end, begin))  # at one time ends come first
    order = np.argsort(when, kind="stable")
    when, level = when[order], np.cumsum(np.concatenate((-amount, amount))[order], axis=0).max(axis=1)
    edges = np.arange(steps) * every
    before = np.searchsorted(when, edges, side="right") - 1
    highest = np.where(before >= 0, level[np.maximum(before, 0)], 0.0)
    at = (when // every).astype(np.int64)
    inside = (at >= 0) & (at < steps)
    np.maximum.at(highest, at[inside], level[inside])
    return np.asarray(np.round(np.maximum(highest, 0.0), 9))
