"""The log that jobcomp/filetxt writes, a line a job when it ends, as rows with the columns of `sacct -P`.

It has no steps and no requests, only what a job held; of a job that was put back there is a line for each run.
"""

from __future__ import annotations

import re

import polars as pl

from fleetlab.core import TraceError
from fleetlab.traces.input.files import SourceFile
from fleetlab.traces.input.intake import Intake

LARGEST = 4 << 30  # bytes, unpacked
_BEGIN = re.compile(r"^JobId=\d+ UserId=", re.MULTILINE)
# A name and a folder may hold blanks, so each value reaches to the next key.
_KEYS = (
    *("JobId", "UserId", "GroupId", "Name", "JobState", "Partition", "TimeLimit", "StartTime", "EndTime", "NodeList"),
    *("NodeCnt", "ProcCnt", "WorkDir", "ReservationName", "Tres", "Account", "QOS", "WcKey", "Cluster", "SubmitTime"),
    *("EligibleTime", "ArrayJobId", "ArrayTaskId", "HetJobId", "HetJobOffset", "DerivedExitCode", "ExitCode"),
)
_COLUMNS = {
    "JobName": "Name", "State": "JobState", "Partition": "Partition", "Timelimit": "TimeLimit", "Start": "StartTime",
    "End": "EndTime", "NodeList": "NodeList", "AllocNodes": "NodeCnt", "AllocCPUS": "ProcCnt", "AllocTRES": "Tres",
    "Reservation": "ReservationName", "Account": "Account", "QOS": "QOS", "Submit": "SubmitTime",
    "Eligible": "EligibleTime", "JobIDRaw": "JobId",
}  # fmt: skip


def is_jobcomp(beginning: str) -> bool:
    """Whether a file is such a log: `scontrol show job` has other keys."""
    return bool(_BEGIN.match(beginning)) and "ProcCnt=" in beginning


def read_jobcomp(source: SourceFile, intake: Intake, columns: tuple[str, ...]) -> pl.DataFrame:
    """Read the lines of a log as the columns that sacct would have printed, each with its number."""
    with source.open() as stream:
        data = stream.read(LARGEST + 1)
    if len(data) > LARGEST:
        msg = f"{source.name}: larger than {LARGEST:,} bytes"
        raise TraceError(msg, hint="take it apart by the month")
    text = data.decode("utf-8-sig", "replace")
    starts = [match.start() for match in _BEGIN.finditer(text)]
    rows = [_row(text[a:b]) for a, b in zip(starts, [*starts[1:], len(text)], strict=True)] if starts else []
    lines, line, at = [], 1, 0
    for start in starts:
        line, at = line + text.count("\n", at, start), start
        lines.append(line)
    intake.read("jobs", len(rows))
    table = {name: pl.Series([row.get(name, "") for row in rows], dtype=pl.String) for name in columns}
    return pl.DataFrame(table).with_columns(line=pl.Series(lines, dtype=pl.Int64))


def _row(text: str) -> dict[str, str]:
    values: dict[str, str] = {}
    rest = " " + text.rstrip("\n ")
    for key, following in zip(_KEYS, [_KEYS[k + 1 :] for k in range(len(_KEYS))], strict=True):
        if not rest.startswith(f" {key}="):
            continue
        ends = [at for name in following if (at := rest.find(f" {name}=", 1)) > 0]
        end = min(ends, default=len(rest))
        values[key], rest = rest[len(key) + 2 : end], rest[end:]
    row = {column: values.get(key, "") for column, key in _COLUMNS.items()}
    row["User"] = re.sub(r"\(\d+\)$", "", values.get("UserId", ""))
    row["JobID"] = _name(values)
    return {column: "" if value == "(null)" else value for column, value in row.items()}


def _name(values: dict[str, str]) -> str:
    if values.get("ArrayJobId", "0") != "0":
        return f"{values['ArrayJobId']}_{values.get('ArrayTaskId', '')}"
    if values.get("HetJobId", "0") != "0":
        return f"{values['HetJobId']}+{values.get('HetJobOffset', '0')}"
    return values.get("JobId", "")
