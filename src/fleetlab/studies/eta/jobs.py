"""The jobs of replays: those that run, those that wait, and those of the past of which copies may come."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import polars as pl

from fleetlab.core import Scenario
from fleetlab.core.catalog import ESTIMATES
from fleetlab.core.censoring import Floats
from fleetlab.core.resample import Ints, ahead
from fleetlab.core.workload import numbered
from fleetlab.sim.layout import MAX_TYPES
from fleetlab.studies.eta.history import SIMULATED, Snapshot

LEAST = 1.0  # s that a job is taken to run on at least
LINKS = ("depends_on", "dependency")
NODE = "fleetlab-node-"  # a feature by which a job is bound to nodes


# The submissions up to an instant, the instant, for how long, and a generator: which jobs come again, and when.
Arrivals = Callable[[Floats, float, float, np.random.Generator], tuple[Ints, Floats]]


class Known(Protocol):
    """What is known of run times."""

    def draw(self, rows: Ints, elapsed: Floats, draws: int, rng: np.random.Generator) -> Floats:
        """Return so many run times of each of these rows of the history: [rows, draws]."""


def nothing_comes(came: Floats, at: float, length: float, rng: np.random.Generator) -> tuple[Ints, Floats]:
    """Return no arrivals."""
    return np.zeros(0, dtype=np.int64), np.zeros(0)


@dataclass(frozen=True, slots=True, eq=False)
class Present:
    """What is played: a scenario at one instant, and how often."""

    scenario: Scenario
    snapshot: Snapshot
    known: Known
    replays: int
    seed: int
    arrivals: Arrivals = ahead  # what comes after the instant

    @property
    def slurm(self) -> bool:
        """Whether a site's Slurm schedules."""
        return self.scenario.slurm is not None

    @property
    def bound(self) -> bool:
        """Whether running jobs are bound to the nodes on which the log saw them: loops tell few nodes apart."""
        known = self.snapshot.history.nodes is not None
        return self.slurm and known and len(self.scenario.cluster) <= MAX_TYPES


@dataclass(frozen=True, slots=True, eq=False)
class Jobs:
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


def jobs_of(present: Present, running: Ints, lead: Floats, past: Ints) -> Jobs:
    """Return the jobs of replays; each that runs is placed `lead` seconds before now."""
    snapshot, history = present.snapshot, present.snapshot.history
    state, at = np.append(running, snapshot.waiting), snapshot.at
    ran = at - history.start[running]
    eligible = history.frame["eligible"][snapshot.waiting].fill_null(at).to_numpy()
    look = np.concatenate([-lead, np.maximum(eligible - at, 0.0), np.zeros(len(past))])
    submitted = np.concatenate([-lead, history.submit[snapshot.waiting] - at, np.zeros(len(past))])
    elapsed = np.append(ran, np.zeros(len(snapshot.waiting)))
    # Those of the past that have not ended are drawn with the others of their batch.
    open_, so_far = _open(present, past)
    wanted, have_run = np.append(state, past[open_]), np.append(elapsed, so_far)
    rng = np.random.default_rng([present.seed, 0, present.replays])
    every = present.known.draw(wanted, have_run, present.replays, rng)
    drawn, of_past = every[: len(state)], np.repeat((history.end - history.start)[past][:, None], present.replays, 1)
    of_past[open_] = every[len(state) :]
    # What is placed later than it started has run for a part of its time.
    spent = np.append(ran - lead, np.zeros(len(snapshot.waiting)))
    least = np.append(lead + LEAST, np.zeros(len(snapshot.waiting)))
    estimate = _estimates(present, np.append(state, past))
    estimate[: len(running)] = np.maximum(estimate[: len(running)] - spent[: len(running)], lead + LEAST)
    return Jobs(
        len(running), len(snapshot.waiting), _frame(present, running, spent, past, submitted, look), submitted, look,
        np.maximum(drawn - spent[:, None], least[:, None]), of_past, estimate,
    )  # fmt: skip


def _frame(present: Present, running: Ints, spent: Floats, past: Ints, submitted: Floats, look: Floats) -> pl.DataFrame:
    """Return the jobs as a workload has them, numbered from 0."""
    frame, waiting = present.snapshot.history.frame, present.snapshot.waiting
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
    return _bound(present, pl.concat([state, copies]), running).with_columns(
        submit=pl.Series(submitted), eligible=pl.Series(look), runtime=pl.lit(LEAST / 2), runtime_at_least=unknown,
        start=unknown, end=unknown, initial=pl.lit(value=False), status=pl.lit("completed", dtype=schema["status"]),
    )  # fmt: skip


def _bound(present: Present, jobs: pl.DataFrame, running: Ints) -> pl.DataFrame:
    """Bind the running jobs, which come first, to the nodes that the log saw them on."""
    nodes = present.snapshot.history.nodes
    if nodes is None or not present.bound:
        return jobs
    there = nodes[running].list.eval(NODE + pl.element()).list.join("|")
    # Where no node has a feature, constraints mean nothing: they must not when nodes get names.
    named = bool((present.scenario.cluster.frame["features"].list.len() > 0).any())
    others = jobs["constraint"][len(running) :] if named else jobs["constraint"].clear(jobs.height - len(running))
    return jobs.with_columns(constraint=pl.concat([there.cast(others.dtype).rename("constraint"), others]))


def _open(present: Present, past: Ints) -> tuple[Ints, Floats]:
    """Return which jobs of the past have not ended by now, and how long these have run."""
    history, at = present.snapshot.history, present.snapshot.at
    open_ = np.flatnonzero(~(history.end[past] <= at) | np.isnan(history.start[past]))
    began = history.start[past[open_]]
    return open_, np.where(began <= at, at - began, 0.0)


def _estimates(present: Present, jobs: Ints) -> Floats:
    """Return what the scheduler takes jobs to run in all; nan: what they do run."""
    scenario, history = present.scenario, present.snapshot.history
    rule = scenario.estimate
    if isinstance(rule, str):
        keys = ESTIMATES[rule].columns
        return _past_means(present.snapshot, jobs, keys) if keys else np.full(len(jobs), np.nan)
    column = rule.cast(pl.Float64).fill_null(float("nan")).to_numpy()
    job = history.frame["job"].to_numpy()[jobs]  # negative: a request, or a job of a warm-up
    row = np.where(job >= 0, job + (scenario.first_row if history.origin == SIMULATED else 0), -1)
    limit = history.frame["limit"].fill_null(float("nan")).to_numpy()[jobs]
    return np.where(row >= 0, column[np.maximum(row, 0)], limit)


def _past_means(snapshot: Snapshot, jobs: Ints, keys: tuple[str, ...]) -> Floats:
    frame = snapshot.history.frame
    ended = frame[snapshot.ended].select(keys).with_columns(mean=pl.Series(snapshot.runtime))
    means = ended.group_by(keys).agg(pl.col("mean").mean())
    found = frame[jobs].select(keys).join(means, on=keys, how="left", maintain_order="left", nulls_equal=True)["mean"]
    return found.fill_null(float("nan")).to_numpy().copy()
