"""Means compared with exact theory, over a grid of models, loads and numbers of GPUs.

A line is the mean of independent runs after warm-up, with control variates: averages whose mean is zero whatever the
simulator does, because they multiply what a job finds with what is independent of it, or depend on the input only. At a
load of 0.9, plain means would need ten times as many jobs for the same interval.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl

from fleetlab.core.progress import Progress
from fleetlab.queueing import solve
from fleetlab.stats import Floats, Statistic, control_variates, mean_of_runs
from fleetlab.studies.validate.line import Line
from fleetlab.studies.validate.schedules import (
    CONSTANT,
    EXPONENTIAL,
    JobClass,
    JobStream,
    RuntimeLaw,
    Simulator,
    gpus,
    load,
    poisson,
    seed_of,
)

RUNS = 20
HYPER_4, LOGNORMAL_4 = RuntimeLaw("hyperexponential", scv=4.0), RuntimeLaw("lognormal", scv=4.0)
TWO = (JobClass(0.4, priority=1), JobClass(0.6, priority=0))
# Jobs of a run by load, and of its warm-up; fewer with preemption, which takes longer to simulate.
LENGTHS = {0.5: (8_000, 1_000), 0.7: (15_000, 1_000), 0.8: (20_000, 3_000), 0.9: (30_000, 6_000)}
PREEMPTIVE = {0.5: (5_000, 1_000), 0.8: (8_000, 2_000), 0.9: (12_000, 3_000)}

Exact = Mapping[str, Sequence[float]]  # metric: a value for each priority, the highest first


@dataclass(frozen=True)
class ExactCase:
    """A system whose means are known exactly."""

    name: str
    exact: Exact
    classes: tuple[JobClass, ...]
    servers: int
    rate: float
    length: tuple[int, int]
    words: Sequence[dict[str, Any]] = field(default_factory=lambda: ({"backfill": "none"}, {}))  # of runs in turn
    moves: bool = False  # the wait of a job depends on later arrivals

    def lines(self, simulate: Simulator, seed: int) -> list[Line]:
        """Return one line per metric and priority."""
        means = self.measured(simulate, seed)
        ranks = range(len({job_class.priority for job_class in self.classes}))
        return [
            Line(self.name, f"{metric}, class {j + 1}" if len(ranks) > 1 else metric, self.exact[metric][j],
                 means[metric][j])
            for metric in self.exact
            for j in ranks
        ]  # fmt: skip

    def measured(self, simulate: Simulator, seed: int) -> dict[str, list[Statistic]]:
        """Return the mean of each metric by priority, the highest first."""
        runs = [self._run(simulate, seed, k) for k in range(RUNS)]
        controls = np.array([run[1] for run in runs])
        return {
            metric: [
                control_variates(np.array([run[0][metric][j] for run in runs]), controls)
                for j in range(len(runs[0][0][metric]))
            ]
            for metric in self.exact
        }

    def _run(self, simulate: Simulator, seed: int, k: int) -> tuple[dict[str, list[float]], list[float]]:
        stream = poisson(self.classes, self.rate, self.length[0], seed_of(self.name, seed, k))
        jobs = simulate(stream.workload(), gpus(self.servers), **self.words[k % len(self.words)]).jobs
        measured = np.arange(self.length[0]) >= self.length[1]
        ranks = sorted({job_class.priority for job_class in self.classes}, reverse=True)
        means = {
            metric: [float(_values(jobs, metric)[measured & (stream.priority == p)].mean()) for p in ranks]
            for metric in self.exact
        }
        return means, self._controls(jobs, stream, measured)

    def _controls(
        self, jobs: pl.DataFrame, stream: JobStream, measured: np.ndarray[Any, np.dtype[np.bool_]]
    ) -> list[float]:
        work = _one_fast_server(stream, self.servers)
        before = (work if self.moves else jobs["wait"].to_numpy())[measured][:-1]
        at = np.flatnonzero(measured)[:-1]
        controls = [float((before * (stream.gap[at + 1] - 1 / self.rate)).mean())]
        for k, job_class in enumerate(self.classes):
            seconds = np.where(stream.job_class[at] == k, stream.runtime[at], 0.0)
            controls.append(float((before * (seconds - job_class.chance * job_class.law.mean)).mean()))
        # With one GPU and FIFO that server is the case itself: it would explain everything.
        if self.servers > 1 or self.moves:
            second = sum(k.chance * k.need**2 * k.law.second for k in self.classes) / self.servers**2
            rho = self.rate * load(self.classes) / self.servers
            controls.append(float(work[at].mean()) - self.rate * second / (2 * (1 - rho)))
        return controls


def _values(jobs: pl.DataFrame, metric: str) -> Floats:
    if metric == "probability of waiting":
        return (jobs["wait"] > 0).cast(pl.Float64).to_numpy()
    return jobs["wait" if metric == "mean wait" else "jct"].to_numpy()


def _one_fast_server(stream: JobStream, servers: int) -> Floats:
    """Return the work before each job if all GPUs were one fast server: Lindley's recursion on the input."""
    walk = np.append(0, np.cumsum(stream.need[:-1] * stream.runtime[:-1] / servers - stream.gap[1:]))
    return np.asarray(walk - np.minimum.accumulate(walk))


