"""Schedules, bit for bit: where a recursion says what must happen, equal means equal, ties included.

Each recursion is written apart from the simulator, in plain Python, and knows nothing of it. Jobs come in bursts on
whole seconds, many at one instant and with equal run times, so that a schedule that breaks ties another way shows.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl

from fleetlab.core import Cluster
from fleetlab.sim import SimResult
from fleetlab.studies.validate._arrivals import Input, Kind, gpus, poisson, seed_of
from fleetlab.studies.validate._line import Line, Progress, exactly

COUNT = 2000
PRIORITIES = (Kind(0.4, priority=1), Kind(0.6, priority=0))
PLACES = ("best_fit", "first_fit", "worst_fit")
POWERS = tuple(Kind(chance, need) for chance, need in ((0.6, 1), (0.2, 2), (0.1, 4), (0.1, 8)))

Recursion = Callable[[Input, int], list[float]]
Simulator = Callable[..., SimResult]


def by_arrival(put: Input, servers: int) -> list[float]:
    """Starts where whoever comes takes the server that is free first (Kiefer and Wolfowitz 1955)."""
    free, starts = [0.0] * servers, []
    for submit, runtime in zip(put.submit.tolist(), put.runtime.tolist(), strict=True):
        starts.append(max(submit, free[0]))
        heapq.heapreplace(free, starts[-1] + runtime)
    return starts


def in_line(put: Input, servers: int) -> list[float]:
    """Starts where each needs several servers at once and nobody passes another."""
    now, free, starts = 0.0, servers, []
    running: list[tuple[float, int]] = []
    for submit, runtime, need in zip(put.submit.tolist(), put.runtime.tolist(), put.need.tolist(), strict=True):
        now = max(now, submit)
        while free < need or (running and running[0][0] <= now):
            end, held = heapq.heappop(running)
            now, free = max(now, end), free + held
        free -= need
        heapq.heappush(running, (now + runtime, need))
        starts.append(now)
    return starts


def lowest_first(keys: Callable[[Input], Sequence[float]]) -> Recursion:
    """Starts where a server that comes free takes the lowest key that waits, and of equals who came first."""

    def recursion(put: Input, servers: int) -> list[float]:
        key, submit, runtime = keys(put), put.submit.tolist(), put.runtime.tolist()
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


def chosen_anew(choose: Callable[[Input, dict[int, float], int], Sequence[int]]) -> Recursion:
    """Ends where, whenever one comes or ends, it is chosen anew who runs; what was done stays done."""

    def recursion(put: Input, servers: int) -> list[float]:
        submit, runtime = put.submit.tolist(), put.runtime.tolist()
        left: dict[int, float] = {}
        ends, now, come = [0.0] * len(submit), 0.0, 0
        while come < len(submit) or left:
            served = choose(put, left, servers)
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


def shortest_left(_put: Input, left: dict[int, float], servers: int) -> list[int]:
    """SRPT: least left first."""
    return sorted(left, key=lambda t: (left[t], t))[:servers]


def highest(put: Input, left: dict[int, float], servers: int) -> list[int]:
    """Preemptive priorities."""
    return sorted(left, key=lambda t: (-put.priority[t], t))[:servers]


def filling(put: Input, left: dict[int, float], servers: int) -> list[int]:
    """ServerFilling: of the shortest line that can fill all servers the largest first (Grosof et al. 2022)."""
    return _filled(sorted(left), put, servers)


def filling_shortest(put: Input, left: dict[int, float], servers: int) -> list[int]:
    """ServerFilling-SRPT: the same with the line ordered by what is left, in server-seconds."""
    return _filled(sorted(left, key=lambda t: (put.need[t] * left[t], t)), put, servers)


def _filled(line: list[int], put: Input, servers: int) -> list[int]:
    total = np.cumsum(put.need[line]) if line else np.zeros(0)
    seen = line[: int(np.searchsorted(total, servers)) + 1]
    served, free = [], servers
    for job in sorted(seen, key=lambda t: -put.need[t]):
        if put.need[job] <= free:
            served.append(job)
            free -= int(put.need[job])
    return served


@dataclass(frozen=True)
class Schedule:
    """What the simulator is told, and the recursion that says what must come out."""

    name: str
    recursion: Recursion
    servers: int
    rules: dict[str, Any] = field(default_factory=dict)
    kinds: tuple[Kind, ...] = (Kind(),)
    column: str = "start"

    def input(self, seed: int) -> Input:
        """Bursts on whole seconds, with a heavy tail of run times, some of them zero; about as much as fits."""
        put = poisson(self.kinds, 1.0, COUNT, seed_of(self.name, seed))
        rng = np.random.default_rng(seed_of(self.name, seed, 1))
        runtime = np.floor(rng.pareto(1.5, COUNT))
        burst = 2 * self.servers + 4
        pause = np.ceil(burst * (runtime * put.need).mean() / self.servers)
        return put._replace(gap=np.where(rng.random(COUNT) < 1 / burst, pause, 0.0), runtime=runtime)

    def line(self, simulate: Simulator, seed: int) -> Line:
        """How many jobs start (or end) just when the recursion says."""
        put = self.input(seed)
        jobs = simulate(put.workload(), gpus(self.servers), **self.rules).jobs
        must = pl.Series(self.recursion(put, self.servers))
        same = int((jobs[self.column] == must).sum())
        return exactly(self.name, f"jobs with that {self.column}", COUNT, same)


def _everybody_fits() -> list[Schedule]:
    loops: dict[str, dict[str, Any]] = {
        "none": {"backfill": "none"}, "greedy": {}, "easy": {"backfill": "easy"}, "full loop": {"preemption": True},
    }  # fmt: skip
    return [
        Schedule(f"fifo/{word}, {servers} GPUs", by_arrival, servers, rules)
        for word, rules in loops.items()
        for servers in (1, 8, 64)
    ]


def _ranked() -> list[Schedule]:
    def priority(put: Input) -> list[float]:
        return [-float(p) for p in put.priority]

    def shortest(put: Input) -> list[float]:
        return [float(s) for s in put.runtime]

    found = []
    for servers in (1, 8):
        found += [
            Schedule(f"priority, {servers} GPUs", lowest_first(priority), servers, {"order": "priority"}, PRIORITIES),
            Schedule(f"sjf, {servers} GPUs", lowest_first(shortest), servers, {"order": "sjf"}),
        ]
    return found


def _put_off() -> list[Schedule]:
    found = []
    for servers in (1, 8):
        found += [
            Schedule(f"priority with preemption, {servers} GPUs", chosen_anew(highest), servers,
                     {"order": "priority", "preemption": True}, PRIORITIES, "end"),
            Schedule(f"srpt, {servers} GPUs", chosen_anew(shortest_left), servers, {"order": "srpt"}, column="end"),
        ]  # fmt: skip
    return found


def _gangs() -> list[Schedule]:
    return [
        Schedule("gangs of 1, 2, 4 and 8 in a strict line, 8 GPUs", in_line, 8, {"backfill": "none"}, POWERS),
        Schedule("server_filling, 8 GPUs", chosen_anew(filling), 8, {"order": "server_filling"}, POWERS, "end"),
        Schedule("server_filling_srpt, 8 GPUs", chosen_anew(filling_shortest), 8, {"order": "server_filling_srpt"},
                 POWERS, "end"),
    ]  # fmt: skip


def _first_of_equals(placement: str, simulate: Simulator, seed: int, nodes: int = 8) -> Line:
    """Nodes of one GPU, so that all that are free are equal: the first of them is taken."""
    name = f"{placement}, nodes of one GPU: the first that is free"
    put = Schedule(name, by_arrival, nodes).input(seed)
    # Of no run time at all, a job would hold its node for the rest of an instant only.
    put = put._replace(runtime=put.runtime + 1)
    result = simulate(put.workload(), Cluster.uniform(nodes, 1), placement=placement)
    free, running, must = list(range(nodes)), list[tuple[float, int]](), []
    for start, runtime in zip(by_arrival(put, nodes), put.runtime.tolist(), strict=True):
        while running and running[0][0] <= start:
            heapq.heappush(free, heapq.heappop(running)[1])
        must.append(heapq.heappop(free))
        heapq.heappush(running, (start + runtime, must[-1]))
    same = result.placements.sort("job")["node"] == pl.Series([f"node-{k}" for k in must])
    return exactly(name, "jobs with that node", COUNT, int(same.sum()))


def compare(simulate: Simulator, *, seed: int, progress: Progress) -> list[Line]:
    """Every schedule beside its recursion."""
    cases = [*_everybody_fits(), *_ranked(), *_put_off(), *_gangs()]
    found = []
    for k, case in enumerate(cases):
        found.append(case.line(simulate, seed))
        progress("schedules", k + 1, (k + 1) / (len(cases) + len(PLACES)))
    found += [_first_of_equals(placement, simulate, seed) for placement in PLACES]
    progress("schedules", len(found), 1.0)
    return found
