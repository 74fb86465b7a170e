"""Who submits what, and when: every published number of it beside the one that a trace has."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fleetlab.traces.synthesize._arrivals import FIRST_WEEKDAY, HOURS
from fleetlab.traces.synthesize._binned import summed
from fleetlab.traces.synthesize._joint import Floats, Ints
from fleetlab.traces.synthesize._laws import FULL, LAWS, MONTH, PRINTED, curve
from fleetlab.traces.synthesize._measure import CDF, ERRORS, TOLD, Sample, Target, number, share
from fleetlab.traces.synthesize._targets import STATUS, curves
from fleetlab.traces.synthesize._view import View

SOME = 50_000  # tasks below which bursts and predictions hang on a few groups
OFTEN = 5  # runs of a group before it is asked to predict
QUARTILES = {"q1": 25, "median": 50, "q3": 75}


def rhythm(view: View) -> Iterator[Target]:
    """Measure users, groups, what they predict, and arrivals."""
    for topic in (_users, _groups, _prediction, _hours, _bursts):
        yield from topic(view)


def _users(v: View) -> Iterator[Target]:
    more = max(1.0, len(v.user) / FULL)  # a trace longer than the real one has as many users, who submit more
    tasks, held = summed(v.user, np.ones(len(v.user))) / more, np.sort(summed(v.user, v.instances))[::-1] / more
    top = held[: max(1, round(0.05 * len(held)))].sum() / held.sum()
    bound = "told as a bound: 15 %"
    facts = [
        ("users", "users", len(tasks), 0.02, "told as «over 1,300»: 2 %"),
        ("instances of the top 5 % of users", "top_users_instances", float(top), 0.026, TOLD),
        ("instances of the user at P50", "bottom_half_user_instances", float(np.median(held)), 0.15, bound),
        ("instances of the user at P95", "top_user_instances", float(np.percentile(held, 95)), 0.15, bound),
    ]
    for name, key, achieved, part, how in facts:
        yield number(name, PRINTED[key], achieved, part, how=how, source="paper", needs=FULL)
    yield from curves("tasks of a user", Sample.of(tasks), LAWS["user_tasks"], needs=FULL)


def _groups(v: View) -> Iterator[Target]:
    size = summed(v.group, np.ones(len(v.group)))
    runs, n = Sample.of(size, size), len(v.group)
    often = 1 - runs.below(OFTEN - 1)
    name = f"tasks that run {OFTEN} times or more"
    yield share(name, PRINTED["tasks_run_5_times"], often, n, how=CDF, source="paper", needs=1000)
    upto, percents = curve(LAWS["recurrence_cdf"])
    for x, percent in zip(upto, percents, strict=True):
        # A part of the trace has only its part of the largest groups.
        needs = min(FULL, int(np.ceil(1.3 * x / upto[-1] * FULL)))
        name = f"tasks that run up to {x:.0f} times"
        yield share(name, percent / 100, runs.below(x), n, how=CDF, source="figure", needs=needs)


def _prediction(v: View) -> Iterator[Target]:
    name = "instances whose run time their {}'s mean so far predicts within {:.0%}"
    for within, key, source in ((0.05, "group_within_5", "figure"), (0.25, "group_within_25", "paper")):
        good, count = _predicted(v, v.group, within)
        published = LAWS["prediction"][key]
        yield share(name.format("group", within), published, good, count, how=TOLD, source=source, needs=SOME)
    good, _ = _predicted(v, v.user, 0.05)
    most = LAWS["prediction"]["user_within_5"]
    how = "at most: a user's run times are not modelled further"
    yield Target(name.format("user", 0.05), most, good, 0.0, most + 0.02, how, "figure", SOME)


def _predicted(v: View, by: Ints, within: float) -> tuple[float, float]:
    """Predict each run time by the mean of those that the same group or user submitted before it."""
    known = np.flatnonzero(np.isfinite(v.service))
    order = known[np.argsort(by[known], kind="stable")]
    service, (place, before) = v.service[order], _so_far(by[order], v.service[order])
    asked = (place > 0) & (np.bincount(v.group)[v.group[order]] >= OFTEN)
    guess, seen = before[asked] / place[asked], service[asked]
    weight = v.instances[order][asked]
    good = np.abs(guess - seen) <= within * seen
    # Steady or not is a trait of a group: the sample is one of groups, however many tasks they have.
    of_group = summed(v.group[order][asked], weight)
    total = max(float(weight.sum()), 1e-300)
    return float((good * weight).sum() / total), float(total**2 / max(float((of_group**2).sum()), 1e-300))


def _so_far(key: Ints, values: Floats) -> tuple[Ints, Floats]:
    """How many with the same key came before, and their sum; keys stand together."""
    first = np.flatnonzero(np.append(True, key[1:] != key[:-1]))
    lengths = np.diff(np.append(first, len(key)))
    before = np.cumsum(values) - values
    return np.arange(len(key)) - np.repeat(first, lengths), before - np.repeat(before[first], lengths)


def _hours(v: View) -> Iterator[Target]:
    whole = int(v.days)
    hour = (v.submit // 3600).astype(np.int64)
    count = np.bincount(hour, minlength=whole * HOURS)[: whole * HOURS].reshape(whole, HOURS) * v.thinner
    weekend = (FIRST_WEEKDAY + np.arange(whole)) % 7 >= 5
    days = count.sum(axis=1)
    ratio = float(days[weekend].mean() / days[~weekend].mean()) if weekend.any() else float("nan")
    published = PRINTED["weekend_over_weekday"]
    how, error = "of one week: 0.05", 0.05 / ERRORS
    yield number(
        "tasks of a weekend day over a weekday", published, ratio, 0, how=how, source="figure", error=error, needs=MONTH
    )
    for h in range(HOURS):
        for q, level in QUARTILES.items():
            achieved = float(np.percentile(count[:, h], level)) if whole else float("nan")
            yield _hour(h, q, achieved, max(whole, 1))


def _hour(hour: int, q: str, achieved: float, days: int) -> Target:
    law = LAWS["hour"]
    spread = np.log(law["q3"][hour] / law["q1"][hour]) / 1.349
    # The error of a quartile of so many days, if each were drawn by itself: 1.36 of that of the mean.
    error = law[q][hour] * spread * 1.36 / np.sqrt(days) / ERRORS
    name, how = f"tasks from {hour} to {hour + 1} h, {q} of days", "read off a box plot: 8 %"
    return number(name, law[q][hour], achieved, 0.08, how=how, source="figure", error=float(error), needs=MONTH)


def _bursts(v: View) -> Iterator[Target]:
    done = v.submit[v.gpu & (v.status == STATUS.index("completed"))]
    for window, published in zip(*curve(LAWS["dispersion"]), strict=True):
        seen = np.bincount((done // window).astype(np.int64))
        name = f"completed GPU tasks in {window:.0f} s, variance over mean"
        achieved, how = float(seen.var() / max(seen.mean(), 1e-12)), "of a sample, scaled up: a quarter"
        yield number(name, published, achieved, 0.25, how=how, source="sample", needs=SOME)
