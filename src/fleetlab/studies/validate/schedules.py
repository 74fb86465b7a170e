"""Schedules compared bit for bit with recursions, ties included, on random jobs by class.

Each recursion is plain Python and independent of the simulator. Jobs arrive in bursts on whole seconds, many at one
instant and with equal runtimes, so that another tie order shows.
"""

from __future__ import annotations

import heapq
import math
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from fleetlab.core import Cluster, Workload
from fleetlab.core.progress import Progress
from fleetlab.sim import SimResult
from fleetlab.studies.validate.line import Line, exactly

# -- Poisson arrivals of jobs by class ---------------------------------------------------------------------------------

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


class RuntimeLaw(NamedTuple):
    """A distribution of runtimes, named as in `queueing`."""

    shape: str
    mean: float = 1.0
    scv: float = 1.0  # squared coefficient of variation

    @property
    def spelling(self) -> str:
        """The text that `solve` takes."""
        return f"{self.shape}:{self.mean!r}" + (
            f":{self.scv!r}" if self.shape in ("hyperexponential", "lognormal") else ""
        )

    @property
    def second(self) -> float:
        """E[S²]."""
        return self.mean**2 * (1 + self.scv)

    def draw(self, rng: np.random.Generator, count: int) -> Floats:
        """Return random runtimes."""
        if self.shape == "deterministic":
            return np.full(count, self.mean)
        if self.shape == "lognormal":
            width = math.log1p(self.scv)
            return rng.lognormal(math.log(self.mean) - width / 2, width**0.5, count)
        # Two exponentials with half of the work each; with an SCV of 1 they are the same.
        first = (1 + ((self.scv - 1) / (self.scv + 1)) ** 0.5) / 2
        mean = np.where(rng.random(count) < first, self.mean / (2 * first), self.mean / (2 * (1 - first)))
        return np.asarray(mean * rng.exponential(1.0, count))


EXPONENTIAL = RuntimeLaw("exponential")
CONSTANT = RuntimeLaw("deterministic", scv=0.0)


class JobClass(NamedTuple):
    """A class of jobs."""

    chance: float = 1.0
    need: int = 1  # GPUs
    law: RuntimeLaw = EXPONENTIAL
    priority: int = 0


class JobStream(NamedTuple):
    """The jobs of one run, in order of arrival."""

    gap: Floats  # seconds since the one before
    job_class: Ints
    runtime: Floats
    need: Ints
    priority: Ints

    @property
    def submit(self) -> Floats:
        """Seconds from the first."""
        return np.asarray(np.cumsum(self.gap) - self.gap[0])

    def workload(self) -> Workload:
        """Return the jobs as a workload."""
        columns = {"submit": self.submit, "runtime": self.runtime, "gpu_milli": self.need * 1000}
        return Workload.of(pl.DataFrame(columns | {"priority": self.priority}), source="theory")


def poisson(classes: tuple[JobClass, ...], rate: float, count: int, seed: list[int]) -> JobStream:
    """Return jobs that arrive at this rate, each of a random class."""
    rng = np.random.default_rng(seed)
    gap = rng.exponential(1 / rate, count)
    job_class = rng.choice(len(classes), count, p=[k.chance for k in classes])
    runtime = np.choose(job_class, [k.law.draw(rng, count) for k in classes])
    need, priority = (
        np.array(x, dtype=np.int64)[job_class] for x in ([k.need for k in classes], [k.priority for k in classes])
    )
    return JobStream(gap, job_class, runtime, need, priority)


def seed_of(name: str, *numbers: int) -> list[int]:
    """Return a seed for one case, independent of the other cases."""
    return [zlib.crc32(name.encode()), *numbers]


