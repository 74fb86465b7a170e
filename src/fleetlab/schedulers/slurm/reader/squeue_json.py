"""What `squeue --json` prints, as rows with the columns of `sacct -P`: jobs that wait, run, or ended a moment ago.

A number that may be missing is an object from 23.02 on, and a state a list; what stands there is read either way.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from fleetlab.core import TraceError
from fleetlab.schedulers.slurm.reader.sacct_json import NO_NODES, Row, _text, _time, _words
from fleetlab.traces.job_list import STATUS

HINT = "squeue of Slurm 21.08 or newer prints JSON, if it was built with it: squeue --json"
_SAME = {
    "User": "user_name", "Account": "account", "Partition": "partition", "QOS": "qos", "Priority": "priority",
    "Reason": "state_reason", "TimelimitRaw": "time_limit", "ReqTRES": "tres_req_str", "JobName": "name",
    "Constraints": "features", "Reservation": "resv_name", "JobIDRaw": "job_id",
}  # fmt: skip


def queue_rows(text: str) -> list[Row]:
    """Return the jobs of a queue as sacct would have printed them; times are Unix times."""
    try:
        answer = json.loads(text)
        jobs, errors = answer["jobs"], answer.get("errors")
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
        jobs, errors = None, None
    # Half of a list must not pass for the whole: the other jobs would seem to have ended.
    if not isinstance(jobs, list) or errors:
        msg = f"squeue printed no JSON list of jobs: {' '.join(text.split())[:80] or 'nothing'}"
        raise TraceError(msg, hint=HINT)
    return [_row(job) for job in jobs if isinstance(job, Mapping)]


def _row(job: Mapping[str, Any]) -> Row:
    state = _words(job.get("job_state")).upper()
    status = STATUS.get(state)
    began, over = status != "waiting", status not in ("waiting", "running")
    return {column: _text(job.get(name)) for column, name in _SAME.items()} | {
        "JobID": _name(job),
        "State": state,
        "Submit": _time(job.get("submit_time")),
        "Eligible": _time(job.get("eligible_time")),
        # Of a job that waits, these are what the scheduler expects.
        "Start": _time(job.get("start_time")) if began else "",
        "End": _time(job.get("end_time")) if over else "",
        "AllocTRES": _text(job.get("tres_alloc_str")) if began else "",
        "NodeList": (_text(job.get("nodes")) if began else "") or NO_NODES,
    }


def _name(job: Mapping[str, Any]) -> str:
    array, task, whole = (_text(job.get(key)) for key in ("array_job_id", "array_task_id", "het_job_id"))
    if array not in ("", "0") and task:
        return f"{array}_{task}"
    if array not in ("", "0") and (tasks := _text(job.get("array_task_string"))):
        return f"{array}_[{tasks}]"
    if whole not in ("", "0"):
        return f"{whole}+{_text(job.get('het_job_offset')) or '0'}"
    return _text(job.get("job_id"))
