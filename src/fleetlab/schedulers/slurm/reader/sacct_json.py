"""What `sacct --json` prints, as rows with the columns of `sacct -P`: a job, then its steps.

From 22.05 on a number that may be missing became an object (`set`, `infinite`, `number`), a state a list, and the name
of a step its whole id; what stands there is read either way. Times are Unix times, so no zone is needed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import polars as pl

from fleetlab.core import TraceError
from fleetlab.traces.input.files import SourceFile
from fleetlab.traces.input.intake import Intake
from fleetlab.traces.input.json_walk import Walk

LARGEST = 4 << 30  # bytes, unpacked
HINT = "write it again: sacct -a -D --json"
STARTED_BY = {
    "STARTED_ON_SCHEDULE": "SchedMain",
    "STARTED_ON_BACKFILL": "SchedBackfill",
    "STARTED_ON_SUBMIT": "SchedSubmit",
}
NO_NODES = "None assigned"

Row = dict[str, str]


def is_json_log(beginning: str) -> bool:
    """Whether a file is a log of jobs, by its first characters: what scontrol prints of jobs has no associations."""
    jobs = re.search(r'"jobs"\s*:\s*\[\s*(\{|\])', beginning)
    if not jobs or not beginning.lstrip().startswith("{"):
        return False
    return jobs[1] == "]" or '"association"' in beginning


def read_json(source: SourceFile, intake: Intake, columns: tuple[str, ...]) -> pl.DataFrame:
    """Read the jobs and steps of a log as the columns that sacct would have printed, each with its line."""
    rows: list[Row] = []
    lines: list[int] = []
    last = 0
    for line, job in _jobs(source):
        last = max(line, last + 1)  # in one long line, jobs are told apart by their number
        entries = _rows(job) if isinstance(job, Mapping) else [{}]
        rows += entries
        lines += [last] * len(entries)
    intake.read("jobs", len(rows))
    table = {name: pl.Series([row.get(name, "") for row in rows], dtype=pl.String) for name in columns}
    return pl.DataFrame(table).with_columns(line=pl.Series(lines, dtype=pl.Int64))


def throttles(source: SourceFile) -> pl.DataFrame:
    """How many tasks of each array may run at once, by the array's number: what sacct's columns do not tell."""
    limits = {}
    for _, job in _jobs(source):
        number = _text(_at(job, "array").get("job_id"))
        if number not in ("", "0") and (most := _throttle(job)):
            limits[number] = int(most)
    return pl.DataFrame(list(limits.items()), schema={"number": pl.String, "most": pl.Int64}, orient="row")


def _jobs(source: SourceFile) -> Iterator[tuple[int, Any]]:
    with source.open() as stream:
        data = stream.read(LARGEST + 1)
    if len(data) > LARGEST:
        msg = f"{source.name}: larger than {LARGEST:,} bytes"
        raise TraceError(msg, hint="take it by the month: sacct -S … -E …")
    walk = Walk(data.decode("utf-8-sig", "replace"), source.name, hint=HINT)
    for key in walk.members():
        if key == "jobs" and walk.next() == "[":
            yield from walk.elements()
        else:
            walk.value()


# -- one job -------------------------------------------------------------------------------------------------------


def _rows(job: Mapping[str, Any]) -> list[Row]:
    name = _name(job)
    steps = [step for step in job.get("steps") or () if isinstance(step, Mapping)]
    return [_job(job, name), *(_step(step, name) for step in steps)]


def _job(job: Mapping[str, Any], name: str) -> Row:
    time, tres = _at(job, "time"), _at(job, "tres")
    return {
        "JobID": name,
        "JobIDRaw": _text(job.get("job_id")),
        "Cluster": "",  # the log is of one cluster, and what sacct prints need not name it
        "JobName": _text(job.get("name")),
        "User": _text(_at(job, "association").get("user")) or _text(job.get("user")),
        "Account": _text(job.get("account")),
        "Partition": _text(job.get("partition")),
        "QOS": _text(job.get("qos")),
        "Submit": _time(time.get("submission")),
        "Eligible": _time(time.get("eligible")),
        "Start": _time(time.get("start")),
        "End": _time(time.get("end")),
        "ElapsedRaw": _text(time.get("elapsed")),
        "TimelimitRaw": _text(time.get("limit")),
        "State": _words(_at(job, "state").get("current")),
        "Reason": _text(_at(job, "state").get("reason")),
        "Priority": _text(job.get("priority")),
        "AllocTRES": _tres(tres.get("allocated")),
        "ReqTRES": _tres(tres.get("requested")),
        "AllocNodes": _text(job.get("allocation_nodes")),
        "NodeList": _text(job.get("nodes")) or NO_NODES,
        "Flags": ",".join(STARTED_BY.get(flag, "") for flag in job.get("flags") or () if flag in STARTED_BY),
        "Constraints": _text(job.get("constraints")),
        "Reservation": _reservation(job.get("reservation")),
        "SubmitLine": _text(job.get("submit_line")),
        "throttle": _throttle(job),
    }


def _name(job: Mapping[str, Any]) -> str:
    array, het = _at(job, "array"), _at(job, "het")
    number, task = _text(array.get("job_id")), _text(array.get("task_id"))
    if number not in ("", "0") and task:
        return f"{number}_{task}"
    if number not in ("", "0") and (tasks := _tasks(_text(array.get("task")))):
        most = _throttle(job)
        return f"{number}_[{tasks}{f'%{most}' if most else ''}]"
    whole = _text(het.get("job_id"))
    if whole not in ("", "0"):
        return f"{whole}+{_text(het.get('job_offset')) or '0'}"
    return _text(job.get("job_id"))


def _tasks(text: str) -> str:
    """Tasks that have not started: as `1-5,7%2`, or as the bits of a number, 0x1E."""
    if not re.fullmatch(r"0x[0-9A-Fa-f]{1,2000}", text):
        return text.split("%")[0]
    bits = int(text, 16)
    return ",".join(str(k) for k in range(bits.bit_length()) if bits >> k & 1)


def _throttle(job: Mapping[str, Any]) -> str:
    most = _text(_at(job, "array", "limits", "max", "running").get("tasks"))
    return "" if most == "0" else most


def _step(step: Mapping[str, Any], job: str) -> Row:
    time, about = _at(step, "time"), _at(step, "step")
    last = _text(about.get("id")).rsplit(".", 1)[-1]
    return {
        "JobID": f"{job}.{last or 'step'}",
        "Submit": _time(time.get("start")),
        "Start": _time(time.get("start")),
        "End": _time(time.get("end")),
        "State": _words(step.get("state")),
        "AllocTRES": _tres(_at(step, "tres").get("allocated")),
        "NodeList": _text(_at(step, "nodes").get("range")),
        "JobName": _text(about.get("name")),
    }


# -- values --------------------------------------------------------------------------------------------------------


def _at(value: Any, *keys: str) -> Mapping[str, Any]:  # noqa: ANN401  JSON may hold anything
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value if isinstance(value, Mapping) else {}


def _text(value: Any) -> str:  # noqa: ANN401
    """A value as sacct prints it; an object with a number is that number, if it is set."""
    if isinstance(value, Mapping):
        if value.get("infinite"):
            return "UNLIMITED"
        value = value.get("number") if value.get("set", True) else None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return "" if value is None or isinstance(value, bool | list | Mapping) else str(value)


def _time(value: Any) -> str:  # noqa: ANN401
    text = _text(value)
    return "" if text in ("0", "UNLIMITED") else text


def _words(value: Any) -> str:  # noqa: ANN401
    """A state: a word, or a list of which the first is the state and the others are flags."""
    if isinstance(value, list):
        return _text(value[0]) if value else ""
    return _text(value)


def _reservation(value: Any) -> str:  # noqa: ANN401
    name = _text(value.get("name")) if isinstance(value, Mapping) else _text(value)
    return "" if name == "0" else name  # as 22.05 writes where there is none


def _tres(value: Any) -> str:  # noqa: ANN401
    """Resources as sacct writes them; a number of MiB has its unit."""
    parts = []
    for row in value if isinstance(value, list) else ():
        kind, name, count = (_text(_at({"row": row}, "row").get(k)) for k in ("type", "name", "count"))
        if kind and count and kind not in ("energy", "fs", "vmem", "pages"):
            parts.append(f"{kind}{'/' + name if name else ''}={count}{'M' if kind == 'mem' else ''}")
    return ",".join(parts)
