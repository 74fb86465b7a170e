"""Intervals that held for earlier forecasts: as much wider, or narrower, as those turned out to need.

Walking forward, a forecast knows those before it and what had become of them by then. How far a start was from the
median is measured in spreads of that forecast, on the scale log(1 + seconds/10): a minute counts for a wait of minutes
and not for one of a day. Quantiles are put where so many of the earlier forecasts say: split conformal prediction with
a normalized score (Lei et al. 2018). A job that has not started yet counts as far as it has waited, by Kaplan and
Meier's estimate: to leave it out would make waits too short. Of many forecasts the latest count, so that the correction
follows the log as its load changes; some more count as if they had turned out as replays say.

Earlier forecasts have few replays each, of some of the latest jobs, and stay in a cache for the next question.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from statistics import NormalDist

import numpy as np

from fleetlab.core import Scenario
from fleetlab.core.censoring import Bools, Floats, product_limit
from fleetlab.core.files import atomic_write, make_private
from fleetlab.core.progress import Progress, silent
from fleetlab.core.resample import Ints
from fleetlab.stats import SHARE, BlockBootstrap, Interval
from fleetlab.studies.eta.replay import LEVELS, replay
from fleetlab.studies.eta.run_times import RunTimes
from fleetlab.studies.eta.snapshot import History, ReplaySetup

SCALE = 10.0  # s
FLOOR = 0.1  # the least spread of an answer: 1 s of a wait of seconds, a tenth of a long one
ENOUGH = 20  # earlier forecasts whose outcome is known: with fewer, intervals stay as they are
RECENT = 200  # earlier forecasts that count, the latest
PRIOR = 5  # forecasts that count as if they had turned out as replays say: few others move quantiles little
FARTHEST = 4.0  # spreads that a quantile is put from the median: on logarithms, more would be any time at all
BEYOND = 4.0  # times the longest wait of the earlier forecasts, to which a quantile is put at most
MOST_ALIKE = 0.9  # correlation of a miss and the next
MIDDLE_LEVEL = 0.5
OUTER = 0.75  # share of the misses below which the tail does not begin
MIDDLE = len(LEVELS) // 2
INTERVALS = {"80 %": (1, 3), "95 %": (0, 4)}  # by the places of their ends in `LEVELS`
WANTED = np.array(LEVELS)
# In spreads of an answer, its P10 is at -1, its median at 0 and its P90 at 1.
AS_SAID = np.array([NormalDist().inv_cdf((k + 0.5) / PRIOR) / NormalDist().inv_cdf(0.9) for k in range(PRIOR)])


@dataclass(frozen=True, slots=True, eq=False)
class Forecasts:
    """Forecasts of starts: when they were made, their quantiles, and what happened; in order of time."""

    at: Floats
    answer: Floats  # [forecasts, levels]: seconds to the start
    truth: Floats  # seconds to the start; inf: unknown


@dataclass(frozen=True, slots=True, eq=False)
class Correction:
    """Where quantiles are put, in spreads from the median of an answer; None: they stay where they are."""

    miss: Floats | None
    forecasts: int  # that say so
    longest: float = np.inf  # s: a wait that no quantile is put beyond, unless replays say so

    def apply(self, answer: Floats) -> Floats:
        """Return the quantiles of an answer as they should be. What starts at once in all replays does so."""
        if self.miss is None or answer[-1] <= 0 or not np.isfinite(answer[:-1]).all():
            return answer
        middle, down, up = _spreads(answer)
        corrected = middle + self.miss * np.where(self.miss > 0, up, down)
        corrected = np.minimum(corrected, log_scale(np.maximum(answer, self.longest)))
        return np.asarray(np.maximum.accumulate(np.expm1(np.maximum(corrected, 0.0)) * SCALE))

    def spread(self, seconds: Floats, answer: Floats) -> Floats:
        """Return replays moved to where these quantiles of theirs are, on the scale of logarithms, in order of time."""
        ordered = np.sort(seconds)
        if self.miss is None or not np.isfinite(answer).all() or answer[-1] <= 0:
            return ordered
        share = np.arange(1, len(ordered) + 1) / (len(ordered) + 1)
        return np.asarray(np.expm1(np.interp(share, WANTED, log_scale(answer))) * SCALE)


def correction(forecasts: Forecasts, at: float) -> Correction:
    """Return what the forecasts before an instant say of one that is made then."""
    earlier = np.flatnonzero(forecasts.at < at)[-RECENT:]
    when, truth = forecasts.at[earlier], forecasts.truth[earlier]
    started = when + truth <= at
    if started.sum() < ENOUGH:
        return Correction(None, 0)
    middle, down, up = _spreads(forecasts.answer[earlier])
    waited = np.where(started, truth, at - when)
    off = log_scale(waited) - middle
    own = off / np.where(off > 0, up, down)
    miss, is_known = np.append(own, AS_SAID), np.append(started, np.ones(PRIOR, dtype=bool))
    miss_quantiles = _quantiles(miss, is_known, WANTED, PRIOR + independent(own))
    return Correction(np.clip(miss_quantiles, -FARTHEST, FARTHEST), len(earlier), BEYOND * float(waited.max()))


@dataclass(frozen=True, slots=True)
class TrackRecord:
    """How earlier forecasts on a log turned out, each corrected by those before it."""

    forecasts: int  # whose outcome is known
    coverage: dict[str, Interval]  # of each interval
    error: float  # s: the median of how far starts were from the medians


def track_record(forecasts: Forecasts, at: float) -> TrackRecord | None:
    """Return how the forecasts before an instant turned out; None where too few have started by then.

    Of a job that still waits it is known that an interval did not hold once it has waited for longer.
    """
    answer = np.array([
        correction(Forecasts(forecasts.at[:k], forecasts.answer[:k], forecasts.truth[:k]), when).apply(own)
        for k, (when, own) in enumerate(zip(forecasts.at.tolist(), forecasts.answer, strict=True))
    ]).reshape(len(forecasts.at), len(LEVELS))  # fmt: skip
    started = forecasts.at + forecasts.truth <= at
    waited = np.where(started, forecasts.truth, at - forecasts.at)
    outcome = started | (waited > answer[:, -1])
    if started.sum() < ENOUGH:
        return None
    shares = {name: covered(answer[outcome], waited[outcome], low, high) for name, (low, high) in INTERVALS.items()}
    return TrackRecord(int(outcome.sum()), shares, float(np.median(np.abs(answer[started, MIDDLE] - waited[started]))))


def covered(answer: Floats, truth: Floats, low: int, high: int) -> Interval:
    """Return how often intervals held, by a block bootstrap: forecasts close in time share their jobs."""
    inside = (answer[:, low] - 1e-6 <= truth) & (truth <= answer[:, high] + 1e-6)
    return BlockBootstrap.of_series(len(truth)).mean(inside.astype(np.float64), SHARE).interval()


def log_scale(seconds: Floats) -> Floats:
    """Return times on the scale on which they are compared."""
    return np.asarray(np.log1p(np.asarray(seconds) / SCALE))


def _spreads(answer: Floats) -> tuple[Floats, Floats, Floats]:
    """Return the median of answers, and how far P10 is below and P90 above it, on the scale of logarithms."""
    log = log_scale(answer)
    low, middle, high = (log[..., k] for k in (1, MIDDLE, 3))
    return middle, np.maximum(middle - low, FLOOR), np.maximum(high - middle, FLOOR)


def independent(miss: Floats) -> float:
    """Return how many independent misses tell as much as these, which follow each other in time.

    Forecasts of one busy day miss alike: with a correlation r of each and the next, n of them are n (1 - r) / (1 + r)
    (Bayley and Hammersley 1946, for a first-order process).

    >>> independent(np.tile([1.0, -1.0], 50)), round(independent(np.repeat([1.0, -1.0, 1.0, -1.0], 25)), 1)
    (100.0, 5.3)
    """
    near = np.tanh(miss)  # a single one far off would be all of the correlation
    if len(near) < 3 or not near[1:].std() or not near[:-1].std():
        return float(len(miss))
    r = float(np.clip(np.corrcoef(near[1:], near[:-1])[0, 1], 0.0, MOST_ALIKE))
    return len(miss) * (1 - r) / (1 + r)


def _quantiles(miss: Floats, started: Bools, levels: Floats, count: float) -> Floats:
    """Return the misses that one more to come stays below with these probabilities; some are only known to be above.

    They tell as much as `count` independent ones. Where there are too few for a rank, it is beyond all of them: as far
    as an exponential tail tells.

    >>> _quantiles(np.arange(1.0, 40.0), np.ones(39, dtype=bool), np.array([0.1, 0.5, 0.975]), 39).round(6).tolist()
    [4.0, 20.0, 39.0]
    """
    when, risk, deaths = product_limit(miss, started)
    below = 1 - np.cumprod(1 - deaths / risk)
    # One more is to come: it may be the lowest, or the highest.
    high, low = below * count / (count + 1), (np.append(0.0, below[:-1]) * count + 1) / (count + 1)
    up, down = np.interp(levels, high, when), np.interp(levels, low, when)
    quantiles = np.where(levels > MIDDLE_LEVEL, up, np.where(levels < MIDDLE_LEVEL, down, (up + down) / 2))
    far, near = levels > high[-1], levels < low[0]
    if far.any():
        quantiles[far] = _beyond(miss, started, when[np.searchsorted(high, min(OUTER, high[-1]))], 1 - levels[far])
    if near.any():
        lower = -miss[started]
        quantiles[near] = -_beyond(
            lower, np.ones(len(lower), dtype=bool), float(np.quantile(lower, OUTER)), levels[near]
        )
    return np.asarray(np.maximum.accumulate(quantiles))


def _beyond(miss: Floats, started: Bools, begin: float, rest: Floats) -> Floats:
    """Return what so small shares of the misses are above, by an exponential tail; never below the largest known."""
    outer = miss > begin
    mean = float((miss[outer] - begin).sum() / max((outer & started).sum(), 1))
    share = float(outer.sum() + 1) / (len(miss) + 1)
    return np.asarray(np.maximum(begin + mean * np.log(np.maximum(share / rest, 1.0)), miss[started].max()))


# -- earlier forecasts -------------------------------------------------------------------------------------------------

EARLIER_REPLAYS = 19  # of an earlier forecast: its P10, median and P90 are the 2nd, 10th and 18th
LATELY = 8  # times as many jobs of late are chosen from
MAX_AGE = 30 * 86_400  # seconds that answers are kept
CODE = ("fleetlab.studies.eta", "fleetlab.sim", "fleetlab.sim.engine")


def earlier_forecasts(
    scenario: Scenario, history: History, at: float, count: int, progress: Progress = silent
) -> Forecasts:
    """Return forecasts of jobs that had to wait before this instant, made at their submission, and what became of them.

    Forecasts that an earlier question about this log made are reused.
    """
    rows = _latest_jobs(history, at, count, scenario.seed)
    cache = ForecastCache.of(scenario, history)
    missing = [int(row) for row in rows if int(row) not in cache.answers]
    classes = RunTimes(history)
    try:
        for k, row in enumerate(missing):
            cache.answers[row] = forecast_of(scenario, classes, row, EARLIER_REPLAYS)
            progress("earlier forecasts", k + 1, (k + 1) / len(missing))
    finally:  # an interrupted question has made some
        if missing:
            cache.save()
    answer = np.array([cache.answers[int(row)] for row in rows]).reshape(len(rows), len(LEVELS))
    start = np.where(history.start[rows] <= at, history.wait[rows], np.inf)
    return Forecasts(history.submit[rows], answer, start)


def forecast_of(scenario: Scenario, classes: RunTimes, row: int, replays: int) -> Floats:
    """Return the quantiles for a job of the log at its submission; random numbers depend on its row alone."""
    snapshot = classes.history.at(float(classes.history.submit[row]), row)
    setup = ReplaySetup(scenario, snapshot, classes.at(snapshot), replays, scenario.seed + row)
    return replay(setup, np.array([row])).bounded_quantiles(row)


def jobs_that_waited(history: History) -> Ints:
    """Return the jobs that did not start as they came, and that nothing but the queue kept: no dependency, no hold."""
    frame = history.frame
    ineligible = frame["eligible"].fill_null(0.0).to_numpy() > history.submit + 1.0
    able = history.may_wait & ~ineligible & ~frame["initial"].to_numpy() & (frame["job"].to_numpy() >= 0)
    return np.flatnonzero(able & ~(history.start <= history.submit))


def _latest_jobs(history: History, at: float, count: int, seed: int) -> Ints:
    """Return some jobs that came before an instant and had to wait; mostly the same ones for instants close by."""
    rows = jobs_that_waited(history)
    latest = rows[history.submit[rows] < at][-LATELY * count :]
    luck = np.random.default_rng([seed, 4]).random(len(history.submit))[latest]
    return np.sort(latest[np.argsort(luck, kind="stable")[:count]])


class ForecastCache:
    """Answers that were given before, of one log, scenario and version of the code: a file of the user's own."""

    def __init__(self, path: Path | None, answers: dict[int, Floats]) -> None:
        self.path, self.answers = path, answers

    @classmethod
    def of(cls, scenario: Scenario, history: History) -> ForecastCache:
        """Return those of a scenario; none, where nothing is kept or it cannot be read."""
        try:
            home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fleetlab"
            path = make_private(home / "eta") / f"{_key(scenario, history)}.json"
        except (OSError, RuntimeError):  # no home folder, or one that others can write to
            return cls(None, {})
        try:
            answers = {int(row): np.array(answer) for row, answer in json.loads(path.read_text("utf-8")).items()}
        except (OSError, ValueError, AttributeError):  # none yet, or a broken file, which the next one replaces
            answers = {}
        return cls(path, {row: answer for row, answer in answers.items() if answer.shape == (len(LEVELS),)})

    def save(self) -> None:
        """Keep the answers for the next question, where that is possible."""
        if self.path is None:
            return
        try:
            text = json.dumps({row: answer.tolist() for row, answer in sorted(self.answers.items())})
            atomic_write(self.path, text)
            for old in self.path.parent.glob("*.json"):  # of logs and versions that are no longer used
                if old.stat().st_mtime < time.time() - MAX_AGE:
                    old.unlink(missing_ok=True)
        except OSError:  # a full disk: the next question makes them again
            self.path = None


def _key(scenario: Scenario, history: History) -> str:
    """Return what tells these forecasts from all others: the scenario, what happened, and the code."""
    digest = sha256(scenario.key.encode())
    for values in (history.submit, history.start, history.end):
        digest.update(np.ascontiguousarray(values).tobytes())
    digest.update(_code(scenario))
    return digest.hexdigest()[:32]


def _code(scenario: Scenario) -> bytes:
    own = [] if scenario.scheduler is None else [sys.modules[type(scenario.scheduler).__module__].__package__]
    every: Iterable[bytes] = (
        path.read_bytes()
        for package in (*CODE, *filter(None, own))
        for path in sorted(files(package).iterdir(), key=lambda p: p.name)
        if path.name.endswith(".py")
    )
    return sha256(b"".join(every)).digest()
