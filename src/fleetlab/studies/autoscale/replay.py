"""Forecasts of demand with a margin for a risk, and the simulation of a scaling policy: waits, and hours of nodes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fleetlab.core import Drain, Elastic, Scenario
from fleetlab.forecast import Forecaster, Panel
from fleetlab.sim import SimResult, simulate
from fleetlab.stats import Floats, Ints
from fleetlab.studies.autoscale.pools import PoolDemand

# -- forecasts of demand -----------------------------------------------------------------------------------------------

WINDOW = 7  # days of errors that a margin is taken from
LEAST_ERRORS = 100  # errors: with fewer, there is no margin


@dataclass(frozen=True, slots=True, eq=False)
class DemandForecast:
    """What one model expected of each step, when nodes for it had to be ordered; NaN before it was trained."""

    name: str
    expected: Floats  # [steps]
    level: Floats  # [steps]: the actual demand
    lead: int  # steps from the last known one to the one that is forecast
    day: int  # steps

    def upper(self, risk: float) -> Floats:
        """Return a level that demand exceeds with probability `risk`: conformal, by the errors of the days before.

        The margin of a step comes from errors that were known when its nodes had to be ordered.
        """
        errors = self.level - self.expected
        limits = np.full(len(self.level), np.nan)
        for t in np.flatnonzero(np.isfinite(self.expected)):
            past = errors[max(0, t - self.lead - WINDOW * self.day) : max(0, t - self.lead + 1)]
            past = past[np.isfinite(past)]
            if len(past) >= LEAST_ERRORS:
                limits[t] = self.expected[t] + _quantile(past, risk)
        return limits

    def pinball(self, risk: float, at: Ints) -> float:
        """Return the pinball loss over some steps; infinite where there is no forecast for any of them."""
        over = self.level[at] - self.upper(risk)[at]
        over = over[np.isfinite(over)]
        return float(np.maximum((1 - risk) * over, -risk * over).mean()) if len(over) else math.inf


def _quantile(values: Floats, risk: float) -> float:
    """Return the conformal quantile: an exchangeable next value exceeds it with at most that risk."""
    rank = min(len(values), math.ceil((len(values) + 1) * (1 - risk)))
    return float(np.partition(values, rank - 1)[rank - 1])


def forecasts(models: Sequence[Forecaster], demand: PoolDemand, *, lead: int, train: int) -> list[DemandForecast]:
    """Return what each model expects of every step from `train` on, trained on those before.

    The forecast of a step is made `lead` steps before the previous one ends, from the steps before that.
    """
    level = demand.level
    panel = Panel(level[:, None], demand.flows, ("nodes",), demand.every)
    origins = np.arange(train, len(level) - lead)
    results = []
    for model in models:
        fitted = deepcopy(model).fit(panel.until(train), horizon=lead + 1, seed=0)
        expected = np.full(len(level), np.nan)
        if len(origins):
            expected[origins + lead] = fitted.predict(panel, origins, horizon=lead + 1)[:, lead, 0]
        results.append(DemandForecast(model.name, expected, level, lead + 1, panel.day))
    return results


def best(candidates: Sequence[DemandForecast], risk: float, before: int) -> DemandForecast:
    """Return the model with the lowest loss at this risk in the steps before, which do not count."""
    at = np.arange(before)
    return min(candidates, key=lambda f: (f.pinball(risk, at), f.name))


def sustain(ready: Ints, steps: int) -> Ints:
    """Keep nodes for so many steps after the last one that needs them.

    >>> sustain(np.array([1, 4, 2, 1, 1, 3]), 2)
    array([1, 4, 4, 4, 2, 3])
    """
    padded = np.concatenate((np.full(steps, ready[0]), ready)) if len(ready) else ready
    return np.asarray(np.lib.stride_tricks.sliding_window_view(padded, steps + 1).max(axis=1)) if steps else ready


# -- replays -----------------------------------------------------------------------------------------------------------

Bools = NDArray[np.bool_]
POOL = "scaled"
BEFORE = pl.col("end").cum_max().shift(1).over("node")  # until when a node was on, of periods in order of time


@dataclass(frozen=True, slots=True, eq=False)
class ReplayResult:
    """Waits and node-hours of one scaling policy in the days that count."""

    policy: str
    setting: str
    submit: Floats  # of the jobs that count
    wait: Floats
    node_hours: Floats  # [days]: from power-on, boot included
    boots: Floats  # [days]: nodes that were switched on
    ready: Ints | None  # [steps]: nodes that should be ready, where the policy plans them
    idle: Floats  # [days]: GPU-hours without a job on ready nodes; of nodes without GPUs, node-hours by their CPU

    @property
    def p95(self) -> float:
        """The P95 wait."""
        return float(np.quantile(self.wait, 0.95))


@dataclass(frozen=True, slots=True)
class Replay:
    """The jobs, the pool, and which days count."""

    demand: PoolDemand
    scenario: Scenario  # the jobs on as many nodes as there may be, in one pool
    first: int  # the first step of the days that count
    days: int
    boot: float

    @property
    def edges(self) -> Floats:
        """The begin and end of the days that count, in seconds."""
        return np.asarray(self.first * self.demand.every + 86_400.0 * np.arange(self.days + 1), dtype=np.float64)

    def scheduled(self, policy: str, setting: str, ready: Ints) -> ReplayResult:
        """Have so many nodes ready at each step; one that is switched off is drained first."""
        every, nodes = self.demand.every, self.scenario.cluster.frame["node"].to_list()
        off = [
            Drain(begin * every, end * every, nodes=[nodes[j]])
            for j in range(int(ready.min()), min(len(nodes), int(ready.max())))
            for begin, end in _periods_of(ready <= j)
        ]
        never = [Drain(0.0, len(ready) * every, nodes=nodes[int(ready.max()) :])] if ready.max() < len(nodes) else []
        result = self._simulate([*off, *never])
        on = [
            (j, b * every, e * every)
            for j in range(min(len(nodes), int(ready.max())))
            for b, e in _periods_of(ready > j)
        ]
        return self._measure(policy, setting, result, pl.concat([_periods(on), self._allocated(result)]), ready)

    def reactive(self, least: int, idle: float) -> ReplayResult:
        """Boot nodes when jobs wait for them, and switch them off when idle."""
        result = self._simulate([Elastic(POOL, least=least, boot=self.boot, every=60.0, idle=idle)])
        assert result.played.up is not None
        up = result.played.up
        on = pl.DataFrame({"node": up.node, "begin": up.begin, "end": up.end})
        return self._measure("reactive", f"{least} at least, idle {idle:g} s", result, on)

    def _simulate(self, events: Sequence[Drain | Elastic]) -> SimResult:
        return simulate(self.scenario, events=events, min_coverage=0.0)

    def _allocated(self, result: SimResult) -> pl.DataFrame:
        """Return when jobs were on each node."""
        names = self.scenario.cluster.frame["node"]
        number = pl.DataFrame({"name": names, "node": np.arange(len(names))})
        both = result.placements.join(result.jobs.select("job", "start", "end"), on="job")
        both = both.rename({"node": "name"}).join(number, on="name")
        return both.select(pl.col("node").cast(pl.Int64), begin="start", end="end")

    def _measure(
        self, policy: str, setting: str, result: SimResult, on: pl.DataFrame, ready: Ints | None = None
    ) -> ReplayResult:
        edges, jobs = self.edges, result.jobs
        ready_hours, boots = covered(on, edges) / 3600, booted(on, edges)
        hours = ready_hours + boots * self.boot / 3600  # a node costs from power-on
        counts = (jobs["submit"] >= edges[0]).to_numpy() & (jobs["submit"] < edges[-1]).to_numpy()
        start, end = jobs["start"].to_numpy(), jobs["end"].to_numpy()
        gpus = int(self.scenario.cluster.frame["gpus"][0])
        fraction = self.demand.fraction[jobs["job"].to_numpy(), -1 if gpus else 0]
        allocated = np.array([
            (np.maximum(0.0, np.minimum(end, b) - np.maximum(start, a)) * fraction).sum() / 3600
            for a, b in pairwise(edges.tolist())
        ])  # fmt: skip
        submit, wait = (jobs[name].to_numpy()[counts] for name in ("submit", "wait"))
        return ReplayResult(policy, setting, submit, wait, hours, boots, ready, (ready_hours - allocated) * (gpus or 1))


def _periods_of(which: Bools) -> list[tuple[int, int]]:
    """Return the periods of consecutive steps: the first, and the one after the last.

    >>> _periods_of(np.array([True, True, False, True]))
    [(0, 2), (3, 4)]
    """
    edge = np.flatnonzero(np.diff(np.concatenate(([0], which.astype(np.int8), [0]))))
    return [(int(a), int(b)) for a, b in zip(edge[::2], edge[1::2], strict=True)]


def _periods(rows: Sequence[tuple[int, float, float]]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema={"node": pl.Int64, "begin": pl.Float64, "end": pl.Float64}, orient="row")


def covered(periods: pl.DataFrame, edges: Floats) -> Floats:
    """Return the seconds that nodes were on, from each edge to the next; overlaps on one node count once.

    >>> covered(_periods([(0, 0.0, 5.0), (0, 3.0, 8.0), (1, 6.0, 7.0)]), np.array([0.0, 4.0, 10.0]))
    array([4., 5.])
    """
    fresh = periods.sort("node", "begin").select(begin=pl.max_horizontal("begin", BEFORE.fill_null(0.0)), end="end")
    begin, end = (fresh.filter(pl.col("end") > pl.col("begin"))[name].to_numpy() for name in ("begin", "end"))
    return np.array([
        np.maximum(0.0, np.minimum(end, b) - np.maximum(begin, a)).sum() for a, b in pairwise(edges.tolist())
    ])  # fmt: skip


def booted(periods: pl.DataFrame, edges: Floats) -> Floats:
    """Return how many nodes were switched on from each edge to the next; not those that were on from the start.

    >>> on = _periods([(0, 0.0, 5.0), (0, 3.0, 8.0), (0, 8.0, 9.0), (1, 6.0, 7.0), (1, 8.0, 9.0)])
    >>> booted(on, np.array([0.0, 7.0, 10.0]))
    array([1., 1.])
    """
    fresh = periods.sort("node", "begin").filter(
        (pl.col("begin") > BEFORE.fill_null(0.0)) & (pl.col("end") > pl.col("begin"))
    )
    return np.histogram(fresh["begin"].to_numpy(), edges)[0].astype(np.float64)
