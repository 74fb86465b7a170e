"""How long jobs will run, by what is known now: jobs like them that ended, given how long they have run themselves.

A draw is from Kaplan and Meier's estimate of the finest class with enough ended jobs, in which jobs that still run
count as far as they have come. Where few jobs with such a time limit have ended, others tell which share of their limit
they use. Jobs of a batch are drawn together (`batches`). A job that outlasts all of its class runs on by a law without
a scale: as likely twice as long as not. A time limit bounds every draw.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl

from fleetlab.core.censoring import Bools, Floats, product_limit
from fleetlab.core.resample import Ints
from fleetlab.studies.eta.batches import Likeness, Observations, levels, score, together
from fleetlab.studies.eta.snapshot import History, Snapshot

ENOUGH = 20  # ended jobs of a class
RECENT = 20_000  # ended jobs that are looked at, the latest
MEDIAN = 25  # draws whose median is taken
UNKNOWN = 3600.0  # seconds: the scale of a job of which nothing is known, not even a limit
LONGEST = 20.0  # times the longest run that was seen, for what outlasts it
TINY = 1e-15
# Classes, the finest first: the finest that has enough ended jobs is used.
CLASSES: tuple[tuple[str, ...], ...] = (
    ("user", "group", "app", "gpus", "instances", "types", "limit"),
    ("user", "gpus", "instances", "limit"),
    ("gpus", "instances", "types", "limit"),
    ("size", "limit"),
    ("limit",),
    ("user", "limited"),
    ("limited",),
    (),
)
RELATIVE = (5, 6)  # of these, run times are compared as shares of time limits, where there are any


@dataclass(frozen=True, eq=False)
class RunTimes:
    """The classes of all jobs of a history, numbered once for all instants."""

    history: History

    @cached_property
    def limit(self) -> Floats:
        """The time limit of each job; inf: none."""
        return self.history.frame["limit"].fill_null(float("inf")).to_numpy()

    @cached_property
    def unit(self) -> Floats:
        """What shares of a limit are multiplied by: the limit, or 1 s."""
        return np.where(np.isinf(self.limit), 1.0, np.maximum(self.limit, 1.0))

    @cached_property
    def codes(self) -> list[Ints]:
        """The class of each job, by each way to class them."""
        gpu = pl.col("gpu_milli")
        keys = self.history.frame.select(
            pl.col("user", "group", "app").cast(pl.String).fill_null(""), "limit", "instances",
            gpus=gpu, types=pl.col("gpu_types").list.join("|"), limited=pl.col("limit").is_not_null(),
            size=(gpu.cast(pl.Float64) * pl.col("instances") + 1).log(2).floor(),
        )  # fmt: skip
        codes = (keys.select(pl.struct(columns).rank("dense")) if columns else None for columns in CLASSES)
        nothing = np.zeros(keys.height, dtype=np.int64)
        return [nothing if code is None else code[:, 0].to_numpy().astype(np.int64) for code in codes]

    def at(self, snapshot: Snapshot) -> RunTimesAt:
        """Return what an instant tells of run times."""
        history = self.history
        older = history.frame["initial"].to_numpy() & history.frame["start"].is_null().to_numpy()
        ended = snapshot.ended[~older[snapshot.ended]]  # of these only a part was seen
        ended = ended[np.argsort(history.end[ended], kind="stable")][-RECENT:]
        rows = np.append(ended, snapshot.running)
        time = np.append(history.end[ended] - history.start[ended], snapshot.elapsed)
        return RunTimesAt(self, rows, time, np.arange(len(rows)) < len(ended))


@dataclass(frozen=True, slots=True, eq=False)
class RunTimesAt:
    """How long jobs were seen to run up to one instant."""

    classes: RunTimes
    rows: Ints
    time: Floats
    ended: Bools

    def draw(self, rows: Ints, elapsed: Floats, draws: int, rng: np.random.Generator) -> Floats:
        """Return so many run times of each of these rows of the history, given how long it has run: [rows, draws].

        What a row is drawn to run does not depend on the rows after it: replays that are played further go on with the
        same run times.
        """
        classes = list(self._classes(rows))
        level, alike = self._levels(classes, rows, draws, rng)
        chance = rng.random((len(rows), draws, 2))
        limit = self.classes.limit[rows][:, None]
        seconds = np.where(np.isinf(limit), UNKNOWN, limit) * chance[..., 0]  # where no job has ended
        for one in classes:
            mine, own = one.mine, one.unit[rows[one.mine]]
            alive = one.survival.beyond(elapsed[mine] / own)
            shared = together(chance[mine], level[mine], alike, alive)
            seconds[mine] = one.survival.runtime(shared, elapsed[mine] / own) * own[:, None]
        return np.asarray(np.minimum(np.maximum(seconds, elapsed[:, None]), limit))

    def _classes(self, rows: Ints) -> Iterator[RunTimeClass]:
        """Yield the classes of these rows."""
        level, code = self._class_of(rows)
        for k in np.unique(level[level < len(CLASSES)]).tolist():
            unit = self.classes.unit if k in RELATIVE else np.ones(len(self.classes.unit))
            members = self.classes.codes[k][self.rows]
            order = np.argsort(members, kind="stable")
            codes = np.unique(code[level == k])
            first, last = (np.searchsorted(members[order], codes, side=side) for side in ("left", "right"))
            for one, begin, end in zip(codes, first, last, strict=True):
                mates = order[begin:end]
                survival = Survival.of(self.time[mates] / unit[self.rows[mates]], self.ended[mates])
                yield RunTimeClass(np.flatnonzero((level == k) & (code == one)), mates, unit, survival)

    def _levels(
        self, classes: list[RunTimeClass], rows: Ints, draws: int, rng: np.random.Generator
    ) -> tuple[Floats, Likeness]:
        """Draw the level of the batch of each row: [rows, draws]."""
        by_row = np.zeros((len(rows), draws))
        if not classes:
            return by_row, Likeness(0.0, 0.0, 0.0)
        parts, places, count = [], [], 0
        for kind, one in enumerate(classes):
            part, place = self._observations(kind, one, rows[one.mine])
            parts.append(part)
            places.append(place + count)
            count += len(part.kind)
        level, alike = levels(Observations.joined(parts), np.concatenate(places), draws, rng)
        by_row[np.concatenate([one.mine for one in classes])] = level
        return by_row, alike

    def _observations(self, kind: int, one: RunTimeClass, rows: Ints) -> tuple[Observations, Ints]:
        """Return what is known of the jobs of a class, with those that wait, and where these rows are among them."""
        observed = self.rows[one.mates]
        jobs = np.append(observed, np.setdiff1d(rows, observed))
        share = np.ones(len(jobs))
        share[: len(observed)] = one.survival.outlive(self.time[one.mates] / one.unit[observed], self.ended[one.mates])
        ended = np.append(self.ended[one.mates], np.zeros(len(jobs) - len(observed), dtype=bool))
        order = np.argsort(jobs, kind="stable")
        place = order[np.searchsorted(jobs[order], rows)]
        return Observations(np.full(len(jobs), kind), self.classes.history.submit[jobs], score(share), ended), place

    def _class_of(self, rows: Ints) -> tuple[Ints, Ints]:
        """Return for each row the finest way to class jobs by which enough like it have ended, and its class."""
        level, code = np.full(len(rows), len(CLASSES)), np.zeros(len(rows), dtype=np.int64)
        for k, codes in enumerate(self.classes.codes):
            unclassed = np.flatnonzero(level == len(CLASSES))
            if not len(unclassed):
                break
            ended = np.bincount(codes[self.rows[self.ended]], minlength=int(codes.max(initial=0)) + 1)
            unclassed = unclassed[ended[codes[rows[unclassed]]] >= (ENOUGH if CLASSES[k] else 1)]
            level[unclassed], code[unclassed] = k, codes[rows[unclassed]]
        return level, code


@dataclass(frozen=True, slots=True, eq=False)
class RunTimeClass:
    """Jobs that are alike by what is known of them at submission."""

    mine: Ints  # those to be drawn
    mates: Ints  # those that ended or run
    unit: Floats  # of run times, one a job of the history
    survival: Survival


@dataclass(frozen=True, slots=True, eq=False)
class Survival:
    """Kaplan and Meier's estimate of a class; beyond what was seen, a run is as likely twice as long as not."""

    when: Floats
    alive: Floats
    longest: float

    @classmethod
    def of(cls, time: Floats, ended: Bools) -> Survival:
        """Estimate from how long jobs were seen, and whether they ended then."""
        when, risk, deaths = product_limit(time, ended)
        return cls(when, np.cumprod(1 - deaths / risk, dtype=np.float64), float(time.max(initial=0.0)))

    def beyond(self, seconds: Floats) -> Floats:
        """Return the share that runs longer."""
        return np.append(1.0, self.alive)[np.searchsorted(self.when, seconds, side="right")]

    def outlive(self, seconds: Floats, ended: Bools) -> Floats:
        """Return the share of the class that outlives a job which ended then, or runs longer than one that runs yet."""
        before = np.append(1.0, self.alive)[np.searchsorted(self.when, seconds, side="left")]
        after = self.beyond(seconds)
        return np.where(ended, (before + after) / 2, after)

    def runtime(self, chance: Floats, elapsed: Floats) -> Floats:
        """Return what is outlasted with a chance, given how long a job has run: [jobs, draws]."""
        alive = self.beyond(elapsed)[:, None]
        level = chance * alive
        index = len(self.alive) - np.searchsorted(self.alive[::-1], level, side="right")
        index = np.maximum(index, np.searchsorted(self.when, elapsed, side="right")[:, None])
        last = float(self.alive[-1]) if len(self.alive) else 1.0
        share = np.where(alive > 0, level / max(last, TINY), chance)  # of those that outlast all that ended
        longer = np.maximum(self.longest, elapsed)[:, None] / np.clip(share, 1 / LONGEST, 1.0)
        return np.where(index < len(self.when), np.append(self.when, 0.0)[np.minimum(index, len(self.when))], longer)


@dataclass(frozen=True, slots=True, eq=False)
class RequestedRunTimes:
    """Run times as a scheduler plans with them: time limits; without one, the median of jobs like it."""

    predictor: RunTimesAt

    def draw(self, rows: Ints, elapsed: Floats, draws: int, rng: np.random.Generator) -> Floats:
        """Return the limit of each of these rows, or its median runtime, as often as wanted."""
        limit = self.predictor.classes.limit[rows]
        usual = np.median(self.predictor.draw(rows, elapsed, MEDIAN, rng), axis=1)
        seconds = np.maximum(np.where(np.isinf(limit), usual, limit), elapsed)
        return np.repeat(seconds[:, None], draws, axis=1)
