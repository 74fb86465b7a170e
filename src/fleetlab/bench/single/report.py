"""The report of a workload alone: estimates, tables, notes and outcome, without polars."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fleetlab.bench.histogram import Histogram
from fleetlab.bench.quantiles import ENDINGS, QUANTILES, quantiles
from fleetlab.stats import POSITIVE, Interval, mean_of_runs

FINISHED, STOPPED, NOT_A_NUMBER = "finished", "stopped", "not a number"
STATUS = {FINISHED: 0, STOPPED: 130, NOT_A_NUMBER: 3}  # exit status

Number = tuple[str, float, float, float, str]  # metric, value, low, high, unit
Row = dict[str, Any]


@dataclass
class SingleReport:
    """Plain values, for a machine with few packages."""

    work: str
    about: dict[str, Any] = field(default_factory=dict)
    numbers: list[Number] = field(default_factory=list)
    tables: dict[str, list[Row]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    ended: str = FINISHED

    @property
    def status(self) -> int:
        """Exit status: 0 if finished, 3 if the loss was not a number, 130 if stopped."""
        return STATUS[self.ended]

    def add(self, metric: str, value: float, unit: str = "", *, limits: Interval | None = None) -> None:
        """Add an estimate; without limits it is exact."""
        _, low, high = limits or (value, value, value)
        self.numbers.append((metric, value, low, high, unit))

    def to_json(self) -> str:
        """One object; NaN becomes null."""
        words = ("metric", "value", "low", "high", "unit")
        record = {
            "work": self.work,
            "ended": self.ended,
            **self.about,
            "summary": [dict(zip(words, number, strict=True)) for number in self.numbers],
            "tables": self.tables,
            "notes": self.notes,
        }
        return json.dumps(_finite(record), indent=1)


def _finite(value: object) -> object:
    if isinstance(value, dict):
        return {k: _finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


# --- estimates that several workloads have in common ------------------------------------------------------------------


def rate_interval(windows: Sequence[Row]) -> Interval:
    """Rate over windows; Student's interval over the tenths of each, assumed independent."""
    seconds = sum(w["seconds"] for w in windows)
    value = sum(w["rate"] * w["seconds"] for w in windows) / seconds if seconds else math.nan
    parts = mean_of_runs([rate for w in windows for rate in w["rates"]], POSITIVE)
    return replace(parts, value=value).interval()


def step_times(windows: Sequence[Row]) -> Histogram:
    """Times of all steps."""
    return Histogram.sum(Histogram.from_json(w["times"]) for w in windows)


def add_quantiles(told: SingleReport, times: Histogram, of: str) -> None:
    """Add P50, P95 and P99; note those that the sample does not support."""
    row, why = quantiles(times)
    for name, _ in QUANTILES:
        limits = [x for ending in ENDINGS if (x := row[name + ending]) is not None]
        if limits:
            told.add(f"{of}, {name.upper()}", limits[0], "ms", limits=Interval(*limits))
    told.notes += [f"{of}: {reason}" for reason in why]
