"""Measure a server under load, and search the highest rate at which a server meets a latency goal with few failures.

Rates are bisected (geometrically) between those that passed and those that failed. A trial is decided only if the
interval of its percentile lies on one side of the goal; otherwise it is repeated with another schedule and pooled,
and after the last repeat it stays undecided. So the answer is an interval, not a number.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from fleetlab.gpu.bench.llm.requests import parse_goals
from fleetlab.gpu.devices.console import STOPPED, BenchError, Progress, check_folder, replacing, silent
from fleetlab.gpu.serving.load import requests
from fleetlab.gpu.serving.load.client import loopback
from fleetlab.gpu.serving.load.generator import arrival_schedule, closed_loop, is_replay, open_loop
from fleetlab.gpu.serving.load.report import LoadReport, manifest, report
from fleetlab.gpu.serving.load.requests import ANSWERED, FAILED, OUTCOMES, REFUSED, request_lengths
from fleetlab.gpu.serving.load.settings import LoadOptions, LoadSettings
from fleetlab.stats import Interval, samples_needed, share_of_windows


def measure(settings: LoadSettings, *, progress: Progress = silent) -> LoadReport:
    """Run the load; it ends at the latest one timeout after the last scheduled request."""
    if settings.dataset is not None:
        next(request_lengths(settings.dataset, settings.seed))  # refuse before anything is sent
        parse_goals(settings.goals or "ttft:1")
    path = "/v1/completions" if settings.dataset else "/predict" if settings.batch == 1 else "/predict/batch"
    url = loopback(settings.url, path=path)
    if settings.is_open:
        return report(settings, url, open_loop(settings, url, arrival_schedule(settings), progress=progress))
    return report(settings, url, closed_loop(settings, url, progress=progress))


# --- search the highest rate at which a server meets a latency goal with few failures --------------------------------


MAX_LOST = 1e-3  # proportion of requests that may fail or be refused
MAX_REPEATS = 3  # runs per trial, each with its own schedule
MAX_TRIALS = 16
PASSED, FAILED_TRIAL, UNDECIDED, INVALID = "passed", "failed", "undecided", "invalid"


@dataclass(frozen=True, slots=True)
class LatencyGoal:
    """Quantile `p` of latency must be below `slo` seconds."""

    slo: float
    p: float = 0.99


@dataclass(frozen=True, slots=True)
class RateTrial:
    """One rate and its verdict."""

    rate: float
    verdict: str
    requests: int
    latency: Interval | str  # at the goal's percentile, or why there is none
    lost: Interval  # proportion refused or failed
    lag: float  # P99, s
    stretches: int


@dataclass(frozen=True, slots=True)
class RateSearch:
    """The highest rate that passed and the lowest that failed; None if there is none."""

    settings: LoadSettings
    url: str
    goal: LatencyGoal
    trials: tuple[RateTrial, ...]
    stopped: bool = False

    @property
    def passed(self) -> float | None:
        """The highest rate that passed, below every failure."""
        top = self.failed or math.inf
        return max((t.rate for t in self.trials if t.verdict == PASSED and t.rate < top), default=None)

    @property
    def failed(self) -> float | None:
        """The lowest rate that failed."""
        return min((t.rate for t in self.trials if t.verdict == FAILED_TRIAL), default=None)

    @property
    def valid(self) -> bool:
        """Whether at least one rate was sent on schedule."""
        return any(t.verdict != INVALID for t in self.trials)

    @property
    def notes(self) -> tuple[str, ...]:
        """What the two rates do not show."""
        lines = []
        if self.passed is None:
            lines.append("not even the lowest rate passed: choose a lower LOW, or another goal")
        if self.failed is None:
            lines.append("no rate failed: choose a higher HIGH")
        if open_ := [t for t in self.trials if t.verdict == UNDECIDED]:
            rates = ", ".join(f"{t.rate:.4g}" for t in open_)
            lines.append(f"undecided, because the goal is inside the interval: {rates} per second; use more --seconds")
        if behind := [t for t in self.trials if t.verdict == INVALID]:
            rates = ", ".join(f"{t.rate:.4g}" for t in behind)
            lines.append(f"invalid, because the generator was late: {rates} per second")
        if self.stopped:
            lines.append("stopped before the search was finished")
        return tuple(lines)

    def to_json(self) -> dict[str, Any]:
        """The answer and every trial."""
        return {
            "kind": "search",
            "manifest": manifest(self.settings, self.url),
            "goal": {"slo": self.goal.slo, "percentile": 100 * self.goal.p, "may_fail": MAX_LOST},
            "passed": self.passed,
            "failed": self.failed,
            "stopped": self.stopped,
            "trials": [{name: getattr(t, name) for name in t.__slots__} for t in self.trials],
            "notes": list(self.notes),
        }


def search(
    settings: LoadSettings,
    *,
    low: float,
    high: float,
    percentile: float = 99.0,
    within: float = 0.05,
    progress: Progress = silent,
) -> RateSearch:
    """Search from `low` to `high`, until the bounds differ by at most the ratio `within`."""
    if settings.slo is None:
        raise BenchError("a search needs a latency goal", hint="--slo-ms 15")
    if not (0 < low < high < math.inf and 0.001 <= within <= 1):
        msg = f"not a range of rates: from {low:g} to {high:g} per second, within {within:g}"
        raise BenchError(msg, hint="--search 10:1000")
    if not 1 <= percentile <= 99.9:
        raise BenchError(f"the percentile must be from 1 to 99.9, not {percentile:g}")
    if not settings.is_open or settings.rate is not None or is_replay(settings):
        msg = "a search chooses the rates itself"
        raise BenchError(msg, hint="omit --rate and --clients; --arrivals is poisson, gamma:B or uniform")
    goal = LatencyGoal(settings.slo, percentile / 100)
    url, trials = settings.url, list[RateTrial]()
    try:
        while (rate := next_rate(trials, low, high, within)) is not None:
            url = _try(settings, goal, rate, trials, progress)
    except KeyboardInterrupt:
        if not trials:
            raise
        return RateSearch(settings, url, goal, tuple(trials), stopped=True)
    return RateSearch(settings, url, goal, tuple(trials))


def next_rate(trials: Iterable[RateTrial], low: float, high: float, within: float) -> float | None:
    """Both ends first, then the geometric middle of the widest gap; None when done."""
    by = {t.rate: t.verdict for t in trials}
    for end, enough_ in ((low, FAILED_TRIAL), (high, PASSED)):
        if end not in by:
            return end
        if by[end] == enough_:
            return None
    lowest = min((r for r, v in by.items() if v == FAILED_TRIAL), default=high)
    highest = max((r for r, v in by.items() if v == PASSED and r < lowest), default=low)
    rates = sorted(r for r in by if highest <= r <= lowest)
    a, b = max(pairwise(rates), key=lambda gap: gap[1] / gap[0])
    return math.sqrt(a * b) if b / a > 1 + within and len(by) < MAX_TRIALS else None


def _try(settings: LoadSettings, goal: LatencyGoal, rate: float, trials: list[RateTrial], progress: Progress) -> str:
    """Run one trial with as many repeats as needed; returns the URL."""
    # The sample must support the percentile, so a low rate takes longer.
    seconds = max(settings.seconds, 1.2 * samples_needed(goal.p) / rate)
    loads = list[LoadReport]()
    while True:
        seed = np.random.SeedSequence((settings.seed, len(trials), len(loads))).generate_state(1)
        load = measure(replace(settings, rate=rate, seconds=seconds, seed=int(seed[0])))
        if load.stopped:
            raise KeyboardInterrupt
        loads.append(load)
        trial = judge_rate(loads, goal, rate)
        if trial.verdict != UNDECIDED or len(loads) == MAX_REPEATS:
            break
    trials.append(trial)
    progress(f"{rate:.4g}/s: {trial.verdict}, {_latency(trial, goal)}, {100 * trial.lost.value:.2g} % lost")
    return loads[0].url


def judge_rate(loads: list[LoadReport], goal: LatencyGoal, rate: float) -> RateTrial:
    """Pool all runs of a rate and judge them."""
    lag = max(load.lag["p99"] for load in loads)
    lost = np.concatenate([np.isin(load.due.outcome, (*FAILED, REFUSED)) for load in loads])
    latency = requests.quantile_or_reason(np.concatenate([load.kinds["answers"].latency for load in loads]), goal.p)
    shed = share_of_windows([lost], [1])
    answer = verdict(latency, shed, goal) if all(load.valid for load in loads) else INVALID
    return RateTrial(rate, answer, len(lost), latency, shed, lag, len(loads))


def verdict(latency: Interval | str, lost: Interval, goal: LatencyGoal) -> str:
    """Passed or failed if the intervals show it; a server that refuses most requests fails, however fast it is."""
    if lost.low >= MAX_LOST or (not isinstance(latency, str) and latency.low > goal.slo):
        return FAILED_TRIAL
    sure = not isinstance(latency, str) and latency.high <= goal.slo and lost.value <= MAX_LOST
    return PASSED if sure else UNDECIDED


def _latency(trial: RateTrial, goal: LatencyGoal) -> str:
    if isinstance(trial.latency, str):
        return trial.latency
    value, low, high = (f"{1000 * x:.3g}" for x in trial.latency)
    return f"P{100 * goal.p:g} {value} ms ({low} to {high})"


# --- run a load or a search, save it, and choose the exit status -----------------------------------------------------


def check_output(out: Path | None, *, each: bool) -> None:
    """Check the output folder before the measurement."""
    if out is not None:
        check_folder(out)
    elif each:
        raise BenchError("--each has no folder to write to", hint="--each needs --out FOLDER")


def save(result: LoadReport | RateSearch, out: Path, *, each: bool = False) -> None:
    """Write `load.json` or `search.json`, and with `each` also `requests.jsonl`."""
    about = result.to_json()
    try:
        if each and isinstance(result, LoadReport):
            _write(out / "requests.jsonl", request_lines(result))
        _write(out / f"{about['kind']}.json", iter((json.dumps(about, indent=1), "\n")))
    except OSError as e:
        raise BenchError(f"{out}: {e.strerror}", hint="check permissions and free space") from None


def request_lines(load: LoadReport) -> Iterator[str]:
    """One line per request in scheduled order; times are in nanoseconds from the start."""
    rows = load.rows
    for k in range(len(rows.due)):
        line: dict[str, Any] = {
            "scheduled_ns": _ns(rows.due[k]),
            "begun_ns": _ns(rows.begun[k]),
            "sent_ns": _ns(rows.sent[k]),
            "first_byte_ns": _ns(rows.first[k]),
            "done_ns": _ns(rows.done[k]),
            "ok": bool(rows.outcome[k] == ANSWERED),
            "outcome": OUTCOMES[rows.outcome[k]],
            "status": int(rows.status[k]),
            "counted": bool(load.opens <= rows.due[k] < load.closes),
        }
        yield json.dumps(line) + "\n"


def _ns(seconds: float) -> int | None:
    return None if math.isnan(seconds) else round(seconds * 1e9)


def _write(path: Path, parts: Iterator[str]) -> None:
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8") as file:
        file.writelines(parts)


# --- run a load or a search, save it, and choose the exit status -----------------------------------------------------


INVALID_STATUS = 3


def run(options: LoadOptions, *, times: tuple[float, ...] | None = None, progress: Progress) -> LoadReport | RateSearch:
    """Measure, or search a rate, and save the result; `times` of a trace are replayed."""
    settings = options.settings(times)
    ends = None if options.search is None else parse_rates(options.search)
    check_output(options.out, each=options.each)
    result: LoadReport | RateSearch
    if ends is None:
        result = measure(settings, progress=progress)
    else:
        goal = {"percentile": options.percentile, "within": options.within}
        result = search(settings, low=ends[0], high=ends[1], **goal, progress=progress)
    if options.out is not None:
        save(result, options.out, each=options.each)
    return result


def parse_rates(text: str) -> tuple[float, float]:
    """Parse two rates separated by a colon.

    >>> parse_rates("10:1e3")
    (10.0, 1000.0)
    """
    low, _, high = text.partition(":")
    try:
        return float(low), float(high)
    except ValueError:
        raise BenchError(f"--search takes LOW:HIGH, not `{text}`", hint="--search 10:1000") from None


def exit_status(result: LoadReport | RateSearch) -> int:
    """0 if valid, 3 if the generator was late, 130 if stopped."""
    if result.stopped:
        return STOPPED
    return 0 if result.valid else INVALID_STATUS
