"""Is it any good? Starts of jobs of the log are predicted at their submission, and compared with what happened."""

from __future__ import annotations

from typing import Unpack

import numpy as np
import polars as pl

from fleetlab.core import Cluster, Estimate, Provenance, Scenario, Words, WorkloadError
from fleetlab.core.censoring import Bools, Floats
from fleetlab.core.durations import duration, plural
from fleetlab.core.progress import Progress, silent
from fleetlab.core.resample import Ints
from fleetlab.core.result import FieldsResult
from fleetlab.core.scenario import ScenarioLike
from fleetlab.stats import BlockBootstrap
from fleetlab.studies.eta.calibration import (
    INTERVALS,
    MIDDLE,
    Forecasts,
    correction,
    covered,
    forecast_of,
    jobs_that_waited,
)
from fleetlab.studies.eta.question import history_of
from fleetlab.studies.eta.replay import LEVELS, replay
from fleetlab.studies.eta.run_times import RequestedRunTimes, RunTimes
from fleetlab.studies.eta.snapshot import LOG, History, ReplaySetup, Snapshot, no_arrivals

REPLAYS = 39
BURN_IN = 0.2  # of the submissions: what comes later counts
WARM_UP = 40  # forecasts that are only learnt from
AT_ONCE = 4  # one forecast of a job that starts at once for so many of jobs that wait
RECENT, ENOUGH = 200, 20  # waits of a class that a baseline looks at: the latest, and at least
PINBALL = (0.1, 0.5, 0.9)
REPLAY, CALIBRATED, CLASS, LIMITS = "replays", "replays, calibrated", "waits of its class", "time limits"
WHERE = {
    "forecasts": pl.String, "count": pl.Int64, "beside": pl.String, "loss, s": pl.Float64, "its loss, s": pl.Float64,
    "difference, s": pl.Float64, "low, s": pl.Float64, "high, s": pl.Float64, "verdict": pl.String,
}  # fmt: skip


class Judgement(FieldsResult):
    """How often intervals held, and how good quantiles were beside simple ones."""


def judge(
    source: ScenarioLike, cluster: Cluster | None = None, *, forecasts: int = 200, replays: int = REPLAYS,
    starts: str = "auto", progress: Progress = silent, **words: Unpack[Words],
) -> Judgement:  # fmt: skip
    """Predict starts of jobs of the log as they came, knowing nothing of later, and compare with when they started.

    Parameters
    ----------
    source, cluster, words
        What builds the scenario, as `Scenario.of` takes it.
    forecasts
        How many starts of jobs that had to wait are predicted; and a quarter as many of jobs that start at once.
    replays, starts
        As `eta` takes them.
    progress
        Called as forecasts are made.
    """
    if forecasts < 1 or replays < 1:
        msg = f"forecasts and replays are 1 or more: {forecasts} and {replays}"
        raise WorkloadError(msg, hint="forecasts=200, replays=39")
    scenario = Scenario.of(source, cluster, **words)
    history = history_of(scenario, starts, progress)
    rows = judged_rows(history, forecasts, scenario.seed)
    answers = compared_answers(scenario, history, rows, replays, progress)
    settings = scenario.words() | {"judge": forecasts, "replays": replays, "starts": history.origin}
    provenance = scenario.provenance("eta", settings)
    return _judgement(scenario, history, rows, answers, provenance)


