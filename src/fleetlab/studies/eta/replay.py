"""The present queue played many times: jobs that run, jobs that wait, and jobs that may come.

Second 0 is the instant that is asked about. What runs then is where it is, if that is known; else it is placed anew,
the largest first. What waits is looked at from second 0 on, in the order in which it came.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from fleetlab.core import Scenario
from fleetlab.core.catalog import ORDERS, PLACEMENTS
from fleetlab.core.censoring import Floats
from fleetlab.core.resample import Ints
from fleetlab.sim.engine.begin import Running, running_of
from fleetlab.sim.schedule import Played
from fleetlab.sim.simulate import play_from, play_scenario, plays_from
from fleetlab.sim.start_up import latencies
from fleetlab.sim.world import World
from fleetlab.sim.world_rows import Times, take
from fleetlab.studies.eta.jobs import Jobs, Present, jobs_of
from fleetlab.studies.eta.places import Places, placed_anew, places_of
from fleetlab.studies.eta.scenario import scenario_of, world_of

SLURM_LEAD = 64.0  # s before now in which Slurm's loops place what runs
LEVELS = (0.025, 0.1, 0.5, 0.9, 0.975)  # of quantiles: the ends of 95 and 80 %, and the median
LEAD = 1.0  # s in which other loops do
FIRST, LAST = (60.0, 3600.0), 30 * 86_400.0  # s: the first horizon is within these, and the last one
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
    stages: dict[int, Stage]  # in which each replay was played at last

    @property
    def last(self) -> Stage:
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


def play(present: Present, wanted: Ints) -> Replays:
    """Play the present queue until the wanted jobs (rows that wait) have started in every replay.

    A few replays tell how far to play, and so how many are affordable.
    """
    few = min(PILOT, present.replays)
    pilot = _to_start(replace(present, replays=few), wanted, np.arange(few), _first_horizon(present))
    count = min(max(FEWEST, round(WORK / pilot.last.most)), present.replays)
    rest = np.arange(few, count)
    if not len(rest):
        return pilot
    present = replace(present, replays=count)  # only these are drawn
    latest = pilot.seconds[np.isin(pilot.rows, wanted)]
    usual = float(latest[np.isfinite(latest)].max(initial=0.0))
    others = _to_start(present, wanted, rest, min(max(MARGIN * usual, FIRST[0]), pilot.horizon))
    return replace(
        others, seconds=np.hstack([pilot.seconds, others.seconds]), horizon=max(pilot.horizon, others.horizon),
        misplaced=max(pilot.misplaced, others.misplaced), stages=pilot.stages | others.stages,
    )  # fmt: skip


def _to_start(present: Present, wanted: Ints, replays: Ints, horizon: float) -> Replays:
    """Play some replays as far as it takes."""
    waiting, places = present.snapshot.waiting, places_of(present)
    targets = np.flatnonzero(np.isin(waiting, wanted))
    seconds = np.full((len(waiting), present.replays), np.inf)
    left, misplaced, stages = replays, 0, {}
    while True:
        stage = Stage.of(present, places, horizon, left)
        last = int(targets[0]) if len(targets) == 1 else None
        for k, (start, unplaced) in zip(left, _at_once(stage, left, last), strict=True):
            seconds[:, k], stages[int(k)] = start, stage
            misplaced = max(misplaced, unplaced)
        left = left[np.isinf(seconds[np.ix_(targets, left)]).any(axis=0)]
        if not len(left) or horizon >= LAST or stage.most * FURTHER > MOST_JOBS:
            misplaced += places.left_out
            running = len(present.snapshot.running)
            return Replays(waiting, seconds[:, replays], horizon, running, misplaced, stage.refused, stages)
        horizon = min(horizon * FURTHER, LAST)


def _at_once(stage: Stage, replays: Ints, last: int | None) -> list[tuple[Floats, int]]:
    """Play replays, several at a time: the loops let other threads run."""
    if len(replays) < PILOT:
        return [stage.play(int(k), last) for k in replays]
    first = stage.play(int(replays[0]), last)  # alone: what is not compiled yet is compiled by one thread
    with ThreadPoolExecutor(THREADS) as pool:
        return [first, *pool.map(lambda k: stage.play(int(k), last), replays[1:])]


def _first_horizon(present: Present) -> float:
    """Twice a usual wait of late."""
    history, at = present.snapshot.history, present.snapshot.at
    late = np.flatnonzero((history.start <= at) & (history.submit <= at))[-200:]
    usual = float(np.quantile(history.wait[late], 0.75)) if len(late) else 0.0
    return min(max(2 * usual, FIRST[0]), FIRST[1])


@dataclass(frozen=True, slots=True, eq=False)
class Stage:
    """Replays up to one horizon: one world has the arrivals of all of them."""

    seed: int
    scenario: Scenario
    jobs: Jobs
    world: World
    where: Ints  # [jobs]: the row of `world`; -1: it can never run
    latency: Floats  # [jobs]
    running: Running | None  # None: what runs is placed before second 0 in each replay
    coming: dict[int, tuple[Ints, Floats]]  # by replay: numbers of jobs, and when they come
    rows: Ints  # of the history, that wait

    @classmethod
    def of(cls, present: Present, places: Places, horizon: float, replays: Ints) -> Stage:
        """Draw what comes in each replay, and make the world of all these jobs."""
        snapshot, history = present.snapshot, present.snapshot.history
        came = history.submit[: int(np.searchsorted(history.submit, snapshot.at, side="right"))]
        drawn = {
            int(k): present.arrivals(came, snapshot.at, horizon, np.random.default_rng([present.seed, int(k), 1]))
            for k in replays
        }
        past = np.unique(np.concatenate([rows for rows, _ in drawn.values()]))
        jobs = jobs_of(present, places.rows, _leads(present, places), past)
        coming = {k: (jobs.state + np.searchsorted(past, rows), after) for k, (rows, after) in drawn.items()}
        scenario = scenario_of(present, jobs.frame, horizon)
        made = world_of(scenario)
        if places.node is not None and not plays_from(scenario, made):
            return cls.of(present, placed_anew(snapshot), horizon, replays)
        where = np.full(jobs.frame.height, -1, dtype=np.int64)
        where[made.frame["job"].to_numpy()] = np.arange(made.frame.height)
        latency = latencies(scenario.latency, jobs.frame, None, scenario.cluster.frame["gpu_type"], present.seed)
        latency = np.zeros(len(where)) if latency is None else latency
        latency[: jobs.running] = 0.0  # they have started
        running = None
        if places.node is not None and places.gpus is not None:
            order = where[: jobs.running]
            running = running_of(take_rows(made, order), -_leads(present, places), places.node, places.gpus)
        return cls(present.seed, scenario, jobs, made, where, latency, running, coming, snapshot.waiting)

    @property
    def most(self) -> int:
        """The most jobs of a replay."""
        return self.jobs.state + max(len(rows) for rows, _ in self.coming.values())

    @property
    def refused(self) -> dict[int, str]:
        """Why jobs that wait can never run, by their rows of the history."""
        first, last = self.jobs.running, self.jobs.state - 1
        found = self.world.refused.filter(pl.col("job").is_between(first, last)).select("job", "reason")
        return {int(self.rows[job - first]): reason for job, reason in found.iter_rows()}

    def play(self, replay: int, last: int | None = None) -> tuple[Floats, int]:
        """Return when each job that waits starts in a replay, and how many running ones found no place at once.

        It may end when one of those that wait, the `last`, has started.
        """
        made, played, place = self.schedule(replay, last)
        start, ran = np.full(self.jobs.state, np.inf), place >= 0
        start[ran] = (played.start + made.latency)[place[ran]]
        start = np.where(np.isnan(start), np.inf, start)
        return np.maximum(start[self.jobs.running :], 0.0), int((start[: self.jobs.running] > 0).sum())

    def schedule(self, replay: int, last: int | None = None) -> tuple[World, Played, Ints]:
        """Play one replay; return its world, its schedule, and where each job of the state is in them (-1: nowhere)."""
        jobs, state = self.jobs, self.jobs.state
        arrivals, after = self.coming[replay]
        every = np.append(np.arange(state), arrivals)
        every = every[self.where[every] >= 0]
        after = after[self.where[arrivals] >= 0]
        old = every[every < state]
        runtime = np.append(jobs.runtime[old, replay], jobs.past[every[len(old) :] - state, replay])
        known = jobs.estimate[every]
        times = Times(
            np.append(jobs.submitted[old], after), np.append(jobs.look[old], after), runtime,
            np.where(np.isnan(known), runtime, known), self.latency[every],
        )  # fmt: skip
        made, place = take(self.world, self.where[every], times, frame=self._needs_frame)
        found = np.full(state, -1, dtype=np.int64)
        found[old] = place[: len(old)]
        last_job = -1 if last is None else int(found[jobs.running + last])
        return made, self._played(made, replay, last_job), found

    def _played(self, made: World, replay: int, last_job: int) -> Played:
        scenario = replace(self.scenario, seed=self.seed + replay)
        if self.running is not None:
            played = play_from(scenario, made, self.running, last_job)
            assert played is not None  # `of` gives places only where this loop knows the rules
            return played
        return play_scenario(scenario, made, draws=1)

    @property
    def _needs_frame(self) -> bool:
        s, policy = self.scenario, self.scenario.policy
        own = policy.order not in ORDERS or policy.placement not in PLACEMENTS  # they may ask for any column
        rules = s.queues is not None or policy.quota is not None or policy.speed_classes is not None
        return s.scheduler is not None or rules or own


def _leads(present: Present, places: Places) -> Floats:
    """Return how many seconds before now each running job is placed: as long as it has run, where places are known."""
    if places.node is not None:
        return np.asarray(present.snapshot.at - present.snapshot.history.start[places.rows])
    count = len(places.rows)
    return np.full(count, SLURM_LEAD) if present.slurm else LEAD - LEAD / 2 * np.arange(count) / max(1, count)


def take_rows(made: World, rows: Ints) -> World:
    """Return some rows of a world in this order, all at once."""
    zeros = np.zeros(len(rows))
    return take(made, rows, Times(zeros, zeros, zeros, zeros, zeros), frame=False)[0]
