"""The highest rate at which a server keeps its promise: P99 below a goal, and hardly a failure.

Rates are tried in the middle (by ratio) of the widest gap between one that passed and one that failed. A trial decides
only if the interval of its percentile lies on one side of the goal; else it is run again with another timetable and
the two are taken together, and if that does not help it stays undecided. So the answer is an interval, not a number.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from fleetlab.devices.errors import BenchError
from fleetlab.serving.load import intervals as limits
from fleetlab.serving.load.generator import Tell
from fleetlab.serving.load.measure import measure
from fleetlab.serving.load.report import Load, manifest
from fleetlab.serving.load.requests import FAILED, REFUSED
from fleetlab.serving.load.settings import Asked
from fleetlab.serving.load.timetable import is_list
from fleetlab.stats import Interval, samples_needed

MAY_FAIL = 1e-3  # of all requests, refusals among them
STRETCHES = 3  # a trial at most: each as long as asked, with a timetable of its own
MOST = 16  # trials
PASSED, FAILS, UNDECIDED, INVALID = "passed", "failed", "undecided", "invalid"


@dataclass(frozen=True, slots=True)
class Goal:
    """The quantile `p` of latency is to be below `slo` seconds."""

    slo: float
    p: float = 0.99


@dataclass(frozen=True, slots=True)
class Trial:
    """One rate, and what came of it."""

    rate: float
    verdict: str
    requests: int
    latency: Interval | str  # at the goal's percentile, or why not
    lost: Interval  # the share refused or failed
    lag: float  # P99, s
    stretches: int


@dataclass(frozen=True, slots=True)
class Found:
    """The highest rate that passed and the lowest that failed; None where there was none."""

    asked: Asked
    url: str
    goal: Goal
    trials: tuple[Trial, ...]
    stopped: bool = False

    @property
    def passed(self) -> float | None:
        """The highest rate below every failure that passed."""
        top = self.failed or math.inf
        return max((t.rate for t in self.trials if t.verdict == PASSED and t.rate < top), default=None)

    @property
    def failed(self) -> float | None:
        """The lowest rate that failed."""
        return min((t.rate for t in self.trials if t.verdict == FAILS), default=None)

    @property
    def valid(self) -> bool:
        """Was at least one rate sent as it was meant?"""
        return any(t.verdict != INVALID for t in self.trials)

    @property
    def notes(self) -> tuple[str, ...]:
        """What the two ends do not say."""
        found = []
        if self.passed is None:
            found.append("not even the lowest rate was seen to pass: a lower LOW, or a goal that can be met")
        if self.failed is None:
            found.append("no rate was seen to fail: a higher HIGH")
        if open_ := [t for t in self.trials if t.verdict == UNDECIDED]:
            rates = ", ".join(f"{t.rate:.4g}" for t in open_)
            found.append(f"undecided, for the goal lies inside the interval: {rates} a second; more --seconds decide")
        if behind := [t for t in self.trials if t.verdict == INVALID]:
            rates = ", ".join(f"{t.rate:.4g}" for t in behind)
            found.append(f"invalid, for the generator fell behind: {rates} a second")
        if self.stopped:
            found.append("stopped before it had narrowed the rates down")
        return tuple(found)

    def to_json(self) -> dict[str, Any]:
        """The answer and every trial."""
        return {
            "kind": "search",
            "manifest": manifest(self.asked, self.url),
            "goal": {"slo": self.goal.slo, "percentile": 100 * self.goal.p, "may_fail": MAY_FAIL},
            "passed": self.passed,
            "failed": self.failed,
            "stopped": self.stopped,
            "trials": [{name: getattr(t, name) for name in t.__slots__} for t in self.trials],
            "notes": list(self.notes),
        }


def search(
    asked: Asked,
    *,
    low: float,
    high: float,
    percentile: float = 99.0,
    within: float = 0.05,
    tell: Tell = lambda _line: None,
) -> Found:
    """Rates from `low` to `high`, until the answer's ends differ by no more than the share `within`."""
    goal = _goal(asked, low, high, percentile, within)
    url, trials = asked.url, list[Trial]()
    try:
        while (rate := next_rate(trials, low, high, within)) is not None:
            url = _try(asked, goal, rate, trials, tell)
    except KeyboardInterrupt:
        if not trials:
            raise
        return Found(asked, url, goal, tuple(trials), stopped=True)
    return Found(asked, url, goal, tuple(trials))