def gpus(count: int) -> Cluster:
    """Return a cluster of so many GPUs, in nodes of eight where possible."""
    return Cluster.uniform(count // 8, 8) if count % 8 == 0 else Cluster.uniform(1, count)


def load(classes: tuple[JobClass, ...]) -> float:
    """Return the mean GPU-seconds per job."""
    return sum(k.chance * k.need * k.law.mean for k in classes)


# -- schedules ---------------------------------------------------------------------------------------------------------

COUNT = 2000
PRIORITIES = (JobClass(0.4, priority=1), JobClass(0.6, priority=0))
PLACEMENTS_COMPARED = ("best_fit", "first_fit", "worst_fit")
POWERS = tuple(JobClass(chance, need) for chance, need in ((0.6, 1), (0.2, 2), (0.1, 4), (0.1, 8)))

Recursion = Callable[[JobStream, int], list[float]]
Simulator = Callable[..., SimResult]


def by_arrival(stream: JobStream, servers: int) -> list[float]:
    """Return starts where each arrival takes the server that is free first (Kiefer and Wolfowitz 1955)."""
    free, starts = [0.0] * servers, []
    for submit, runtime in zip(stream.submit.tolist(), stream.runtime.tolist(), strict=True):
        starts.append(max(submit, free[0]))
        heapq.heapreplace(free, starts[-1] + runtime)
    return starts


def in_line(stream: JobStream, servers: int) -> list[float]:
    """Return starts where each job needs several servers at once, in order of arrival, without backfill."""
    now, free, starts = 0.0, servers, []
    running: list[tuple[float, int]] = []
    for submit, runtime, need in zip(
        stream.submit.tolist(), stream.runtime.tolist(), stream.need.tolist(), strict=True
    ):
        now = max(now, submit)
        while free < need or (running and running[0][0] <= now):
            end, gpus_freed = heapq.heappop(running)
            now, free = max(now, end), free + gpus_freed
        free -= need
        heapq.heappush(running, (now + runtime, need))
        starts.append(now)
    return starts


def lowest_first(keys: Callable[[JobStream], Sequence[float]]) -> Recursion:
    """Return starts where a free server takes the waiting job with the lowest key, ties by arrival."""

    def recursion(stream: JobStream, servers: int) -> list[float]:
        key, submit, runtime = keys(stream), stream.submit.tolist(), stream.runtime.tolist()
        free, starts, come, now = [0.0] * servers, [0.0] * len(submit), 0, 0.0
        waiting: list[tuple[float, int]] = []
        while come < len(submit) or waiting:
            now = max(now, free[0]) if waiting else max(submit[come], free[0])
            while come < len(submit) and submit[come] <= now:
                heapq.heappush(waiting, (key[come], come))
                come += 1
            _, job = heapq.heappop(waiting)
            starts[job] = now
            heapq.heapreplace(free, now + runtime[job])
        return starts

    return recursion


def with_preemption(choose: Callable[[JobStream, dict[int, float], int], Sequence[int]]) -> Recursion:
    """Return ends where the running jobs are chosen again at every arrival and end; no work is lost."""

    def recursion(stream: JobStream, servers: int) -> list[float]:
        submit, runtime = stream.submit.tolist(), stream.runtime.tolist()
        remaining: dict[int, float] = {}
        ends, now, next_job = [0.0] * len(submit), 0.0, 0
        while next_job < len(submit) or remaining:
            served = choose(stream, remaining, servers)
            then = min([now + remaining[t] for t in served] + submit[next_job : next_job + 1])
            for t in served:
                remaining[t] -= then - now
                if remaining[t] == 0:
                    ends[t] = then
                    del remaining[t]
            now = then
            while next_job < len(submit) and submit[next_job] == now:
                remaining[next_job] = runtime[next_job]
                next_job += 1
        return ends

    return recursion


def shortest_remaining(_stream: JobStream, remaining: dict[int, float], servers: int) -> list[int]:
    """SRPT: least remaining first."""
    return sorted(remaining, key=lambda t: (remaining[t], t))[:servers]


def highest(stream: JobStream, remaining: dict[int, float], servers: int) -> list[int]:
    """Preemptive priorities."""
    return sorted(remaining, key=lambda t: (-stream.priority[t], t))[:servers]


def filling(stream: JobStream, remaining: dict[int, float], servers: int) -> list[int]:
    """ServerFilling: of the earliest jobs that can fill all servers, the largest first (Grosof et al. 2022)."""
    return _filled(sorted(remaining), stream, servers)


def filling_shortest(stream: JobStream, remaining: dict[int, float], servers: int) -> list[int]:
    """ServerFilling-SRPT: the same, by remaining server-seconds instead of arrival."""
    return _filled(sorted(remaining, key=lambda t: (stream.need[t] * remaining[t], t)), stream, servers)


def _filled(line: list[int], stream: JobStream, servers: int) -> list[int]:
    total = np.cumsum(stream.need[line]) if line else np.zeros(0)
    candidates = line[: int(np.searchsorted(total, servers)) + 1]
    served, free = [], servers
    for job in sorted(candidates, key=lambda t: -stream.need[t]):
        if stream.need[job] <= free:
            served.append(job)
            free -= int(stream.need[job])
    return served


@dataclass(frozen=True)
class Case:
    """A scenario, and the recursion that gives its schedule."""

    name: str
    recursion: Recursion
    servers: int
    words: dict[str, Any] = field(default_factory=dict)
    classes: tuple[JobClass, ...] = (JobClass(),)
    column: str = "start"

    def input(self, seed: int) -> JobStream:
        """Return bursts on whole seconds, with heavy-tailed runtimes, some of them 0, at a load of about 1."""
        stream = poisson(self.classes, 1.0, COUNT, seed_of(self.name, seed))
        rng = np.random.default_rng(seed_of(self.name, seed, 1))
        runtime = np.floor(rng.pareto(1.5, COUNT))
        burst = 2 * self.servers + 4
        pause = np.ceil(burst * (runtime * stream.need).mean() / self.servers)
        return stream._replace(gap=np.where(rng.random(COUNT) < 1 / burst, pause, 0.0), runtime=runtime)

    def line(self, simulate: Simulator, seed: int) -> Line:
        """Compare how many jobs start (or end) exactly when the recursion says."""
        stream = self.input(seed)
        jobs = simulate(stream.workload(), gpus(self.servers), **self.words).jobs
        must = pl.Series(self.recursion(stream, self.servers))
        same = int((jobs[self.column] == must).sum())
        return exactly(self.name, f"jobs with that {self.column}", COUNT, same)


def _single_gpu() -> list[Case]:
    loops: dict[str, dict[str, Any]] = {
        "none": {"backfill": "none"}, "greedy": {}, "easy": {"backfill": "easy"}, "full loop": {"preemption": True},
    }  # fmt: skip
    return [
        Case(f"fifo/{name}, {servers} GPUs", by_arrival, servers, words)
        for name, words in loops.items()
        for servers in (1, 8, 64)
    ]


FIRST: dict[str, Any] = {"order": "priority"}
# A name, recursion, options, classes of jobs and the compared column; on one GPU and on eight.
BY_KEY: tuple[tuple[str, Recursion, dict[str, Any], tuple[JobClass, ...], str], ...] = (
    ("priority", lowest_first(lambda s: [-float(p) for p in s.priority]), FIRST, PRIORITIES, "start"),
    ("sjf", lowest_first(lambda s: [float(x) for x in s.runtime]), {"order": "sjf"}, (JobClass(),), "start"),
    (
        "priority with preemption",
        with_preemption(highest),
        {"order": "priority", "preemption": True},
        PRIORITIES,
        "end",
    ),
    ("srpt", with_preemption(shortest_remaining), {"order": "srpt"}, (JobClass(),), "end"),
)
GANGS = (
    Case("gangs of 1, 2, 4 and 8 without backfill, 8 GPUs", in_line, 8, {"backfill": "none"}, POWERS),
    Case("server_filling, 8 GPUs", with_preemption(filling), 8, {"order": "server_filling"}, POWERS, "end"),
    Case("server_filling_srpt, 8 GPUs", with_preemption(filling_shortest), 8, {"order": "server_filling_srpt"}, POWERS,
         "end"),
)  # fmt: skip


def all_cases() -> list[Case]:
    """Every case, those of one GPU class by class before those of eight."""
    ranked = [
        Case(f"{name}, {servers} GPUs", recursion, servers, words, classes, column)
        for some in (BY_KEY[:2], BY_KEY[2:])
        for servers in (1, 8)
        for name, recursion, words, classes, column in some
    ]
    return [*_single_gpu(), *ranked, *GANGS]


def _first_of_equals(placement: str, simulate: Simulator, seed: int, nodes: int = 8) -> Line:
    """Compare placements on nodes of one GPU: all free nodes are equal, and the first of them is used."""
    name = f"{placement}, nodes of one GPU: the first that is free"
    stream = Case(name, by_arrival, nodes).input(seed)
    # A runtime of 0 would occupy a node for a part of an instant only.
    stream = stream._replace(runtime=stream.runtime + 1)
    result = simulate(stream.workload(), Cluster.uniform(nodes, 1), placement=placement)
    free, running, must = list(range(nodes)), list[tuple[float, int]](), []
    for start, runtime in zip(by_arrival(stream, nodes), stream.runtime.tolist(), strict=True):
        while running and running[0][0] <= start:
            heapq.heappush(free, heapq.heappop(running)[1])
        must.append(heapq.heappop(free))
        heapq.heappush(running, (start + runtime, must[-1]))
    same = result.placements.sort("job")["node"] == pl.Series([f"node-{k}" for k in must])
    return exactly(name, "jobs with that node", COUNT, int(same.sum()))


def compare_schedules(simulate: Simulator, *, seed: int, progress: Progress) -> list[Line]:
    """Compare every schedule with its recursion."""
    cases = all_cases()
    lines = []
    for k, case in enumerate(cases):
        lines.append(case.line(simulate, seed))
        progress("comparing the schedules of both loops", k + 1, (k + 1) / (len(cases) + len(PLACEMENTS_COMPARED)))
    lines += [_first_of_equals(placement, simulate, seed) for placement in PLACEMENTS_COMPARED]
    progress("comparing the schedules of both loops", len(lines), 1.0)
    return lines
