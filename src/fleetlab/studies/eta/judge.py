"""Is it any good? Jobs of the log are asked about as they came, and the answers compared with what happened."""

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
from fleetlab.stats import SHARE, BlockBootstrap, Interval
from fleetlab.studies.eta.asks import answer_of, waiters
from fleetlab.studies.eta.calibration import Asks, correction
from fleetlab.studies.eta.history import LOG, History, Snapshot
from fleetlab.studies.eta.jobs import Present, nothing_comes
from fleetlab.studies.eta.question import history_of
from fleetlab.studies.eta.replay import LEVELS, play
from fleetlab.studies.eta.run_times import AsRequested, RunTimes

REPLAYS = 39
BURN_IN = 0.2  # of the submissions: what comes later is asked about
WARM_UP = 40  # asks that are only learnt from
AT_ONCE = 4  # one ask about a job that starts at once for so many about jobs that wait
RECENT, ENOUGH = 200, 20  # waits of a class that a baseline looks at: the latest, and at least
PINBALL = (0.1, 0.5, 0.9)
REPLAY, CALIBRATED, CLASS, LIMITS = "replays", "replays, calibrated", "waits of its class", "time limits"
WHERE = {
    "asks": pl.String, "count": pl.Int64, "beside": pl.String, "loss, s": pl.Float64, "its loss, s": pl.Float64,
    "difference, s": pl.Float64, "low, s": pl.Float64, "high, s": pl.Float64, "verdict": pl.String,
}  # fmt: skip
INTERVALS = {"80 %": (1, 3), "95 %": (0, 4)}


class Judgement(FieldsResult):
    """How often intervals held, and how good quantiles were beside simple ones."""


def judge(
    source: ScenarioLike, cluster: Cluster | None = None, *, asks: int = 200, replays: int = REPLAYS,
    starts: str = "auto", progress: Progress = silent, **words: Unpack[Words],
) -> Judgement:  # fmt: skip
    """Ask about jobs of the log as they came, knowing nothing of later, and compare with when they started.

    Parameters
    ----------
    source, cluster, words
        What builds the scenario, as `Scenario.of` takes it.
    asks
        How many jobs that had to wait are asked about; a quarter as many that start at once are asked about too.
    replays, starts
        As `eta` takes them.
    progress
        Called as asks are answered.

    """
    if asks < 1 or replays < 1:
        msg = f"asks and replays are 1 or more: {asks} and {replays}"
        raise WorkloadError(msg, hint="asks=200, replays=39")
    scenario = Scenario.of(source, cluster, **words)
    history = history_of(scenario, starts, progress)
    rows = drawn_rows(history, asks, scenario.seed)
    answers = answered(scenario, history, rows, replays, progress)
    settings = scenario.words() | {"judge": asks, "replays": replays, "starts": history.origin}
    provenance = Provenance("eta", scenario.workload.source, settings, scenario.seed)
    return _judgement(scenario, history, rows, answers, provenance)


