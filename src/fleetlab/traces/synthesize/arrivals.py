"""Submission times: hourly and weekly pattern, variation between days, and bursts within a group."""

from __future__ import annotations

from functools import cache

import numpy as np

from fleetlab.traces.synthesize.joint_law import A_DAY, DAY, LAWS, Floats, Ints

FIRST_WEEKDAY = 2  # a Wednesday, Monday being 0
HOURS = 24
SWAY = 0.6  # of what makes an hour differ from day to day, how much the whole day shares
NOISE = 0.75  # of that difference, what the weekend does not explain
LONGEST = 0.6  # of the way from median to quartile, by which the emptiest hour is below the lower quartile

AGAIN = 0.93  # the chance that a user's next job comes in the same burst as the last
GAPS = np.array([0.6, 0.2, 0.1, 0.05, 0.05])  # of seconds 0 to 4 between jobs of a burst


def submissions(group: Ints, user: Ints, days: float, rng: np.random.Generator) -> Floats:
    """Submission times of jobs, which stand group by group, in whole seconds from midnight of the first day.

    A burst has jobs of several groups of one user, as a pipeline submits them: so a group comes again in other bursts,
    when its earlier jobs have ended.
    """
    jobs = len(group)
    hours = _hours(days, rng)
    sizes = np.bincount(group)
    first = np.cumsum(sizes) - sizes
    along = (np.arange(jobs) - first[group] + rng.random(jobs)) / sizes[group]
    order = np.lexsort((along, user))
    times = np.empty(jobs)
    times[order] = _in_bursts(user[order], hours, days, rng)
    return times


def _in_bursts(user: Ints, hours: Floats, days: float, rng: np.random.Generator) -> Floats:
    """Cut the jobs of each user, as they stand, into bursts, and lay those along the hours."""
    jobs = len(user)
    fresh = np.append(True, user[1:] != user[:-1]) | (rng.random(jobs) > AGAIN)
    burst = np.cumsum(fresh) - 1
    sizes = np.bincount(burst)
    start = _starts(sizes, hours, days, rng)
    gaps = np.where(fresh, 0, rng.choice(len(GAPS), size=jobs, p=GAPS))
    upto = np.cumsum(gaps)
    since = upto - upto[np.flatnonzero(fresh)][burst]
    return np.asarray(np.minimum(np.floor(start[burst]) + since, np.floor(days * DAY)))


def _starts(sizes: Ints, hours: Floats, days: float, rng: np.random.Generator) -> Floats:
    """Lay bursts in random order along the hours, each hour holding its part of all jobs; within it, anywhere."""
    order = rng.permutation(len(sizes))
    middle = np.cumsum(sizes[order]) - sizes[order] / 2
    upto = np.cumsum(hours) / hours.sum() * sizes.sum()
    hour = np.minimum(np.searchsorted(upto, middle, side="right"), len(hours) - 1)
    length = np.minimum(1.0, days * HOURS - hour)
    start = np.empty(len(sizes))
    start[order] = (hour + rng.random(len(hour)) * length) * 3600
    return start


def _hours(days: float, rng: np.random.Generator) -> Floats:
    """How many jobs each hour has, up to a factor: each hour of the day takes its published quantiles, in some order.

    The order is what weekday, the day as a whole and chance say.
    """
    count = int(np.ceil(days))
    weekday = (FIRST_WEEKDAY + np.arange(count)) % 7
    effect, spread = _weekend()
    rest = np.sqrt(1 - SWAY**2)
    chance = SWAY * rng.standard_normal((count, 1)) + rest * rng.standard_normal((count, HOURS))
    lean = effect * (weekday >= 5)[:, None] + NOISE * spread * chance
    place = (np.argsort(np.argsort(lean, axis=0), axis=0) + 0.5) / count
    rates = np.stack([np.exp(np.interp(place[:, h], *_quantiles(h, _stretch()))) for h in range(HOURS)], axis=1)
    flat = rates.ravel()[: int(np.ceil(days * HOURS))]
    flat[-1] *= 1.0 - (len(flat) - days * HOURS)
    return flat


def _weekend() -> tuple[Floats, Floats]:
    """How much quieter each hour is at the weekend, and how much else it varies, in logarithms."""
    week = np.array(LAWS["week"], dtype=float).reshape(7, HOURS)  # from Sunday
    ratio = np.log(week[[0, 6]].mean(axis=0) / week[1:6].mean(axis=0))
    smooth = (np.roll(ratio, 1) + ratio + np.roll(ratio, -1)) / 3
    all_of_it = np.log(np.array(LAWS["hour"]["q3"]) / np.array(LAWS["hour"]["q1"])) / 1.349
    # Two days of seven: their part of the variance is 10/49 of the effect's square.
    rest = np.sqrt(np.maximum(all_of_it**2 - 10 / 49 * smooth**2, (0.4 * all_of_it) ** 2))
    return smooth, rest


def _quantiles(hour: int, stretch: float) -> tuple[Floats, Floats]:
    q1, median, q3 = (np.log(LAWS["hour"][q][hour]) for q in ("q1", "median", "q3"))
    ends = q1 - LONGEST * (median - q1), q3 + stretch * (q3 - median)
    return np.array([0, 0.25, 0.5, 0.75, 1]), np.array([ends[0], q1, median, q3, ends[1]])


@cache
def _stretch() -> float:
    """How far the busiest days reach above the upper quartile, so that a mean day has its published number of jobs."""
    at = (np.arange(2000) + 0.5) / 2000
    low, high = 0.0, 20.0
    for _ in range(50):
        middle = (low + high) / 2
        day = sum(float(np.exp(np.interp(at, *_quantiles(h, middle))).mean()) for h in range(HOURS))
        low, high = (middle, high) if day < A_DAY else (low, middle)
    return low
