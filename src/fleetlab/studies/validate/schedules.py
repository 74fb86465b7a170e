"""Schedules compared bit for bit with recursions, ties included.

Each recursion is plain Python and independent of the simulator. Jobs arrive in bursts on whole seconds, many at one
instant and with equal runtimes, so that another tie order shows.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl

from fleetlab.core import Cluster
from fleetlab.core.progress import Progress
from fleetlab.sim import SimResult
from fleetlab.studies.validate.arrivals import JobClass, JobStream, gpus, poisson, seed_of
from fleetlab.studies.validate.line import Line, exactly

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
        left: dict[int, float] = {}
        ends, now, come = [0.0] * len(submit), 0.0, 0
        while come < len(submit) or left:
            served = choose(stream, left, servers)
            then = min([now + left[t] for t in served] + submit[come : come + 1])
            for t in served:
                left[t] -= then - now
                if left[t] == 0:
                    ends[t] = then
                    del left[t]
            now = then
            while come < len(submit) and submit[come] == now:
                left[come] = runtime[come]
                come += 1
        return ends

    return recursion


def shortest_left(_put: JobStream, left: dict[int, float], servers: int) -> list[int]:
    """SRPT: least remaining first."""
    return sorted(left, key=lambda t: (left[t], t))[:servers]


def highest(stream: JobStream, left: dict[int, float], servers: int) -> list[int]:
    """Preemptive priorities."""
    return sorted(left, key=lambda t: (-stream.priority[t], t))[:servers]


def filling(stream: JobStream, left: dict[int, float], servers: int) -> list[int]:
    """ServerFilling: of the earliest jobs that can fill all servers, the largest first (Grosof et al. 2022)."""
    return _filled(sorted(left), stream, servers)


def filling_shortest(stream: JobStream, left: dict[int, float], servers: int) -> list[int]:
    """ServerFilling-SRPT: the same, by remaining server-seconds instead of arrival."""
    return _filled(sorted(left, key=lambda t: (stream.need[t] * left[t], t)), stream, servers)


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
class Schedule:
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


def _single_gpu() -> list[Schedule]:
    loops: dict[str, dict[str, Any]] = {
        "none": {"backfill": "none"}, "greedy": {}, "easy": {"backfill": "easy"}, "full loop": {"preemption": True},
    }  # fmt: skip
    return [
        Schedule(f"fifo/{name}, {servers} GPUs", by_arrival, servers, words)
        for name, words in loops.items()
        for servers in (1, 8, 64)
    ]


def _ranked() -> list[Schedule]:
    def priority(stream: JobStream) -> list[float]:
        return [-float(p) for p in stream.priority]

    def shortest(stream: JobStream) -> list[float]:
        return [float(s) for s in stream.runtime]

    cases = []
    for servers in (1, 8):
        cases += [
            Schedule(f"priority, {servers} GPUs", lowest_first(priority), servers, {"order": "priority"}, PRIORITIES),
            Schedule(f"sjf, {servers} GPUs", lowest_first(shortest), servers, {"order": "sjf"}),
        ]
    return cases


def _preemptive() -> list[Schedule]:
    cases = []
    for servers in (1, 8):
        cases += [
            Schedule(f"priority with preemption, {servers} GPUs", with_preemption(highest), servers,
                     {"order": "priority", "preemption": True}, PRIORITIES, "end"),
            Schedule(f"srpt, {servers} GPUs", with_preemption(shortest_left), servers, {"order": "srpt"}, column="end"),
        ]  # fmt: skip
    return cases


def _gangs() -> list[Schedule]:
    return [
        Schedule("gangs of 1, 2, 4 and 8 without backfill, 8 GPUs", in_line, 8, {"backfill": "none"}, POWERS),
        Schedule("server_filling, 8 GPUs", with_preemption(filling), 8, {"order": "server_filling"}, POWERS, "end"),
        Schedule("server_filling_srpt, 8 GPUs", with_preemption(filling_shortest), 8, {"order": "server_filling_srpt"},
                 POWERS, "end"),
    ]  # fmt: skip


def _first_of_equals(placement: str, simulate: Simulator, seed: int, nodes: int = 8) -> Line:
    """Compare placements on nodes of one GPU: all free nodes are equal, and the first of them is used."""
    name = f"{placement}, nodes of one GPU: the first that is free"
    stream = Schedule(name, by_arrival, nodes).input(seed)
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


def compare(simulate: Simulator, *, seed: int, progress: Progress) -> list[Line]:
    """Compare every schedule with its recursion."""
    cases = [*_single_gpu(), *_ranked(), *_preemptive(), *_gangs()]
    lines = []
    for k, case in enumerate(cases):
        lines.append(case.line(simulate, seed))
        progress("comparing the schedules of both loops", k + 1, (k + 1) / (len(cases) + len(PLACEMENTS_COMPARED)))
    lines += [_first_of_equals(placement, simulate, seed) for placement in PLACEMENTS_COMPARED]
    progress("comparing the schedules of both loops", len(lines), 1.0)
    return lines
