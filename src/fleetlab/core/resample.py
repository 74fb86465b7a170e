"""Other arrivals of the same kind: a log drawn again in blocks of time, with more or fewer of its user-days, or ahead.

All return which jobs are submitted, as rows of the workload, and when, in order of time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import polars as pl

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

DAY, QUARTERS, WEEK = 86_400.0, 4, 7
SHORT, LONG = 2, 28  # days: below, the hour of the day is ignored; from here on, weekdays are kept
PIECES = 20
RECENT = 14  # days back from which arrivals are drawn


def blocks(submit: Floats, seed: int) -> tuple[Ints, Floats]:
    """Resample blocks of a quarter of a day, each from the same hours of a random day (Carlstein 1986).

    From four weeks on, the weekday is kept too. A log of less than two days is cut into twenty blocks.

    >>> rows, at = blocks(np.arange(0.0, 1000.0), seed=1)
    >>> len(rows), bool((np.diff(at) >= 0).all()), blocks(np.zeros(2), seed=1)[0].tolist()
    (1000, True, [0, 1])
    """
    span = float(submit.max(initial=0.0))
    if not span:
        return np.arange(len(submit)), submit
    length, stride, count = _block_size(span)
    # The rest of the last day stays in place: a part of a block must not replace a whole one.
    block = np.minimum((submit / length).astype(np.int64), count)
    first = np.searchsorted(block, np.arange(count + 2))
    source = np.append(_random_blocks(count, stride, np.random.default_rng(seed)), count)
    rows = np.concatenate([np.arange(first[b], first[b + 1]) for b in source])
    shift = np.repeat((np.arange(count + 1) - source) * length, (first[1:] - first[:-1])[source])
    at = submit[rows] + shift
    order = np.argsort(at, kind="stable")
    return rows[order], at[order] - at[order[0]]


def _block_size(span: float) -> tuple[float, int, int]:
    """Return the length of a block, the distance between interchangeable ones, and how many there are."""
    if span < SHORT * DAY:
        return span / PIECES, 1, PIECES
    length = DAY / QUARTERS
    return length, QUARTERS * (WEEK if span >= LONG * DAY else 1), int(span / length)


def _random_blocks(count: int, stride: int, rng: np.random.Generator) -> Ints:
    position = np.arange(count) % stride
    choices = (count - position + stride - 1) // stride
    return np.asarray(position + stride * rng.integers(0, choices))


def user_days(jobs: pl.DataFrame, growth: float, seed: int) -> tuple[Ints, Floats]:
    """Grow a workload by whole user-days: copies go to another day at the same hour, of the same weekday if possible.

    Bursts keep their shape, and there are more (or fewer) of them; time is not compressed.
    """
    submit = jobs["submit"].to_numpy()
    if growth == 1:
        return np.arange(len(submit)), submit
    rng, unit = np.random.default_rng(seed), _units(jobs)
    units = int(unit.max(initial=-1)) + 1
    copies = int(growth) + (rng.random(units) < growth - int(growth))
    rows, times = [np.zeros(0, dtype=np.int64)], [np.zeros(0)]
    for k in range(int(copies.max(initial=0))):
        rows.append(np.flatnonzero(copies[unit] > k))
        times.append((submit if k == 0 else _shifted(submit, unit, units, rng))[rows[-1]])
    row, at = np.concatenate(rows), np.concatenate(times)
    order = np.argsort(at, kind="stable")
    return row[order], at[order]


def _units(jobs: pl.DataFrame) -> Ints:
    """Return the unit of each job: its user and day; without a user, its parent and day."""
    import polars as pl

    user, parent = pl.col("user"), jobs.columns[1]
    # By name: numbers of categories depend on what the process has read before, and so would the draw.
    unit = pl.struct(user.cast(pl.String), pl.when(user.is_null()).then(parent), pl.col("submit") // DAY)
    return jobs.select(unit.rank("dense"))[:, 0].to_numpy().astype(np.int64) - 1


def _shifted(submit: Floats, unit: Ints, units: int, rng: np.random.Generator) -> Floats:
    """Move every unit to another day at the same hour; of less than two days, to another time of the log."""
    span = float(submit.max(initial=0.0))
    if span < SHORT * DAY:
        return (submit + rng.random(units)[unit] * span) % (span or 1.0)
    latest = np.zeros(units)
    np.maximum.at(latest, unit, submit % DAY)
    day = np.zeros(units, dtype=np.int64)
    day[unit] = (submit // DAY).astype(np.int64)
    days = ((span - latest) // DAY).astype(np.int64) + 1  # on which the whole unit is within the log
    if span < 2 * WEEK * DAY:
        to = rng.integers(0, days)
    else:
        weekday = day % WEEK
        to = weekday + WEEK * rng.integers(0, (days - weekday + WEEK - 1) // WEEK)
    return np.asarray(submit + DAY * (to - day)[unit])


def ahead(submit: Floats, at: float, length: float, rng: np.random.Generator) -> tuple[Ints, Floats]:
    """Draw arrivals for the seconds after an instant from those before it: rows, and when they come after `at`.

    Blocks of a quarter of a day are taken from the same hours of one of the last fourteen days each; of less than two
    days, twentieths from anywhere (Künsch 1989). `submit` is in ascending order, and no row after `at` is drawn.

    >>> rows, after = ahead(np.arange(0.0, 1000.0), 499.0, 50.0, np.random.default_rng(1))
    >>> 48 <= len(rows) <= 51, bool(rows.max() < 500), bool((after > 0).all())
    (True, True, True)
    """
    first = float(submit[0]) if len(submit) else at
    past = at - first
    if past <= 0 or length <= 0:
        return np.zeros(0, dtype=np.int64), np.zeros(0)
    daily = past >= SHORT * DAY
    block = DAY / QUARTERS if daily else past / PIECES
    offset = np.arange(0.0, length, block)
    if daily:
        hour = offset % DAY
        days = np.maximum(np.minimum(np.floor((past + hour) / DAY), RECENT), 1.0)
        begin = at + hour - DAY * (1 + np.floor(rng.random(len(offset)) * days))
    else:
        begin = first + rng.random(len(offset)) * (past - block)
    low, high = np.searchsorted(submit, begin, side="right"), np.searchsorted(submit, begin + block, side="right")
    rows = np.concatenate([np.arange(a, b) for a, b in zip(low, high, strict=True)])
    after = submit[rows] + np.repeat(offset - begin, high - low)
    return rows[after < length].astype(np.int64), after[after < length]