def judged_rows(history: History, forecasts: int, seed: int) -> Ints:
    """Return the jobs whose starts are predicted, in order of submission."""
    rng = np.random.default_rng([seed, 3])
    late = history.submit >= np.quantile(history.submit, BURN_IN)
    eligible = late & ~np.isnan(history.start) & (history.frame["job"].to_numpy() >= 0)
    waited = np.intersect1d(jobs_that_waited(history), np.flatnonzero(eligible))
    at_once = np.flatnonzero(eligible & ~history.frame["initial"].to_numpy() & (history.wait == 0))
    if len(waited) < WARM_UP + ENOUGH:
        msg = f"too few jobs wait in this log to judge by: {len(waited)}"
        raise WorkloadError(msg, hint="load=1.2 simulates a higher load; or another trace")
    some = rng.choice(waited, min(forecasts + WARM_UP, len(waited)), replace=False)
    others = rng.choice(at_once, min(forecasts // AT_ONCE, len(at_once)), replace=False)
    return np.sort(np.append(some, others))


def compared_answers(
    scenario: Scenario, history: History, rows: Ints, replays: int, progress: Progress = silent
) -> dict[str, Floats]:
    """Return the quantiles of each way to answer, for each job at its submission: [forecasts, levels]."""
    classes, usual, waited = RunTimes(history), ClassWaits(history), history.wait[rows] > 0
    answers = {name: np.zeros((len(rows), len(LEVELS))) for name in (REPLAY, CALIBRATED, CLASS, LIMITS)}
    for k, row in enumerate(rows):
        at = float(history.submit[row])
        snapshot = history.at(at, int(row))
        limits = RequestedRunTimes(classes.at(snapshot))
        planned = replay(ReplaySetup(scenario, snapshot, limits, 1, scenario.seed + row, no_arrivals), np.array([row]))
        answers[REPLAY][k] = forecast_of(scenario, classes, int(row), replays)
        answers[LIMITS][k] = planned.bounded_quantiles(int(row))
        answers[CLASS][k] = usual.quantiles(snapshot, int(row), waits=bool(waited[k]))
        # That it had to wait is known a moment after its submission: forecasts of such jobs are learnt from.
        same = np.flatnonzero(waited[:k])
        earlier = Forecasts(history.submit[rows[same]], answers[REPLAY][same], history.wait[rows[same]])
        answers[CALIBRATED][k] = correction(earlier, at).apply(answers[REPLAY][k])
        progress("forecasts", k + 1, (k + 1) / len(rows))
    return answers


class ClassWaits:
    """The simplest answer: how long jobs of the same partition, GPUs and GPU type waited of late."""

    def __init__(self, history: History) -> None:
        keys = history.frame.select(
            pl.col("partitions").list.join("|"), pl.col("gpu_types").list.join("|"), "gpu_milli", "instances"
        )
        self._history = history
        self._code = keys.select(pl.struct(keys.columns).rank("dense"))[:, 0].to_numpy()

    def quantiles(self, snapshot: Snapshot, row: int, *, waits: bool) -> Floats:
        """Return the quantiles of the waits that are over; of those above 0, where it is known that the job waits."""
        history = self._history
        over = (history.start <= snapshot.at) & (history.submit < snapshot.at)
        over &= history.wait > 0 if waits else True
        own = np.flatnonzero(over & (self._code == self._code[row]))
        own = own if len(own) >= ENOUGH else np.flatnonzero(over)
        latest = own[np.argsort(history.start[own], kind="stable")][-RECENT:]
        return np.quantile(history.wait[latest], LEVELS) if len(latest) else np.zeros(len(LEVELS))


# -- the verdict -------------------------------------------------------------------------------------------------------


def _judgement(
    scenario: Scenario, history: History, rows: Ints, answers: dict[str, Floats], provenance: Provenance
) -> Judgement:
    learnt = int(np.flatnonzero(history.wait[rows] > 0)[:WARM_UP][-1]) + 1  # the first forecasts have no earlier ones
    rows, answers = rows[learnt:], {name: answer[learnt:] for name, answer in answers.items()}
    truth = history.wait[rows]
    waits = truth > 0
    coverage, losses = _coverage(answers, truth, waits), _losses(answers, truth, waits)
    where = _where(answers, truth, waits, history.frame[rows])
    frames = {"coverage": coverage, "pinball loss": losses, "where": where}
    estimates = [Estimate.exact("forecasts", int(waits.sum()))]
    for name in (REPLAY, CALIBRATED):
        for level, (low, high) in INTERVALS.items():
            share = covered(answers[name][waits], truth[waits], low, high)
            estimates.append(
                Estimate(f"coverage of {level}, {name}", 100 * share.value, 100 * share.low, 100 * share.high, "%")
            )
    notes = (
        f"predicted at submission, for jobs after the first {BURN_IN:.0%} of the submissions; what runs, waits and has "
        f"ended then is known, and nothing of later; the first {WARM_UP} forecasts are learnt from and not counted",
        "calibrated: quantiles are moved by what became of earlier forecasts, as far as it was known",
        "intervals of coverage and differences are by a block bootstrap: forecasts close in time share jobs",
        "waits of its class: quantiles of late waits of jobs of the same partition, GPUs and GPU type; time limits: "
        "one replay in which jobs run to their limits (or the median of jobs like it) and nothing comes",
    )
    return Judgement(provenance, _sentences(scenario, history, truth, frames), tuple(estimates), frames, {}, notes)


def _coverage(answers: dict[str, Floats], truth: Floats, waits: Bools) -> pl.DataFrame:
    rows = []
    for who, mask in (("jobs that wait", waits), ("jobs that start at once", ~waits)):
        if not mask.any():
            continue
        for name in (REPLAY, CALIBRATED, CLASS):
            row: dict[str, object] = {"of": who, "by": name, "forecasts": int(mask.sum())}
            for level, (low, high) in INTERVALS.items():
                share = covered(answers[name][mask], truth[mask], low, high)
                row |= {f"{level} covers, %": 100 * share.value, f"{level} low": 100 * share.low}
                row[f"{level} high"] = 100 * share.high
                row[f"{level} width, s"] = float(np.median((answers[name][:, high] - answers[name][:, low])[mask]))
            rows.append(row)
    return pl.DataFrame(rows)


def pinball(answer: Floats, truth: Floats, level: float) -> Floats:
    """Return the pinball loss of a quantile, which is lowest for the true one (Koenker and Bassett 1978)."""
    miss = truth - answer
    return np.asarray(np.maximum(level * miss, (level - 1) * miss))


def _loss(answer: Floats, truth: Floats) -> Floats:
    """Return the mean pinball loss at P10, P50 and P90 of each forecast."""
    each = [pinball(answer[:, LEVELS.index(level)], truth, level) for level in PINBALL]
    return np.asarray(np.mean(each, axis=0))


def _losses(answers: dict[str, Floats], truth: Floats, waits: Bools) -> pl.DataFrame:
    rows = []
    for name, answer in answers.items():
        row: dict[str, object] = {"by": name}
        for level in PINBALL:
            loss = pinball(answer[waits][:, LEVELS.index(level)], truth[waits], level)
            row[f"P{100 * level:g}, s"] = float(loss.mean())
        row["mean, s"] = float(_loss(answer[waits], truth[waits]).mean())
        row["median error, s"] = float(np.median(np.abs(answer[waits][:, MIDDLE] - truth[waits])))
        rows.append(row)
    return pl.DataFrame(rows)


def _where(answers: dict[str, Floats], truth: Floats, waits: Bools, jobs: pl.DataFrame) -> pl.DataFrame:
    """Return where it is better than the simple answers, and where not: by the forecast and by the GPUs."""
    median, gpus = answers[REPLAY][:, 2], (jobs["gpu_milli"] * jobs["instances"]).to_numpy() / 1000
    parts: dict[str, Bools] = {
        "all": waits,
        "forecast below 10 min": waits & (median < 600),
        "forecast 10 min to 1 h": waits & (median >= 600) & (median < 3600),
        "forecast 1 h or more": waits & (median >= 3600),
        "1 GPU or less": waits & (gpus <= 1),
        "2 to 8 GPUs": waits & (gpus > 1) & (gpus <= 8),
        "more than 8 GPUs": waits & (gpus > 8),
    }
    rows = []
    for name, mask in parts.items():
        for other in (CLASS, LIMITS):
            if mask.sum() < ENOUGH:
                continue
            mine, theirs = (_loss(answers[who][mask], truth[mask]) for who in (CALIBRATED, other))
            gain = mine - theirs
            gained = BlockBootstrap.of_series(len(gain)).mean(gain).interval()
            mean, low, high = gained.value, gained.low, gained.high
            verdict = "better" if high < 0 else "worse" if low > 0 else "no better"
            rows.append({
                "forecasts": name, "count": int(mask.sum()), "beside": other, "loss, s": float(mine.mean()),
                "its loss, s": float(theirs.mean()), "difference, s": mean, "low, s": low,
                "high, s": high, "verdict": verdict,
            })  # fmt: skip
    return pl.DataFrame(rows, schema=WHERE)


def _sentences(scenario: Scenario, history: History, truth: Floats, frames: dict[str, pl.DataFrame]) -> tuple[str, ...]:
    whose = "the log" if history.origin == LOG else "a simulation of the scenario"
    synthetic = "Synthetic jobs. " if scenario.trace.workload.synthetic else ""
    waits = truth[truth > 0]
    sentences = [
        f"{synthetic}{plural(len(waits), 'forecast')} of jobs that wait (median {duration(float(np.median(waits)))}), "
        f"starts as of {whose}."
    ]
    for name in (REPLAY, CALIBRATED):
        row = frames["coverage"].filter((pl.col("by") == name) & (pl.col("of") == "jobs that wait"))
        shares = [f"{level} intervals held for {row[f'{level} covers, %'][0]:.1f} %" for level in INTERVALS]
        sentences.append(f"{name.capitalize()}: {', '.join(shares)}.")
    if not frames["where"].height:
        sentences.append(f"Too few forecasts to compare with simple answers: {len(waits)}, and it takes {ENOUGH}.")
    poor = frames["where"].filter(pl.col("verdict") != "better")
    for part, beside, verdict in poor.select("forecasts", "beside", "verdict").iter_rows():
        sentences.append(f"{part.capitalize()}: {verdict} than {beside}.")
    return tuple(sentences)
