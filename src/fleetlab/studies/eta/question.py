"""What is asked: which job, at which instant, of which history."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import numpy as np
import polars as pl

from fleetlab.core import Scenario, TraceError, WorkloadError
from fleetlab.core.durations import duration, in_seconds
from fleetlab.core.names import clip, lookup
from fleetlab.core.progress import Progress, silent
from fleetlab.core.resample import Ints
from fleetlab.sim import simulate
from fleetlab.studies.eta.history import LOG, SIMULATED, History, Snapshot
from fleetlab.studies.eta.request import as_job, check_partition, read_request
from fleetlab.studies.explain.search import NUMBER, names_of

AUTO = "auto"
STARTS = (AUTO, LOG, SIMULATED)


@dataclass(frozen=True, slots=True, eq=False)
class Question:
    """An instant, and the jobs that are asked about; none: all that wait."""

    scenario: Scenario
    history: History
    snapshot: Snapshot
    rows: Ints
    title: str
    notes: tuple[str, ...] = ()
    original: History | None = None  # without the request that is asked about

    @property
    def at(self) -> float:
        """The instant, in seconds from the first submission."""
        return self.snapshot.at

    def names(self, rows: Ints) -> list[str]:
        """Return what `job` takes for each row: the log's own id; of a job without one, its number."""
        own = dict(names_of(self.scenario).iter_rows())
        numbers = self.history.frame["job"][rows].to_list()
        plain = [("from before" if n < 0 else f"{NUMBER}{n}" if own else str(n)) for n in numbers]
        return [own.get(n) or text for n, text in zip(numbers, plain, strict=True)]

    def clock(self, seconds: float) -> str:
        """Return an instant as a date and time, where the log tells them; else as a time from the first submission."""
        log, epoch = self.scenario.workload, _epoch(self.scenario)
        if epoch is None:
            return f"{duration(seconds)} after the first submission"
        zone = ZoneInfo(log.zone) if log.zone else UTC
        return f"{datetime.fromtimestamp(epoch + seconds, zone):%Y-%m-%d %H:%M:%S}"


def _epoch(scenario: Scenario) -> float | None:
    """Return the Unix time of second 0; None: the log does not tell it, or at another load times have no dates."""
    return scenario.workload.epoch if scenario.load == 1 else None


def history_of(scenario: Scenario, starts: str, progress: Progress = silent) -> History:
    """Return what happened: as the log recorded it, or as a simulation finds it."""
    lookup("source of starts", starts, STARTS, error=WorkloadError)
    log = History.of_log(scenario.trace)
    changed = [name for name in ("nodes", "window") if getattr(scenario, name)]
    own = scenario.trace.cluster  # None: the log tells no nodes, and those given are the ones that it ran on
    changed += ["load"] * (scenario.load != 1)
    changed += ["cluster"] * (own is not None and scenario.data.cluster is not own)
    recorded = not np.isnan(log.start).all() and bool((log.wait > 0).any())
    if starts == LOG and not recorded:
        msg = f"the log does not tell when jobs started: {scenario.workload.source}"
        raise TraceError(msg, hint="starts=simulated takes the starts of a simulation")
    if starts == LOG and changed:
        msg = f"what the log recorded is not so with another {changed[0]}"
        raise WorkloadError(msg, hint="starts=simulated takes the starts of a simulation")
    synthetic = scenario.trace.workload.synthetic  # its starts are drawn, and no schedule of its cluster
    if starts == LOG or (starts == AUTO and recorded and not changed and not synthetic):
        return log
    return History.of_simulation(simulate(scenario, progress=progress))


