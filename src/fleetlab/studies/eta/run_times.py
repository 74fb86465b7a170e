"""How long jobs will run, by what is known now: jobs like them that ended, given how long they have run themselves.

A draw is from Kaplan and Meier's estimate of the finest class with enough ended jobs, in which jobs that still run
count as far as they have come. A job that has outlasted all of its class runs on by a law without a scale: as likely
twice as long as not. A time limit bounds every draw.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl

from fleetlab.core.censoring import Bools, Floats, conditional
from fleetlab.core.resample import Ints
from fleetlab.studies.eta.history import History, Snapshot

ENOUGH = 20  # ended jobs of a class
RECENT = 20_000  # ended jobs that are looked at, the latest
LONGEST = 20.0  # times what a job has run, where it has outlasted all others
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
        """Return so many run times of each of these rows of the history, given how long it has run: [rows, draws]."""
        chance, tail = rng.random((len(rows), draws)), rng.random((len(rows), draws))
        drawn = np.full((len(rows), draws), np.nan)
        left = np.ones(len(rows), dtype=bool)
        for level, codes in enumerate(self.classes.codes):
            if not left.any():
                break
            for members, mine in self._groups(codes, rows, left, ENOUGH if CLASSES[level] else 1):
                drawn[mine] = conditional(self.time[members], self.ended[members], elapsed[mine][:, None], chance[mine])
                left[mine] = False
        limit = self.classes.limit[rows][:, None]
        drawn = np.where(np.isnan(drawn), np.where(np.isinf(limit), UNKNOWN, limit) * chance, drawn)
        longer = elapsed[:, None] / np.maximum(tail, 1 / LONGEST)
        return np.asarray(np.minimum(np.where(drawn > elapsed[:, None], drawn, longer), limit))

    def _groups(self, codes: Ints, rows: Ints, left: Bools, enough: int) -> list[tuple[Ints, Ints]]:
        """Return for each class with enough ended jobs its members, and which of the rows that are left are of it."""
        mine = np.flatnonzero(left)
        own = codes[self.rows]
        ended = np.bincount(own[self.ended], minlength=int(codes.max(initial=0)) + 1)
        mine = mine[ended[codes[rows[mine]]] >= enough]
        if not len(mine):
            return []
        by_class, of_row = np.argsort(own, kind="stable"), codes[rows[mine]]
        sorted_codes = own[by_class]
        found = []
        for code in np.unique(of_row):
            first, last = np.searchsorted(sorted_codes, (code, code + 1))
            found.append((by_class[first:last], mine[of_row == code]))
        return found


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
