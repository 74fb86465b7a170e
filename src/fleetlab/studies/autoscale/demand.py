"""The demand of jobs in nodes at each step, as if no job waited."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from fleetlab.core import Scenario, Workload, WorkloadError
from fleetlab.core.catalog import NODE_AMOUNTS
from fleetlab.stats import Floats, Ints
from fleetlab.studies.autoscale.kinds import ScaledPool

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


def pool_demand(pool: ScaledPool, *, every: float) -> PoolDemand:
    """Return the jobs of a pool of equal nodes, and their demand."""
    scenario, rows = pool.scenario, pool.rows
    workload, node = scenario.workload, scenario.cluster.frame.row(0, named=True)
    frame = workload.frame[rows]
    first = float(frame["submit"][0])
    jobs = frame.drop("job").with_columns(pl.col("submit") - first)
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
    cold = scenario.on(kept, rows).replace(warm_up="none")  # the days that count come after those of learning
    return PoolDemand(cold, fraction, every, level, flows, steps * every, pool.left_out)


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
