"""The same pods in our loop: how long they wait, and how long they waited for the real kube-scheduler.

A pod comes when the real scheduler learned of it, and holds its node as long as it did there, from the attempt that
chose the node until the log says it is gone; a pod that was preempted, as long as it was to run. Where scores tie both
draw, so that schedules part; waits are compared as a whole.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from fleetlab.schedulers.kubernetes.loop import Placed, Site, play
from fleetlab.schedulers.kubernetes.reader.scheduling import scheduling_node
from realtest.kubernetes.replay import Run

GRACE_S = 1.0  # terminationGracePeriodSeconds of the pods


@dataclass(frozen=True)
class Starts:
    """Seconds that each pod waited, really and simulated, and how many were preempted."""

    real: npt.NDArray[np.float64]
    ours: npt.NDArray[np.float64]
    preempted: tuple[int, int]


def starts(run: Run, seed: int = 1) -> Starts:
    """Simulate the pods of a run."""
    times = _times(run.record, len(run.pods))
    cycle = _cycle(run.record)
    nodes = [scheduling_node(item) for item in run.nodes]
    site = Site(nodes, run.profile, run.budgets, cycle, GRACE_S, _patch(run.record))
    victims = {int(pod) for text in run.record["preempts"].drop_nulls() for pod in text.split()}
    lasts = [
        run.run_s[k] if k in victims else max(0.0, end - start)
        for k, (start, end) in enumerate(zip(times["start"], times["end"], strict=True))
    ]
    placed: Placed = play(site, [run.pods[k] for k in range(len(run.pods))], times["ready"].to_list(), lasts, seed)
    real = (times["start"] - times["ready"]).to_numpy()
    ours = np.array(placed.start) - times["ready"].to_numpy()
    return Starts(real, ours, (len(victims), int(np.isfinite(placed.preempted).sum())))


def _times(record: pl.DataFrame, pods: int) -> pl.DataFrame:
    """When each pod came, started and was gone, by its number."""

    def first(name: str, rows: pl.Expr) -> pl.DataFrame:
        return record.filter(rows).group_by("pod").agg(pl.col("at").min().alias(name))

    of = pl.DataFrame({"pod": pl.Series(range(pods), dtype=pl.Int32)})
    of = of.join(first("ready", pl.col("what") == "ready"), on="pod", how="left")
    of = of.join(first("start", (pl.col("what") == "attempt") & (pl.col("node") >= 0)), on="pod", how="left")
    return of.join(first("end", pl.col("what") == "gone"), on="pod", how="left").sort("pod")


def _cycle(record: pl.DataFrame) -> float:
    """What an attempt takes: a low quantile of the time between two, which is one without a pause between."""
    between = record.filter(pl.col("what") == "attempt")["at"].diff().drop_nulls()
    return float(between.filter(between > 0).quantile(0.05) or 0.0)


def _patch(record: pl.DataFrame) -> float:
    """What a change of a pod's status takes until the scheduler tries it again: the median, where the record tells."""
    tried = record.filter(pl.col("what") == "attempt").select(
        "pod", "at", "node", then=pl.col("at").shift(-1).over("pod")
    )
    first = tried.group_by("pod", maintain_order=True).first().filter(pl.col("node") < 0)
    return float((first["then"] - first["at"]).median() or 0.0)  # type: ignore[arg-type]
