"""When will it start? The present queue, replayed many times with run times and arrivals drawn from what is known."""

from __future__ import annotations

from typing import Unpack

import numpy as np
import polars as pl

from fleetlab.core import Cluster, Estimate, Figure, Provenance, Scenario, Words, WorkloadError
from fleetlab.core.catalog import REASONS
from fleetlab.core.censoring import Floats
from fleetlab.core.durations import brief, duration, plural
from fleetlab.core.progress import Progress, silent
from fleetlab.core.result import FieldsResult
from fleetlab.core.scenario import ScenarioLike
from fleetlab.sim.ledger.ledger import ledger
from fleetlab.stats import wilson
from fleetlab.studies.eta.calibration import Correction, TrackRecord, correction, earlier_forecasts, track_record
from fleetlab.studies.eta.question import Question, history_of, question_of
from fleetlab.studies.eta.replay import LEVELS, Replays, quantiles, replay
from fleetlab.studies.eta.run_times import RunTimes
from fleetlab.studies.eta.snapshot import LOG, ReplaySetup, estimate_note
from fleetlab.studies.sentences import percent

WITHIN = {"10 min": 600.0, "1 h": 3600.0, "4 h": 14_400.0, "24 h": 86_400.0}
REPLAYS, CALIBRATING = 200, 60  # replays of an answer, and earlier forecasts
LISTED = 1000  # waiting jobs that are all answered, where none is named


class Eta(FieldsResult):
    """When jobs start that wait at an instant: quantiles, chances, and what they wait for."""

    @property
    def median(self) -> float:
        """The median of the seconds until the job starts; of the first job, where several are answered."""
        return self.estimates[0].value


def eta(
    source: ScenarioLike,
    cluster: Cluster | None = None,
    *,
    job: str | int | None = None,
    request: str | None = None,
    at: str | float | None = None,
    replays: int = REPLAYS,
    calibrate: int = CALIBRATING,
    starts: str = "auto",
    progress: Progress = silent,
    **words: Unpack[Words],
) -> Eta:
    """When will a job start? The present queue is played many times with what is known at that instant.

    Parameters
    ----------
    source
        What builds the scenario, as `Scenario.of` takes it.
    cluster
        The nodes, in place of those of the trace.
    **words
        Words of the scenario, such as `order="sjf"` or `load=1.2`.
    job
        The log's own id of a job, or its number in the trace; without one, all jobs that wait are answered.
    request
        Instead of a job of the log, one that is submitted now: "8 A100, 4 h", "2x8 H100", "0.5 T4, user=ada".
    at
        The instant: from the first submission on (seconds, or such as 12h or 7d), or a date and
        time (default: the last submission; if nothing waits then, the last moment at which something does; of a job
        that has started by then, its submission).
    replays
        How often the queue is played, at most: fewer where it is long.
    calibrate
        Predict the starts of so many earlier jobs of the log that had to wait, and move quantiles as they turned out.
        These forecasts stay in the user's cache for the next question about this log; 0: quantiles as the replays
        have them (default: 60).
    starts
        Whose starts are taken as what happened before: those of the `log`, or `simulated` ones (default: auto, those
        of the log where it has them and the scenario leaves its load and nodes as they are).
    progress
        Called as replays are done.

    Returns
    -------
    Eta
        The median start, its intervals, chances by the hour, and what the job waits for.

    Raises
    ------
    WorkloadError
        If there is no such job, or the request cannot run on the cluster.

    Examples
    --------
    >>> import fleetlab
    >>> result = fleetlab.eta("builtin:200", load=20, request="1 T4, 1 h", at="60s", replays=20, calibrate=0)
    >>> result.provenance.verb
    'eta'
    """
    if replays < 1 or calibrate < 0:
        msg = f"replays are 1 or more, and earlier forecasts 0 or more: {replays} and {calibrate}"
        raise WorkloadError(msg, hint="replays=200, calibrate=60")
    scenario = Scenario.of(source, cluster, **words)
    history = history_of(scenario, starts, progress)
    question = question_of(scenario, history, job, request, at)
    progress("replays", 0, 0.0)
    outcome = replay_question(scenario, question, replays, scenario.seed, progress=progress)
    _refuse(question, outcome)
    corrected, record = _earlier(scenario, question, 0 if _at_once(question, outcome) else calibrate, progress)
    settings = scenario.words() | {"job": job, "request": request, "at": question.at, "starts": history.origin}
    settings["calibrate"] = calibrate
    provenance = scenario.provenance("eta", settings)
    return _result(scenario, question, outcome, provenance, corrected, record)


def replay_question(
    scenario: Scenario, question: Question, replays: int, seed: int, run_times: RunTimes | None = None,
    progress: Progress = silent,
) -> Replays:  # fmt: skip
    """Replay the queue of an instant until the jobs in question have started."""
    snapshot = question.snapshot
    predictor = (run_times or RunTimes(question.history)).at(snapshot)
    rows = question.rows if len(question.rows) else snapshot.waiting[:LISTED]
    return replay(ReplaySetup(scenario, snapshot, predictor, replays, seed, progress=progress), rows)


