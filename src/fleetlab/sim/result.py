"""What a replay gives: when each task started, and what that means, with honest intervals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fleetlab.workload import Cluster, Estimate, Provenance, say

Floats = NDArray[np.float64]

BATCHES = 20
STUDENT = 2.093  # of 19 degrees of freedom: the half-width of a 95 % interval in standard errors
BOUND = 10.0  # seconds: shorter run times count as that in a bounded slowdown
QUANTILES = (0.5, 0.9, 0.99)


@dataclass(frozen=True, slots=True)
class SimResult:
    """One row a task that could run: `task, start, end, wait, slowdown`; where its instances ran; who was refused."""

    tasks: pl.DataFrame
    placements: pl.DataFrame
    refused: pl.DataFrame
    provenance: Provenance
    notes: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        frame: pl.DataFrame,
        start: Floats,
        where: NDArray[np.int64],
        cluster: Cluster,
        refused: pl.DataFrame,
        provenance: Provenance,
    ) -> SimResult:
        """Put the loop's arrays into words."""
        begun = pl.Series("start", start)
        tasks = frame.select("task", "submit", "service", "instances", "gpu_milli", "gpu_types").with_columns(begun)
        tasks = tasks.with_columns(end=pl.col("start") + pl.col("service"), wait=pl.col("start") - pl.col("submit"))
        longer = pl.max_horizontal("service", pl.lit(BOUND))
        bounded = pl.max_horizontal((pl.col("wait") + pl.col("service")) / longer, pl.lit(1.0))
        tasks = tasks.with_columns(completion=pl.col("end") - pl.col("submit"), slowdown=bounded)
        counts = frame["instances"].to_numpy()
        placed = pl.DataFrame({"task": np.repeat(frame["task"].to_numpy(), counts), "node": where})
        names = pl.DataFrame({"node": np.arange(len(cluster)), "name": cluster.frame["node"]})
        placed = placed.join(names, on="node", how="left", maintain_order="left").select("task", node="name")
        said = (f"{refused.height:,} tasks are refused: see the table",) if refused.height else ()
        return cls(tasks, placed, refused, provenance, said)

    def __repr__(self) -> str:
        s = self.provenance.settings
        first = say(self.summary()[0]) if self.tasks.height else "nothing ran"
        return f"<SimResult {self.tasks.height:,} tasks, {s['order']}/{s['discipline']}/{s['place']}, {first}>"

    def summary(self) -> list[Estimate]:
        """Wait, completion and bounded slowdown: means and quantiles with intervals from batch means."""
        if not self.tasks.height:
            return []
        found = []
        for name, unit, least in (("wait", "s", 0.0), ("completion", "s", 0.0), ("slowdown", "", 1.0)):
            values = self.tasks[name].to_numpy()
            found.append(_batched(f"mean {name}", values, np.mean, unit, least))
            found += [
                _batched(f"P{q * 100:.0f} {name}", values, partial(np.quantile, q=q), unit, least) for q in QUANTILES
            ]
        return found

    def tables(self) -> dict[str, pl.DataFrame]:
        """Waits by what was asked for, and why tasks were refused."""
        gpu = pl.col("gpu_milli")
        asks = (
            pl.when(gpu == 0).then(pl.lit("no GPU"))
            .when(gpu < 1000).then(pl.lit("a share"))
            .when(gpu == 1000).then(pl.lit("one GPU"))
            .otherwise(pl.lit("more GPUs"))
        )  # fmt: skip
        mean = [pl.col(c).mean() for c in ("wait", "completion", "slowdown")]
        by = self.tasks.group_by(asks.alias("asks for"), maintain_order=True).agg(
            pl.len().alias("tasks"), *mean, pl.col("wait").quantile(0.9).alias("P90 wait")
        )
        why = (
            self.refused.group_by("reason")
            .agg(pl.len().alias("tasks"))
            .sort("tasks", "reason", descending=[True, False])
        )
        return {"by request": by.sort("asks for"), "refused": why}


def _batched(metric: str, values: Floats, of: Callable[[Floats], Any], unit: str, least: float) -> Estimate:
    """A statistic and its interval: waits hang together, so batches of neighbours are compared, not single tasks."""
    value = float(of(values))
    if len(values) < 10 * BATCHES:
        return Estimate(metric, value, float("nan"), float("nan"), unit)
    means = np.array([of(part) for part in np.array_split(values, BATCHES)])
    half = STUDENT * float(means.std(ddof=1)) / BATCHES**0.5
    return Estimate(metric, value, max(least, value - half), value + half, unit)
