"""Means beside exact theory, over a grid of models, loads and numbers of GPUs.

A line is the mean of independent runs without their beginnings, freed of what controls explain: averages whose mean is
zero whatever the simulator does, because they join what a job found with what nobody could know by then, or look at
the input only. At a load of 0.9 plain means would need ten times as many jobs for the same interval.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl

from fleetlab.queueing import solve
from fleetlab.studies._spread import Floats, Mean, over_runs, with_controls
from fleetlab.studies.validate._arrivals import (
    CONSTANT,
    EXPONENTIAL,
    Input,
    Kind,
    Law,
    gpus,
    load,
    poisson,
    seed_of,
)
from fleetlab.studies.validate._line import Line, Progress
from fleetlab.studies.validate.schedules import Simulator

RUNS = 20
HYPER, LOGNORMAL = Law("hyperexponential", scv=4.0), Law("lognormal", scv=4.0)
TWO = (Kind(0.4, priority=1), Kind(0.6, priority=0))
# Jobs of a run by load, and of its beginning that is left out; fewer where jobs are put off, which takes longer.
LENGTHS = {0.5: (8_000, 1_000), 0.7: (15_000, 1_000), 0.8: (20_000, 3_000), 0.9: (30_000, 6_000)}
MOVING = {0.5: (5_000, 1_000), 0.8: (8_000, 2_000), 0.9: (12_000, 3_000)}

Exact = Mapping[str, Sequence[float]]  # metric: a value for each priority, the highest first


@dataclass(frozen=True)
class Case:
    """A system with means that theory knows."""

    name: str
    exact: Exact
    kinds: tuple[Kind, ...]
    servers: int
    rate: float
    length: tuple[int, int]
    rules: Sequence[dict[str, Any]] = field(default_factory=lambda: ({"backfill": "none"}, {}))  # runs take turns
    moves: bool = False  # what a job waits hangs on those after it

    def lines(self, simulate: Simulator, seed: int) -> list[Line]:
        """A line for each metric and priority."""
        found = self.measured(simulate, seed)
        ranks = range(len({kind.priority for kind in self.kinds}))
        return [
            Line(self.name, f"{metric}, class {j + 1}" if len(ranks) > 1 else metric, self.exact[metric][j],
                 found[metric][j])
            for metric in self.exact
            for j in ranks
        ]  # fmt: skip

    def measured(self, simulate: Simulator, seed: int) -> dict[str, list[Mean]]:
        """Each metric's mean for each priority, the highest first."""
        runs = [self._run(simulate, seed, k) for k in range(RUNS)]
        controls = np.array([run[1] for run in runs])
        return {
            metric: [
                with_controls(np.array([run[0][metric][j] for run in runs]), controls)
                for j in range(len(runs[0][0][metric]))
            ]
            for metric in self.exact
        }

    def _run(self, simulate: Simulator, seed: int, k: int) -> tuple[dict[str, list[float]], list[float]]:
        put = poisson(self.kinds, self.rate, self.length[0], seed_of(self.name, seed, k))
        jobs = simulate(put.workload(), gpus(self.servers), **self.rules[k % len(self.rules)]).jobs
        kept = np.arange(self.length[0]) >= self.length[1]
        ranks = sorted({kind.priority for kind in self.kinds}, reverse=True)
        means = {
            metric: [float(_values(jobs, metric)[kept & (put.priority == p)].mean()) for p in ranks]
            for metric in self.exact
        }
        return means, self._controls(jobs, put, kept)

    def _controls(self, jobs: pl.DataFrame, put: Input, kept: np.ndarray[Any, np.dtype[np.bool_]]) -> list[float]:
        work = _one_fast_server(put, self.servers)
        found = (work if self.moves else jobs["wait"].to_numpy())[kept][:-1]
        at = np.flatnonzero(kept)[:-1]
        controls = [float((found * (put.gap[at + 1] - 1 / self.rate)).mean())]
        for k, kind in enumerate(self.kinds):
            seconds = np.where(put.kind[at] == k, put.runtime[at], 0.0)
            controls.append(float((found * (seconds - kind.chance * kind.law.mean)).mean()))
        # With one GPU, first come first served, that server is the case itself: it would explain all, and say nothing.
        if self.servers > 1 or self.moves:
            second = sum(k.chance * k.need**2 * k.law.second for k in self.kinds) / self.servers**2
            rho = self.rate * load(self.kinds) / self.servers
            controls.append(float(work[at].mean()) - self.rate * second / (2 * (1 - rho)))
        return controls


def _values(jobs: pl.DataFrame, metric: str) -> Floats:
    if metric == "probability of waiting":
        return (jobs["wait"] > 0).cast(pl.Float64).to_numpy()
    return jobs["wait" if metric == "mean wait" else "jct"].to_numpy()


def _one_fast_server(put: Input, servers: int) -> Floats:
    """Work before each job if all GPUs were one fast server: Lindley's recursion, on the input alone."""
    walk = np.append(0, np.cumsum(put.need[:-1] * put.runtime[:-1] / servers - put.gap[1:]))
    return np.asarray(walk - np.minimum.accumulate(walk))


# -- the grid ------------------------------------------------------------------------------------------------------


