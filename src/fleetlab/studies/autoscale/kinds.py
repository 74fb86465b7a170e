"""Kinds of nodes: which jobs each can hold, and which kind a job goes to where several could."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from fleetlab.core import Cluster, Scenario, WorkloadError
from fleetlab.core.catalog import NODE_AMOUNTS
from fleetlab.core.catalog.reasons import UNKNOWN_RUNTIME
from fleetlab.core.durations import plural
from fleetlab.stats import Ints
from fleetlab.studies.requests import unmet_requests

MOST = 200_000  # instances that a node may hold
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
    taken: Counter[str] = Counter()
    kinds = []
    for frame in cluster.frame.partition_by(same, maintain_order=True):
        words = (frame["pool"][0] if frame["pool"][0] != UNNAMED else None, frame["gpu_type"][0])
        name = "-".join(dict.fromkeys(word for word in words if word)) or "node"
        taken[name] += 1
        name = name if taken[name] == 1 else f"{name}.{taken[name]}"
        kinds.append(NodeKind(name, Cluster.of(frame, source=cluster.source)))
    return kinds


def preferred(jobs: pl.DataFrame, kinds: Sequence[NodeKind]) -> Ints:
    """Return the number of the kind that each job goes to: of those that hold it, that of the lowest weight.

    Where weights are equal it is the first. So a job that only one kind can hold goes there.
    """
    # Partitions tell kinds apart; one kind alone takes all jobs, whatever they name.
    may = [kind.holds() & kind.open_to() if len(kinds) > 1 else kind.holds() for kind in kinds]
    held = np.column_stack([jobs.select(one).to_series().to_numpy() for one in may])
    by_weight = np.argsort([kind.node["weight"] for kind in kinds], kind="stable")
    first = by_weight[held[:, by_weight].argmax(axis=1)]
    return np.where(held.any(axis=1), first, NOWHERE).astype(np.int64)


def scaled_pools(scenario: Scenario) -> list[ScaledPool]:
    """Return each kind of node with the jobs that go to it; a kind without jobs is refused."""
    jobs, kinds = scenario.workload.frame, node_kinds(scenario.cluster)
    known = jobs["runtime"].is_not_null().to_numpy()
    goes_to = np.where(known, preferred(jobs, kinds), NOWHERE)
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
    known = jobs.filter(pl.col("runtime").is_not_null())
    nowhere = known.filter(pl.Series(preferred(known, kinds) == NOWHERE))
    notes = []
    if nowhere.height:
        lacks = unmet_requests(nowhere, scenario.cluster.frame)
        why = f" ({lacks})" if lacks else ""
        notes.append(f"{plural(nowhere.height, 'job')} left out: no kind of node that they may use can hold them{why}")
    if unknown := jobs.height - known.height:
        notes.append(f"{plural(unknown, 'job')} left out: {UNKNOWN_RUNTIME}")
    return notes


def _slots(node: dict[str, Any]) -> pl.Expr:
    """Return how many instances of a job an empty node holds."""
    gpu, memory, limit = (pl.col(name).cast(pl.Int64) for name in ("gpu_milli", "gpu_memory_mib", "max_per_node"))
    each = 1000 // pl.min_horizontal(gpu, 1000)  # on one GPU
    each = pl.when(memory > 0).then(pl.min_horizontal(each, node["gpu_memory_mib"] // memory)).otherwise(each)
    limits = [(pl.col(name) > 0, node[name] // pl.col(name)) for name in NODE_AMOUNTS]
    limits += [(gpu > 0, node["gpus"] * each // pl.max_horizontal(gpu // 1000, 1)), (limit > 0, limit)]
    return pl.min_horizontal(pl.lit(MOST), *(pl.when(some).then(slots) for some, slots in limits))
