"""Philly's files: found in a folder or an archive, and the JSON of the job log checked record by record."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from fleetlab.core import TraceError
from fleetlab.traces.input.files import SourceFile, sources
from fleetlab.traces.input.intake import Intake
from fleetlab.traces.input.json_walk import Walk

LARGEST = 1 << 30  # bytes of a job log; the published one is a tenth of it
WANTED = frozenset({"cluster_job_log", "cluster_machine_list"})
KEYS = ("status", "vc", "jobid", "attempts", "submitted_time", "user")
NO_TIME = (None, "", "None")
CUT_OFF = "the file is truncated: download it again"
EXPECTS = "`fleetlab traces` lists what each format expects"


# -- files -------------------------------------------------------------------------------------------------------


def files(path: Path) -> tuple[SourceFile, SourceFile | None]:
    """The job log at `path` and the machine list in the same place."""
    there = [s for s in sources(path if path.is_dir() else path.parent) if s.stem in WANTED]
    logs = [s for s in there if s.stem == "cluster_job_log"] if path.is_dir() else [SourceFile(path)]
    lists = [s for s in there if s.stem == "cluster_machine_list"]
    if len(logs) != 1 or len(lists) > 1:
        raise TraceError(f"not one cluster_job_log, or more than one cluster_machine_list, in: {path}", hint=EXPECTS)
    return logs[0], lists[0] if lists else None


# -- records -----------------------------------------------------------------------------------------------------


def records(source: SourceFile) -> Iterator[tuple[int, Any]]:
    """What the list that a job log is holds, each with the line it begins on."""
    # No field holds a number: one of a million digits must be a bad record and not an error of its own kind.
    walk = Walk(_text(source), source.name, hint=CUT_OFF, decoder=json.JSONDecoder(parse_int=float))
    if walk.next() not in ("[", ""):
        msg = f"{source.name}: not a list of jobs but: {type(walk.value()).__name__}"
        raise TraceError(msg, hint="the file is one JSON list: [{…}, {…}, …]")
    yield from walk.elements()
    if walk.next():
        why = "more than one list"
        raise walk.broken(why, walk.at)


def _text(source: SourceFile) -> str:
    with source.open() as stream:
        data = stream.read(LARGEST + 1)
    if len(data) > LARGEST:
        raise TraceError(f"{source.name}: more than {LARGEST:,} bytes, which no job log of Philly has", hint=EXPECTS)
    try:
        return data.decode(json.detect_encoding(data))
    except UnicodeDecodeError as e:
        raise TraceError(f"{source.name}: not UTF-8 at byte: {e.start:,}", hint=EXPECTS) from None


@dataclass(frozen=True)
class JobLog:
    """What the job log says, as tables: a record has a number from 0, and a line on which it begins."""

    jobs: pl.DataFrame  # record, line, jobid, user, vc, status, submitted_time, instances, gpu_milli
    attempts: pl.DataFrame  # record, attempt, start_time, end_time, machines: whether it held any
    placements: pl.DataFrame  # attempt, node: the machines of an attempt


def tables(source: SourceFile, intake: Intake) -> JobLog:
    """Spread the records into tables; what is not a job goes to the rejects."""
    jobs: list[tuple[object, ...]] = []
    attempts: list[tuple[object, ...]] = []
    placements: list[tuple[object, ...]] = []
    bad: list[tuple[int, str]] = []
    record = -1
    for record, (line, job) in enumerate(records(source)):
        if wrong := _wrong_job(job):
            bad.append((line, wrong))
            continue
        machines = [_machines(attempt) for attempt in job["attempts"]]
        for attempt, names in zip(job["attempts"], machines, strict=True):
            placements += [(len(attempts), name) for name in names]
            times = (_time(attempt, "start_time"), _time(attempt, "end_time"))
            attempts.append((record, len(attempts), *times, bool(names)))
        fields = (job["jobid"], job["user"], job["vc"], job["status"], _time(job, "submitted_time"))
        jobs.append((record, line, *fields, *_gang(machines)))
    intake.read("jobs", record + 1)
    intake.reject("jobs", source.name, bad)
    intake.progress("reading jobs", record + 1, 1.0)
    text, number, either = pl.String, pl.Int64, pl.Boolean
    text_columns = dict.fromkeys(("jobid", "user", "vc", "status", "submitted_time"), text)
    return JobLog(
        _frame(jobs, {"record": number, "line": number, **text_columns, "instances": number, "gpu_milli": number}),
        _frame(
            attempts, {"record": number, "attempt": number, "start_time": text, "end_time": text, "machines": either}
        ),
        _frame(placements, {"attempt": number, "node": text}),
    )


def _frame(rows: list[tuple[object, ...]], schema: dict[str, type[pl.DataType]]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=schema, orient="row")


def _time(record: dict[str, Any], key: str) -> str | None:
    return None if (value := record.get(key)) in NO_TIME else value


def _machines(attempt: dict[str, Any]) -> dict[str, int]:
    """How many GPUs of each machine an attempt held; a machine may be named more than once."""
    gpus: dict[str, set[str]] = {}
    for part in attempt.get("detail") or []:
        gpus.setdefault(part["ip"], set()).update(part["gpus"])
    return {name: len(some) for name, some in gpus.items()}


def _gang(attempts: list[dict[str, int]]) -> tuple[int, int]:
    """Instances and GPU milli of each, by the first attempt that held GPUs; none where none did."""
    for machines in attempts:
        counts = [n for n in machines.values() if n]
        if counts and min(counts) == max(counts):
            return len(counts), 1000 * counts[0]
        if counts:
            return sum(counts), 1000
    return 1, 0


# -- what a record must be ---------------------------------------------------------------------------------------


def _wrong_job(job: Any) -> str | None:  # noqa: ANN401  JSON may hold anything until it is checked
    if not isinstance(job, dict):
        return f"not a job: {job!r:.80}"
    if missing := [key for key in KEYS if key not in job]:
        return f"the job has no: {', '.join(missing)}"
    for key in ("jobid", "status"):
        if not job[key] or not _is_text(job[key]):
            return f"`{key}` is not a text: {job[key]!r:.80}"
    for key in ("user", "vc", "submitted_time"):
        if job[key] is not None and not _is_text(job[key]):
            return f"`{key}` is not a text: {job[key]!r:.80}"
    if not isinstance(job["attempts"], list):
        return f"`attempts` is not a list: {job['attempts']!r:.80}"
    return next((wrong for attempt in job["attempts"] if (wrong := _wrong_attempt(attempt))), None)


def _wrong_attempt(attempt: Any) -> str | None:  # noqa: ANN401
    if not isinstance(attempt, dict):
        return f"not an attempt: {attempt!r:.80}"
    for key in ("start_time", "end_time"):
        if attempt.get(key) is not None and not _is_text(attempt[key]):
            return f"`{key}` is not a text: {attempt[key]!r:.80}"
    detail = attempt.get("detail") or []
    if not isinstance(detail, list):
        return f"`detail` is not a list: {detail!r:.80}"
    return next((f"not a machine with its GPUs: {part!r:.80}" for part in detail if not _is_machine(part)), None)


def _is_machine(part: Any) -> bool:  # noqa: ANN401
    return (
        isinstance(part, dict)
        and _is_text(part.get("ip"))
        and isinstance(part.get("gpus"), list)
        and all(map(_is_text, part["gpus"]))
    )


def _is_text(value: object) -> bool:
    # Half of a surrogate pair is a character to Python and to nobody else.
    return isinstance(value, str) and (value.isascii() or not any("\ud800" <= c <= "\udfff" for c in value))
