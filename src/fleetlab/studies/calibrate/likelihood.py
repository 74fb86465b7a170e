"""How well a scenario explains the recorded starts of the first part of a log, and whom its scheduler took.

The error of a start is the logarithm of its simulated over its recorded wait, both with 10 s added, as bounded slowdown
does. Errors follow a Laplace law whose scale is that of the scenario itself, so that a few jobs that are far off do
not decide. Waits are counted until the end of the part, on both sides: what comes later is not known yet.

A choice needs no simulation. At each recorded start some jobs were waiting that ask for no more than the one that
started, and may run where it did: they would have fitted in its place. An order takes the first of them by its rank,
or, with a small probability that is fitted, any other. That is robust against latency, hidden nodes and load that the
log does not show, because the state is the recorded one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fleetlab.core import Cluster, Scenario
from fleetlab.core.catalog import ORDERS, REQUESTS
from fleetlab.sim.orders import fixed_ranks
from fleetlab.sim.schedule import Schedule
from fleetlab.sim.simulate import play_scenario, world_of
from fleetlab.sim.world import World
from fleetlab.stats import BlockBootstrap, Floats, Ints, divide, paired_difference
from fleetlab.studies.calibrate.recorded import RecordedJobs

# -- starts ------------------------------------------------------------------------------------------------------------

BOUND = 10.0  # seconds that are added to waits
SMALLEST = 1e-3  # scale of errors: a tenth of a second in a wait of a minute and a half
SAME = 1e-3  # seconds: starts that differ by less are the same
GAIN = 10.0  # of log-likelihood, where there are too few jobs for an interval


def simulated_starts(scenario: Scenario, world: World | None = None) -> Floats:
    """Simulate: the start of each job of the workload, NaN of one that did not."""
    jobs = world_of(scenario) if world is None else world
    return starts_of(jobs, play_scenario(scenario, jobs), len(scenario.workload))


def simulated_queues(scenario: Scenario) -> Floats:
    """Simulate: the seconds each job waits for its GPUs, without its start-up; NaN of one that gets none."""
    jobs = world_of(scenario)
    without = replace(jobs, latency=np.zeros(len(jobs.latency)))
    starts = starts_of(without, play_scenario(scenario, jobs), len(scenario.workload))
    return np.asarray(starts - scenario.workload.frame["submit"].to_numpy())


def starts_of(jobs: World, played: Schedule, count: int) -> Floats:
    """Return the start of each of so many jobs, start-up included; NaN of one that did not."""
    measured = slice(jobs.before, None)
    starts = np.full(count, np.nan)
    starts[jobs.frame["job"].to_numpy()[measured]] = (played.start + jobs.latency)[measured]
    return np.asarray(np.maximum(starts, 0.0))


def wait_likelihoods(wait: Floats, recorded: Floats) -> tuple[Floats, Floats]:
    """Return the log-likelihood of each recorded wait given a simulated one, and how far their logarithms differ."""
    error = np.abs(np.log((wait + BOUND) / (recorded + BOUND)))
    scale = max(float(error.mean()), SMALLEST)
    return -np.log(2 * scale) - error / scale, error


@dataclass(frozen=True, eq=False)
class Score:
    """How well one scenario explains the recorded starts."""

    scenario: Scenario
    starts: Floats  # [jobs of the part]
    by_job: Floats  # log-likelihood of the start of each job that is compared
    choices: Floats  # log-likelihood of its being taken before others, where it had a choice of the scheduler; else 0
    error: float  # mean absolute logarithm of the ratio of waits
    mean_wait: float
    words: Mapping[str, Any] = field(default_factory=dict)  # what makes the scenario of the one that is calibrated

    @property
    def total(self) -> float:
        """The log-likelihood of all starts and choices."""
        return float(self.by_job.sum() + self.choices.sum())

    def same_schedule(self, other: Score) -> bool:
        """Whether every job starts at the same time."""
        return bool(np.allclose(self.starts, other.starts, rtol=0.0, atol=SAME, equal_nan=True))


class Fit:
    """The first part of a log, by which scenarios are judged."""

    def __init__(self, scenario: Scenario, log: RecordedJobs, jobs: int, done: Callable[[], None]) -> None:
        rows = np.arange(jobs)
        part = replace(scenario.workload, frame=scenario.workload.frame[:jobs])
        self.jobs, self.done = jobs, done
        self.until = float(log.submit[jobs] if jobs < len(log) else log.submit[-1])
        self.base = scenario.on(part, rows).replace(until=self.until)
        self.submit = log.submit[:jobs]
        self.compared = log.compared[:jobs] & (self.submit < self.until)
        self.recorded = self._wait(log.start[:jobs])
        self.no_choices = np.zeros(len(self.recorded))
        self.worlds: dict[tuple[object, ...], tuple[World, object]] = {}  # the estimate too: its id is in the key

    def _wait(self, start: Floats) -> Floats:
        """Return the waits until the end of the part, of the jobs that are compared."""
        started = np.where(np.isnan(start), np.inf, start)[self.compared]
        return np.asarray(np.minimum(started, self.until) - self.submit[self.compared])

    @cached_property
    def blocks(self) -> BlockBootstrap:
        """Blocks of time, for intervals of differences."""
        return BlockBootstrap.of_times(self.submit[self.compared], self.until)

    def score(self, scenario: Scenario, choices: Floats | None = None) -> Score:
        """Simulate a variation of `base`, and compare its starts with the recorded ones."""
        starts = simulated_starts(scenario, self._world(scenario))
        self.done()
        wait = self._wait(starts)
        by_job, error = wait_likelihoods(wait, self.recorded)
        taken = self.no_choices if choices is None else choices
        return Score(scenario, starts, by_job, taken, float(error.mean()), float(wait.mean()))

    def _world(self, scenario: Scenario) -> World:
        """Return the jobs and nodes of a scenario; policies that differ in order, backfill and placement share them."""
        estimate = scenario.policy.estimate
        key = (scenario.nodes, str(scenario.latency), str(scenario.policy.quota), id(estimate))
        if key not in self.worlds:
            self.worlds = {key: (world_of(scenario), estimate)}  # the last one: the next is likely the same
        return self.worlds[key][0]

    def better(self, before: Score, after: Score) -> bool:
        """Whether a scenario explains the starts significantly better than another."""
        return explains_better(self.blocks, *(score.by_job + score.choices for score in (before, after)))


def explains_better(blocks: BlockBootstrap, before: Floats, after: Floats) -> bool:
    """Whether the log-likelihoods of jobs are significantly higher after a change."""
    gain = paired_difference(blocks.means(before), blocks.means(after)).interval()
    return float((after - before).sum()) > GAIN if np.isnan(gain.low) else gain.low > 0


# -- choices -----------------------------------------------------------------------------------------------------------

MOST_STARTS = 4000  # starts that are looked at
DOMINANT = {"gpu_milli": 1000, "cpu_milli": 1, "memory_mib": 1}  # what a dominant share is of; in units of the cluster
FAIR = ("fair", "")
RANKED_BY = ("submit", "instances", "cpu_milli", "memory_mib", "gpu_milli", "priority")  # that orders rank by
RARE = 1e-3  # the least probability of not taking the first


Ranking = tuple[str, str]  # an order, and the estimate that it ranks by; none: empty


def ranking(order: str, estimate: str) -> Ranking:
    """Return what decides whom an order takes: itself, and its estimate if it has one."""
    return order, estimate if order in ORDERS and ORDERS[order].needs_estimate else ""


class Choices:
    """The recorded starts of the first `jobs` jobs at which other jobs could have been taken instead."""

    def __init__(
        self, log: RecordedJobs, cluster: Cluster, jobs: int, latency: Floats, estimates: Mapping[str, Floats]
    ) -> None:
        self.log, self.jobs = log, jobs
        start = np.where(np.isnan(log.start), np.inf, log.start)[:jobs]
        self.allocated = np.maximum(start - latency[:jobs], log.submit[:jobs])
        self.submit, self.end, self.user = log.submit[:jobs], log.end[:jobs], log.user[:jobs]
        frame = log.jobs[:jobs]
        self.requests = np.array([frame[name].to_numpy() for name in (*REQUESTS, "instances")])
        self.types = frame["gpu_types"].list.sort().list.join("\n").to_numpy()
        self.wants = _wants(frame, cluster)
        self.keys = _fixed_keys(log, jobs, estimates)

    def log_likelihoods(self, compared: NDArray[np.bool_]) -> tuple[dict[Ranking, Floats], int]:
        """Return by order the log-likelihood that each compared job was taken, and how many starts were contested."""
        events = self._events(compared)
        first = {name: np.zeros(len(events), dtype=bool) for name in (*self.keys, FAIR)}
        options = np.ones(len(events))
        for k, job in enumerate(events):
            others = self._others(job)
            options[k] = len(others) + 1
            if len(others):
                for name, keys in self._keys_now(job).items():
                    first[name][k] = _is_first(keys, job, others)
        contested = options > 1
        by_order = {}
        for name, first_taken in first.items():
            by_job = np.zeros(self.jobs)
            by_job[events[contested]] = _log_likelihood(first_taken[contested], options[contested])
            by_order[name] = by_job[compared]
        return by_order, int(contested.sum())

    def _events(self, compared: NDArray[np.bool_]) -> Ints:
        """Return the jobs whose starts are looked at, in order of time: those that waited, or a part of them."""
        waited = np.flatnonzero(compared & (self.allocated > self.submit) & np.isfinite(self.allocated))
        waited = waited[np.argsort(self.allocated[waited], kind="stable")]
        return waited[:: max(1, -(-len(waited) // MOST_STARTS))]

    def _others(self, job: int) -> Ints:
        """Return the jobs that waited when this one was taken, and would have fitted in its place."""
        now = self.allocated[job]
        waiting = np.flatnonzero((self.submit <= now) & (self.allocated > now))
        no_more = (self.requests[:, waiting] <= self.requests[:, [job]]).all(axis=0)
        types = self.types[waiting]
        return np.asarray(waiting[no_more & ((types == "") | (types == self.types[job]))])

    def _keys_now(self, job: int) -> Mapping[Ranking, Floats]:
        return self.keys | {FAIR: self._dominant_shares(self.allocated[job])[self.user]}

    def _dominant_shares(self, now: float) -> Floats:
        """Return the largest share of a resource that each user holds."""
        running = (self.allocated < now) & ~(self.end <= now)
        users = len(self.log.users)
        in_use = [np.bincount(self.user[running], weights=want[running], minlength=users) for want in self.wants]
        return np.asarray(np.max(in_use, axis=0))


def _wants(frame: pl.DataFrame, cluster: Cluster) -> list[Floats]:
    """Return what each job asks for, as a share of what there is of each resource."""
    there = {name.replace("gpu_milli", "gpus"): name for name in DOMINANT}
    wants = []
    for column, name in there.items():
        total = float(cluster.frame[column].cast(pl.Int64).sum()) * DOMINANT[name]
        amount = (frame[name].cast(pl.Int64) * frame["instances"]).to_numpy().astype(np.float64)
        wants.append(amount / total if total else np.zeros(len(amount)))
    return wants


def _fixed_keys(log: RecordedJobs, jobs: int, estimates: Mapping[str, Floats]) -> dict[Ranking, Floats]:
    """Return the ranks of jobs under each order whose ranks do not change while a job waits for its first start."""
    submit, milli = log.submit[:jobs], log.milli[:jobs]
    columns = {name: log.jobs[name][:jobs].cast(pl.Float64).to_numpy() for name in RANKED_BY}
    keys: dict[Ranking, Floats] = {}
    for order in (order for order in ORDERS if not order.timed):
        if order.needs_estimate:
            for name, estimate in estimates.items():
                view = SimpleNamespace(**columns, estimate=estimate)
                sized = milli if order.chooses_set else 1.0  # the dynamic ones: before a first start all of it is left
                keys[order.name, name] = sized * estimate if order.dynamic else fixed_ranks(order.name, view)
        else:  # before a first start the dynamic ones take all jobs alike, in the order of arrival
            alike = order.dynamic or order.name == "fifo"
            keys[order.name, ""] = submit if alike else fixed_ranks(order.name, SimpleNamespace(**columns))
    return keys


def past_means(log: RecordedJobs, columns: Sequence[str]) -> Floats:
    """Return for each job the mean run time of the jobs like it that had finished when it came, or of all that had."""
    codes = log.jobs.select(pl.struct(columns).rank("dense")).to_series().to_numpy().astype(np.int64)
    ended = ~np.isnan(log.end) & ~np.isnan(log.runtime)
    estimate = _finished_mean(log, np.flatnonzero(ended), np.arange(len(log)))
    order = np.argsort(codes, kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(codes[order])) + 1):
        own = _finished_mean(log, rows[ended[rows]], rows)
        estimate[rows] = np.where(np.isnan(own), estimate[rows], own)
    return np.nan_to_num(estimate)


def _finished_mean(log: RecordedJobs, done: Ints, rows: Ints) -> Floats:
    """Return the mean run time of some jobs that had finished when others came; NaN where none had."""
    done = done[np.argsort(log.end[done])]
    sums, count = (
        np.append(0.0, np.cumsum(log.runtime[done])),
        np.searchsorted(log.end[done], log.submit[rows], "right"),
    )
    return divide(sums[count], count)


def _is_first(keys: Floats, job: int, others: Ints) -> bool:
    """Whether a job is ahead of others; ties by arrival."""
    ahead = (keys[others] < keys[job]) | ((keys[others] == keys[job]) & (others < job))
    return not ahead.any()


def _log_likelihood(was_first: NDArray[np.bool_], options: Floats) -> Floats:
    if not len(was_first):
        return np.zeros(0)
    other = float(np.clip(1 - was_first.mean(), RARE, 1 - RARE))
    return np.asarray(np.where(was_first, np.log(1 - other), np.log(other / (options - 1))))