def _earlier(
    scenario: Scenario, question: Question, count: int, progress: Progress
) -> tuple[Correction, TrackRecord | None]:
    """Return how quantiles are moved by what became of earlier forecasts, and how these turned out."""
    if not count:
        return Correction(None, 0), None
    history = question.original or question.history
    forecasts = earlier_forecasts(scenario, history, question.at, count, progress)
    return correction(forecasts, question.at), track_record(forecasts, question.at)


def _refuse(question: Question, replays: Replays) -> None:
    if refused := [replays.refused[row] for row in question.rows if row in replays.refused]:
        msg = f"{question.title} can never start on this cluster: {refused[0]}"
        raise WorkloadError(msg, hint="a smaller request, another GPU type, or --nodes to add nodes")


def _at_once(question: Question, replays: Replays) -> bool:
    """Whether the job starts at once in all replays: forecasts of jobs that had to wait say nothing of it."""
    return len(question.rows) > 0 and not replays.of(int(question.rows[0])).any()


def _result(
    scenario: Scenario, question: Question, replays: Replays, provenance: Provenance, corrected: Correction,
    record: TrackRecord | None,
) -> Eta:  # fmt: skip
    rows = question.rows if len(question.rows) else replays.rows
    frames: dict[str, pl.DataFrame] = {}
    if len(question.rows):
        answer = corrected.apply(replays.quantiles(int(rows[0])))
        seconds = corrected.spread(replays.of(int(rows[0])), answer)
        frames |= {"start": _start(answer, question), "chances": _chances(seconds)}
        reasons = _reasons(replays, int(rows[0]))
        if reasons.height:
            frames["waits for"] = reasons
        estimates = _estimates(answer, seconds)
        sentences = _sentences(question, answer, len(seconds), reasons)
    else:
        frames["queue"] = _queue(question, replays, corrected)
        estimates = [Estimate.exact("jobs that wait", len(replays.rows))]
        verb = "waits" if len(replays.rows) == 1 else "wait"
        sentences = [f"{plural(len(replays.rows), 'job')} {verb} at {question.clock(question.at)}."]
        if frames["queue"].height > 1:
            half = float(np.quantile(frames["queue"]["median, s"].to_numpy(), 0.5, method="lower"))
            sentences.append(f"Half of them will probably start within {_text(half)}.")
    if scenario.trace.workload.synthetic:
        sentences = ["The jobs are synthetic.", *sentences]
    if record is not None:
        estimates += _record_estimates(record)
        sentences.append(_record_sentence(record))
    frames["state"] = _state(scenario, question)
    checked = f"calibrated on {plural(corrected.forecasts, 'earlier forecast')} of this log"
    unchecked = "not calibrated: how often these intervals hold was not checked on this log"
    why = " (too few jobs that had to wait have started by then, or it starts at once)"
    why = why if provenance.settings["calibrate"] else ""
    notes = (checked if corrected.forecasts else unchecked + why, *_notes(scenario, question, replays))
    return Eta(provenance, tuple(sentences), tuple(estimates), frames, _figure(frames), notes)


def _record_estimates(record: TrackRecord) -> list[Estimate]:
    shares = [
        Estimate(f"{name} intervals held", 100 * share.value, 100 * share.low, 100 * share.high, "%")
        for name, share in record.coverage.items()
    ]
    return [*shares, Estimate.exact("median error of earlier answers", record.error, "s")]


def _record_sentence(record: TrackRecord) -> str:
    name, share = next(iter(record.coverage.items()))
    return (
        f"Of the last {record.forecasts} answers on this log, half were right within {brief(record.error)}. "
        f"The {name} intervals held for {percent(share.value)}."
    )


def _start(answer: Floats, question: Question) -> pl.DataFrame:
    names = [f"P{100 * level:g}" for level in LEVELS]
    when = [question.clock(question.at + s) if np.isfinite(s) else "later" for s in answer]
    return pl.DataFrame({"quantile": names, "start in, s": answer, "start": when})


def _chances(seconds: Floats) -> pl.DataFrame:
    shares = [wilson(float((seconds <= limit).sum()), len(seconds)) for limit in WITHIN.values()]
    columns = {"within": list(WITHIN), "chance, %": [100 * share.value for share in shares]}
    columns |= {"low, %": [100 * share.low for share in shares], "high, %": [100 * share.high for share in shares]}
    return pl.DataFrame(columns)


