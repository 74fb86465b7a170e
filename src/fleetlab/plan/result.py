"""The result of `plan`: placements, the bound, and what does not fit."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import polars as pl

from fleetlab.core import Cluster, Estimate, Figure, Provenance, Result, Workload, say
from fleetlab.core.catalog import RESOURCES

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
