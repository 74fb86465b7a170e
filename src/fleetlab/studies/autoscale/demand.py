"""What jobs ask for at each step, in nodes: as if nobody waited."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fleetlab.core import Cluster, Workload, WorkloadError
from fleetlab.core.catalog import NODE_AMOUNTS

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

MOST = 200_000  # steps


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """Jobs that a pool of equal nodes is for, and the demand they make."""

    workload: Workload
    part: Floats  # [jobs, amounts]: of a node, all instances together; the last is of its GPUs
    every: float  # seconds in a step
    level: Floats  # [steps]: the most that is asked for at once in each step, in nodes
    flows: Floats  # [steps, 2]: what comes and what goes in each step, in nodes
    end: float  # of the last step
    left_out: int  # jobs that can never run on these nodes, or of which it is not known how long they run

    @property
    def most(self) -> int:
        """Nodes that hold the highest level, if everything packed well."""
        return math.ceil(float(self.level.max(initial=0.0)) - 1e-9)


def asked(workload: Workload, nodes: Cluster, *, every: float) -> Asked:
    """Those of a workload that may run on these nodes; a pool with GPUs is for those who ask for some."""
    node = _one_kind(nodes)
    frame = _with_service(workload.frame)
    if node["gpus"]:
        types = pl.col("gpu_types")
        may = (types.list.len() == 0) | types.list.contains(node["gpu_type"])
        frame = frame.filter((pl.col("gpu_milli") > 0) & may)
    frame = frame.filter(pl.col("instances") <= _slots(node) * len(nodes))
    part = _part(frame, node)
    if frame.height < 2:
        msg = f"{workload.source}: too few jobs could run on these nodes: {frame.height}"
        raise WorkloadError(msg, hint="a job must fit on a node, and its run time be known; GPU nodes are for GPU jobs")
    first = float(frame["submit"][0])
    kept = Workload.of(frame.drop("job").with_columns(pl.col("submit") - first), source=workload.source)
    whole = part * kept.frame["instances"].to_numpy()[:, None]
    end = float(kept.frame["submit"][-1])
    steps = math.ceil(end / every) if every > 0 else 0
    if not 0 < steps <= MOST:
        msg = f"submissions over {end:,.0f} s make {steps:,} steps of {every:g} s: not between 1 and {MOST:,}"
        raise WorkloadError(msg, hint="--every 5m makes 288 a day")
    submit, runtime = kept.frame["submit"].to_numpy(), kept.frame["runtime"].to_numpy()
    level = peaks(submit, submit + runtime, whole, every, steps)
    scarce = whole[:, int((whole * runtime[:, None]).sum(axis=0).argmax())]
    flows = np.column_stack([_in_steps(when, scarce, every, steps) for when in (submit, submit + runtime)])
    return Asked(kept, whole, every, level, flows, steps * every, len(workload) - frame.height)


def _one_kind(nodes: Cluster) -> dict[str, Any]:
    kinds = nodes.frame.drop("node", "pool").unique()
    if kinds.height != 1:
        msg = f"a pool that is scaled has nodes of one kind, not of: {kinds.height}"
        raise WorkloadError(msg, hint="one [[node]] entry with the count that there may be at most")
    return kinds.row(0, named=True)


def _with_service(frame: pl.DataFrame) -> pl.DataFrame:
    """Run times; who is older than the log or outlives it runs for as long as the log saw it."""
    seen = pl.concat([frame["submit"], frame["start"].drop_nulls(), frame["end"].drop_nulls()]).max()
    begin = pl.coalesce("start", "submit")
    until = pl.when(pl.col("status") == "running").then(pl.lit(seen)).otherwise(pl.col("end"))
    told = frame.with_columns(runtime=pl.coalesce("runtime", until - begin))
    return told.filter(pl.col("runtime").is_not_null() & (pl.col("runtime") >= 0))


def _slots(node: dict[str, Any]) -> pl.Expr:
    """How many instances of a job an empty node holds."""
    gpu, memory, limit = (pl.col(name).cast(pl.Int64) for name in ("gpu_milli", "gpu_memory_mib", "max_per_node"))
    each = 1000 // pl.min_horizontal(gpu, 1000)  # on one GPU
    each = pl.when(memory > 0).then(pl.min_horizontal(each, node["gpu_memory_mib"] // memory)).otherwise(each)
    asked = [(pl.col(name) > 0, node[name] // pl.col(name)) for name in NODE_AMOUNTS]
    asked += [(gpu > 0, node["gpus"] * each // pl.max_horizontal(gpu // 1000, 1)), (limit > 0, limit)]
    return pl.min_horizontal(pl.lit(MOST), *(pl.when(some).then(slots) for some, slots in asked))


def _part(frame: pl.DataFrame, node: dict[str, Any]) -> Floats:
    """The part of a node that one instance takes, of each amount; infinite where the node has none of it."""
    parts = [_ratio(frame[name].to_numpy(), node[name]) for name in NODE_AMOUNTS]
    return np.column_stack([*parts, _ratio(frame["gpu_milli"].to_numpy(), 1000 * node["gpus"])])


def _ratio(amount: Ints, there: int) -> Floats:
    return np.where(amount > 0, amount / there if there else np.inf, 0.0).astype(np.float64)


def _in_steps(when: Floats, amount: Floats, every: float, steps: int) -> Floats:
    at = (when // every).astype(np.int64)
    return np.bincount(at[at < steps], weights=amount[at < steps], minlength=steps).astype(np.float64)


def peaks(begin: Floats, end: Floats, amount: Floats, every: float, steps: int) -> Floats:
    """The highest level in each step, of the amount that there is most of; each is held from its begin to its end.

    >>> peaks(np.array([0.0, 15.0]), np.array([12.0, 18.0]), np.array([[2.0], [1.0]]), 10.0, 3)
    array([2., 2., 0.])
    """
    when = np.concatenate((end, begin))  # at one time ends come first
    order = np.argsort(when, kind="stable")
    when, level = when[order], np.cumsum(np.concatenate((-amount, amount))[order], axis=0).max(axis=1)
    edges = np.arange(steps) * every
    before = np.searchsorted(when, edges, side="right") - 1
    found = np.where(before >= 0, level[np.maximum(before, 0)], 0.0)
    at = (when // every).astype(np.int64)
    inside = (at >= 0) & (at < steps)
    np.maximum.at(found, at[inside], level[inside])
    return np.asarray(np.round(np.maximum(found, 0.0), 9))
