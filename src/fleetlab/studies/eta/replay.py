"""The present queue replayed many times: jobs that run, jobs that wait, and jobs that may come.

Second 0 is the instant of the question. What runs then is where it is, if that is known; else it is placed anew, the
largest first. What waits is looked at from second 0 on, in the order in which it came.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import polars as pl

from fleetlab.core import Scenario
from fleetlab.core.catalog import ORDERS, PLACEMENTS
from fleetlab.core.censoring import Floats
from fleetlab.core.resample import Ints
from fleetlab.sim.engine.begin import Running, running_of
from fleetlab.sim.schedule import Schedule
from fleetlab.sim.simulate import play_from, play_scenario, plays_from
from fleetlab.sim.start_up import latencies
from fleetlab.sim.world import World
from fleetlab.sim.world_rows import Times, take
from fleetlab.studies.eta.snapshot import (
    ReplayJobs,
    ReplaySetup,
    RunningJobs,
    repacked,
    replay_jobs,
    replay_scenario,
    replay_world,
    running_jobs,
)

LEVELS = (0.025, 0.1, 0.5, 0.9, 0.975)  # of quantiles: the ends of 95 and 80 %, and the median
LEAD = 1.0  # s in which other loops do
FIRST, LAST = (60.0, 3600.0), 30 * 86_400.0  # s: the first horizon is within these, and the last one
AGES = 4.0  # times the age of the log, or the longest time limit, after which a job that has not started is given up
FURTHER = 4.0  # times as far, for replays in which a job has not started
PILOT, FEWEST, WORK = 8, 39, 200_000  # replays to learn from, at least, and jobs of all replays
MARGIN = 2.0  # times as far as the pilots went, for the others
THREADS = 2
MOST_JOBS = 60_000  # of one replay: no horizon with more arrivals is tried


@dataclass(frozen=True, slots=True, eq=False)
class Replays:
    """When the jobs that wait start in each replay, in seconds from now; inf: not within the last horizon."""

    rows: Ints  # of the history
    seconds: Floats  # [jobs, replays]
    horizon: float  # of the last replays
    running: int  # jobs that run now
    misplaced: int  # of these, how many found no place
    refused: dict[int, str]  # by row: why a job that waits can never run
    stages: dict[int, ReplayStage]  # in which each replay was played at last

    @property
    def last(self) -> ReplayStage:
        """The stage that was played furthest."""
        return max(self.stages.values(), key=lambda stage: stage.most)

    def quantiles(self, row: int) -> Floats:
        """Return the quantiles of when one job starts."""
        return quantiles(self.of(row))

    def bounded_quantiles(self, row: int) -> Floats:
        """Return the same; what was not played to its start is taken to start then."""
        return quantiles(np.minimum(self.of(row), self.horizon))

    def of(self, row: int) -> Floats:
        """Return when one job starts in each replay."""
        return np.asarray(self.seconds[int(np.searchsorted(self.rows, row))])


def quantiles(seconds: Floats, levels: tuple[float, ...] = LEVELS) -> Floats:
    """Return what one more to come is below as often as the levels say: ranks of n + 1, between two draws if need be.

    Quantiles of the draws themselves would be too close together: of 39, the outermost hold 95 % of those to come.

    >>> quantiles(np.arange(1.0, 40.0)).tolist(), quantiles(np.array([1.0, 2.0, np.inf]), (0.5, 0.9)).tolist()
    ([1.0, 4.0, 20.0, 36.0, 39.0], [2.0, inf])
    """
    ordered, rank = np.sort(seconds), np.clip(np.array(levels) * (len(seconds) + 1), 1, len(seconds)) - 1
    below = ordered[np.floor(rank + 1e-9).astype(np.int64)]
    above = ordered[np.ceil(rank - 1e-9).astype(np.int64)]
    with np.errstate(invalid="ignore"):  # between two that start later than was played
        between = below + (rank - np.floor(rank + 1e-9)) * (above - below)
    return np.asarray(np.where(above == below, below, between))


def replay(setup: ReplaySetup, asked_rows: Ints) -> Replays:
    """Replay the present queue until the wanted jobs (rows that wait) have started in every replay.

    A few replays tell how far to go, and so how many are affordable. Others do not go on for a job that starts in none
    of these few.
    """
    few = min(PILOT, setup.replays)
    pilot = _to_start(replace(setup, replays=few), asked_rows, np.arange(few), _first_horizon(setup))
    count = min(max(FEWEST, round(WORK / pilot.last.most)), setup.replays)
    rest = np.arange(few, count)
    if not len(rest):
        return pilot
    setup = replace(setup, replays=count)  # only these are drawn
    latest = np.where(np.isfinite(pilot.seconds), pilot.seconds, -1.0).max(axis=1)
    starts = np.isin(pilot.rows, asked_rows) & (latest >= 0)
    usual = float(latest[starts].max(initial=0.0))
    others = _to_start(setup, pilot.rows[starts], rest, min(max(MARGIN * usual, FIRST[0]), pilot.horizon))
    return replace(
        others, seconds=np.hstack([pilot.seconds, others.seconds]), horizon=max(pilot.horizon, others.horizon),
        misplaced=max(pilot.misplaced, others.misplaced), stages=pilot.stages | others.stages,
    )  # fmt: skip


def _to_start(setup: ReplaySetup, asked_rows: Ints, replays: Ints, horizon: float) -> Replays:
    """Simulate some replays as far as it takes."""
    waiting, places = setup.snapshot.waiting, running_jobs(setup)
    targets, farthest = np.flatnonzero(np.isin(waiting, asked_rows)), last_horizon(setup)
    seconds = np.full((len(waiting), setup.replays), np.inf)
    open_replays, misplaced, stages = replays, 0, {}
    while True:
        stage = ReplayStage.of(setup, places, horizon, open_replays)
        last = int(targets[0]) if len(targets) == 1 else None
        for k, (start, unplaced) in zip(
            open_replays, _replay_in_threads(setup, stage, open_replays, last), strict=True
        ):
            seconds[:, k], stages[int(k)] = start, stage
            misplaced = max(misplaced, unplaced)
        open_replays = open_replays[np.isinf(seconds[np.ix_(targets, open_replays)]).any(axis=0)]
        if not len(open_replays) or horizon >= farthest or stage.most * FURTHER > MOST_JOBS:
            misplaced += places.left_out
            running = len(setup.snapshot.running)
            return Replays(waiting, seconds[:, replays], horizon, running, misplaced, stage.refused, stages)
        horizon = min(horizon * FURTHER, farthest)


def _replay_in_threads(
    setup: ReplaySetup, stage: ReplayStage, replays: Ints, last: int | None
) -> list[tuple[Floats, int]]:
    """Simulate replays, several at a time: the loops let other threads run."""

    def one(k: int) -> tuple[Floats, int]:
        found = stage.starts_in(int(k), last)
        setup.progress("replays", int(k) + 1, (int(k) + 1) / setup.replays)
        return found

    if len(replays) < PILOT:
        return [one(k) for k in replays]
    first = one(replays[0])  # alone: what is not compiled yet is compiled by one thread
    with ThreadPoolExecutor(THREADS) as pool:
        return [first, *pool.map(one, replays[1:])]


def _first_horizon(setup: ReplaySetup) -> float:
    """Twice a usual wait of late."""
    history, at = setup.snapshot.history, setup.snapshot.at
    late = np.flatnonzero((history.start <= at) & (history.submit <= at))[-200:]
    usual = float(np.quantile(history.wait[late], 0.75)) if len(late) else 0.0
    return min(max(2 * usual, FIRST[0]), FIRST[1])


def last_horizon(setup: ReplaySetup) -> float:
    """Return how far replays go: some times the age of the log, or the longest time limit; at least an hour."""
    snapshot = setup.snapshot
    limits = snapshot.history.frame["limit"][np.append(snapshot.running, snapshot.waiting)].drop_nulls().to_numpy()
    longest = float(limits[np.isfinite(limits)].max(initial=0.0))
    return min(max(AGES * max(snapshot.at, longest), FIRST[1]), LAST)


@dataclass(frozen=True, slots=True, eq=False)
class ReplayStage:
    """Replays up to one horizon: one world has the arrivals of all of them."""

    seed: int
    scenario: Scenario
    jobs: ReplayJobs
    world: World
    where: Ints  # [jobs]: the row of `world`; -1: it can never run
    latency: Floats  # [jobs]
    running: Running | None  # None: what runs is placed before second 0 in each replay
    coming: dict[int, tuple[Ints, Floats]]  # by replay: numbers of jobs, and when they come
    rows: Ints  # of the history, that wait
    made: dict[str, Any] = field(default_factory=dict)  # what the scheduler makes of the jobs of `world`

    @classmethod
    def of(cls, setup: ReplaySetup, places: RunningJobs, horizon: float, replays: Ints) -> ReplayStage:
        """Draw what comes in each replay, and make the world of all these jobs."""
        snapshot, history = setup.snapshot, setup.snapshot.history
        submissions = history.submit[: int(np.searchsorted(history.submit, snapshot.at, side="right"))]
        arrivals = {
            int(k): setup.arrivals(submissions, snapshot.at, horizon, np.random.default_rng([setup.seed, int(k), 1]))
            for k in replays
        }
        past = np.unique(np.concatenate([rows for rows, _ in arrivals.values()]))
        jobs = replay_jobs(setup, places.rows, _leads(setup, places), past)
        coming = {k: (jobs.state + np.searchsorted(past, rows), after) for k, (rows, after) in arrivals.items()}
        scenario = replay_scenario(setup, jobs.frame, horizon)
        world = replay_world(scenario)
        if places.node is not None and not plays_from(scenario, world):
            return cls.of(setup, repacked(snapshot), horizon, replays)
        where = np.full(jobs.frame.height, -1, dtype=np.int64)
        where[world.frame["job"].to_numpy()] = np.arange(world.frame.height)
        latency = latencies(scenario.latency, jobs.frame, None, scenario.cluster.frame["gpu_type"], setup.seed)
        latency = np.zeros(len(where)) if latency is None else latency
        latency[: jobs.running] = 0.0  # they have started
        running = None
        if places.node is not None and places.gpus is not None:
            order = where[: jobs.running]
            running = running_of(take_rows(world, order), -_leads(setup, places), places.node, places.gpus)
        return cls(setup.seed, scenario, jobs, world, where, latency, running, coming, snapshot.waiting)

    @property
    def most(self) -> int:
        """The most jobs of a replay."""
        return self.jobs.state + max(len(rows) for rows, _ in self.coming.values())

    @property
    def refused(self) -> dict[int, str]:
        """Why jobs that wait can never run, by their rows of the history."""
        first, last = self.jobs.running, self.jobs.state - 1
        reasons = self.world.refused.filter(pl.col("job").is_between(first, last)).select("job", "reason")
        return {int(self.rows[job - first]): reason for job, reason in reasons.iter_rows()}

    def starts_in(self, number: int, last: int | None = None) -> tuple[Floats, int]:
        """Return when each job that waits starts in a replay, and how many running ones found no place at once.

        It may end when one of those that wait, the `last`, has started.
        """
        world, played, place = self.schedule(number, last)
        start, ran = np.full(self.jobs.state, np.inf), place >= 0
        start[ran] = (played.start + world.latency)[place[ran]]
        start = np.where(np.isnan(start), np.inf, start)
        return np.maximum(start[self.jobs.running :], 0.0), int((start[: self.jobs.running] > 0).sum())

    def schedule(self, number: int, last: int | None = None) -> tuple[World, Schedule, Ints]:
        """Return the world of one replay, its schedule, and where each job of the state is in them (-1: nowhere)."""
        jobs, state = self.jobs, self.jobs.state
        arrivals, after = self.coming[number]
        every = np.append(np.arange(state), arrivals)
        every = every[self.where[every] >= 0]
        after = after[self.where[arrivals] >= 0]
        old = every[every < state]
        runtime = np.append(jobs.runtime[old, number], jobs.past[every[len(old) :] - state, number])
        estimate = jobs.estimate[every]
        times = Times(
            np.append(jobs.submitted[old], after), np.append(jobs.look[old], after), runtime,
            np.where(np.isnan(estimate), runtime, estimate), self.latency[every],
        )  # fmt: skip
        world, place = take(self.world, self.where[every], times, frame=self._needs_frame, made=self.made)
        places = np.full(state, -1, dtype=np.int64)
        places[old] = place[: len(old)]
        last_job = -1 if last is None else int(places[jobs.running + last])
        return world, self._played(world, number, last_job), places

    def _played(self, world: World, number: int, last_job: int) -> Schedule:
        scenario = replace(self.scenario, seed=self.seed + number)
        if self.running is not None:
            played = play_from(scenario, world, self.running, last_job)
            assert played is not None  # `of` gives places only where this loop knows the rules
            return played
        return play_scenario(scenario, world, draws=1)

    @property
    def _needs_frame(self) -> bool:
        s, policy = self.scenario, self.scenario.policy
        own = policy.order not in ORDERS or policy.placement not in PLACEMENTS  # they may ask for any column
        rules = policy.quota is not None or policy.speed_classes is not None
        return s.scheduler is not None or rules or own


def _leads(setup: ReplaySetup, places: RunningJobs) -> Floats:
    """Return how many seconds before now each running job is placed: as long as it has run, where places are known."""
    if places.node is not None:
        return np.asarray(setup.snapshot.at - setup.snapshot.history.start[places.rows])
    count = len(places.rows)
    scheduler = setup.scenario.scheduler
    if scheduler is not None and scheduler.lead > LEAD:
        return np.full(count, scheduler.lead)
    return LEAD - LEAD / 2 * np.arange(count) / max(1, count)


def take_rows(world: World, rows: Ints) -> World:
    """Return some rows of a world in this order, all at once."""
    zeros = np.zeros(len(rows))
    return take(world, rows, Times(zeros, zeros, zeros, zeros, zeros), frame=False)[0]
