"""What the question is: which job or request, at which instant, of which history."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from shlex import quote
from zoneinfo import ZoneInfo

import numpy as np
import polars as pl

from fleetlab.core import Cluster, Scenario, TraceError, Workload, WorkloadError
from fleetlab.core.durations import duration, in_seconds, plural
from fleetlab.core.names import clip, lookup
from fleetlab.core.progress import Progress, silent
from fleetlab.core.resample import Ints
from fleetlab.sim import simulate
from fleetlab.studies.eta.snapshot import LOG, SIMULATED, History, Snapshot
from fleetlab.studies.explain.job import NUMBER, find_jobs, names_of, request_text

# -- a request as people write it: 8 A100, 4 h -------------------------------------------------------------------------

HINT = 'GPUs, and what else matters: "8 A100, 4 h", "2x8 H100, 30 min", "1 GPU", "0.5 T4, user=ada, partition=gpu"'
GPUS = re.compile(r"(?:(\d{1,6})\s*[x×]\s*)?(\d{1,6}(?:\.\d{1,3})?)\s*(.*)")
LOOSE = re.compile(r"(.*?)\s+(\d+(?:\.\d+)?\s*[a-z]+(?:\s*\d+\s*[a-z]+)*|(?:\d+-)?\d+:\d\d:\d\d)", re.IGNORECASE)
BY_TYPE = re.compile(r"(?:gres/)?(?:gpu\s*[:=]\s*)?([a-z][\w.-]*)?\s*[:=]?\s*(?<=[:=])(\d{1,6})", re.IGNORECASE)
TIMES_TYPE = re.compile(r"^(\d{1,6})\s*[x×]\s*(?=[A-Za-z])")
WORDS = ("user", "group", "app", "queue", "qos", "partition")  # that may be given as NAME=VALUE
ANY = ("", "gpu", "gpus")
WHOLE = 1000  # milli of one GPU
CLOCK = re.compile(r"(?:(\d{1,5})-)?(\d{1,5}):(\d{2}):(\d{2})")  # Slurm's [days-]hours:minutes:seconds
# What is that of the latest job like it, if not given.
LIKE = ("cpu_milli", "memory_mib", "partitions", "queue", "qos", "user", "group", "app", "priority", "limit")


@dataclass(frozen=True, slots=True)
class Request:
    """GPUs of an instance, how many instances, of which type, and for how long."""

    milli: int
    instances: int = 1
    gpu_type: str | None = None
    limit: float | None = None  # s
    words: dict[str, str] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """The request in words."""
        times = f"{self.instances} x " if self.instances > 1 else ""
        what = self.gpu_type or "GPU"
        return times + (
            f"{plural(self.milli / WHOLE, what)}" if not self.gpu_type else f"{self.milli / WHOLE:g} {what}"
        )


def read_request(text: str, cluster: Cluster) -> Request:
    """Read a request for GPUs of a cluster.

    >>> nodes = pl.DataFrame({"node": ["a", "b"], "gpus": [8, 8], "gpu_type": ["A100", "A100"]})
    >>> read_request("16 A100, 4 h", Cluster.of(nodes, source="by hand"))
    Request(milli=8000, instances=2, gpu_type='A100', limit=14400.0, words={})
    """
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if len(parts) == 1 and (loose := LOOSE.fullmatch(parts[0])):  # 8xA100 4h30m
        parts = [loose[1], loose[2]]
    if parts and (by_type := BY_TYPE.fullmatch(parts[0])):  # A100:8, gpu:a100:8
        parts[0] = f"{by_type[2]} {by_type[1] or ''}"
    elif parts:
        parts[0] = TIMES_TYPE.sub(r"\1 ", parts[0])  # 8xA100 is 8 A100; 2x8 H100 two times 8
    if not parts or not (match := GPUS.fullmatch(parts[0])):
        raise WorkloadError(f"a request begins with a number of GPUs, not: `{clip(text)}`", hint=HINT)
    instances, amount = int(match[1] or 1), float(match[2])
    name = _gpu_type(match[3].strip(), cluster)
    milli = round(amount * WHOLE)
    if instances < 1 or milli <= 0 or (milli > WHOLE and milli % WHOLE):
        raise WorkloadError(f"GPUs are a whole number from 1 up, or a share of one GPU, not: `{parts[0]}`", hint=HINT)
    words = _words([part for part in parts[1:] if "=" in part])
    limits = [_seconds(part) for part in parts[1:] if "=" not in part]
    if len(limits) > 1:
        raise WorkloadError(f"a request has one duration, not {len(limits)}: `{clip(text)}`", hint=HINT)
    return Request(*_split_over_nodes(milli, instances, name, cluster), name, limits[0] if limits else None, words)


def _words(parts: list[str]) -> dict[str, str]:
    """Read NAME=VALUE parts."""
    words: dict[str, str] = {}
    for part in parts:
        key, _, value = (text.strip() for text in part.partition("="))
        lookup("part of a request", key, WORDS, error=WorkloadError, hint=HINT)
        if not value or key in words:
            msg = f"a request gives {key} {'twice' if value else 'without a value'}: `{clip(part)}`"
            raise WorkloadError(msg, hint=HINT)
        words[key] = value
    return words


def check_partition(request: Request, cluster: Cluster, jobs: pl.DataFrame) -> None:
    """Raise an error where neither the nodes nor the jobs of the log name the partition of a request."""
    if (name := request.words.get("partition")) is None:
        return
    columns = (frame["partitions"].explode().drop_nulls() for frame in (cluster.frame, jobs))
    names = sorted({str(one) for column in columns for one in column.unique()})
    hint = f"there are {', '.join(names[:9])}" if names else "neither nodes nor jobs name partitions: leave it out"
    lookup("partition", name, names, error=WorkloadError, hint=hint)


def _gpu_type(text: str, cluster: Cluster) -> str | None:
    types = sorted(set(cluster.frame.filter(pl.col("gpus") > 0)["gpu_type"].drop_nulls()))
    if text.casefold() in ANY:
        return None
    type_name = re.sub(r"\s*gpus?$", "", text, flags=re.I)
    typed, folded = type_name.casefold(), {name: name.casefold() for name in types}
    same = [name for name in types if folded[name] == typed]  # or a product label that has it as a word
    same = same or [name for name in types if typed in re.split(r"\W+", folded[name])]
    hint = f"its nodes have {', '.join(types)}" if types else "its nodes tell no GPU types: leave the type out"
    return (
        same[0] if len(same) == 1 else lookup("GPU type", type_name, types, error=WorkloadError, hint=hint, models=True)
    )


def _seconds(text: str) -> float:
    if clock := CLOCK.fullmatch(text):
        days, hours, minutes, rest = (int(part or 0) for part in clock.groups())
        text = f"{days * 86_400 + hours * 3600 + minutes * 60 + rest} s"
    seconds = math.nan if text.replace(".", "").isdigit() else in_seconds(text)
    if not 0 < seconds < math.inf:
        msg = f"a duration is a number with s, min, h or days after it, or 4:00:00, not: `{clip(text)}`"
        raise WorkloadError(msg, hint=HINT)
    return seconds


def _split_over_nodes(milli: int, instances: int, name: str | None, cluster: Cluster) -> tuple[int, int]:
    """Divide what no node has into instances of a node each."""
    nodes = cluster.frame if name is None else cluster.frame.filter(pl.col("gpu_type") == name)
    largest = int(nodes["gpus"].max() or 0) * WHOLE  # type: ignore[arg-type]
    if instances > 1 or milli <= largest or not largest:
        return milli, instances
    if milli % largest:
        msg = f"no node has so many GPUs, and they are not a multiple of the largest node's: {milli // WHOLE}"
        raise WorkloadError(msg, hint=f"the largest has {largest // WHOLE}: write 2x{largest // WHOLE} for two of them")
    return largest, milli // largest


def as_job(request: Request, snapshot: Snapshot) -> tuple[pl.DataFrame, str]:
    """Return the request as a row of a workload, and a note: what it does not tell is as of the latest job like it."""
    frame = snapshot.history.frame
    submitted = frame.filter(pl.Series(snapshot.history.submit <= snapshot.at))
    like = submitted.filter(pl.col("gpu_milli") == request.milli)
    same = like.filter(pl.col("gpu_types").list.contains(request.gpu_type or ""))
    like = same if request.gpu_type and same.height else like
    values = {name: like[name][-1] for name in LIKE} if like.height else {}
    words = {
        ("partitions" if k == "partition" else k): [v] if k == "partition" else v for k, v in request.words.items()
    }
    if "user" in words:
        values |= {"group": None, "app": None}
    own: dict[str, object] = {"gpu_milli": request.milli, "instances": request.instances, "status": "waiting"}
    if request.limit is not None:
        own["limit"] = request.limit
    own["gpu_types"] = [request.gpu_type] if request.gpu_type else []
    row = {"submit": 0.0} | values | own | words
    job = Workload.of(pl.DataFrame({name: [value] for name, value in row.items()}), source="the request").frame
    job = job.with_columns(job=pl.lit(-1, dtype=pl.Int64), submit=pl.lit(snapshot.at))
    if not like.height:
        return job, "no job of the log requests as many GPUs: the request is taken to need no CPU and memory"
    what = "CPU, memory, partition, user" + (", time limit" if request.limit is None else "")
    return job, f"what the request does not tell ({what}) is that of the latest job with as many GPUs"


# -- the question ------------------------------------------------------------------------------------------------------

AUTO = "auto"
STARTS = (AUTO, LOG, SIMULATED)


@dataclass(frozen=True, slots=True, eq=False)
class Question:
    """An instant, and the jobs in question; none: all that wait."""

    scenario: Scenario
    history: History
    snapshot: Snapshot
    rows: Ints
    title: str
    notes: tuple[str, ...] = ()
    original: History | None = None  # without the request

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
        raise WorkloadError(msg, hint='at=TIME takes another instant, request="8 GPUs, 4 h" for a job of your own')
    return Question(scenario, history, snapshot, np.zeros(0, dtype=np.int64), "all jobs that wait")


def _of_request(scenario: Scenario, history: History, text: str, at: float) -> Question:
    requested = read_request(text, scenario.cluster)
    check_partition(requested, scenario.cluster, history.frame)
    job, note = as_job(requested, history.at(at))
    longer, row = history.with_request(job, at)
    rows = np.array([row])
    return Question(scenario, longer, longer.at(at, row), rows, f"{requested.title}, submitted", (note,), history)


def _of_job(scenario: Scenario, history: History, job: str | int, at: float | None) -> Question:
    row = _row(scenario, history, job)
    submitted, started = float(history.submit[row]), float(history.start[row])
    when = submitted if at is None else at
    if at is None and np.isnan(started) and row in history.at(history.last_known).waiting:
        when = history.last_known
    if when < submitted:
        msg = f"job {job} is submitted later, after {duration(submitted)}"
        raise WorkloadError(msg, hint="at=TIME after its submission")
    if started <= when and when > submitted:
        msg = f"job {job} has started by then, after {duration(started)}"
        raise WorkloadError(msg, hint="at=TIME before its start; without a time, it is predicted at its submission")
    snapshot = history.at(when, row)
    if row not in snapshot.waiting:
        msg = f"job {job} does not wait at that time: the log tells no start and no end of its wait"
        raise WorkloadError(msg, hint="choose a job that started, or that still waits")
    outcome = f"the {'log' if history.origin == LOG else 'simulation'} has it start {duration(started - when)} later"
    notes = () if np.isnan(started) else (outcome,)
    return Question(scenario, history, snapshot, np.array([row]), _title(scenario, history, row), notes)


def _title(scenario: Scenario, history: History, row: int) -> str:
    """Return which job is meant: the log's own id and its number, its user and what it requests."""
    job = history.frame.row(row, named=True)
    own = names_of(scenario).filter(pl.col("job") == job["job"])["name"]
    name = f"{own[0]} ({NUMBER}{job['job']})" if len(own) else str(job["job"])
    user = f" of {job['user']}" if job["user"] else ""
    return f"Job {name}{user}, {request_text(job)},"


def _row(scenario: Scenario, history: History, job: str | int) -> int:
    """Return the row of a job, by what `explain` takes too: the log's own id, a number, or what means one job only."""
    jobs = find_jobs(scenario, str(job), names_of(scenario))
    explain = f"`fleetlab explain {quote(scenario.data.name or 'TRACE')} {quote(str(job))}`"
    if len(jobs) > 1:
        msg = f"{len(jobs):,} jobs are meant, and a start is predicted of one: `{clip(str(job))}`"
        raise WorkloadError(msg, hint=f"{explain} lists them with their ids")
    rows = np.flatnonzero(history.frame["job"].to_numpy() == jobs[0])
    if not len(rows):
        msg = f"the job is left out of the simulation: `{clip(str(job))}`"
        raise WorkloadError(msg, hint=f"{explain} says why")
    return int(rows[0])


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