# -- the grid ------------------------------------------------------------------------------------------------------


def _many_servers(servers: int, rho: float) -> ExactCase:
    theory = solve("M/M/c", lam=servers * rho, mu=1.0, c=servers)
    exact = {"mean wait": [theory["mean wait"]], "probability of waiting": [theory["probability of waiting"]]}
    count, warm = LENGTHS[rho]
    length = (count * (2 if servers > 8 else 1), warm)  # on many GPUs more jobs complete in the same time
    return ExactCase(f"M/M/{servers}, ρ {rho}", exact, (JobClass(),), servers, servers * rho, length)


def _one_server(law: RuntimeLaw, rho: float) -> ExactCase:
    exact = solve("M/G/1", lam=rho, service=law.spelling)["mean wait"]
    count, warm = LENGTHS[rho]
    return ExactCase(
        f"M/G/1, {law.spelling}, ρ {rho}", {"mean wait": [exact]}, (JobClass(law=law),), 1, rho, (2 * count, warm)
    )


def _by_run_time(order: str, law: RuntimeLaw, rho: float) -> ExactCase:
    model, metric = ("M/G/1 SJF", "mean wait") if order == "sjf" else ("M/G/1 SRPT", "mean JCT")
    theory = solve(model, lam=rho, service=law.spelling)
    exact = theory["mean wait" if order == "sjf" else "mean response"]
    length = LENGTHS[rho] if order == "sjf" else PREEMPTIVE[rho]
    return ExactCase(f"{model}, {law.spelling}, ρ {rho}", {metric: [exact]}, (JobClass(law=law),), 1, rho, length,
                ({"order": order},), moves=True)  # fmt: skip


def _priorities(servers: int, rho: float, *, preempt: bool) -> ExactCase:
    word = "preemptive priority" if preempt else "priority"
    rates = [job_class.chance * servers * rho for job_class in TWO]
    theory = solve(f"M/M/c {word}", lam=rates, mu=1.0, c=servers)
    wait = [theory[f"mean wait of class {k + 1}"] for k in range(len(TWO))]
    exact = {"mean JCT": [w + 1 for w in wait]} if preempt else {"mean wait": wait}
    words: dict[str, Any] = {"order": "priority"} | ({"preemption": True} if preempt else {})
    length = PREEMPTIVE[rho] if preempt else LENGTHS[rho]
    return ExactCase(f"M/M/{servers} {word}, ρ {rho}", exact, TWO, servers, servers * rho, length, (words,), moves=True)


