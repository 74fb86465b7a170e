"""Results on disk: each file is written beside its place and then put there, so that none is ever half of one."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fleetlab.devices.errors import BenchError
from fleetlab.serving.load.report import Load
from fleetlab.serving.load.requests import ANSWERED, OUTCOMES
from fleetlab.serving.load.search import Found


def may_keep(out: Path | None, *, each: bool) -> None:
    """Before anything is measured: is there a place for it?"""
    if out is None:
        if each:
            msg = "nowhere to keep each request"
            raise BenchError(msg, hint="--each needs --out FOLDER")
        return
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        msg = f"{out}: not a folder to write to: {e.strerror}"
        raise BenchError(msg, hint="name another with --out") from None
    if not os.access(out, os.W_OK):
        msg = f"{out}: may not be written to"
        raise BenchError(msg, hint="name another folder with --out")


def keep(result: Load | Found, out: Path, *, each: bool = False) -> None:
    """`load.json` or `search.json`, and `requests.jsonl` with a line for each request if asked for."""
    about = result.to_json()
    try:
        if each and isinstance(result, Load):
            _write(out / "requests.jsonl", lines(result))
        _write(out / f"{about['kind']}.json", iter((json.dumps(about, indent=1), "\n")))
    except OSError as e:
        msg = f"{out}: {e.strerror}"
        raise BenchError(msg, hint="look at its permissions and free space") from None


def lines(load: Load) -> Iterator[str]:
    """Each request in the order in which they were due: times in whole nanoseconds from the start."""
    rows = load.rows
    for k in range(len(rows.due)):
        line: dict[str, Any] = {
            "scheduled_ns": _ns(rows.due[k]),
            "begun_ns": _ns(rows.begun[k]),
            "sent_ns": _ns(rows.sent[k]),
            "first_byte_ns": _ns(rows.first[k]),
            "done_ns": _ns(rows.done[k]),
            "ok": bool(rows.outcome[k] == ANSWERED),
            "outcome": OUTCOMES[rows.outcome[k]],
            "status": int(rows.status[k]),
            "counted": bool(load.opens <= rows.due[k] < load.closes),
        }
        yield json.dumps(line) + "\n"


def _ns(seconds: float) -> int | None:
    return None if math.isnan(seconds) else round(seconds * 1e9)


def _write(path: Path, parts: Iterator[str]) -> None:
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with beside.open("w", encoding="utf-8") as file:
            file.writelines(parts)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
