"""Save results of a load or a search."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fleetlab.devices.errors import BenchError
from fleetlab.devices.files import check_folder, replacing
from fleetlab.serving.load.report import LoadReport
from fleetlab.serving.load.requests import ANSWERED, OUTCOMES
from fleetlab.serving.load.search import RateSearch


def check_output(out: Path | None, *, each: bool) -> None:
    """Check the output folder before the measurement."""
    if out is not None:
        check_folder(out)
    elif each:
        msg = "--each has no folder to write to"
        raise BenchError(msg, hint="--each needs --out FOLDER")


def save(result: LoadReport | RateSearch, out: Path, *, each: bool = False) -> None:
    """Write `load.json` or `search.json`, and with `each` also `requests.jsonl`."""
    about = result.to_json()
    try:
        if each and isinstance(result, LoadReport):
            _write(out / "requests.jsonl", request_lines(result))
        _write(out / f"{about['kind']}.json", iter((json.dumps(about, indent=1), "\n")))
    except OSError as e:
        msg = f"{out}: {e.strerror}"
        raise BenchError(msg, hint="check permissions and free space") from None


def request_lines(load: LoadReport) -> Iterator[str]:
    """One line per request in scheduled order; times are in nanoseconds from the start."""
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
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8") as file:
        file.writelines(parts)
