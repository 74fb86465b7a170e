"""More of the same: the days of users are drawn again and laid over those that are there. Time is not squeezed.

Squeezing time would make every burst sharper and every night shorter. Here a unit is what one user submits in one day:
some units come a second time (or, for less, not at all), on another day at the same hour; of two weeks or more, on
the same weekday. So bursts stay as they are, and there are more of them.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from fleetlab.core import Workload, WorkloadError
from fleetlab.studies._blocks import DAY, Floats, Ints

WEEK = 7
MOST = 100.0  # times as much


def check(growth: float) -> None:
    """Refuse what is no growth."""
    if not 0 < growth <= MOST:
        msg = f"growth is a number above 0, at most {MOST:g}: {growth}"
        raise WorkloadError(msg, hint="--growth 1.3 for thirty percent more jobs")


def grown(workload: Workload, growth: float, *, seed: int) -> Workload:
    """A workload like this one with so many times the jobs; a growth of 1 is the workload itself."""
    if growth == 1:
        return workload
    rows, at = drawn(workload, growth, seed=seed)
    if not len(rows):
        msg = f"{workload.source}: no job is left at a growth of {growth:g}"
        raise WorkloadError(msg, hint="a trace of more users and days, or another --seed")
    epoch = None if workload.epoch is None else workload.epoch + float(at[0])
    frame = workload.frame.drop("job", "start", "end")[rows].with_columns(submit=pl.Series(at - at[0]))
    return Workload.of(frame, source=f"{workload.source} x {growth:g}", epoch=epoch, zone=workload.zone)


def drawn(workload: Workload, growth: float, *, seed: int) -> tuple[Ints, Floats]:
    """Which jobs come, and when: rows of the workload and seconds, in the order of time."""
    submit = workload.frame["submit"].to_numpy()
    if growth == 1:
        return np.arange(len(submit)), submit
    rng, unit = np.random.default_rng(seed), _units(workload.frame)
    units = int(unit.max(initial=-1)) + 1
    copies = int(growth) + (rng.random(units) < growth - int(growth))
    rows, times = [np.zeros(0, dtype=np.int64)], [np.zeros(0)]
    for k in range(int(copies.max(initial=0))):
        rows.append(np.flatnonzero(copies[unit] > k))
        times.append((submit if k == 0 else _moved(submit, unit, units, rng))[rows[-1]])
    row, at = np.concatenate(rows), np.concatenate(times)
    order = np.argsort(at, kind="stable")
    return row[order], at[order]


def _units(jobs: pl.DataFrame) -> Ints:
    """What one user submits in one day; without a user, a parent is its own."""
    who = pl.struct(
        pl.col("user").to_physical(), pl.when(pl.col("user").is_null()).then("parent"), pl.col("submit") // DAY
    )
    return jobs.select(who.rank("dense"))[:, 0].to_numpy().astype(np.int64) - 1


def _moved(submit: Floats, unit: Ints, units: int, rng: np.random.Generator) -> Floats:
    """Every unit on another day at the same hour; where there are not two days, around the clock of what there is."""
    span = float(submit.max(initial=0.0))
    if span < 2 * DAY:
        return (submit + rng.random(units)[unit] * span) % (span or 1.0)
    latest = np.zeros(units)
    np.maximum.at(latest, unit, submit % DAY)
    day = np.zeros(units, dtype=np.int64)
    day[unit] = (submit // DAY).astype(np.int64)
    days = ((span - latest) // DAY).astype(np.int64) + 1  # on which all of it lies within the trace
    if span < 2 * WEEK * DAY:
        to = rng.integers(0, days)
    else:
        weekday = day % WEEK
        to = weekday + WEEK * rng.integers(0, (days - weekday + WEEK - 1) // WEEK)
    return np.asarray(submit + DAY * (to - day)[unit])