def _many_servers(servers: int, rho: float) -> Case:
    found = solve("M/M/c", lam=servers * rho, mu=1.0, c=servers)
    exact = {metric: [found[metric]] for metric in ("mean wait", "probability of waiting")}
    count, warm = LENGTHS[rho]
    length = (count * (2 if servers > 8 else 1), warm)  # of many GPUs more jobs pass in the same time
    return Case(f"M/M/{servers}, ρ {rho}", exact, (Kind(),), servers, servers * rho, length)


def _one_server(law: Law, rho: float) -> Case:
    exact = solve("M/G/1", lam=rho, runtime=law.words)["mean wait"]
    count, warm = LENGTHS[rho]
    return Case(f"M/G/1, {law.words}, ρ {rho}", {"mean wait": [exact]}, (Kind(law=law),), 1, rho, (2 * count, warm))


def _by_run_time(order: str, law: Law, rho: float) -> Case:
    model, metric = ("M/G/1 SJF", "mean wait") if order == "sjf" else ("M/G/1 SRPT", "mean response")
    exact = solve(model, lam=rho, runtime=law.words)[metric]
    length = LENGTHS[rho] if order == "sjf" else MOVING[rho]
    return Case(f"{model}, {law.words}, ρ {rho}", {metric: [exact]}, (Kind(law=law),), 1, rho, length,
                ({"order": order},), moves=True)  # fmt: skip


def _priorities(servers: int, rho: float, *, preempt: bool) -> Case:
    word = "preemptive priority" if preempt else "priority"
    rates = [kind.chance * servers * rho for kind in TWO]
    found = solve(f"M/M/c {word}", lam=rates, mu=1.0, c=servers)
    wait = [found[f"mean wait of class {k + 1}"] for k in range(len(TWO))]
    exact = {"mean response": [w + 1 for w in wait]} if preempt else {"mean wait": wait}
    rules: dict[str, Any] = {"order": "priority"} | ({"preemption": True} if preempt else {})
    length = MOVING[rho] if preempt else LENGTHS[rho]
    return Case(f"M/M/{servers} {word}, ρ {rho}", exact, TWO, servers, servers * rho, length, (rules,), moves=True)


def grid() -> list[Case]:
    """Models, loads and numbers of GPUs."""
    return [
        *(_many_servers(servers, rho) for servers in (1, 2, 8) for rho in (0.7, 0.9)),
        _many_servers(64, 0.9),
        *(_one_server(law, rho) for law in (CONSTANT, HYPER, LOGNORMAL) for rho in (0.7, 0.9)),
        *(_by_run_time("sjf", law, 0.8) for law in (EXPONENTIAL, HYPER)),
        *(_by_run_time("srpt", law, 0.8) for law in (EXPONENTIAL, HYPER)),
        *(_priorities(servers, rho, preempt=False) for servers in (1, 8) for rho in (0.7, 0.9)),
        *(_priorities(servers, 0.8, preempt=True) for servers in (1, 8)),
    ]


# -- gangs ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Gangs:
    """Classes of jobs that hold several GPUs at once."""

    name: str
    servers: int
    classes: tuple[tuple[float, int, float], ...]  # chance, GPUs, mean run time

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """As they come in."""
        return tuple(Kind(p, n, Law("exponential", mean)) for p, n, mean in self.classes)

    @property
    def told(self) -> dict[str, Any]:
        """As `solve` takes them."""
        p, n, mean = zip(*self.classes, strict=True)
        return {"c": self.servers, "n": n, "p": p, "mu": [1 / m for m in mean]}

    def limit(self) -> float:
        """Jobs a second, at most, where the head of the line blocks."""
        return solve("MSJ saturated", **self.told)["maximum throughput"]

    def saturated(self, simulate: Simulator, seed: int, runs: int = 10, count: int = 20_000) -> Line:
        """Jobs a second where all have come already, between the first tenth and the last."""
        rates = []
        for k in range(runs):
            put = poisson(self.kinds, 1.0, count, seed_of(self.name, seed, k))._replace(gap=np.zeros(count))
            start = simulate(put.workload(), gpus(self.servers), backfill="none").jobs["start"]
            rates.append(0.8 * count / (start[int(0.9 * count)] - start[int(0.1 * count)]))
        return Line(f"gangs, {self.name}, a line without end", "jobs a second", self.limit(), over_runs(rates))


TWO_SIZES = Gangs("1 or 4 of 4 GPUs", 4, ((0.5, 1, 1.0), (0.5, 4, 1.0)))
ELEPHANTS = Gangs("1 or, slowly, 8 of 8", 8, ((0.9, 1, 1.0), (0.1, 8, 4.0)))
POWERS = Gangs("1, 2, 4 or 8 of 8", 8, ((0.6, 1, 1.0), (0.2, 2, 1.0), (0.1, 4, 1.0), (0.1, 8, 1.0)))
ODD = Gangs("3 or 10 of 30", 30, ((0.5, 3, 1.0), (0.5, 10, 1.0)))


def compare(simulate: Simulator, *, seed: int, progress: Progress) -> list[Line]:
    """Every mean of the grid beside its exact value."""
    work: list[Callable[[], list[Line]]] = [lambda case=case: case.lines(simulate, seed) for case in grid()]  # type: ignore[misc]
    work += [lambda g=g: [g.saturated(simulate, seed)] for g in (TWO_SIZES, ELEPHANTS, POWERS, ODD)]  # type: ignore[misc]
    found = []
    for k, part in enumerate(work):
        found += part()
        progress("means", k + 1, (k + 1) / len(work))
    return found
