"""Kinds of nodes: which jobs each can hold, which kind a job goes to, and the demand of its jobs at each step."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from fleetlab.core import Cluster, Scenario, Workload, WorkloadError
from fleetlab.core.catalog import NODE_AMOUNTS
from fleetlab.core.catalog.reasons import UNKNOWN_RUNTIME
from fleetlab.core.durations import plural
from fleetlab.stats import Floats, Ints
from fleetlab.studies.sentences import unmet_requests

# -- kinds of nodes ----------------------------------------------------------------------------------------------------

MOST_SLOTS = 200_000  # instances that a node may hold
NOWHERE = -1  # the number of the kind of a job that none can hold
UNNAMED = "default"  # the pool of nodes that name none
NOT_OF_A_KIND = ("node", "pool")  # two pools of equal nodes are scaled as one kind


@dataclass(frozen=True, slots=True, eq=False)
class NodeKind:
    """Equal nodes, as many as there may be."""

    name: str
    nodes: Cluster

    @property
    def node(self) -> dict[str, Any]:
        """What one of them has."""
        return self.nodes.frame.row(0, named=True)

    def holds(self) -> pl.Expr:
        """Return whether all instances of a job fit on these nodes; those with GPUs are for jobs that request some."""
        node, types = self.node, pl.col("gpu_types")
        fits = pl.col("instances") <= _slots(node) * len(self.nodes)
        if node["gpus"]:
            fits &= (pl.col("gpu_milli") > 0) & ((types.list.len() == 0) | types.list.contains(node["gpu_type"]))
        return fits.fill_null(value=False)

    def open_to(self) -> pl.Expr:
        """Return whether a job names no partition, or one that these nodes are in."""
        named = pl.col("partitions")
        return (named.list.len() == 0) | named.list.eval(pl.element().is_in(self.node["partitions"])).list.any()


@dataclass(frozen=True, slots=True, eq=False)
class ScaledPool:
    """The nodes of one kind and the jobs that go to them."""

    name: str
    scenario: Scenario  # on these nodes, still with all jobs
    rows: Ints  # of the jobs that go here
    left_out: int  # jobs that go to no kind; 0 where there are several kinds, whose result says it once


def node_kinds(cluster: Cluster, *, but: Sequence[str] = NOT_OF_A_KIND) -> list[NodeKind]:
    """Return the kinds of nodes in the order of the cluster, named as its nodes are: by pool and GPU type.

    Nodes of one kind are equal in all columns `but` these.
    """
    same = [c for c in cluster.frame.columns if c not in but]
    uses: Counter[str] = Counter()
    kinds = []
    for frame in cluster.frame.partition_by(same, maintain_order=True):
        words = (frame["pool"][0] if frame["pool"][0] != UNNAMED else None, frame["gpu_type"][0])
        name = "-".join(dict.fromkeys(word for word in words if word)) or "node"
        uses[name] += 1
        name = name if uses[name] == 1 else f"{name}.{uses[name]}"
        kinds.append(NodeKind(name, Cluster.of(frame, source=cluster.source)))
    return kinds


def preferred(jobs: pl.DataFrame, kinds: Sequence[NodeKind]) -> Ints:
    """Return the number of the kind that each job goes to: of those that hold it, that of the lowest weight.

    Where weights are equal it is the first. So a job that only one kind can hold goes there.
    """
    # Partitions tell kinds apart; one kind alone takes all jobs, whatever they name.
    may = [kind.holds() & kind.open_to() if len(kinds) > 1 else kind.holds() for kind in kinds]
    fits = np.column_stack([jobs.select(one).to_series().to_numpy() for one in may])
    by_weight = np.argsort([kind.node["weight"] for kind in kinds], kind="stable")
    first = by_weight[fits[:, by_weight].argmax(axis=1)]
    return np.where(fits.any(axis=1), first, NOWHERE).astype(np.int64)


def scaled_pools(scenario: Scenario) -> list[ScaledPool]:
    """Return each kind of node with the jobs that go to it; a kind without jobs is refused."""
    jobs, kinds = scenario.workload.frame, node_kinds(scenario.cluster)
    has_runtime = jobs["runtime"].is_not_null().to_numpy()
    goes_to = np.where(has_runtime, preferred(jobs, kinds), NOWHERE)
    pools = []
    for number, kind in enumerate(kinds):
        rows = np.flatnonzero(goes_to == number)
        if len(rows) < 2:
            raise _unused(scenario, kind, kinds, len(rows))
        if len(kinds) == 1:
            return [ScaledPool(kind.name, scenario, rows, jobs.height - len(rows))]
        pools.append(ScaledPool(kind.name, scenario.replace(cluster=kind.nodes, nodes=""), rows, 0))
    return pools


def _unused(scenario: Scenario, kind: NodeKind, kinds: Sequence[NodeKind], count: int) -> WorkloadError:
    source = scenario.workload.source
    hint = "a job must fit on a node and have a runtime; GPU nodes are for jobs with GPUs"
    if len(kinds) == 1:
        return WorkloadError(f"{source}: too few jobs can run on these nodes: {count}", hint=hint)
    if int(scenario.workload.frame.select(kind.holds().sum()).item()) >= 2:
        return WorkloadError(
            f"{source}: the jobs that nodes of kind `{kind.name}` can hold go to other kinds",
            hint="a job goes to the kind of the lowest `weight`, then to the first: change that, or leave the kind out",
        )
    return WorkloadError(
        f"{source}: too few jobs can run on nodes of kind `{kind.name}`: {count}",
        hint=f"leave its [[node]] entry out; {hint}",
    )


def left_out_notes(scenario: Scenario) -> list[str]:
    """Return how many jobs go to no kind of node, and why."""
    jobs, kinds = scenario.workload.frame, node_kinds(scenario.cluster)
    with_runtime = jobs.filter(pl.col("runtime").is_not_null())
    nowhere = with_runtime.filter(pl.Series(preferred(with_runtime, kinds) == NOWHERE))
    notes = []
    if nowhere.height:
        lacks = unmet_requests(nowhere, scenario.cluster.frame)
        why = f" ({lacks})" if lacks else ""
        notes.append(f"{plural(nowhere.height, 'job')} left out: no kind of node that they may use can hold them{why}")
    if unknown := jobs.height - with_runtime.height:
        notes.append(f"{plural(unknown, 'job')} left out: {UNKNOWN_RUNTIME}")
    return notes


def _slots(node: dict[str, Any]) -> pl.Expr:
    """Return how many instances of a job an empty node holds."""
    gpu, memory, limit = (pl.col(name).cast(pl.Int64) for name in ("gpu_milli", "gpu_memory_mib", "max_per_node"))
    each = 1000 // pl.min_horizontal(gpu, 1000)  # on one GPU
    each = pl.when(memory > 0).then(pl.min_horizontal(each, node["gpu_memory_mib"] // memory)).otherwise(each)
    limits = [(pl.col(name) > 0, node[name] // pl.col(name)) for name in NODE_AMOUNTS]
    limits += [(gpu > 0, node["gpus"] * each // pl.max_horizontal(gpu // 1000, 1)), (limit > 0, limit)]
    return pl.min_horizontal(pl.lit(MOST_SLOTS), *(pl.when(some).then(slots) for some, slots in limits))


# -- demand in nodes, as if no job waited ------------------------------------------------------------------------------

MOST_STEPS = 200_000  # steps


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
    pool_workload = Workload.of(jobs, source=workload.source)
    fraction = _fraction(jobs, node) * jobs["instances"].to_numpy()[:, None]
    end = float(jobs["submit"][-1])
    steps = math.ceil(end / every) if every > 0 else 0
    if not 0 < steps <= MOST_STEPS:
        msg = f"submissions over {end:,.0f} s make {steps:,} steps of {every:g} s: not between 1 and {MOST_STEPS:,}"
        raise WorkloadError(msg, hint="--every 5m makes 288 a day")
    submit, runtime = jobs["submit"].to_numpy(), jobs["runtime"].to_numpy()
    level = peaks(submit, submit + runtime, fraction, every, steps)
    scarce = fraction[:, int((fraction * runtime[:, None]).sum(axis=0).argmax())]
    flows = np.column_stack([_in_steps(when, scarce, every, steps) for when in (submit, submit + runtime)])
    cold = scenario.on(pool_workload, rows).replace(warm_up="none")  # the days that count come after those of learning
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