def question_of(
    scenario: Scenario, history: History, job: str | int | None, request: str | None, at: str | float | None
) -> Question:
    """Return the jobs in question, or raise an error that says what is missing."""
    if job is not None and request is not None:
        msg = "a job of the log, or a request that is submitted now: not both"
        raise WorkloadError(msg, hint="leave `job` or `request` out")
    when = None if at is None else _instant(at, scenario, history)
    if request is not None:
        return _of_request(scenario, history, request, history.last_known if when is None else when)
    if job is not None:
        return _of_job(scenario, history, job, when)
    when = history.last_wait() if when is None else when
    snapshot = history.at(history.last_known if when is None else when)
    if not len(snapshot.waiting):
        msg = "no job waits " + ("in this log" if when is None else "at that time")
        raise WorkloadError(msg, hint='at=TIME asks for another instant, request="8 GPUs, 4 h" for a job of your own')
    return Question(scenario, history, snapshot, np.zeros(0, dtype=np.int64), "all jobs that wait")


def _of_request(scenario: Scenario, history: History, text: str, at: float) -> Question:
    wanted = read_request(text, scenario.cluster)
    check_partition(wanted, scenario.cluster, history.frame)
    made, note = as_job(wanted, history.at(at))
    longer, row = history.with_request(made, at)
    rows = np.array([row])
    return Question(scenario, longer, longer.at(at, row), rows, f"{wanted.title}, submitted", (note,), history)


def _of_job(scenario: Scenario, history: History, job: str | int, at: float | None) -> Question:
    row = _row(scenario, history, job)
    came, began = float(history.submit[row]), float(history.start[row])
    when = came if at is None else at
    if at is None and np.isnan(began) and row in history.at(history.last_known).waiting:
        when = history.last_known
    if when < came:
        msg = f"job {job} is submitted later, after {duration(came)}"
        raise WorkloadError(msg, hint="at=TIME after its submission")
    if began <= when and when > came:
        msg = f"job {job} has started by then, after {duration(began)}"
        raise WorkloadError(msg, hint="at=TIME before its start; without a time, it is asked for at its submission")
    snapshot = history.at(when, row)
    if row not in snapshot.waiting:
        msg = f"job {job} does not wait at that time: the log tells no start and no end of its wait"
        raise WorkloadError(msg, hint="choose a job that started, or that still waits")
    known = f"the {'log' if history.origin == LOG else 'simulation'} has it start {duration(began - when)} later"
    notes = () if np.isnan(began) else (known,)
    return Question(scenario, history, snapshot, np.array([row]), f"Job {job}", notes)


def _row(scenario: Scenario, history: History, job: str | int) -> int:
    """Return the row of a job, by the log's own id of it or by its number."""
    number = _number(scenario, str(job))
    rows = np.flatnonzero(history.frame["job"].to_numpy() == (-1 if number is None else number))
    if number is None or not len(rows):
        msg = f"no job by that id or number: `{clip(str(job))}`"
        numbers = f"numbers are {NUMBER}0 to {NUMBER}{len(scenario.workload) - 1}"
        raise WorkloadError(msg, hint=f"{numbers}; `fleetlab simulate TRACE --out jobs.csv` lists them")
    return int(rows[0])


def _number(scenario: Scenario, job: str) -> int | None:
    own = names_of(scenario).filter(pl.col("name") == job)["job"]
    if len(own):
        return int(own[0])
    digits = job.removeprefix(NUMBER)
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 16 else None


def _instant(at: str | float, scenario: Scenario, history: History) -> float:
    """Return an instant in seconds from the first submission."""
    seconds = in_seconds(at)
    if math.isnan(seconds):
        seconds = _date(str(at), scenario)
    if math.isnan(seconds):
        msg = f"not an instant: `{clip(str(at))}`"
        raise WorkloadError(
            msg, hint="seconds, 12h or 7d from the first submission, or 2024-05-01T12:00 in a log with dates, at load 1"
        )
    if not 0 <= seconds <= history.last_known:
        msg = f"the log has submissions up to {duration(history.last_known)} after the first, not at: {at}"
        raise WorkloadError(msg, hint="later nothing is known of what else would have come")
    return seconds


def _date(text: str, scenario: Scenario) -> float:
    zone, epoch = scenario.workload.zone, _epoch(scenario)
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        return math.nan
    if epoch is None:
        return math.nan
    if when.tzinfo is None:
        when = when.replace(tzinfo=ZoneInfo(zone) if zone else UTC)
    return when.timestamp() - epoch
