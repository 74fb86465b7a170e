"""One demand on the nodes: where it goes, what fits on no node, and how many nodes it would need."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from fleetlab.core import Cluster, Progress, Workload, WorkloadError
from fleetlab.plan import Plan, plan
from fleetlab.plan.node_state import NodeState
from fleetlab.plan.problem import Problem, problem
from fleetlab.studies.autoscale.kinds import NodeKind, node_kinds


@dataclass(frozen=True, slots=True)
class Search:
    """How plans are made: what to minimize, and for how long each may look."""

    objective: str
    prices: Mapping[str, float] | None
    seconds: float
    seed: int
    progress: Progress

    def plan(self, demand: Workload, nodes: Cluster) -> Plan:
        """Place a demand."""
        return plan(
            demand, nodes, objective=self.objective, prices=self.prices, seconds=self.seconds, seed=self.seed,
            progress=self.progress,
        )  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """A demand, its plan on the nodes that there are, and on as many as it takes where those are too few."""

    name: str
    demand: Workload
    misfits: pl.DataFrame  # jobs of which no node can hold an instance
    there: Plan | None  # None: there is nothing to place
    enough: Plan | None  # the same plan, where all fit
    nodes: tuple[int, ...]  # of each kind that it needs

    @property
    def unplaced(self) -> int:
        """Return the instances without a place on the nodes that there are."""
        return self.demand.instances - (0 if self.there is None else self.there.placements.height)


def kinds_of(nodes: Cluster) -> list[NodeKind]:
    """Return the kinds of nodes; pools are told apart, as they may have prices of their own."""
    return node_kinds(nodes, but=("node",))


def check_kinds(demand: Workload, nodes: Cluster) -> None:
    """Refuse a kind of node on which no instance fits: an amount may be missing or mistyped."""
    p = problem(demand, nodes)
    used = set(nodes.frame["node"].filter(pl.Series(np.asarray(p.may.any(axis=0))[p.of])))
    for kind in kinds_of(nodes):
        if kind.nodes.frame["node"][0] not in used:
            msg = f"{nodes.source}: no instance fits on nodes of kind `{kind.name}`"
            raise WorkloadError(msg, hint="check the amounts of its [[node]] entry (0 where left out), or leave it out")


def place(name: str, demand: Workload, nodes: Cluster, search: Search) -> Case:
    """Place a demand on the nodes; where they are too few, on more of each kind."""
    if not demand.instances:
        return Case(name, demand, demand.frame, None, None, (0,) * len(kinds_of(nodes)))
    p = problem(demand, nodes)
    nowhere = p.rows.filter(pl.col("kind").is_in(np.flatnonzero(~p.may.any(axis=1))))["job"].unique()
    misfits = demand.frame.filter(pl.col("job").is_in(nowhere.to_list()))
    fitting = replace(demand, frame=demand.frame.filter(~pl.col("job").is_in(nowhere.to_list())))
    there = search.plan(fitting, nodes)
    enough = there if there.feasible else search.plan(fitting, enlarged(fitting, nodes))
    return Case(name, demand, misfits, there, enough, _in_use(enough, nodes))


def enlarged(demand: Workload, nodes: Cluster) -> Cluster:
    """Return the nodes with enough more of each kind to hold the demand."""
    p = problem(demand, nodes)
    more = _enough(p)
    frames = [nodes.frame]
    for number, kind in enumerate(kinds_of(nodes)):
        node = int(np.flatnonzero((nodes.frame["node"] == kind.nodes.frame["node"][0]).to_numpy())[0])
        names = [f"{_prefix(number)}{i}" for i in range(more[p.of[node]])]
        row = kind.nodes.frame.head(1).drop("node")
        frames.append(pl.DataFrame({"node": names}, schema={"node": pl.String}).join(row, how="cross"))
    return Cluster.of(pl.concat([f.select(nodes.frame.columns) for f in frames]), source=nodes.source)


def _enough(p: Problem) -> list[int]:
    """Return how many nodes of each class hold all instances, each kind of instance on nodes of its own."""
    empty, first = NodeState(p), np.array([int(np.flatnonzero(p.of == c)[0]) for c in range(len(p.have))])
    more = [0] * len(first)
    for k in range(p.kinds):
        slots = empty.room(k, first)
        best = int(np.argmax(np.where(slots > 0, slots / np.maximum(p.weight, 1e-9), 0.0)))
        more[best] += -(-int(p.count[k]) // int(slots[best]))
    return more


def _prefix(number: int) -> str:
    return f"more nodes of kind {number}: "


def _in_use(found: Plan, nodes: Cluster) -> tuple[int, ...]:
    """Return how many nodes of each kind a plan uses, those that were added too."""
    used = found.loads["node"]
    return tuple(
        int((used.is_in(kind.nodes.frame["node"].to_list()) | used.str.starts_with(_prefix(number))).sum())
        for number, kind in enumerate(kinds_of(nodes))
    )
