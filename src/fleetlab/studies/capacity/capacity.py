"""Capacity planning: the smallest cluster that meets a goal, by a queueing model first and then by replicas of runs."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple, Unpack

import numpy as np
import polars as pl

from fleetlab.core import Cluster, Estimate, Scenario, Words, WorkloadError, resample
from fleetlab.core.coverage import MUCH, Coverage, require
from fleetlab.core.durations import duration, number, plural
from fleetlab.core.progress import Progress, silent
from fleetlab.core.replicas import is_drawn_anew, perturbed
from fleetlab.core.result import FieldsResult
from fleetlab.core.scenario import ScenarioLike
from fleetlab.sim import simulate
from fleetlab.sim.simulate import world_of
from fleetlab.stats import POSITIVE, WORSE, Floats, Interval, isotonic, no_interval, wilson
from fleetlab.studies.capacity import sizes
from fleetlab.studies.capacity.sizes import ServiceGoal
from fleetlab.studies.replicas import ENOUGH, FIXED, LEAST, LOOKS, SPENT, Plan, Replication
from fleetlab.studies.runner import Call, Workers, process_count, run_calls
from fleetlab.studies.sentences import CANNOT_RUN, left_out, percent

# -- the curve of simulated sizes --------------------------------------------------------------------------------------

STEP = 1.25  # from one size to the next, as long as all of them meet the goal, or none does
FINE = 0.01  # of a size: the precision of the search, but at least one node
FARTHEST = 16  # times the larger of the guess and the cluster
AROUND = (0.8, 0.9, 1.1, 1.25)  # of the answer: the other sizes of the curve
IN_ALL = 2  # sizes that are looked at in all replicas, about; the others in a few


class Run(NamedTuple):
    """One simulated size in one replica."""

    value: float  # of the goal; infinite where it rests on jobs that never run
    jobs: int  # that were replayed and measured
    never: int  # jobs that never run: they fit nowhere, or a rule keeps them waiting
    nodes: int  # of those that are scaled: each kind is rounded up
    gpus: int  # in total
    waits: Floats  # sums over blocks of jobs, by submission


@dataclass
class SizeCurve:
    """All simulated sizes, and in how many replicas they meet a goal."""

    limit: float
    probability: float  # the share of the replicas that must meet it
    simulate: Callable[[Sequence[tuple[int, int]]], list[Run]]  # sizes and places of replicas
    runs: dict[int, list[Run]] = field(default_factory=dict)
    sizes: Sequence[int] = range(1, 2**40)  # that differ, ascending

    def add(self, sizes: Sequence[int], count: int) -> None:
        """Simulate sizes, or the next that there are, in so many replicas, where they are not yet."""
        differ = {self.sizes[min(bisect_left(self.sizes, size), len(self.sizes) - 1)] for size in sizes}
        new = [(size, k) for size in sorted(differ) for k in range(len(self.runs.get(size, [])), count)]
        for (size, _), run in zip(new, self.simulate(new), strict=True):
            self.runs.setdefault(size, []).append(run)

    def shares(self) -> dict[int, float]:
        """Return by size the share of replicas that meet the goal, by isotonic regression: it rises with the size."""
        by_size = sorted(self.runs)
        met = [np.mean([run.value < self.limit for run in self.runs[size]]) for size in by_size]
        return dict(zip(by_size, isotonic(met, [len(self.runs[size]) for size in by_size]).tolist(), strict=True))

    def bracket(self) -> tuple[int, int | None]:
        """Return the largest size that misses the goal, 0 if none does, and the next larger one, which meets it."""
        failed = max((s for s, share in self.shares().items() if share < self.probability - 1e-9), default=0)
        return failed, min((s for s in self.runs if s > failed), default=None)

    def answer(self, *, first: int, count: int, most: int) -> int | None:
        """Return the smallest size that meets the goal; None if none up to `most`.

        Sizes are halved between one that misses and one that meets it, in the first replicas; the last two in all.
        """
        while True:
            low, high = self.bracket()
            if high is None:
                if low >= most:
                    return None
                self.add([min(most, math.ceil(low * STEP) + 1)], first)
            elif high - low > FINE * high and (between := self._between(low, high)):
                middle = len(between) // 2 if low else max(0, bisect_right(between, high / STEP) - 1)
                self.add([between[middle]], first)
            elif any(len(self.runs[size]) < count for size in (low, high) if size):
                self.add([size for size in (low, high) if size], count)
            else:
                return high

    def _between(self, low: int, high: int) -> Sequence[int]:
        return self.sizes[bisect_right(self.sizes, low) : bisect_left(self.sizes, high)]

    def values(self, size: int) -> list[float]:
        """Return the goal by replica."""
        return [run.value for run in self.runs[size]]

    def worse(self, replication: Replication) -> list[tuple[int, int]]:
        """Return neighboring sizes of which the larger has the larger value, by what paired replicas say."""
        pairs = list(zip(by_size := sorted(self.runs), by_size[1:], strict=False))
        found = []
        for small, large in pairs:
            both = np.array(list(zip(self.values(small), self.values(large), strict=False)))
            if np.isfinite(both).all() and len(both) > 1:
                said = replication.verdict(both[:, 1] - both[:, 0], float(both[:, 0].mean()), len(pairs))
                found += [(small, large)] if said == WORSE else []
        return found


# -- the answer --------------------------------------------------------------------------------------------------------

MOST_GROWTH = 100.0
PROBABILITY = 0.9


class Capacity(FieldsResult):
    """The smallest cluster that meets a goal, and the sizes around it."""


def capacity(
    source: ScenarioLike,
    cluster: Cluster | None = None,
    *,
    slo: str,
    pool: str | None = None,
    growth: float = 1.0,
    probability: float = PROBABILITY,
    replicas: int | None = None,
    scope: str | None = None,
    workers: Workers = None,
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
    probability
        The share of the replicas that must meet the goal (default: 0.9).
    replicas
        How many replicas of the answer are simulated (default: 20, fewer for a large workload).
    scope
        What a replica is: `like`, other jobs like those of the log, or `log`, the same jobs nudged (default: like; log
        where much of the GPU time is of jobs that begin before the log or outlive it).
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
    >>> result.findings[0][:17]
    '4 nodes keep the '
    """
    scenario, goal = Scenario.of(source, cluster, **words), ServiceGoal.read(slo)
    plan = Plan.of(replicas, scope or _default_scope(scenario))
    _check(scenario, goal, pool, growth, probability)
    if scenario.data.is_log:
        require(scenario.coverage, scenario.min_coverage)
    looks = plan.looks(IN_ALL * scenario.workload.instances)
    search = _CapacitySearch(scenario, slo, goal, pool, growth, probability, plan)
    curve = SizeCurve(goal.limit, probability, search.simulator(workers, progress))
    return search.answer(curve, first=min(LOOKS[0], looks[-1]), count=looks[-1])