def drawn_rows(history: History, asks: int, seed: int) -> Ints:
    """Return the jobs that are asked about, in order of submission."""
    rng = np.random.default_rng([seed, 3])
    came = history.submit >= np.quantile(history.submit, BURN_IN)
    known = came & ~np.isnan(history.start) & (history.frame["job"].to_numpy() >= 0)
    waited = np.intersect1d(waiters(history), np.flatnonzero(known))
    at_once = np.flatnonzero(known & ~history.frame["initial"].to_numpy() & (history.wait == 0))
    if len(waited) < WARM_UP + ENOUGH:
        msg = f"too few jobs wait in this log to judge by: {len(waited)}"
        raise WorkloadError(msg, hint="load=1.2 simulates a higher load; or another trace")
    some = rng.choice(waited, min(asks + WARM_UP, len(waited)), replace=False)
    others = rng.choice(at_once, min(asks // AT_ONCE, len(at_once)), replace=False)
    return np.sort(np.append(some, others))


def answered(
    scenario: Scenario, history: History, rows: Ints, replays: int, progress: Progress = silent
) -> dict[str, Floats]:
    """Return the quantiles of each way to answer, for each job at its submission: [asks, levels]."""
    classes, usual, waited = RunTimes(history), ClassWaits(history), history.wait[rows] > 0
    found = {name: np.zeros((len(rows), len(LEVELS))) for name in (REPLAY, CALIBRATED, CLASS, LIMITS)}
    for k, row in enumerate(rows):
        at = float(history.submit[row])
        snapshot = history.at(at, int(row))
        limits = AsRequested(classes.known(snapshot))
        planned = play(Present(scenario, snapshot, limits, 1, scenario.seed + row, nothing_comes), np.array([row]))
        found[REPLAY][k] = answer_of(scenario, classes, int(row), replays)
        found[LIMITS][k] = planned.bounded_quantiles(int(row))
        found[CLASS][k] = usual.quantiles(snapshot, int(row), waits=bool(waited[k]))
        # That it had to wait is known a moment after its submission: asks about such jobs are learnt from.
        same = np.flatnonzero(waited[:k])
        asks = Asks(history.submit[rows[same]], found[REPLAY][same], history.wait[rows[same]])
        found[CALIBRATED][k] = correction(asks, at).apply(found[REPLAY][k])
        progress("asks", k + 1, (k + 1) / len(rows))
    return found


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
    learnt = int(np.flatnonzero(history.wait[rows] > 0)[:WARM_UP][-1]) + 1  # the first asks have no earlier ones
    rows, answers = rows[learnt:], {name: answer[learnt:] for name, answer in answers.items()}
    truth = history.wait[rows]
    waits = truth > 0
    coverage, losses = _coverage(answers, truth, waits), _losses(answers, truth, waits)
    where = _where(answers, truth, waits, history.frame[rows])
    frames = {"coverage": coverage, "pinball loss": losses, "where": where}
    estimates = [Estimate.exact("asks", int(waits.sum()))]
    for name in (REPLAY, CALIBRATED):
        for level, (low, high) in INTERVALS.items():
            share = covered(answers[name][waits], truth[waits], low, high)
            estimates.append(
                Estimate(f"coverage of {level}, {name}", 100 * share.value, 100 * share.low, 100 * share.high, "%")
            )
    notes = (
        f"asked at submission, about jobs after the first {BURN_IN:.0%} of the submissions; what runs, waits and has "
        f"ended then is known, and nothing of later; the first {WARM_UP} asks are learnt from and not counted",
        "calibrated: quantiles are moved by what earlier asks of the log needed, as far as their outcome was known",
        "intervals of coverage and of differences are by a block bootstrap over time: asks close in time share jobs",
        "waits of its class: quantiles of late waits of jobs of the same partition, GPUs and GPU type; time limits: "
        "one replay in which jobs run to their limits (or the median of jobs like it) and nothing comes",
    )
    return Judgement(provenance, _sentences(scenario, history, truth, frames), tuple(estimates), frames, {}, notes)


def covered(answer: Floats, truth: Floats, low: int, high: int) -> Interval:
    """Return how often intervals held; asks close in time share their jobs, so whole blocks of them are resampled."""
    inside = (answer[:, low] - 1e-6 <= truth) & (truth <= answer[:, high] + 1e-6)
    return BlockBootstrap.of_series(len(truth)).mean(inside.astype(np.float64), SHARE).interval()


def _coverage(answers: dict[str, Floats], truth: Floats, waits: Bools) -> pl.DataFrame:
    found = []
    for who, mask in (("jobs that wait", waits), ("jobs that start at once", ~waits)):
        if not mask.any():
            continue
        for name in (REPLAY, CALIBRATED, CLASS):
            row: dict[str, object] = {"asked about": who, "by": name, "asks": int(mask.sum())}
            for level, (low, high) in INTERVALS.items():
                share = covered(answers[name][mask], truth[mask], low, high)
                row |= {f"{level} covers, %": 100 * share.value, f"{level} low": 100 * share.low}
                row[f"{level} high"] = 100 * share.high
                row[f"{level} width, s"] = float(np.median((answers[name][:, high] - answers[name][:, low])[mask]))
            found.append(row)
    return pl.DataFrame(found)


def pinball(answer: Floats, truth: Floats, level: float) -> Floats:
    """Return the pinball loss of a quantile, which is lowest for the true one (Koenker and Bassett 1978)."""
    miss = truth - answer
    return np.asarray(np.maximum(level * miss, (level - 1) * miss))


def _loss(answer: Floats, truth: Floats) -> Floats:
    """Return the mean pinball loss at P10, P50 and P90 of each ask."""
    each = [pinball(answer[:, LEVELS.index(level)], truth, level) for level in PINBALL]
    return np.asarray(np.mean(each, axis=0))


def _losses(answers: dict[str, Floats], truth: Floats, waits: Bools) -> pl.DataFrame:
    found = []
    for name, answer in answers.items():
        row: dict[str, object] = {"by": name}
        for level in PINBALL:
            loss = pinball(answer[waits][:, LEVELS.index(level)], truth[waits], level)
            row[f"P{100 * level:g}, s"] = float(loss.mean())
        row["mean, s"] = float(_loss(answer[waits], truth[waits]).mean())
        found.append(row)
    return pl.DataFrame(found)


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
    found = []
    for name, mask in parts.items():
        for other in (CLASS, LIMITS):
            if mask.sum() < ENOUGH:
                continue
            mine, theirs = (_loss(answers[who][mask], truth[mask]) for who in (CALIBRATED, other))
            gain = mine - theirs
            gained = BlockBootstrap.of_series(len(gain)).mean(gain).interval()
            mean, low, high = gained.value, gained.low, gained.high
            verdict = "better" if high < 0 else "worse" if low > 0 else "no better"
            found.append({
                "asks": name, "count": int(mask.sum()), "beside": other, "loss, s": float(mine.mean()),
                "its loss, s": float(theirs.mean()), "difference, s": mean, "low, s": low,
                "high, s": high, "verdict": verdict,
            })  # fmt: skip
    return pl.DataFrame(found, schema=WHERE)


def _sentences(scenario: Scenario, history: History, truth: Floats, frames: dict[str, pl.DataFrame]) -> tuple[str, ...]:
    whose = "the log" if history.origin == LOG else "a simulation of the scenario"
    synthetic = "Synthetic jobs. " if scenario.trace.workload.synthetic else ""
    waits = truth[truth > 0]
    said = [
        f"{synthetic}{plural(len(waits), 'ask')} about jobs that wait (median {duration(float(np.median(waits)))}), "
        f"starts as of {whose}."
    ]
    for name in (REPLAY, CALIBRATED):
        row = frames["coverage"].filter((pl.col("by") == name) & (pl.col("asked about") == "jobs that wait"))
        shares = [f"{level} intervals held for {row[f'{level} covers, %'][0]:.1f} %" for level in INTERVALS]
        said.append(f"{name.capitalize()}: {', '.join(shares)}.")
    if not frames["where"].height:
        said.append(f"Too few asks to compare with simple answers: {len(waits)}, and it takes {ENOUGH}.")
    poor = frames["where"].filter(pl.col("verdict") != "better")
    for asks, beside, verdict in poor.select("asks", "beside", "verdict").iter_rows():
        said.append(f"{asks.capitalize()}: {verdict} than {beside}.")
    return tuple(said)
