"""A way to scale, replayed in the simulator: what jobs waited, and for how long nodes were there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fleetlab.core import Cluster, Drain, Elastic
from fleetlab.sim import SimResult, simulate
from fleetlab.studies.autoscale._demand import Asked, Floats, Ints

Bools = NDArray[np.bool_]
POOL = "scaled"
BEFORE = pl.col("end").cum_max().shift(1).over("node")  # until when a node was there, of spells in their order


@dataclass(frozen=True, slots=True, eq=False)
class Fared:
    """How jobs and nodes fared in the days that count."""

    policy: str
    setting: str
    submit: Floats  # of the jobs that count
    wait: Floats
    node_hours: Floats  # [days]: ready, and booting before that
    boots: Floats  # [days]: nodes that were switched on
    ready: Ints | None  # [steps]: nodes that were to be ready, where that was told beforehand
    idle: Floats  # [days]: GPU-hours on ready ones that nobody held; of nodes without GPUs, node-hours by their CPU

    @property
    def p95(self) -> float:
        """The wait that one job in twenty exceeds."""
        return float(np.quantile(self.wait, 0.95))


@dataclass(frozen=True, slots=True)
class Ground:
    """Where policies are replayed: who asks, on which nodes, and which days count."""

    asked: Asked
    cluster: Cluster  # as many nodes as there may be, in one pool
    first: int  # the step with which days that count begin
    days: int
    boot: float

    @property
    def edges(self) -> Floats:
        """Of the days that count, in seconds."""
        return np.asarray(self.first * self.asked.every + 86_400.0 * np.arange(self.days + 1), dtype=np.float64)

    def scheduled(self, policy: str, setting: str, ready: Ints) -> Fared:
        """So many nodes ready at each step; one that is switched off takes no more jobs, and goes when it is empty."""
        every, nodes = self.asked.every, self.cluster.frame["node"].to_list()
        off = [
            Drain(begin * every, end * every, nodes=[nodes[j]])
            for j in range(int(ready.min()), min(len(nodes), int(ready.max())))
            for begin, end in _runs(ready <= j)
        ]
        never = [Drain(0.0, len(ready) * every, nodes=nodes[int(ready.max()) :])] if ready.max() < len(nodes) else []
        result = self._play([*off, *never])
        on = [(j, b * every, e * every) for j in range(min(len(nodes), int(ready.max()))) for b, e in _runs(ready > j)]
        return self._fared(policy, setting, result, pl.concat([_spells(on), self._busy(result)]), ready)

    def reactive(self, least: int, idle: float) -> Fared:
        """Nodes are booted when somebody waits for them, and go when idle."""
        result = self._play([Elastic(POOL, least=least, boot=self.boot, every=60.0, idle=idle)])
        assert result.played.up is not None
        up = result.played.up
        there = pl.DataFrame({"node": up.node, "begin": up.begin, "end": up.end})
        return self._fared("reactive", f"{least} at least, idle {idle:g} s", result, there)

    def _play(self, events: Sequence[Drain | Elastic]) -> SimResult:
        # First fit fills the first nodes, so that the last ones become empty.
        return simulate(self.asked.workload, self.cluster, placement="first_fit", events=list(events))

    def _busy(self, result: SimResult) -> pl.DataFrame:
        """When jobs were on each node."""
        number = pl.DataFrame({"name": self.cluster.frame["node"], "node": np.arange(len(self.cluster))})
        both = result.placements.join(result.jobs.select("job", "start", "end"), on="job")
        both = both.rename({"node": "name"}).join(number, on="name")
        return both.select(pl.col("node").cast(pl.Int64), begin="start", end="end")

    def _fared(
        self, policy: str, setting: str, result: SimResult, there: pl.DataFrame, ready: Ints | None = None
    ) -> Fared:
        edges, jobs = self.edges, result.jobs
        ready_hours, boots = covered(there, edges) / 3600, booted(there, edges)
        hours = ready_hours + boots * self.boot / 3600  # whoever switches a node on pays from then on
        counts = (jobs["submit"] >= edges[0]).to_numpy() & (jobs["submit"] < edges[-1]).to_numpy()
        start, end = jobs["start"].to_numpy(), jobs["end"].to_numpy()
        gpus = int(self.cluster.frame["gpus"][0])
        part = self.asked.part[jobs["job"].to_numpy(), -1 if gpus else 0]
        held = np.array([
            (np.maximum(0.0, np.minimum(end, b) - np.maximum(start, a)) * part).sum() / 3600
            for a, b in pairwise(edges.tolist())
        ])  # fmt: skip
        submit, wait = (jobs[name].to_numpy()[counts] for name in ("submit", "wait"))
        return Fared(policy, setting, submit, wait, hours, boots, ready, (ready_hours - held) * (gpus or 1))


def _runs(which: Bools) -> list[tuple[int, int]]:
    """Where steps follow each other without a break: from which to before which.

    >>> _runs(np.array([True, True, False, True]))
    [(0, 2), (3, 4)]
    """
    edge = np.flatnonzero(np.diff(np.concatenate(([0], which.astype(np.int8), [0]))))
    return [(int(a), int(b)) for a, b in zip(edge[::2], edge[1::2], strict=True)]


def _spells(rows: Sequence[tuple[int, float, float]]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema={"node": pl.Int64, "begin": pl.Float64, "end": pl.Float64}, orient="row")


def covered(spells: pl.DataFrame, edges: Floats) -> Floats:
    """Seconds for which nodes were there, from each edge to the next; what overlaps on one node counts once.

    >>> covered(_spells([(0, 0.0, 5.0), (0, 3.0, 8.0), (1, 6.0, 7.0)]), np.array([0.0, 4.0, 10.0]))
    array([4., 5.])
    """
    fresh = spells.sort("node", "begin").select(begin=pl.max_horizontal("begin", BEFORE.fill_null(0.0)), end="end")
    begin, end = (fresh.filter(pl.col("end") > pl.col("begin"))[name].to_numpy() for name in ("begin", "end"))
    return np.array([
        np.maximum(0.0, np.minimum(end, b) - np.maximum(begin, a)).sum() for a, b in pairwise(edges.tolist())
    ])  # fmt: skip


def booted(spells: pl.DataFrame, edges: Floats) -> Floats:
    """How many nodes were switched on from each edge to the next: none that was there just before, or from the start.

    >>> there = _spells([(0, 0.0, 5.0), (0, 3.0, 8.0), (0, 8.0, 9.0), (1, 6.0, 7.0), (1, 8.0, 9.0)])
    >>> booted(there, np.array([0.0, 7.0, 10.0]))
    array([1., 1.])
    """
    fresh = spells.sort("node", "begin").filter(
        (pl.col("begin") > BEFORE.fill_null(0.0)) & (pl.col("end") > pl.col("begin"))
    )
    return np.histogram(fresh["begin"].to_numpy(), edges)[0].astype(np.float64)
