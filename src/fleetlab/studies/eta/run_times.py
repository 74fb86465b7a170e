"""How long jobs will run, by what is known now: jobs like them that ended, given how long they have run themselves.

A draw is from Kaplan and Meier's estimate of the finest class with enough ended jobs, in which jobs that still run
count as far as they have come. A job that outlasts all of its class runs on by a law without a scale: as likely twice
as long as not. A time limit bounds every draw. Jobs of one batch are drawn together (`batches`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl

from fleetlab.core.censoring import Bools, Floats
from fleetlab.core.resample import Ints
from fleetlab.studies.eta.batches import Mates, Survival, Wanted, alike, batches, by_appearance
from fleetlab.studies.eta.history import History, Snapshot

ENOUGH = 20  # ended jobs of a class
RECENT = 20_000  # ended jobs that are looked at, the latest
MEDIAN = 25  # draws whose median is taken
UNKNOWN = 3600.0  # seconds: the scale of a job of which nothing is known, not even a limit
# Classes, the finest first: the finest that has enough ended jobs is used.
CLASSES: tuple[tuple[str, ...], ...] = (
    ("user", "group", "app", "gpus", "instances", "types", "limit"),
    ("user", "gpus", "limit"),
    ("gpus", "types", "limit"),
    ("limit",),
    ("user",),
    ("gpus", "types"),
    ("any_gpu",),
    (),
)


@dataclass(frozen=True, eq=False)
class RunTimes:
    """The classes of all jobs of a history, numbered once for all instants."""

    history: History

    @cached_property
    def limit(self) -> Floats:
        """The time limit of each job; inf: none."""
        return self.history.frame["limit"].fill_null(float("inf")).to_numpy()

    @cached_property
    def codes(self) -> list[Ints]:
        """The class of each job, by each way to class them."""
        gpu = pl.col("gpu_milli")
        keys = self.history.frame.select(
            pl.col("user", "group", "app").cast(pl.String).fill_null(""), "limit", "instances",
            gpus=gpu, any_gpu=gpu > 0, types=pl.col("gpu_types").list.join("|"),
        )  # fmt: skip
        codes = (keys.select(pl.struct(columns).rank("dense")) if columns else None for columns in CLASSES)
        nothing = np.zeros(keys.height, dtype=np.int64)
        return [nothing if code is None else code[:, 0].to_numpy().astype(np.int64) for code in codes]

    @cached_property
    def batch(self) -> Ints:
        """The batch of each job."""
        return batches(self.codes[0], self.history.submit)

    def known(self, snapshot: Snapshot) -> KnownRunTimes:
        """Return what an instant tells of run times."""
        history = self.history
        older = history.frame["initial"].to_numpy() & history.frame["start"].is_null().to_numpy()
        ended = snapshot.ended[~older[snapshot.ended]]  # of these only a part was seen
        ended = ended[np.argsort(history.end[ended], kind="stable")][-RECENT:]
        rows = np.append(ended, snapshot.running)
        time = np.append(history.end[ended] - history.start[ended], snapshot.elapsed)
        return KnownRunTimes(self, rows, time, np.arange(len(rows)) < len(ended))


@dataclass(frozen=True, slots=True, eq=False)
class KnownRunTimes:
    """How long jobs were seen to run up to one instant."""

    classes: RunTimes
    rows: Ints
    time: Floats
    ended: Bools

    def draw(self, rows: Ints, elapsed: Floats, draws: int, rng: np.random.Generator) -> Floats:
        """Return so many run times of each of these rows of the history, given how long it has run: [rows, draws].

        A draw is one of all rows together. What a row is drawn to run does not depend on the rows after it: replays
        that are played further go on with the same run times.
        """
        by_row, by_batch, by_class = rng.spawn(3)
        own = by_row.random((len(rows), draws))
        limit = self.classes.limit[rows][:, None]
        drawn = np.where(np.isinf(limit), UNKNOWN, limit) * own  # where no job has ended
        level, code = self._class_of(rows)
        numbers, place = by_appearance(level * (len(self.classes.limit) + 1) + code)
        batch, part = by_appearance(self.classes.batch[rows])
        common = by_batch.standard_normal((len(batch), draws))
        general = by_class.standard_normal((len(numbers), draws))
        members = {int(k): self._members(int(k)) for k in np.unique(level) if k < len(CLASSES)}
        for k in range(len(numbers)):
            mine = np.flatnonzero(place == k)
            if int(level[mine[0]]) not in members:
                continue
            mates = members[int(level[mine[0]])].of(int(code[mine[0]]))
            survival = Survival.of(mates.time, mates.ended)
            here, own_part = np.unique(part[mine], return_inverse=True)
            jobs = Wanted(elapsed[mine], batch[here], own_part, own[mine], common[here])
            drawn[mine] = survival.runtime(mates.chances(survival, jobs, general[k]), elapsed[mine])
        return np.asarray(np.minimum(np.maximum(drawn, elapsed[:, None]), limit))

    def _class_of(self, rows: Ints) -> tuple[Ints, Ints]:
        """Return for each row the finest way to class jobs by which enough like it have ended, and its class."""
        level, code = np.full(len(rows), len(CLASSES)), np.zeros(len(rows), dtype=np.int64)
        for k, codes in enumerate(self.classes.codes):
            left = np.flatnonzero(level == len(CLASSES))
            if not len(left):
                break
            ended = np.bincount(codes[self.rows[self.ended]], minlength=int(codes.max(initial=0)) + 1)
            left = left[ended[codes[rows[left]]] >= (ENOUGH if CLASSES[k] else 1)]
            level[left], code[left] = k, codes[rows[left]]
        return level, code

    def _members(self, level: int) -> _Members:
        """Return the known jobs by class, and how much those of one batch are alike."""
        code, batch = self.classes.codes[level][self.rows], self.classes.batch[self.rows]
        done = self.ended
        share = alike(self.time[done], code[done], batch[done])
        order = np.argsort(code, kind="stable")
        return _Members(code[order], self.time[order], done[order], batch[order], share)


@dataclass(frozen=True, slots=True, eq=False)
class _Members:
    """The known jobs, in the order of their classes."""

    code: Ints
    time: Floats
    ended: Bools
    batch: Ints
    share: float

    def of(self, code: int) -> Mates:
        """Return those of one class."""
        first, last = np.searchsorted(self.code, (code, code + 1))
        mine = slice(int(first), int(last))
        return Mates(self.time[mine], self.ended[mine], self.batch[mine], self.share)


@dataclass(frozen=True, slots=True, eq=False)
class AsRequested:
    """Run times as a scheduler plans with them: time limits; without one, the median of jobs like it."""

    known: KnownRunTimes

    def draw(self, rows: Ints, elapsed: Floats, draws: int, rng: np.random.Generator) -> Floats:
        """Return the limit of each of these rows, or its median runtime, as often as wanted."""
        limit = self.known.classes.limit[rows]
        usual = np.median(self.known.draw(rows, elapsed, MEDIAN, rng), axis=1)
        seconds = np.maximum(np.where(np.isinf(limit), usual, limit), elapsed)
        return np.repeat(seconds[:, None], draws, axis=1)
