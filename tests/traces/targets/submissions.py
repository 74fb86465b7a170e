"""Published numbers of users, groups and arrivals, compared with a trace."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fleetlab.traces.synthesize.arrivals import FIRST_WEEKDAY, HOURS
from fleetlab.traces.synthesize.joint_law import FULL, LAWS, PRINTED, Bools, Floats, Ints, curve, summed

from .columns import TraceColumns
from .demand import STATUS, curves
from .target import CDF, MONTH, SOME, STATED, Target, WeightedSample, number, share

OFTEN = 5  # runs of a group before it is asked to predict
QUARTILES = {"q1": 25, "median": 50, "q3": 75}


def rhythm(view: TraceColumns) -> Iterator[Target]:
    """Measure users, groups, what they predict, and arrivals."""
    for topic in (_users, _groups, _prediction, _hours, _bursts):
        yield from topic(view)


def _users(v: TraceColumns) -> Iterator[Target]:
    more = max(1.0, len(v.user) / FULL)  # a trace longer than the real one has as many users, who submit more
    jobs, held = summed(v.user, np.ones(len(v.user))) / more, np.sort(summed(v.user, v.instances))[::-1] / more
    top = held[: max(1, round(0.05 * len(held)))].sum() / held.sum()
    bound = "stated as a bound: 15 %"
    facts = [
        ("users", "users", len(jobs), 0.02, "stated as 'over 1,300': 2 %"),
        ("instances of the top 5 % of users", "top_users_instances", float(top), 0.026, "stated: 2 points"),
        ("instances of the user at P50", "bottom_half_user_instances", float(np.median(held)), 0.15, bound),
        ("instances of the user at P95", "top_user_instances", float(np.percentile(held, 95)), 0.15, bound),
    ]
    for name, key, achieved, part, how in facts:
        yield number(name, PRINTED[key], achieved, part, how=how, source="paper", needs=FULL)
    yield from curves("jobs of a user", WeightedSample.of(jobs), LAWS["user_jobs"], needs=FULL)


def _groups(v: TraceColumns) -> Iterator[Target]:
    size = summed(v.group, np.ones(len(v.group)))
    runs, n = WeightedSample.of(size, size), len(v.group)
    often = 1 - runs.below(OFTEN - 1)
    name = f"jobs that run {OFTEN} times or more"
    yield share(name, PRINTED["jobs_run_5_times"], often, n, how=CDF, source="paper", needs=1000)
    upto, percents = curve(LAWS["recurrence_cdf"])
    for x, percent in zip(upto, percents, strict=True):
        # A part of the trace has only its part of the largest groups.
        needs = min(FULL, int(np.ceil(1.3 * x / upto[-1] * FULL)))
        name = f"jobs that run up to {x:.0f} times"
        yield share(name, percent / 100, runs.below(x), n, how=CDF, source="figure", needs=needs)


def _prediction(v: TraceColumns) -> Iterator[Target]:
    """Hold predictions against those of the paper's tree, whose groups seen once or twice are not told of."""
    law = LAWS["prediction"]
    guess = _guesses(v, v.group)
    predictable = np.isfinite(guess) & (np.bincount(v.group)[v.group] >= OFTEN)
    known = np.isfinite(v.runtime)
    part = v.instances[predictable].sum() / v.instances[known].sum()
    name = f"instances of groups of {OFTEN} runs or more ({part:.0%} of all) that the group's mean predicts within"
    for within, key, source in ((0.05, "group_within_5", "figure"), (0.25, "group_within_25", "paper")):
        good, count = _right(v, guess, predictable, within)
        yield share(f"{name} {within:.0%}", law[key], good, count, how=STATED, source=source, needs=SOME)
    by_user = _guesses(v, v.user)
    good, count = _right(v, np.where(np.isfinite(guess), guess, by_user), known, 0.25)
    name = "instances that the group's mean, or else the user's, predicts within 25%"
    yield share(name, law["group_within_25"], good, count, how=STATED, source="paper", needs=SOME)
    good, _ = _right(v, by_user, predictable, 0.05)
    name, most = "instances that the user's mean predicts within 5%, at most", law["user_within_5"]
    how = "an upper bound, since users are modelled in less detail than groups: 2 points above"
    yield Target(name, most, good, 0.0, most + 0.02, how, "figure", SOME)