@dataclass(frozen=True, slots=True)
class _CapacitySearch:
    scenario: Scenario
    slo: str
    goal: ServiceGoal
    pool: str | None
    growth: float
    probability: float
    plan: Plan

    def simulator(self, workers: Workers, progress: Progress) -> Callable[[Sequence[tuple[int, int]]], list[Run]]:
        """Return a function that simulates sizes in replicas."""
        before, count = [0], process_count(self.scenario.workload.instances, workers)

        @cache
        def replica(place: int) -> Scenario:
            number = 0 if self.plan.count == 1 else place + 1
            return _grown(perturbed(self.scenario, number, self.plan.scope), self.growth)

        def simulate_sizes(new: Sequence[tuple[int, int]]) -> list[Run]:
            calls = [Call(replica(k), {"size": size, "pool": self.pool, "slo": self.slo}) for size, k in new]
            start = before[0]

            def done(count: int) -> None:
                before[0] = start + count
                # How many there will be is not known.
                progress("simulating clusters of other sizes", start + count, 1 - 0.98 ** (start + count))

            return [_run(numbers) for numbers in run_calls(sizes.measure, calls, workers=count, done=done)]

        return simulate_sizes

    def answer(self, curve: SizeCurve, *, first: int, count: int) -> Capacity:
        """Search the smallest size that meets the goal, and simulate others around it."""
        cluster, goal = self.scenario.cluster, self.goal
        grown = _grown(self.scenario, self.growth)
        guess, now = sizes.guess(grown, self.pool, goal), sizes.node_count(cluster, self.pool)
        most = FARTHEST * max(guess, now)
        curve.sizes = sizes.distinct(cluster, self.pool, most)
        curve.add([guess], first)
        at = curve.answer(first=first, count=count, most=most)
        while at is not None:  # a size around the answer may miss the goal again
            around = [max(1, round(at * share)) for share in AROUND]
            curve.add(around + ([now] if now <= most else []), min(first, LEAST))
            again = curve.answer(first=first, count=count, most=most)
            if again == at:
                break
            at = again
        if at is None:
            raise self._refusal(curve)
        stopped = FIXED if self.plan.count else ENOUGH if count == LOOKS[-1] else SPENT
        drawn_anew = is_drawn_anew(self.scenario)
        results = [{"answer": {"wait": run.waits}} for run in curve.runs[at]]
        done = Replication(self.plan, results, stopped, "" if drawn_anew else "answer")
        shares, kind = curve.shares(), f"{self.pool} nodes" if self.pool else "nodes"
        run, value = curve.runs[at][0], self._interval(curve, at, done)
        even = min(size for size, share in shares.items() if share >= min(0.5, self.probability))
        metric = f"smallest cluster that keeps {goal} < {self._show(goal.limit)}:"
        estimates = (
            Estimate.exact(f"{metric} {kind}", run.nodes),
            self._share("replicas in which it does", curve, at, shares),
            Estimate(f"{goal} with these nodes", *value, goal.unit),
            Estimate.exact(f"{kind} that do in half of the replicas", curve.runs[even][0].nodes),
            Estimate.exact(f"{kind} now", now),
            self._share(f"replicas in which the {kind} there are now do", curve, now, shares),
            Estimate.exact(f"{kind} by square-root staffing (few jobs wait at busy hours; ignores packing)", guess),
            Estimate.exact("GPUs with these nodes", run.gpus),
            Estimate.exact("GPUs now", cluster.gpus),
            *self._cost(at),
        )
        table = pl.DataFrame(self._rows(curve, shares, done)).with_columns(pl.col("low", "high").fill_nan(None))
        refused = world_of(self.scenario.replace(cluster=self._cluster(at), nodes="")).refused
        measured = f"Measured on {self._population(curve, at, refused)}."
        return Capacity(
            self.scenario.provenance("capacity", self._settings(done)),
            (*self._findings(kind, curve, at, shares, done), measured), estimates,
            {"curve": table, "nodes": self._kinds(at)}, notes=self._notes(curve, done),
            coverage=Coverage.of(self.scenario.run_times, refused),
        )  # fmt: skip

    def _settings(self, done: Replication) -> dict[str, object]:
        own = {"slo": self.slo, "pool": self.pool, "growth": self.growth, "probability": self.probability}
        return self.scenario.words() | own | done.settings()

    def _cluster(self, size: int) -> Cluster:
        return sizes.scaled(self.scenario.cluster, self.pool, size)

    def _show(self, value: float) -> str:
        return duration(value) if self.goal.unit == "s" else number(value)

    def _interval(self, curve: SizeCurve, size: int, done: Replication) -> Interval:
        values = curve.values(size)
        if not np.isfinite(values).all():
            return no_interval(math.inf)
        return done.statistic(np.array(values), POSITIVE).interval()

    def _share(self, name: str, curve: SizeCurve, size: int, shares: Mapping[int, float]) -> Estimate:
        if size not in shares:
            return Estimate(name, math.nan, math.nan, math.nan, "%")
        count = len(curve.runs[size])
        share, low, high = wilson(shares[size] * count, count)
        return Estimate(name, 100 * share, 100 * low, 100 * high, "%")

    def _rows(self, curve: SizeCurve, shares: Mapping[int, float], done: Replication) -> list[dict[str, object]]:
        """Return the curve as rows, the smallest size first."""
        rows: list[dict[str, object]] = []
        for size, runs in sorted(curve.runs.items()):
            value, low, high = self._interval(curve, size, done)
            row: dict[str, object] = {
                "nodes": runs[0].nodes,
                "GPUs": runs[0].gpus,
                str(self.goal): value,
                "low": low,
                "high": high,
            }
            row |= {"meets the goal": 100 * shares[size], "replicas": len(runs)}
            row |= {f"cost per hour, {e.unit}": e.value for e in self._cost(size)[1:]}
            rows.append(row | {"jobs that never run": max(run.never for run in runs)})
        return rows

    def _findings(
        self, kind: str, curve: SizeCurve, at: int, shares: Mapping[int, float], done: Replication
    ) -> list[str]:
        """Return the answer, and how sure it is."""
        now = sizes.node_count(self.scenario.cluster, self.pool)
        today = "as many as there are now" if now == at else f"there are {now:,} now"
        nodes = f"{curve.runs[at][0].nodes:,} {kind} keep the {self.goal} below {self._show(self.goal.limit)}"
        if done.count == 1:
            return [f"{nodes}, in one run of {done.scope}; {today}."]
        sure = f"They do in {percent(shares[at])} of {done.count} replicas of {done.scope}."
        others = f"Those there are now do in {percent(shares.get(now, 0.0))}."
        return [f"{nodes}; {today}.", sure, *([others] if now in shares and now != at else [])]

    def _population(self, curve: SizeCurve, at: int, refused: pl.DataFrame) -> str:
        """Return which jobs the goal is measured on, on average over the replicas."""
        frame = self.scenario.workload.frame.filter(~pl.col("initial"))
        measured = frame.filter(sizes.measured_jobs(frame, self.scenario.cluster, self.pool))
        runs = curve.runs[at]
        jobs, never = (round(sum(count) / len(runs)) for count in ([r.jobs for r in runs], [r.never for r in runs]))
        others = []
        if self.growth == 1 and jobs < measured.height:
            why = refused.filter(pl.col("job").is_in(measured["job"].implode()) & ~pl.col("reason").is_in(CANNOT_RUN))
            others = [
                f"of {measured.height:,}",
                *left_out(dict(why.group_by("reason").len().sort("reason").iter_rows())),
            ]
        others += [f"{plural(never, 'job')} cannot run on this cluster and count as waiting forever"] if never else []
        allowed = f" that may run on {self.pool}" if self.pool else ""
        replayed = "" if never else " that were replayed"
        return f"the {jobs:,} jobs{allowed}{replayed}" + (f" ({', '.join(others)})" if others else "")

    def _cost(self, size: int) -> list[Estimate]:
        """Return the price of all GPUs per hour, where prices are given."""
        prices, cluster = self.scenario.prices, self.scenario.cluster
        if prices is None:
            return []
        both = {"now": cluster, "with these nodes": self._cluster(size)}
        counts = {name: c.frame.filter(pl.col("gpus") > 0).select("gpu_type", "gpus") for name, c in both.items()}
        costs = {name: sum(n * prices.gpu_hour(t) for t, n in nodes.iter_rows()) for name, nodes in counts.items()}
        return [Estimate.exact(f"cost of all GPUs per hour, {name}", cost, prices.unit) for name, cost in costs.items()]

    def _kinds(self, size: int) -> pl.DataFrame:
        """Return the nodes of each pool and GPU type, now and with the answer."""
        cluster, kinds = self.scenario.cluster, ["pool", "gpu_type", "gpus"]
        both = {"now": cluster, "needed": self._cluster(size)}
        now, then = (c.frame.group_by(kinds, maintain_order=True).len(name) for name, c in both.items())
        kinds_now_and_then = now.join(then, on=kinds, how="left", nulls_equal=True, maintain_order="left")
        return kinds_now_and_then.rename({"gpu_type": "GPU type", "gpus": "GPUs per node"})

    def _notes(self, curve: SizeCurve, done: Replication) -> tuple[str, ...]:
        notes = [done.note()]
        for small, large in curve.worse(done):
            low, high = (self._show(float(np.mean(curve.values(size)))) for size in (small, large))
            notes.append(f"more nodes make it worse: {self.goal} is {low} with {small:,} and {high} with {large:,}")
        return tuple(notes)

    def _refusal(self, curve: SizeCurve) -> WorkloadError:
        """Return the error for a goal that no size meets, with what jobs wait for there."""
        size = max(curve.runs)
        run, value = curve.runs[size][-1], float(np.mean(curve.values(size)))
        result = simulate(self.scenario.replace(cluster=self._cluster(size), nodes="", min_coverage=0.0))
        frame = self.scenario.workload.frame
        measured = frame.filter(sizes.measured_jobs(frame, self.scenario.cluster, self.pool))["job"]
        reasons = result.ledger.filter(pl.col("job").is_in(measured.implode())).drop("job").sum()
        why = f"; {plural(run.never, 'job')} never {'runs' if run.never == 1 else 'run'}" if run.never else ""
        there = "no value" if math.isinf(value) else f"{value:,.4g}"
        msg = f"no number of nodes up to {run.nodes:,} meets the goal: it is {there} there{why}; the main wait reason "
        msg = f"{msg}is `{reasons.columns[int(np.argmax(reasons.to_numpy()))]}`"
        return WorkloadError(msg, hint="scale another pool, choose backfill greedy or easy, or raise the limit")