def _reasons(replays: Replays, row: int) -> pl.DataFrame:
    """Return what the job waits for in the replay in which it starts closest to the median."""
    seconds = replays.of(row)
    replay = int(np.argsort(seconds, kind="stable")[(len(seconds) - 1) // 2])
    stage = replays.stages[replay]
    schedule, played, place = stage.schedule(replay)
    waits = ledger(schedule, played)[place[stage.jobs.running + int(np.searchsorted(replays.rows, row))]]
    names = REASONS.names
    order = [int(k) for k in np.argsort(-waits, kind="stable") if waits[k] > 0]
    return pl.DataFrame(
        {
            "reason": [names[k] for k in order],
            "wait, s": [float(waits[k]) for k in order],
            "share, %": [100 * float(waits[k] / waits.sum()) for k in order],
            "meaning": [REASONS[names[k]].meaning for k in order],
        }
    )


def _estimates(answer: Floats, seconds: Floats) -> list[Estimate]:
    low, p10, median, p90, high = (float(x) for x in answer)
    chance = wilson(float((seconds <= WITHIN["1 h"]).sum()), len(seconds))
    return [
        Estimate("time to start", median, low, high, "s"),
        Estimate.exact("P10", p10, "s"),
        Estimate.exact("P90", p90, "s"),
        Estimate("chance to start within 1 h", 100 * chance.value, 100 * chance.low, 100 * chance.high, "%"),
    ]


def _sentences(question: Question, answer: Floats, replays: int, reasons: pl.DataFrame) -> list[str]:
    _, p10, median, p90, high = (float(x) for x in answer)
    what = f"{question.title} at {question.clock(question.at)}"
    if high == 0:
        return [f"{what}: it starts at once in all {replays} replays."]
    sentences = [
        f"{what}: it probably starts in about {_text(median)}.",
        f"Four times in five it starts in {_text(p10)} to {_text(p90)}.",
    ]
    if reasons.height:
        main = reasons.row(0, named=True)
        sentences.append(f"{main['share, %']:.0f} % of its wait is for `{main['reason']}`: {main['meaning']}.")
    return sentences


def _text(seconds: float) -> str:
    return brief(seconds) if np.isfinite(seconds) else "more time than was simulated"


def _queue(question: Question, replays: Replays, corrected: Correction) -> pl.DataFrame:
    """Return the jobs that wait, in the order of their medians."""
    rows = replays.rows[:LISTED]
    every = np.array([corrected.apply(quantiles(seconds)) for seconds in replays.seconds[: len(rows)]])
    every = every.reshape(len(rows), len(LEVELS))
    jobs = question.history.frame[rows]
    spread = [corrected.spread(replays.seconds[k], every[k]) for k in range(len(rows))]
    within = [100 * float((seconds <= WITHIN["1 h"]).mean()) for seconds in spread]
    frame = pl.DataFrame(
        {
            "job": question.names(rows),
            "GPUs": (jobs["gpu_milli"] * jobs["instances"]).to_numpy() / 1000,
            "waits, s": question.at - question.history.submit[rows],
            "median, s": every[:, 2], "P10, s": every[:, 1], "P90, s": every[:, 3], "within 1 h, %": within,
        }
    )  # fmt: skip
    return frame.sort("median, s", maintain_order=True)


def _state(scenario: Scenario, question: Question) -> pl.DataFrame:
    frame, snapshot = question.history.frame, question.snapshot
    gpus = [float((frame["gpu_milli"][rows] * frame["instances"][rows]).sum()) / 1000
            for rows in (snapshot.running, snapshot.waiting)]  # fmt: skip
    total = float(scenario.cluster.gpus)
    return pl.DataFrame(
        {
            "what": ["running", "waiting", "free"],
            "jobs": [len(snapshot.running), len(snapshot.waiting), None],
            "GPUs": [*gpus, max(total - gpus[0], 0.0)],
        }
    )


def _figure(frames: dict[str, pl.DataFrame]) -> dict[str, Figure]:
    if "start" not in frames:
        return {}
    points = frames["start"].filter(pl.col("start in, s").is_finite())
    frame = points.select(x=pl.col("start in, s") / 60, y=pl.col("quantile").str.strip_prefix("P").cast(pl.Float64))
    alt = "The chance that the job has started, by the time from now."
    return {"start": Figure("When it starts", "step", frame, "minutes from now", "chance that it has started, %", alt)}


def _notes(scenario: Scenario, question: Question, replays: Replays) -> tuple[str, ...]:
    notes = [*question.notes, *estimate_note(scenario)]
    whose = "the log" if question.history.origin == LOG else "a simulation of the scenario"
    count = replays.seconds.shape[1]
    notes.append(f"{plural(count, 'replay')}; what runs and what waits is taken from {whose}")
    notes.append("run times are drawn from jobs like it that had ended, arrivals from those of the days before")
    if replays.misplaced:
        why = "the log does not tell where they are"
        if question.history.origin != LOG:
            why = "replays under this policy begin with an empty cluster"
        notes.append(
            f"{replays.misplaced} of {plural(replays.running, 'running job')} found no place when packed anew: {why}"
        )
    rows = question.rows if len(question.rows) else replays.rows
    if np.isinf(replays.seconds[np.isin(replays.rows, rows)]).any():
        notes.append(f"replays end after {duration(replays.horizon)}: what has not started then starts later")
    if scenario.node_events or scenario.events:
        notes.append("nodes that are down or drained are taken to be up")
    return tuple(notes)