def _guesses(v: TraceColumns, by: Ints) -> Floats:
    """The mean of the run times that the same group or user submitted before; not a number for the first."""
    known = np.flatnonzero(np.isfinite(v.runtime))
    order = known[np.argsort(by[known], kind="stable")]
    place, before = _so_far(by[order], v.runtime[order])
    guess = np.full(len(by), np.nan)
    guess[order[place > 0]] = before[place > 0] / place[place > 0]
    return guess


def _right(v: TraceColumns, guess: Floats, predictable: Bools, within: float) -> tuple[float, float]:
    """Which part of the instances asked about is predicted that well, and how many values would be as sure."""
    weight = v.instances * predictable
    good = np.abs(guess - v.runtime) <= within * v.runtime
    # Steady or not is a trait of a group: the sample is one of groups, however many jobs they have.
    of_group = summed(v.group, weight)
    total = max(float(weight.sum()), 1e-300)
    return float((good * weight).sum() / total), float(total**2 / max(float((of_group**2).sum()), 1e-300))


def _so_far(key: Ints, values: Floats) -> tuple[Ints, Floats]:
    """How many with the same key came before, and their sum; keys stand together."""
    first = np.flatnonzero(np.append(True, key[1:] != key[:-1]))
    lengths = np.diff(np.append(first, len(key)))
    before = np.cumsum(values) - values
    return np.arange(len(key)) - np.repeat(first, lengths), before - np.repeat(before[first], lengths)


def _hours(v: TraceColumns) -> Iterator[Target]:
    whole = int(v.days)
    hour = (v.submit // 3600).astype(np.int64)
    count = np.bincount(hour, minlength=whole * HOURS)[: whole * HOURS].reshape(whole, HOURS) * v.thinner
    weekend = (FIRST_WEEKDAY + np.arange(whole)) % 7 >= 5
    days = count.sum(axis=1)
    ratio = float(days[weekend].mean() / days[~weekend].mean()) if weekend.any() else float("nan")
    published = PRINTED["weekend_over_weekday"]
    # A month has eight weekend days: too few to tell their mean so well.
    name, room, how = "jobs of a weekend day over a weekday", (published - 0.05, published + 0.05), "of one week: 0.05"
    yield Target(name, published, ratio, *room, how, "figure", FULL)
    for h in range(HOURS):
        for q, level in QUARTILES.items():
            achieved = float(np.percentile(count[:, h], level)) if whole else float("nan")
            yield _hour(h, q, achieved, max(whole, 1))


def _hour(hour: int, q: str, achieved: float, days: int) -> Target:
    law = LAWS["hour"]
    spread = np.log(law["q3"][hour] / law["q1"][hour]) / 1.349
    # The error of a quartile of so many days, if each were drawn by itself: 1.36 of that of the mean.
    room = law[q][hour] * (0.08 + float(spread * 1.36 / np.sqrt(days)))
    name = f"jobs from {hour} to {hour + 1} h, {q} of days"
    how = "read off a box plot: 8 %, and one standard error of a quartile over this many days"
    return Target(name, law[q][hour], achieved, law[q][hour] - room, law[q][hour] + room, how, "figure", MONTH)


def _bursts(v: TraceColumns) -> Iterator[Target]:
    done = v.submit[v.gpu & (v.status == STATUS.index("completed"))]
    for window, published in zip(*curve(LAWS["dispersion"]), strict=True):
        counts = np.bincount((done // window).astype(np.int64))
        name = f"completed GPU jobs in {window:.0f} s, variance over mean"
        achieved, how = float(counts.var() / max(counts.mean(), 1e-12)), "of a sample, scaled up: a quarter"
        yield number(name, published, achieved, 0.25, how=how, source="sample", needs=SOME)