def grid() -> list[ExactCase]:
    """Return all cases."""
    return [
        *(_many_servers(servers, rho) for servers in (1, 2, 8) for rho in (0.7, 0.9)),
        _many_servers(64, 0.9),
        *(_one_server(law, rho) for law in (CONSTANT, HYPER_4, LOGNORMAL_4) for rho in (0.7, 0.9)),
        *(_by_run_time("sjf", law, 0.8) for law in (EXPONENTIAL, HYPER_4)),
        *(_by_run_time("srpt", law, 0.8) for law in (EXPONENTIAL, HYPER_4)),
        *(_priorities(servers, rho, preempt=False) for servers in (1, 8) for rho in (0.7, 0.9)),
        *(_priorities(servers, 0.8, preempt=True) for servers in (1, 8)),
    ]


# -- gangs ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class GangMix:
    """Classes of jobs that need several GPUs at once."""

    name: str
    servers: int
    shares: tuple[tuple[float, int, float], ...]  # probability, GPUs, mean runtime

    @property
    def classes(self) -> tuple[JobClass, ...]:
        """The classes of the arrivals."""
        return tuple(JobClass(p, n, RuntimeLaw("exponential", mean)) for p, n, mean in self.shares)

    @property
    def parameters(self) -> dict[str, Any]:
        """Parameters of `solve`."""
        p, n, mean = zip(*self.shares, strict=True)
        return {"c": self.servers, "n": n, "p": p, "mu": [1 / m for m in mean]}

    def limit(self) -> float:
        """Return the maximum throughput without backfill, in jobs per second."""
        return solve("MSJ saturated", **self.parameters)["maximum throughput"]

    def saturated(self, simulate: Simulator, seed: int, runs: int = 10, count: int = 20_000) -> Line:
        """Compare the throughput of a saturated queue, without its first and last tenth."""
        rates = []
        for k in range(runs):
            stream = poisson(self.classes, 1.0, count, seed_of(self.name, seed, k))._replace(gap=np.zeros(count))
            start = simulate(stream.workload(), gpus(self.servers), backfill="none").jobs["start"]
            rates.append(0.8 * count / (start[int(0.9 * count)] - start[int(0.1 * count)]))
        return Line(f"gangs, {self.name}, saturated queue", "jobs per second", self.limit(), mean_of_runs(rates))


TWO_SIZES = GangMix("1 or 4 of 4 GPUs", 4, ((0.5, 1, 1.0), (0.5, 4, 1.0)))
ELEPHANTS = GangMix("1 or, slowly, 8 of 8", 8, ((0.9, 1, 1.0), (0.1, 8, 4.0)))
POWERS = GangMix("1, 2, 4 or 8 of 8", 8, ((0.6, 1, 1.0), (0.2, 2, 1.0), (0.1, 4, 1.0), (0.1, 8, 1.0)))
ODD = GangMix("3 or 10 of 30", 30, ((0.5, 3, 1.0), (0.5, 10, 1.0)))


def _kingman(simulate: Simulator, seed: int) -> list[Line]:
    """Compare a mean wait with a bound that it cannot exceed."""
    name = "GI/G/1, hyperexponential:1.0:4.0, ρ 0.7"
    case = ExactCase(name, {"mean wait": ()}, (JobClass(law=HYPER_4),), 1, 0.7, (25_000, 2_000))
    bound = solve("Kingman", lam=0.7, mu=1.0, ca2=1.0, cs2=HYPER_4.scv)["mean wait, at most"]
    (mean,) = case.measured(simulate, seed)["mean wait"]
    return [Line(case.name, "mean wait, at most, by Kingman", bound, mean, most=True)]


def compare_means(simulate: Simulator, *, seed: int, progress: Progress) -> list[Line]:
    """Compare every mean of the grid with its exact value."""
    work: list[Callable[[], list[Line]]] = [lambda case=case: case.lines(simulate, seed) for case in grid()]  # type: ignore[misc]
    work += [lambda g=g: [g.saturated(simulate, seed)] for g in (TWO_SIZES, ELEPHANTS, POWERS, ODD)]  # type: ignore[misc]
    work.append(lambda: _kingman(simulate, seed))
    lines = []
    for k, part in enumerate(work):
        lines += part()
        progress("comparing simulated means with exact theory", k + 1, (k + 1) / len(work))
    return lines
