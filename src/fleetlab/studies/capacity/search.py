"""Capacity planning: the smallest cluster that meets a goal, by a queueing model first and then by simulation."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Unpack

import numpy as np
import polars as pl

from fleetlab.core import Cluster, Estimate, Provenance, Scenario, Words, Workload, WorkloadError, resample
from fleetlab.core.catalog.reasons import ABOVE_QUOTA, UNKNOWN_RUNTIME
from fleetlab.core.coverage import Coverage, require
from fleetlab.core.durations import duration, number, plural
from fleetlab.core.progress import Progress, silent
from fleetlab.core.result import FieldsResult, amount
from fleetlab.core.scenario import ScenarioLike
from fleetlab.sim.simulate import world_of
from fleetlab.stats import POSITIVE, Interval, Statistic, pool
from fleetlab.studies.capacity import sizes, staffing
from fleetlab.studies.capacity.curve import FARTHEST, SizeCurve, SizePoint, rows
from fleetlab.studies.capacity.goal import ServiceGoal
from fleetlab.studies.requests import left_out
from fleetlab.studies.workers import Call, process_count, run_calls

RESAMPLES = 3
MOST_GROWTH = 100.0
MANY = 10**6  # degrees of freedom, where runs do not differ


class Capacity(FieldsResult):
    """The smallest cluster that meets a goal, and the sizes around it."""


def capacity(
    source: ScenarioLike,
    cluster: Cluster | None = None,
    *,
    slo: str,
    pool: str | None = None,
    growth: float = 1.0,
    resamples: int = RESAMPLES,
    workers: int | None = None,
    progress: Progress = silent,
    **words: Unpack[Words],
) -> Capacity:
    """Find the smallest cluster that meets a goal such as `p90 wait < 600`.

    Parameters
    ----------
    source
        What builds the scenario, as `Scenario.of` takes it.
    cluster
        The nodes, in place of those of the trace.
    **words
        Words of the scenario, such as `order="sjf"` or `load=1.2`.
    slo
        The goal: mean or a percentile (p50, p90, p95, …) of wait, JCT, slowdown or bounded slowdown, `<`, and a limit:
        seconds, or such as 10m or 2h; a number for a slowdown.
    pool
        The pool or GPU type to scale; the goal is measured on the jobs that may run there (default: all pools in
        proportion, and all jobs).
    growth
        Number of jobs relative to the trace: user-days are added on other days, at the same hours (default: 1).
    resamples
        How many random workloads of that growth are simulated (default: 3).
    workers
        Processes to run at once (default: one per core, at most 4, for a large workload; 0: none but this one).
    progress
        Called as sizes are done.

    Returns
    -------
    Capacity
        Findings with the smallest size, and the curve of the metric over sizes.

    Raises
    ------
    WorkloadError
        If the goal is not understood, or no size meets it.

    Examples
    --------
    >>> import fleetlab, polars as pl
    >>> table = pl.DataFrame({"submit": [0.0, 10.0, 20.0, 30.0], "runtime": 600.0, "gpu_milli": 8000})
    >>> jobs = fleetlab.Workload.of(table, source="by hand")
    >>> result = fleetlab.capacity(jobs, fleetlab.Cluster.uniform(1, 8), slo="p90 wait < 1m", workers=0)
    >>> result.findings[0][:15]
    'From 4 nodes on'

    """
    scenario, goal = Scenario.of(source, cluster, **words), ServiceGoal.read(slo)
    _check(scenario, goal, pool, growth, resamples)
    if scenario.data.is_log:
        require(scenario.coverage, scenario.min_coverage)
    seeds = range(scenario.seed, scenario.seed + (resamples if growth != 1 else 1))
    scenarios = [_grown(scenario, growth, seed) for seed in seeds]
    settings = scenario.words() | {"slo": slo, "pool": pool, "growth": growth, "resamples": resamples}
    provenance = Provenance("capacity", scenario.workload.source, settings, scenario.seed)
    search = _CapacitySearch(scenario, goal, pool, scenarios, provenance)
    count = process_count(scenarios[0].workload.instances, workers)
    curve = SizeCurve(goal.limit, search.simulator(slo, count, progress))
    return search.answer(curve, at_once=max(1, count // len(scenarios)))


def _grown(scenario: Scenario, growth: float, seed: int) -> Scenario:
    if growth == 1:
        return scenario
    workload = scenario.workload
    grown = scenario.on(workload.grown(growth, seed), resample.user_days(workload.frame, growth, seed)[0])
    if not len(grown.workload):
        msg = f"{workload.source}: no job is left at a growth of {growth:g}"
        raise WorkloadError(msg, hint="use a trace of more users and days, or another seed")
    return grown


@dataclass(frozen=True, slots=True)
class _CapacitySearch:
    scenario: Scenario
    goal: ServiceGoal
    pool: str | None
    scenarios: Sequence[Scenario]  # one per resample
    provenance: Provenance

    def simulator(self, slo: str, workers: int, progress: Progress) -> Callable[[Sequence[int]], list[SizePoint]]:
        """Return a function that simulates every resample at each of some sizes."""
        each, before = len(self.scenarios), [0]

        def simulate(wanted: Sequence[int]) -> list[SizePoint]:
            calls = [Call(s, {"size": size, "pool": self.pool, "slo": slo}) for size in wanted for s in self.scenarios]
            start = before[0]

            def done(count: int) -> None:
                before[0] = start + count
                # How many there will be is not known.
                progress("simulating clusters of other sizes", start + count, 1 - 0.9 ** (start + count))

            results = run_calls(f"{sizes.__name__}:measure", calls, workers=workers, done=done)
            return [_point(size, results[i * each : (i + 1) * each], self.goal) for i, size in enumerate(wanted)]

        return simulate

    def answer(self, curve: SizeCurve, *, at_once: int) -> Capacity:
        """Search the smallest size that meets the goal, and those at which the limits of its interval do."""
        cluster, goal = self.scenario.cluster, self.goal
        guess = staffing.guess(self.scenarios[0], self.pool, goal)
        now = sizes.node_count(cluster, self.pool)
        most = FARTHEST * max(guess, now)
        curve.add([guess])
        at, low, high = curve.answer(most=most, at_once=at_once)
        kind = f"{self.pool} nodes" if self.pool else "nodes"
        metric = f"smallest cluster from which {goal} stays < {self._show(goal.limit)}:"
        nodes = _between(f"{metric} {kind}", "nodes", at, low, high)
        estimates = (
            nodes,
            Estimate(f"{goal} with these nodes", at.value, at.low, at.high, goal.unit),
            Estimate.exact(f"{kind} now", now),
            Estimate.exact(f"{kind} by square-root staffing (few jobs wait at busy hours; ignores packing)", guess),
            _between("GPUs with these nodes", "gpus", at, low, high),
            Estimate.exact("GPUs now", cluster.gpus),
            *self._cost(at.size),
        )
        table = pl.DataFrame(rows(curve.points, goal.limit, str(goal)))
        table = table.with_columns(pl.col("low", "high").fill_nan(None))
        frames = {"curve": table, "nodes": self._kinds(at.size)}
        findings = (self._finding(nodes, kind, now, at),)
        coverage = Coverage.of(self.scenario.run_times, self._refused(at.size))
        return Capacity(self.provenance, findings, estimates, frames, notes=self._notes(at), coverage=coverage)

    def _refused(self, size: int) -> pl.DataFrame:
        """Return the jobs that cannot run on so many nodes, with the reason."""
        cluster = sizes.scaled(self.scenario.cluster, self.pool, size)
        return world_of(self.scenario.replace(cluster=cluster, nodes="")).refused

    def _show(self, value: float) -> str:
        return duration(value) if self.goal.unit == "s" else number(value)

    def _finding(self, nodes: Estimate, kind: str, now: int, at: SizePoint) -> str:
        """Return the answer, how sure it is, and the jobs that it is measured on."""
        count, limit = f"{nodes.value:,.0f} {kind}", self._show(self.goal.limit)
        value = amount(Estimate("", at.value, at.low, at.high, self.goal.unit))
        sure = "there are too few jobs for a 95 % CI, so that this may be chance"
        if not math.isnan(at.high):
            sure = f"from {nodes.high:,.0f} {kind} on, so does the whole 95 % CI"
        if math.isinf(nodes.high):
            sure = "no number of nodes brings the whole 95 % CI below it"
        return (
            f"From {count} on, the simulated {self.goal} stays below {limit}; {sure}. With {count} it is {value}. "
            f"There are {now:,} now. Measured on {self._population(at)}."
        )

    def _population(self, at: SizePoint) -> str:
        """Return which jobs the goal is measured on, on average over the resamples."""
        frames = [s.workload.frame for s in self.scenarios]
        came = [frame.filter(~pl.col("initial")) for frame in frames]
        measured = [frame.filter(sizes.measured_jobs(frame, self.scenario.cluster, self.pool)) for frame in came]
        counts = [f.height for f in measured], [f["runtime"].null_count() for f in measured]
        jobs, unknown = (sum(count) // len(count) for count in counts)
        reasons = {UNKNOWN_RUNTIME: unknown, ABOVE_QUOTA: max(0, jobs - unknown - at.jobs)}
        others = [f"of {jobs:,}", *left_out(reasons)] if at.jobs < jobs else []
        others += (
            [f"{plural(at.never, 'job')} cannot run on this cluster and count as waiting forever"] if at.never else []
        )
        allowed = f" that may run on {self.pool}" if self.pool else ""
        replayed = "" if at.never else " that were replayed"
        return f"the {at.jobs:,} jobs{allowed}{replayed}" + (f" ({', '.join(others)})" if others else "")

    def _cost(self, size: int) -> list[Estimate]:
        """Return the price of all GPUs per hour, where prices are given."""
        prices, cluster = self.scenario.prices, self.scenario.cluster
        if prices is None:
            return []
        both = {"now": cluster, "with these nodes": sizes.scaled(cluster, self.pool, size)}
        counts = {name: c.frame.filter(pl.col("gpus") > 0).select("gpu_type", "gpus") for name, c in both.items()}
        costs = {name: sum(n * prices.gpu_hour(t) for t, n in nodes.iter_rows()) for name, nodes in counts.items()}
        return [Estimate.exact(f"cost of all GPUs per hour, {name}", cost, prices.unit) for name, cost in costs.items()]

    def _kinds(self, size: int) -> pl.DataFrame:
        """Return the nodes of each pool and GPU type, now and with the answer."""
        cluster, kinds = self.scenario.cluster, ["pool", "gpu_type", "gpus"]
        both = {"now": cluster, "needed": sizes.scaled(cluster, self.pool, size)}
        now, then = (c.frame.group_by(kinds, maintain_order=True).len(name) for name, c in both.items())
        both_ = now.join(then, on=kinds, how="left", nulls_equal=True, maintain_order="left")
        return both_.rename({"gpu_type": "GPU type", "gpus": "GPUs per node"})

    def _notes(self, at: SizePoint) -> tuple[str, ...]:
        notes, workload = [], self.scenario.workload
        if not math.isnan(at.high):
            notes.append(f"95 % CI of the nodes: where the lower, and where the upper limit of {self.goal} meets it")
        if len(self.scenarios) > 1 or self.scenarios[0] is not self.scenario:
            time = [_gpu_time(s.workload) / max(_gpu_time(workload), 1e-9) for s in self.scenarios]
            notes.append(f"GPU time in the resamples: {min(time):.3g} to {max(time):.3g} times that of the trace")
        if math.isnan(at.high) and len(self.scenarios) > 1:
            low, high = map(self._show, at.between)
            notes.append(f"too few jobs for a 95 % CI: with these nodes the resamples gave {low} to {high}")
        return tuple(notes)


def _check(scenario: Scenario, goal: ServiceGoal, pool: str | None, growth: float, resamples: int) -> None:
    """Refuse what no number of nodes can meet, before the work begins."""
    if not 0 < growth <= MOST_GROWTH:
        msg = f"growth is a number above 0, at most {MOST_GROWTH:g}: {growth}"
        raise WorkloadError(msg, hint="growth=1.3 for 30 % more jobs")
    if not 1 <= resamples <= 100:
        msg = f"resamples is a number from 1 to 100: {resamples}"
        raise WorkloadError(msg, hint=f"the default is {RESAMPLES}")
    if scenario.until is not None:
        msg = "a goal is measured on all jobs: leave `until` out"
        raise WorkloadError(msg, hint="a trace of fewer days has fewer jobs")
    workload = scenario.workload
    measured = sizes.measured_jobs(workload.frame, scenario.cluster, pool)
    best = sizes.at_best(workload.frame.filter(measured).drop_nulls("runtime"), goal)
    if not len(best):
        msg = f"{workload.source}: no job {f'may run on `{pool}`' if pool else 'has a known runtime'}"
        raise WorkloadError(msg, hint="a goal is measured on the jobs that may run on the nodes that are scaled")
    if (least := goal.of(best)) >= goal.limit:
        show = duration if goal.unit == "s" else number
        msg = f"no number of nodes meets the goal: without any wait the {goal} is {show(least)}"
        raise WorkloadError(msg, hint=f"a limit above that, not {show(goal.limit)}")


def _point(size: int, runs: Sequence[Mapping[str, Any]], goal: ServiceGoal) -> SizePoint:
    """Combine the runs of one size."""
    first, hint = runs[0], "`fleetlab simulate` lists the jobs that cannot run, and why"
    if first["nowhere"] == first["jobs"]:
        msg = f"no job can run on such nodes, however many there are: {first['unmet']}".removesuffix(": ")
        raise WorkloadError(msg, hint=hint)
    numbers = [r["statistic"].tolist() for r in runs]
    statistics = [Statistic(value, below, above, df, POSITIVE) for value, below, above, df in numbers]
    best = np.array([r["best"] for r in runs])
    if first["nowhere"] and best[:, 0].mean() >= goal.limit:
        jobs = f"{first['nowhere']:,} of {first['jobs']:,} jobs fit on no node"
        msg = f"no number of nodes meets the goal: {jobs}, and wait forever: {first['unmet']}"
        raise WorkloadError(msg, hint=hint)
    values = [math.inf if s.value > sizes.FAR else s.value for s in statistics]
    between = min(values), max(values)
    never, can_meet = max(int(r["never"]) for r in runs), not (best > sizes.FAR).any()
    nodes, gpus, reason = int(first["nodes"]), int(first["gpus"]), str(first["reason"])
    measured = sum(int(r["jobs"]) for r in runs) // len(runs)
    return SizePoint(size, *_pooled(statistics), nodes, gpus, never, reason, measured, between, can_meet)


def _pooled(runs: Sequence[Statistic]) -> Interval:
    """Return the interval of several runs; infinite where it rests on jobs that never run."""
    intervals = [run.interval() for run in runs]
    far = any(max(interval.value, interval.high) > sizes.FAR for interval in intervals)
    together = np.mean(intervals, axis=0).tolist() if far else pool(runs).interval()
    return Interval(*(math.inf if x > sizes.FAR else x for x in together))


def _between(metric: str, what: str, at: SizePoint, low: SizePoint, high: SizePoint | None) -> Estimate:
    """Return the nodes or GPUs of the answer, between the sizes at which the limits of the interval meet the goal."""
    value = getattr(at, what)
    if math.isnan(at.high):
        return Estimate(metric, value, math.nan, math.nan, "")
    return Estimate(metric, value, min(value, getattr(low, what)), max(value, getattr(high, what, math.inf)), "")


def _gpu_time(workload: Workload) -> float:
    f = workload.frame
    return float((f["gpu_milli"].cast(pl.Float64) * f["instances"] * f["runtime"].fill_null(0.0)).sum())
