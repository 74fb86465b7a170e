"""Seeds and loads: the same seed gives every case the same jobs, another seed other jobs of the same kind.

A log is one draw of what might have come. `blocks` draws it again: time is cut into quarters of a day, and in the place
of each comes the same quarter of a day drawn by lot (from four weeks on, of the same weekday), with all its jobs
(Carlstein 1986, with the clock kept). Of less than two days, twentieths of the log are drawn. `new` takes a built-in
trace with that seed. `none` leaves jobs alone: a seed then only decides what the simulator draws.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

DRAWS = ("new", "blocks", "none")
DAY, QUARTERS, WEEK = 86_400.0, 4, 7
SHORT, LONG = 2, 28  # days: below, hours do not matter; from here on, weekdays do
PIECES = 20


def redrawn(submit: Floats, seed: int) -> tuple[Ints, Floats]:
    """The same log as it might have come: which jobs come, in order, and when.

    >>> rows, at = redrawn(np.arange(0.0, 1000.0), seed=1)
    >>> len(rows), bool((np.diff(at) >= 0).all()), redrawn(np.zeros(2), seed=1)[0].tolist()
    (1000, True, [0, 1])
    """
    span = float(submit.max(initial=0.0))
    if not span:
        return np.arange(len(submit)), submit
    length, stride, count = _blocks(span)
    # What is left of the last day stays where it is: a part of a block must not take the place of a whole one.
    block = np.minimum((submit / length).astype(np.int64), count)
    first = np.searchsorted(block, np.arange(count + 2))
    source = np.append(_lots(count, stride, np.random.default_rng(seed)), count)
    rows = np.concatenate([np.arange(first[b], first[b + 1]) for b in source])
    moved = np.repeat((np.arange(count + 1) - source) * length, (first[1:] - first[:-1])[source])
    at = submit[rows] + moved
    order = np.argsort(at, kind="stable")
    return rows[order], at[order] - at[order[0]]


def _blocks(span: float) -> tuple[float, int, int]:
    """How long a block is, how far apart those are that may take each other's place, and how many there are."""
    if span < SHORT * DAY:
        return span / PIECES, 1, PIECES
    length = DAY / QUARTERS
    return length, QUARTERS * (WEEK if span >= LONG * DAY else 1), int(span / length)


def _lots(count: int, stride: int, rng: np.random.Generator) -> Ints:
    """For each place the block that comes there."""
    placement = np.arange(count) % stride
    choices = (count - placement + stride - 1) // stride
    return np.asarray(placement + stride * rng.integers(0, choices))
