"""The GPU over time: from the monitor's samples, or from the means of each cell."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fleetlab.bench.analysis.folders import SuiteFolder
from fleetlab.bench.results.cells import read_text

SHOWN = {"util": "utilization, %", "watts": "power, W", "sm_mhz": "SM clock, MHz", "memory_mib": "memory, GiB"}


@dataclass(frozen=True, slots=True)
class Timeline:
    """Times in seconds from the first cell, values, and the windows of the cells."""

    suite: str
    sampled: bool  # by the monitor; otherwise means of cells
    at: list[float]
    values: dict[str, list[float]]
    cells: list[tuple[float, float, str, int]]  # opens, closes, stage, tenants


def timelines(found: list[SuiteFolder]) -> tuple[list[Timeline], list[str]]:
    """One per suite with GPU data; notes name the suites without monitor samples."""
    made, without = [], []
    for suite in found:
        cells = [c for c in suite.cells if c["status"] == "ok" and c.get("opens") and c["gpu"]]
        if not cells:
            continue
        line = _sampled(suite, cells)
        if line is None:
            without.append(suite.path.name)
        made.append(line or _by_cell(suite, cells))
    note = f"no monitor.jsonl, so timelines show the means of each cell: {', '.join(without)}"
    return made, [note] if without else []


def _spans(suite: SuiteFolder, cells: list[dict[str, Any]], zero: float) -> list[tuple[float, float, str, int]]:
    window = suite.about.get("window") or 0.0
    spans = [
        (c["opens"] - zero, c["opens"] - zero + (c.get("window") or window), c["stage"], len(c["tenants"]))
        for c in cells
    ]
    return sorted(spans)


def _by_cell(suite: SuiteFolder, cells: list[dict[str, Any]]) -> Timeline:
    zero = min(c["opens"] for c in cells)
    cells = sorted(cells, key=lambda c: c["opens"])
    spans = _spans(suite, cells, zero)
    # There are no data between cells.
    values = {name: [v for c in cells for v in (*[_number(c["gpu"].get(name))] * 2, math.nan)] for name in SHOWN}
    at = [t for opens, closes, *_ in spans for t in (opens, closes, closes)]
    return Timeline(suite.path.name, sampled=False, at=at, values=values, cells=spans)


def _sampled(suite: SuiteFolder, cells: list[dict[str, Any]]) -> Timeline | None:
    rows = _samples(suite.path)
    zero = min(c["opens"] for c in cells)
    end = max(c["opens"] for c in cells) + 60
    rows = [r for r in rows if zero - 60 <= r["t"] <= end]  # a resumed folder may have samples of other boots
    if len(rows) < 2:
        return None
    values = {name: [_number(r.get(name)) for r in rows] for name in SHOWN}
    at = [r["t"] - zero for r in rows]
    return Timeline(suite.path.name, sampled=True, at=at, values=values, cells=_spans(suite, cells, zero))


def _samples(folder: Path) -> list[dict[str, Any]]:
    """Read the monitor's lines: field names first, then values; truncated lines are ignored."""
    try:
        lines = read_text(folder / "monitor.jsonl").splitlines()
    except (OSError, EOFError, ValueError):
        return []
    fields: list[str] = []
    rows = []
    for line in lines:
        try:
            about = json.loads(line)
        except ValueError:
            continue
        if isinstance(about, dict) and "fields" in about:
            fields = about["fields"]
        elif isinstance(about, list) and len(about) == len(fields):
            rows.append(dict(zip(fields, about, strict=True)))
    return [r for r in rows if isinstance(r.get("t"), int | float)]


def _number(value: object) -> float:
    """A missing value is a gap."""
    return float(value) if isinstance(value, int | float) and value >= 0 else math.nan
