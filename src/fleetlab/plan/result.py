"""The result of `plan`: placements, the bound, and what does not fit."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import polars as pl

from fleetlab.core import Cluster, Estimate, Figure, Provenance, Result, Workload, say
from fleetlab.core.catalog import NODE_AMOUNTS, RESOURCES
from fleetlab.plan.problem import WHOLE, Bools, Problem
from fleetlab.plan.solvers.greedy import PartialPlan, gpus_needed

LOADS = {r.name: r.request for r in RESOURCES if r.divisible} | {"gpu": "gpu_milli"}
METRICS = {
    "nodes": ("nodes in use", ""),
    "stranded": ("GPUs on nodes in use", ""),
    "cost": ("cost of nodes in use", ""),
    "balance": ("highest node load", "%"),
    "moves": ("moved instances", ""),
}
BARS = 20  # of the figure of loads


@dataclass(frozen=True, eq=False, repr=False)
class Plan(Result):
    """A placement with its bound: no plan whatever does better than `bound`, and this one comes to `value`."""

    provenance: Provenance
    demand: Workload
    cluster: Cluster
    placements: pl.DataFrame  # job, instance, node, gpus: a bit for each of the node's GPUs, 1 for its first
    unplaced: pl.DataFrame  # who does not fit, and why
    value: float
    bound: float
    ended: str  # proved, searched (all that was to be tried was), or clock
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"<Plan {self.placements.height:,} of {self.demand.instances:,} instances, {say(self.summary()[0])}>"

    @property
    def feasible(self) -> bool:
        """Has everybody a place?"""
        return self.placements.height == self.demand.instances

    @property
    def gap(self) -> float:
        """How far above the bound it is at most, as a part of the bound; 0: it is the best."""
        if not self.feasible:
            return math.nan
        if self.value <= self.bound + 1e-9:
            return 0.0
        return (self.value - self.bound) / self.bound if self.bound > 0 else math.inf

    def summary(self) -> list[Estimate]:
        """The objective with its bound, and the load of nodes in use."""
        objective = self.provenance.settings["objective"]
        name, unit = METRICS[objective]
        times = 100.0 if unit == "%" else 1.0
        metrics = [Estimate(name, times * self.value, times * min(self.bound, self.value), times * self.value, unit)]
        if not self.feasible:
            metrics = [Estimate.exact("unplaced instances", self.demand.instances - self.placements.height)]
        else:
            metrics.append(Estimate.exact("optimality gap, at most", 100 * self.gap, "%"))
        used = self.loads
        metrics.append(Estimate.exact("instances placed", self.placements.height))
        if objective != "nodes":
            metrics.append(Estimate.exact("nodes in use", used.height))
        if gpus := int(used["gpus"].sum()):
            idle = gpus - float((used["gpu"] * used["gpus"]).sum()) / 100
            metrics.append(Estimate.exact("idle GPUs on nodes in use", round(idle, 3)))
        return metrics

    @property
    def loads(self) -> pl.DataFrame:
        """One row a node in use: instances, GPUs, and the percentage held of what it has; null where it has none."""
        allocated = self._allocated()
        there = self.cluster.frame.with_columns(gpu_milli=pl.col("gpus").cast(pl.Int64) * 1000)
        both = allocated.join(there, on="node", how="left", maintain_order="left")
        part = {
            name: pl.when(pl.col(column) > 0).then(100 * pl.col(f"allocated_{name}") / pl.col(column))
            for name, column in LOADS.items()
        }
        return both.select("node", "pool", "gpu_type", "instances", pl.col("gpus").cast(pl.Int64), **part)

    def _allocated(self) -> pl.DataFrame:
        amounts = {f"allocated_{name}": pl.col(column).cast(pl.Int64) for name, column in LOADS.items()}
        requests = self.demand.frame.select("job", **amounts)
        each = self.placements.join(requests, on="job", how="left", maintain_order="left")
        sums = [pl.col(f"allocated_{name}").sum() for name in LOADS]
        return each.group_by("node", maintain_order=True).agg(pl.len().cast(pl.Int64).alias("instances"), *sums)

    def tables(self) -> dict[str, pl.DataFrame]:
        """In words; what does not fit; nodes by pool and type; the load of each node in use; who is where."""
        tables = {"does not fit": self.unplaced, "nodes": self._by_class()}
        return tables | {"loads": self.loads, "placements": self.placements}

    def _by_class(self) -> pl.DataFrame:
        kinds = ["pool", "gpu_type", "gpus"]
        there = self.cluster.frame.with_columns(pl.col("gpus").cast(pl.Int64))
        there = there.group_by(kinds, maintain_order=True).agg(pl.len().cast(pl.Int64).alias("there"))
        loads = self.loads.group_by(kinds).agg(
            pl.len().cast(pl.Int64).alias("in use"), pl.col("instances").sum(), pl.col(LOADS).mean()
        )
        both = there.join(loads, on=kinds, how="left", nulls_equal=True, maintain_order="left")
        return both.with_columns(pl.col("in use", "instances").fill_null(0))

    @property
    def findings(self) -> tuple[str, ...]:
        """What was found, in words."""
        placed, requests = self.placements.height, self.demand.instances
        if not self.feasible:
            proved = self.unplaced.height > 0 and self.unplaced["proved"].all()
            sure = "proved" if proved else "not proved"
            first = f"Not all of {requests:,} instances fit on {len(self.cluster):,} nodes ({sure})."
            rest = f"{requests - placed:,} of them are not placed."
            return first, rest, *(f"Job {row['job']}: {row['why']}." for row in self.unplaced.head(5).to_dicts())
        name, unit = METRICS[self.provenance.settings["objective"]]
        times, of = (100.0, " %") if unit == "%" else (1.0, "")
        value, bound = times * self.value, times * self.bound
        first = f"All {placed:,} instances are placed: {name} {value:,.6g}{of}."
        if self.gap == 0:
            return first, "This is optimal (proved)."
        apart = f": the plan is at most {100 * self.gap:.2g} % above the optimum" if math.isfinite(self.gap) else ""
        return first, f"The lower bound is {bound:,.6g}{of}{apart}."

    def figures(self) -> dict[str, Figure]:
        """How full the nodes in use are, by what they have."""
        if not self.placements.height:
            return {}
        rows = []
        loads = self.loads
        for name in LOADS:
            values = loads[name].drop_nulls().to_numpy()
            if len(values):
                at = np.linspace(0, 100, BARS + 1)
                rows += [(float(x), float(100 * (values <= x + 1e-9).mean()), name) for x in at]
        frame = pl.DataFrame(rows, schema={"x": pl.Float64, "y": pl.Float64, "series": pl.String}, orient="row")
        means = {name: loads[name].drop_nulls().to_numpy() for name in LOADS}
        full = ", ".join(f"{name} {float(x.mean()):.0f} %" for name, x in means.items() if len(x))
        alt = f"load of {loads.height:,} nodes in use; means: {full}"
        return {"loads": Figure("Load of nodes in use", "line", frame, "allocated, %", "share of nodes, %", alt)}


# --- why does a demand not fit? Which instances, which resource, how much is missing, and by which rule --------------


SCHEMA = {"job": pl.Int64, "instances": pl.Int64, "rule": pl.String, "resource": pl.String}
SCHEMA |= dict.fromkeys(("requested", "available", "missing"), pl.Int64) | {"why": pl.String, "proved": pl.Boolean}


def why(p: Problem, placing: PartialPlan, *, proved: bool) -> pl.DataFrame:
    """What does not fit: what can be proved from totals first; else who is left over, and what the best node lacks."""
    rows = [*_too_large(p), *_too_many(p), *_too_dense(p)]
    if not rows:
        rows = [_left_over(p, placing, int(k), proved=proved) for k in np.flatnonzero(placing.unplaced)]
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


def _first(p: Problem, k: int) -> int:
    return int(p.rows["job"][int(p.first[k])])


def _too_large(p: Problem) -> list[tuple[object, ...]]:
    """Kinds that no empty node would hold."""
    return [row for k in np.flatnonzero(~p.may.any(axis=1)) for row in _misfit(p, int(k))]


def _misfit(p: Problem, k: int) -> list[tuple[object, ...]]:
    """All that the nearest class of node lacks for one instance: among those of its GPU types, where there are some."""
    job, count, request = _first(p, k), int(p.count[k]), int(p.gpus[k])
    rows: list[tuple[object, ...]] = []
    if not p.typed[k].any():
        text = "no node has a GPU type it may use"
        rows.append((job, count, "gpu_types", "gpus", request, 0, request, text, True))
    # Where no GPU is of its type, how many there are of others says nothing.
    names = (*NODE_AMOUNTS, "gpus", "gpu_memory_mib") if p.typed[k].any() else NODE_AMOUNTS
    need = [*p.ask[k].tolist(), int(p.gpus[k]), int(p.vram[k])][: len(names)]
    lacks = []
    for c in np.flatnonzero(p.typed[k]) if p.typed[k].any() else range(len(p.have)):
        has = [*p.have[c].tolist(), int(p.cards[c]), int(p.memory[c])]
        short = [(n, a, h) for n, a, h in zip(names, need, has, strict=False) if a > h]
        lacks.append((len(short), sum(1 - h / a for _, a, h in short), short))
    nearest = "the closest node it may use" if p.typed[k].any() else "the closest node of another type"
    for name, request, has in min(lacks)[2]:
        text = f"one instance requests {request:,} {name}, {nearest} has {has:,}"
        rows.append((job, count, "one node", name, request, has, request - has, text, True))
    return rows


def _too_many(p: Problem) -> list[tuple[object, ...]]:
    """Amounts of which all nodes together have too little, for those who can run on them alone."""
    rows: list[tuple[object, ...]] = []
    for classes in np.unique(p.may[p.may.any(axis=1)], axis=0):
        captive = (p.may[:, ~classes].sum(axis=1) == 0) & p.may.any(axis=1)
        where = "all nodes" if classes.all() else "the nodes they may use"
        for a, name in enumerate(NODE_AMOUNTS):
            request, has = int(p.ask[captive, a] @ p.count[captive]), int(p.have[classes, a] @ p.there[classes])
            if request > has:
                rows.append(_short(p, captive, name, request, has, where))
        cards, need = int(p.cards[classes] @ p.there[classes]), math.ceil(gpus_needed(p, captive))
        if need > cards:
            rows.append(_short(p, captive, "gpus", need, cards, where))
    # Those who may run anywhere add nothing to what is short for some: told once.
    return list({row[3:7]: row for row in reversed(rows)}.values())[::-1]


def _short(p: Problem, who: Bools, name: str, request: int, has: int, where: str) -> tuple[object, ...]:
    count = int(p.count[who].sum())
    text = f"{count:,} instances request {request:,} {name}, {where} have {has:,} in total"
    first = _first(p, int(np.flatnonzero(who)[0]))
    return (first, count, "total capacity", name, request, has, request - has, text, True)


def _too_dense(p: Problem) -> list[tuple[object, ...]]:
    """Apps of which there are more instances than their limit allows on all nodes; and kinds with too few slots."""
    rows: list[tuple[object, ...]] = []
    for app, limit in sorted({(int(a), int(m)) for a, m in zip(p.app, p.limit, strict=True) if a >= 0}):
        counted = (p.app == app) & (p.limit <= limit) & (p.limit > 0)
        nodes, request = int(p.there[p.may[counted].any(axis=0)].sum()), int(p.count[counted].sum())
        if request > nodes * limit:
            text = f"{request:,} instances of one app, at most {limit} per node, on {nodes:,} eligible nodes"
            first = _first(p, int(np.flatnonzero(counted)[0]))
            rows.append(
                (first, request, "max_per_node", "nodes", request, nodes * limit, request - nodes * limit, text, True)
            )
    return rows + [row for k in np.flatnonzero(p.may.any(axis=1)) if (row := _slots(p, int(k)))]


def _slots(p: Problem, k: int) -> tuple[object, ...] | None:
    """A kind of which empty nodes would hold too few."""
    slots = 0
    for c in np.flatnonzero(p.may[k]):
        each = [int(p.have[c, a] // p.ask[k, a]) for a in range(len(NODE_AMOUNTS)) if p.ask[k, a]]
        if p.gpus[k]:
            each.append(
                int(p.cards[c] // p.gpus[k]) if p.milli[k] == WHOLE else int(p.cards[c] * (WHOLE // p.milli[k]))
            )
        slots += int(p.there[c]) * min(each, default=int(p.count[k]))
    requested = int(p.count[k])
    if slots >= requested:
        return None
    text = f"{requested:,} identical instances, empty nodes hold at most {slots:,} of them"
    return (_first(p, k), requested, "one kind", "slots", requested, slots, requested - slots, text, True)


def _left_over(p: Problem, placing: PartialPlan, k: int, *, proved: bool) -> tuple[object, ...]:
    """Who has no place, and what the node lacks that comes nearest."""
    nodes, unplaced = placing.nodes, int(placing.unplaced[k])
    at = np.flatnonzero(p.may[k, p.of])
    free = np.column_stack([nodes.free[at], nodes.gpu[at].sum(axis=1)])
    need = np.append(p.ask[k], p.gpus[k] * p.milli[k])
    short = np.maximum(need - free, 0)
    part = (short / np.maximum(need, 1)).sum(axis=1)
    best = int(part.argmin())
    a = int((short[best] / np.maximum(need, 1)).argmax())
    name = (*NODE_AMOUNTS, "gpu_milli")[a]
    request, has = int(need[a]), int(free[best, a])
    job = int(p.rows["job"][int(p.first[k + 1]) - unplaced])
    if not short[best].any():
        name = "max_per_node" if not nodes.allowed(k, int(at[best])) else "gpu_milli"
        rule = "max_per_node" if name == "max_per_node" else "fragment"
        request, has = (int(p.limit[k]), int(p.limit[k])) if rule == "max_per_node" else (request, has)
        text = "max_per_node of its app is reached" if rule == "max_per_node" else "free GPU capacity is fragmented"
        return (job, unplaced, rule, name, request, has, 0, text, proved)
    text = f"the closest node, {p.names[int(at[best])]}, has {has:,} {name} free, {request:,} requested"
    return (job, unplaced, "unplaced", name, request, has, request - has, text, proved)