def _goal(asked: Asked, low: float, high: float, percentile: float, within: float) -> Goal:
    if asked.slo is None:
        msg = "a search needs a goal"
        raise BenchError(msg, hint="--slo-ms 15")
    if not (0 < low < high < math.inf and 0.001 <= within <= 1):
        msg = f"not rates to search: from {low:g} to {high:g} a second, within {within:g}"
        raise BenchError(msg, hint="--search 10:1000")
    if not 1 <= percentile <= 99.9:
        msg = f"a percentile is from 1 to 99.9, not {percentile:g}"
        raise BenchError(msg)
    if not asked.is_open or asked.rate is not None or is_list(asked):
        msg = "a search chooses its own rates"
        raise BenchError(msg, hint="leave --rate and --clients out; --arrivals is poisson, gamma:B or uniform")
    return Goal(asked.slo, percentile / 100)


def next_rate(trials: Iterable[Trial], low: float, high: float, within: float) -> float | None:
    """Both ends first, then the middle of the widest gap between what passed and what failed; None when done."""
    by = {t.rate: t.verdict for t in trials}
    for end, enough_ in ((low, FAILS), (high, PASSED)):
        if end not in by:
            return end
        if by[end] == enough_:
            return None
    lowest = min((r for r, v in by.items() if v == FAILS), default=high)
    highest = max((r for r, v in by.items() if v == PASSED and r < lowest), default=low)
    rates = sorted(r for r in by if highest <= r <= lowest)
    a, b = max(pairwise(rates), key=lambda gap: gap[1] / gap[0])
    return math.sqrt(a * b) if b / a > 1 + within and len(by) < MOST else None


def _try(asked: Asked, goal: Goal, rate: float, trials: list[Trial], tell: Tell) -> str:
    """One trial, in as many stretches as it takes to decide; where it was sent."""
    # Whatever the rate, the percentile must be carried: a slow trial takes longer.
    seconds = max(asked.seconds, 1.2 * samples_needed(goal.p) / rate)
    loads = list[Load]()
    while True:
        seed = np.random.SeedSequence((asked.seed, len(trials), len(loads))).generate_state(1)
        load = measure(replace(asked, rate=rate, seconds=seconds, seed=int(seed[0])))
        if load.stopped:
            raise KeyboardInterrupt
        loads.append(load)
        trial = judged(loads, goal, rate)
        if trial.verdict != UNDECIDED or len(loads) == STRETCHES:
            break
    trials.append(trial)
    tell(f"{rate:.4g} a second: {trial.verdict}, {_latency(trial, goal)}, {100 * trial.lost.value:.2g} % lost")
    return loads[0].url


def judged(loads: list[Load], goal: Goal, rate: float) -> Trial:
    """All stretches of a rate as one."""
    lag = max(load.lag["p99"] for load in loads)
    lost = np.concatenate([np.isin(load.due.outcome, (*FAILED, REFUSED)) for load in loads])
    latency = limits.said(np.concatenate([load.kinds["answers"].latency for load in loads]), goal.p)
    shed = limits.share(lost)
    answer = verdict(latency, shed, goal) if all(load.valid for load in loads) else INVALID
    return Trial(rate, answer, len(lost), latency, shed, lag, len(loads))


def verdict(latency: Interval | str, lost: Interval, goal: Goal) -> str:
    """Passed or failed if the intervals say so; a server that refuses most fails, however quick its few answers."""
    if lost.low >= MAY_FAIL or (not isinstance(latency, str) and latency.low > goal.slo):
        return FAILS
    sure = not isinstance(latency, str) and latency.high <= goal.slo and lost.value <= MAY_FAIL
    return PASSED if sure else UNDECIDED


def _latency(trial: Trial, goal: Goal) -> str:
    if isinstance(trial.latency, str):
        return trial.latency
    value, low, high = (f"{1000 * x:.3g}" for x in trial.latency)
    return f"P{100 * goal.p:g} {value} ms ({low} to {high})"