def _default_scope(scenario: Scenario) -> str:
    """Return `like`, but `log` where blocks of the log are too short for its jobs to be drawn again."""
    of = scenario.coverage
    beyond = max(part.hours for part in (of.longer, of.initial, of.held))
    return "log" if beyond > MUCH * of.log.hours and not scenario.trace.workload.synthetic else "like"


def _grown(scenario: Scenario, growth: float) -> Scenario:
    if growth == 1:
        return scenario
    workload, seed = scenario.workload, scenario.seed
    grown = scenario.on(workload.grown(growth, seed), resample.user_days(workload.frame, growth, seed)[0])
    if not len(grown.workload):
        msg = f"{workload.source}: no job is left at a growth of {growth:g}"
        raise WorkloadError(msg, hint="use a trace of more users and days, or another seed")
    return grown


def _run(numbers: Mapping[str, np.ndarray]) -> Run:
    jobs, never, nodes, gpus = (int(numbers[name]) for name in Run._fields[1:-1])
    return Run(float(numbers["value"]), jobs, never, nodes, gpus, numbers["waits"])


def _check(scenario: Scenario, goal: ServiceGoal, pool: str | None, growth: float, probability: float) -> None:
    """Refuse what no number of nodes can meet, before the work begins."""
    if not 0 < growth <= MOST_GROWTH:
        msg = f"growth is a number above 0, at most {MOST_GROWTH:g}: {growth}"
        raise WorkloadError(msg, hint="growth=1.3 for 30 % more jobs")
    if not 0 < probability <= 1:
        msg = f"probability is a number above 0, at most 1: {probability}"
        raise WorkloadError(msg, hint=f"the default is {PROBABILITY:g}: nine in ten replicas meet the goal")
    if scenario.until is not None:
        msg = "a goal is measured on all jobs: leave `until` out"
        raise WorkloadError(msg, hint="a trace of fewer days has fewer jobs")
    workload = scenario.workload
    measured = sizes.measured_jobs(workload.frame, scenario.cluster, pool)
    jobs = workload.frame.filter(measured & ~workload.frame["initial"]).drop_nulls("runtime")
    best = sizes.at_best(jobs, goal)
    if not len(best):
        msg = f"{workload.source}: no job {f'may run on `{pool}`' if pool else 'has a known runtime'}"
        raise WorkloadError(msg, hint="a goal is measured on the jobs that may run on the nodes that are scaled")
    if (least := goal.of(best)) >= goal.limit:
        show = duration if goal.unit == "s" else number
        msg = f"no number of nodes meets the goal: without any wait the {goal} is {show(least)}"
        raise WorkloadError(msg, hint=f"a limit above that, not {show(goal.limit)}")
    sizes.check_requests(scenario, jobs, best, goal)
