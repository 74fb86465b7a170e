"""What a log tells of each job, what of that is known at one instant, and what a replay of that instant begins with.

A replay begins with the jobs that run and where, those that wait, and those of the past that may come again. Its times
are seconds from the instant, which is second 0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

import numpy as np
import polars as pl

from fleetlab.core import Scenario, Trace, Workload
from fleetlab.core.catalog import ESTIMATES, SHARINGS
from fleetlab.core.censoring import Bools, Floats
from fleetlab.core.progress import Progress, silent
from fleetlab.core.resample import Ints, ahead
from fleetlab.core.schedulers import Feature
from fleetlab.core.workload import numbered
from fleetlab.sim import SimResult
from fleetlab.sim.layout import MAX_TYPES, cut
from fleetlab.sim.world import World, world

# -- what is known at an instant ---------------------------------------------------------------------------------------

LOG, SIMULATED = "log", "simulated"
STARTED_BY = "started_by"  # the series of a Slurm log that tells which loop started a job


@dataclass(frozen=True, eq=False)
class History:
    """When each job came, started and ended; rows are in order of submission."""

    frame: pl.DataFrame  # the columns of a workload; `job` is negative for jobs of a warm-up
    submit: Floats
    start: Floats  # nan: it did not, or unknown
    end: Floats  # nan: unknown; inf: it still runs when the log ends
    origin: str  # LOG or SIMULATED: whose starts these are
    places: tuple[Ints, Ints, Ints] | None = None  # by row the first instance; of each instance its node and its GPUs
    nodes: pl.Series | None = None  # by row the names of the nodes that the log saw it on
    cycles: Floats | None = None  # when Slurm's backfill loop started jobs, ascending
    until: float = 0.0  # up to when it is known what came; a log of its own does not tell

    @classmethod
    def of_log(cls, trace: Trace) -> History:
        """Return what the log recorded."""
        frame = trace.workload.frame
        older = pl.col("initial") & pl.col("start").is_null()  # it ran when the log began: at least since then
        start = pl.when(older).then(0.0).otherwise("start")
        runs = (pl.col("status") == "running") & pl.col("runtime_at_least").is_not_null()
        end = pl.coalesce("end", pl.col("start") + pl.col("runtime"), pl.when(runs).then(float("inf")))
        times = frame.select(pl.col("submit"), start=start, end=end)
        submit, started, ended = (_floats(times[name]) for name in ("submit", "start", "end"))
        until = float(trace.provenance.settings.get("watched_until") or 0.0)
        return cls(frame, submit, started, ended, LOG, nodes=_nodes(trace), cycles=backfill_cycles(trace), until=until)

    @classmethod
    def of_simulation(cls, result: SimResult) -> History:
        """Return what a simulation found, also of the jobs that it simulated first."""
        world, played = result.world, result.played
        order = np.argsort(world.submitted, kind="stable")
        end = np.where(np.isnan(played.end) & ~np.isnan(played.start), np.inf, played.end)
        start = played.start + world.latency
        places = (world.first[:-1][order], played.where, played.got) if played.segments is None else None
        return cls(world.frame[order], world.submitted[order], start[order], end[order], SIMULATED, places)

    def with_request(self, job: pl.DataFrame, at: float) -> tuple[History, int]:
        """Return it with a job that is submitted now, and its row: after all that have come."""
        row = int(np.searchsorted(self.submit, at, side="right"))
        mine = job.with_columns(submit=pl.lit(at)).select(self.frame.columns).cast(self.frame.schema)
        frame = pl.concat([self.frame[:row], mine, self.frame[row:]])
        times = ((self.submit, at), (self.start, np.nan), (self.end, np.nan))
        submit, start, end = (np.insert(values, row, new) for values, new in times)
        places = self.places
        if places is not None:
            places = (np.insert(places[0], row, 0), *places[1:])
        nodes = self.nodes
        if nodes is not None:
            nodes = pl.concat([nodes[:row], nodes.clear(1), nodes[row:]])
        return History(frame, submit, start, end, self.origin, places, nodes, self.cycles, self.until), row

    @property
    def wait(self) -> Floats:
        """The seconds from submission to start; nan where there is no start."""
        return self.start - self.submit

    @cached_property
    def may_wait(self) -> Bools:
        """Which jobs without a start waited until they ended, or still wait: of others the log just lost it."""
        status = self.frame["status"].cast(pl.String).to_numpy()
        gave_up = (status == "cancelled") & ~np.isnan(self.end)
        return np.asarray(~np.isnan(self.start) | gave_up | (status == "waiting"))

    @property
    def last_known(self) -> float:
        """When the last job came, or up to when it was watched: later nothing is known of what else came."""
        return max(float(self.submit.max(initial=0.0)), self.until)

    def last_wait(self) -> float | None:
        """Return the last moment up to the last submission at which a job waits; None: none ever does."""
        at = self.last_known
        if len(self.at(at).waiting):
            return at
        waited = (self.wait > 0) & (self.submit <= at)
        return float(np.minimum(self.start[waited], at).max() - 1e-3) if waited.any() else None

    def at(self, at: float, row: int | None = None) -> Snapshot:
        """Return what is known at an instant; of a `row` that is predicted as it comes, that it waits."""
        submitted = self.submit <= at
        if row is not None and self.submit[row] == at:
            submitted &= (self.submit < at) | (np.arange(len(submitted)) <= row)  # those of the same instant come later
        started = self.start <= at
        if row is not None:
            started[row] = False
        over = self.end <= at
        running = submitted & started & ~over & ~np.isnan(self.end)
        waiting = submitted & ~started & ~over & self.may_wait
        ended = np.flatnonzero(submitted & started & over)
        return Snapshot(self, at, np.flatnonzero(running), np.flatnonzero(waiting), ended)


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """The cluster at one instant, by rows of the history: nothing in it is from later."""

    history: History
    at: float
    running: Ints
    waiting: Ints
    ended: Ints

    @property
    def elapsed(self) -> Floats:
        """How long each of the running jobs has run."""
        return np.maximum(self.at - self.history.start[self.running], 0.0)

    @property
    def runtime(self) -> Floats:
        """How long each of the ended jobs ran."""
        return self.history.end[self.ended] - self.history.start[self.ended]


def _nodes(trace: Trace) -> pl.Series | None:
    """Return the nodes of each job, by row."""
    if trace.placements is None:
        return None
    nodes = trace.placements.select("job", pl.col("node").cast(pl.String)).unique().sort("job", "node")
    by_job = nodes.group_by("job").agg("node").collect()
    return trace.workload.frame.select("job").join(by_job, on="job", how="left", maintain_order="left")["node"]


def backfill_cycles(trace: Trace) -> Floats | None:
    """Return when the backfill loop started jobs, as far as the log tells which loop it was."""
    if STARTED_BY not in trace.series:
        return None
    by = trace.series[STARTED_BY].filter(pl.col("loop") == "backfill").select("job").collect()
    start = trace.workload.frame.join(by, on="job", how="semi")["start"].drop_nulls()
    return start.sort().to_numpy()


def _floats(column: pl.Series) -> Floats:
    return column.cast(pl.Float64).fill_null(float("nan")).to_numpy()


# -- jobs of replays ---------------------------------------------------------------------------------------------------

LEAST = 1.0  # s that a job is taken to run on at least
LINKS = ("depends_on", "dependency")
NODE = "fleetlab-node-"  # a feature by which a job is bound to nodes


# The submissions up to an instant, the instant, for how long, and a generator: which jobs come again, and when.
Arrivals = Callable[[Floats, float, float, np.random.Generator], tuple[Ints, Floats]]


class RunTimeModel(Protocol):
    """What is known of run times."""

    def draw(self, rows: Ints, elapsed: Floats, draws: int, rng: np.random.Generator) -> Floats:
        """Return so many run times of each of these rows of the history: [rows, draws]."""


def no_arrivals(submissions: Floats, at: float, length: float, rng: np.random.Generator) -> tuple[Ints, Floats]:
    """Return no arrivals."""
    return np.zeros(0, dtype=np.int64), np.zeros(0)


@dataclass(frozen=True, slots=True, eq=False)
class ReplaySetup:
    """What is played: a scenario at one instant, and how often."""

    scenario: Scenario
    snapshot: Snapshot
    run_times: RunTimeModel
    replays: int
    seed: int
    arrivals: Arrivals = ahead  # what comes after the instant
    progress: Progress = silent

    @property
    def bound(self) -> bool:
        """Whether running jobs are bound to the nodes on which the log saw them: loops tell few nodes apart."""
        nodes_known = self.snapshot.history.nodes is not None
        return self.scenario.honors(Feature.CONSTRAINTS) and nodes_known and len(self.scenario.cluster) <= MAX_TYPES


@dataclass(frozen=True, slots=True, eq=False)
class ReplayJobs:
    """One entry a job: those that run, those that wait, then those of the past. Times are seconds from now."""

    running: int
    waiting: int
    frame: pl.DataFrame
    submitted: Floats
    look: Floats  # when the scheduler first looks at it
    runtime: Floats  # [those that run and wait, replays]: from when they are placed
    past: Floats  # [those of the past, replays]: how long they run
    estimate: Floats  # nan: what it runs

    @property
    def state(self) -> int:
        """How many run or wait."""
        return self.running + self.waiting


def replay_jobs(setup: ReplaySetup, running: Ints, lead: Floats, past: Ints) -> ReplayJobs:
    """Return the jobs of replays; each that runs is placed `lead` seconds before now."""
    snapshot, history = setup.snapshot, setup.snapshot.history
    state, at = np.append(running, snapshot.waiting), snapshot.at
    ran = at - history.start[running]
    eligible = history.frame["eligible"][snapshot.waiting].fill_null(at).to_numpy()
    look = np.concatenate([-lead, np.maximum(eligible - at, 0.0), np.zeros(len(past))])
    submitted = np.concatenate([-lead, history.submit[snapshot.waiting] - at, np.zeros(len(past))])
    elapsed = np.append(ran, np.zeros(len(snapshot.waiting)))
    # Those of the past that have not ended are drawn with the others of their batch.
    open_, so_far = _open(setup, past)
    rows, have_run = np.append(state, past[open_]), np.append(elapsed, so_far)
    rng = np.random.default_rng([setup.seed, 0, setup.replays])
    every = setup.run_times.draw(rows, have_run, setup.replays, rng)
    runtime, of_past = every[: len(state)], np.repeat((history.end - history.start)[past][:, None], setup.replays, 1)
    of_past[open_] = every[len(state) :]
    # What is placed later than it started has run for a part of its time.
    spent = np.append(ran - lead, np.zeros(len(snapshot.waiting)))
    least = np.append(lead + LEAST, np.zeros(len(snapshot.waiting)))
    estimate = _estimates(setup, np.append(state, past))
    estimate[: len(running)] = np.maximum(estimate[: len(running)] - spent[: len(running)], lead + LEAST)
    return ReplayJobs(
        len(running), len(snapshot.waiting), _frame(setup, running, spent, past, submitted, look), submitted, look,
        np.maximum(runtime - spent[:, None], least[:, None]), of_past, estimate,
    )  # fmt: skip


def _frame(
    setup: ReplaySetup, running: Ints, spent: Floats, past: Ints, submitted: Floats, look: Floats
) -> pl.DataFrame:
    """Return the jobs as a workload has them, numbered from 0."""
    frame, waiting = setup.snapshot.history.frame, setup.snapshot.waiting
    schema, unknown, count = frame.schema, pl.lit(None, dtype=pl.Float64), len(running) + len(waiting)
    runs = pl.Series(np.arange(count) < len(running))
    state = numbered(frame[np.append(running, waiting)]).with_columns(
        *(pl.when(runs).then(pl.lit([], dtype=schema[name])).otherwise(name).alias(name) for name in LINKS),
        limit=(pl.col("limit") - pl.Series(spent)).clip(lower_bound=LEAST),
    )  # fmt: skip
    copies = frame[past].with_columns(
        *(pl.lit([], dtype=schema[name]).alias(name) for name in LINKS),
        *(pl.lit(None, dtype=schema[name]).alias(name) for name in ("array", "gang")),
        job=pl.int_range(count, count + len(past), dtype=pl.Int64),
    )
    return _bound(setup, pl.concat([state, copies]), running).with_columns(
        submit=pl.Series(submitted), eligible=pl.Series(look), runtime=pl.lit(LEAST / 2), runtime_at_least=unknown,
        start=unknown, end=unknown, initial=pl.lit(value=False), status=pl.lit("completed", dtype=schema["status"]),
    )  # fmt: skip


def _bound(setup: ReplaySetup, jobs: pl.DataFrame, running: Ints) -> pl.DataFrame:
    """Bind the running jobs, which come first, to the nodes that the log saw them on."""
    nodes = setup.snapshot.history.nodes
    if nodes is None or not setup.bound:
        return jobs
    there = nodes[running].list.eval(NODE + pl.element()).list.join("|")
    # Where no node has a feature, constraints mean nothing: they must not when nodes get names.
    named = bool((setup.scenario.cluster.frame["features"].list.len() > 0).any())
    others = jobs["constraint"][len(running) :] if named else jobs["constraint"].clear(jobs.height - len(running))
    return jobs.with_columns(constraint=pl.concat([there.cast(others.dtype).rename("constraint"), others]))


def _open(setup: ReplaySetup, past: Ints) -> tuple[Ints, Floats]:
    """Return which jobs of the past have not ended by now, and how long these have run."""
    history, at = setup.snapshot.history, setup.snapshot.at
    open_ = np.flatnonzero(~(history.end[past] <= at) | np.isnan(history.start[past]))
    started = history.start[past[open_]]
    return open_, np.where(started <= at, at - started, 0.0)


def _estimates(setup: ReplaySetup, jobs: Ints) -> Floats:
    """Return what the scheduler takes jobs to run in all; nan: what they do run."""
    scenario, history = setup.scenario, setup.snapshot.history
    rule = scenario.estimate
    if isinstance(rule, str):
        keys = ESTIMATES[rule].columns
        return _past_means(setup.snapshot, jobs, keys) if keys else np.full(len(jobs), np.nan)
    column = rule.cast(pl.Float64).fill_null(float("nan")).to_numpy()
    job = history.frame["job"].to_numpy()[jobs]  # negative: a request, or a job of a warm-up
    row = np.where(job >= 0, job + (scenario.first_row if history.origin == SIMULATED else 0), -1)
    limit = history.frame["limit"].fill_null(float("nan")).to_numpy()[jobs]
    return np.where(row >= 0, column[np.maximum(row, 0)], limit)


def columns_without_values(estimate: str, jobs: pl.DataFrame) -> list[str]:
    """Return the columns by which an estimate tells jobs apart and of which a log has no value."""
    return [name for name in ESTIMATES[estimate].columns if jobs[name].null_count() == jobs.height]


def estimate_note(scenario: Scenario) -> list[str]:
    """Return that the jobs of a log cannot be told apart as their estimate wants, if so."""
    rule = scenario.estimate
    lacking = columns_without_values(rule, scenario.workload.frame) if isinstance(rule, str) else []
    if not lacking:
        return []
    others = [name for name in ESTIMATES[str(rule)].columns if name not in lacking]
    by = f"estimates are by {' and '.join(others)} alone" if others else "all jobs have the same estimate"
    return [f"estimate={rule}: no job of the log has a {' or a '.join(lacking)}, so that {by}"]


def _past_means(snapshot: Snapshot, jobs: Ints, keys: tuple[str, ...]) -> Floats:
    frame = snapshot.history.frame
    ended = frame[snapshot.ended].select(keys).with_columns(mean=pl.Series(snapshot.runtime))
    means = ended.group_by(keys).agg(pl.col("mean").mean())
    mean = frame[jobs].select(keys).join(means, on=keys, how="left", maintain_order="left", nulls_equal=True)["mean"]
    return mean.fill_null(float("nan")).to_numpy().copy()


# -- where the running jobs are: as recorded, or packed again ----------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class RunningJobs:
    """The running jobs, and where they are."""

    rows: Ints  # of the history
    node: Ints | None  # of each of their instances; None: the policy places them
    gpus: Ints | None
    left_out: int = 0  # jobs for which there is no place


def running_jobs(setup: ReplaySetup) -> RunningJobs:
    """Return where the running jobs are."""
    snapshot = setup.snapshot
    history = snapshot.history
    if history.places is None:
        return repacked(snapshot)
    rows = snapshot.running[np.argsort(history.start[snapshot.running], kind="stable")]
    first, node, gpus = history.places
    count = history.frame["instances"].cast(pl.Int64).to_numpy()[rows]
    at = cut(first[rows], count)
    return RunningJobs(rows, node[at], gpus[at])


def repacked(snapshot: Snapshot) -> RunningJobs:
    """Return the running jobs for the policy to place: where their nodes are unknown, or its loop begins empty."""
    return RunningJobs(_largest_first(snapshot), None, None)


def _largest_first(snapshot: Snapshot) -> Ints:
    """Return the running jobs in an order in which a packed cluster holds them again."""
    jobs = snapshot.history.frame[snapshot.running]
    total = jobs["gpu_milli"].cast(pl.Int64).to_numpy() * 1000 + jobs["instances"].to_numpy()
    return snapshot.running[np.argsort(-total, kind="stable")]


# -- the scenario of replays -------------------------------------------------------------------------------------------


def replay_scenario(setup: ReplaySetup, frame: pl.DataFrame, horizon: float | None) -> Scenario:
    """Return the scenario of these jobs, up to a horizon."""
    scenario, log = setup.scenario, setup.scenario.workload
    epoch = None if log.epoch is None else log.epoch + setup.snapshot.at
    own = scenario.replace(estimate="oracle", events=(), window="", warm_up="none")
    if scenario.scheduler is not None:
        first, snapshot = float(frame["submit"].min() or 0.0), setup.snapshot  # type: ignore[arg-type]
        own = own.replace(scheduler=scenario.scheduler.as_of(snapshot.at, first, snapshot.history.cycles))
    if setup.bound:
        named = scenario.cluster.frame.with_columns(features=pl.concat_list("features", NODE + pl.col("node")))
        own = replace(own.replace(cluster=replace(scenario.cluster, frame=named)), nodes="")
    changed = own.on(Workload(frame, log.source, epoch, log.zone), np.arange(frame.height))
    return replace(changed, until=horizon)


def replay_world(scenario: Scenario) -> World:
    """Return the world of the jobs of a scenario, whose times and estimates are not yet known."""
    return world(scenario.workload, scenario.cluster, part=SHARINGS[scenario.policy.sharing].granularity)
