"""Workloads without epochs, measured with the suite's closed loop, and the report of any workload alone.

Plain values, without polars, for a machine with few packages.
"""

from __future__ import annotations

import json
import math
import re
import resource
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from fleetlab.gpu.bench.histogram import ENDINGS, QUANTILES, Histogram, interval_columns, quantiles
from fleetlab.gpu.bench.loops import StepLog, closed_loop, summarize_window
from fleetlab.gpu.bench.single.settings import RunSettings
from fleetlab.gpu.bench.workloads import BenchWorkload
from fleetlab.gpu.devices.clock import clock_for
from fleetlab.gpu.devices.console import BenchError, Progress, unit_scale
from fleetlab.gpu.devices.nvml import GpuSampler
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


def add_quantiles(report: SingleReport, times: Histogram, of: str) -> None:
    """Add P50, P95 and P99; note those that the sample does not support."""
    row, why = quantiles(times)
    for name, _ in QUANTILES:
        limits = [x for ending in ENDINGS if (x := row[name + ending]) is not None]
        if limits:
            report.add(f"{of}, {name.upper()}", limits[0], "ms", limits=Interval(*limits))
    report.notes += [f"{of}: {reason}" for reason in why]


# --- memory and energy of a run --------------------------------------------------------------------------------------


STEADY = 5.0  # s: in shorter windows the energy counter, updated about fifteen times per second, is imprecise


def memory_mib(device: torch.device) -> int:
    """Peak memory: GPU memory reserved by PyTorch, or resident memory of this process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_reserved(device) >> 20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10


def add_memory(report: SingleReport, device: torch.device) -> None:
    """Add peak memory."""
    of = "card's" if device.type == "cuda" else "host's"
    report.add(f"{of} memory, peak", memory_mib(device), "MiB")


def joules(watch: GpuSampler, windows: Sequence[Row]) -> float | None:
    """Energy of all windows: mean power by the counter times length; None if unknown."""
    samples = [(watch.between(w["opens"], w["opens"] + w["seconds"]), w["seconds"]) for w in windows]
    if watch.absent or not samples or not all(about.get("watts", -1) > 0 for about, _ in samples):
        return None
    return float(sum(about["watts"] * seconds for about, seconds in samples))


def add_energy(report: SingleReport, watch: GpuSampler, windows: Sequence[Row], unit: str) -> None:
    """Add mean power, and energy per item."""
    spent, items = joules(watch, windows), sum(w["rate"] * w["seconds"] for w in windows)
    if spent is None or not items:
        return
    seconds = sum(w["seconds"] for w in windows)
    by, name = unit_scale(unit)
    report.add("power", spent / seconds, "W")
    report.add("energy", spent / (items * by), f"J/{name}")
    if min(w["seconds"] for w in windows) < STEADY:
        report.notes.append(f"energy is imprecise in windows below {STEADY:g} s")


# --- measure one window -----------------------------------------------------------------------------------------------


WARM = 3  # warm-up steps


def measure(
    name: str, work: BenchWorkload, device: torch.device, *, seconds: float | None, steps: int | None, settle: float
) -> tuple[dict[str, Any], StepLog]:
    """Measure one window; the summary includes its length and start."""
    clock = clock_for(device)
    if steps is None:
        assert seconds is not None
        opens = time.monotonic() + settle
        closes = opens + seconds
        log = closed_loop(work, clock, until=closes)
    else:
        log = closed_loop(work, clock, steps=steps)
    raise_workload_error(name, log.error)
    return full_window(log) if steps is not None else window(log, opens, closes), log


def full_window(log: StepLog) -> dict[str, Any]:
    """Summarize from the start of the first step to the end of the last one."""
    return window(log, log.begun[0], math.nextafter(log.ended[-1], math.inf))


def window(log: StepLog, opens: float, closes: float) -> dict[str, Any]:
    """Summarize a window, with its length and start."""
    return summarize_window(log, opens, closes) | {"seconds": closes - opens, "opens": opens}


def load_and_warm_up(name: str, work: BenchWorkload, device: torch.device) -> BenchWorkload:
    """Load a workload on a device and warm it up."""
    try:
        work.setup(device)
        for _ in range(WARM):
            work.step()
        if device.type == "cuda":
            torch.cuda.synchronize()
    except Exception as e:  # any error of a workload becomes an error for the user
        raise_workload_error(name, e)
    return work


def raise_workload_error(name: str, e: BaseException | None) -> None:
    """Raise the error of a workload as one that says what to do."""
    if e is None:
        return
    if isinstance(e, BenchError):
        raise e
    text = str(e).splitlines()[0] if str(e) else type(e).__name__
    request = re.search(r"[Tt]ried to allocate ([\d.,]+ ?\w+)", text)
    if isinstance(e, torch.OutOfMemoryError | MemoryError) or (request and "memory" in text):
        more = f": requested {request[1]} more{_left()}" if request else f": {text}"
        msg = f"{name}: out of memory{more}"
        raise BenchError(msg, hint="use a smaller --batch, or a smaller model with --set") from e
    msg = f"{name}: failed: {type(e).__name__}: {text[:300]}"
    raise BenchError(msg, hint="are the settings compatible with each other?") from e


def _left() -> str:
    if not torch.cuda.is_available():
        return ""
    free, total = (x / 2**30 for x in torch.cuda.mem_get_info())
    return f", with {free:.1f} of {total:.1f} GiB free"


# --- workloads without epochs ----------------------------------------------------------------------------------------


STARVED = 0.05  # fraction of steps that found the device idle: above it the host is the bottleneck
STEP = {"llm-decode": "time per token", "interactive": "burst"}  # name of a step


def steady(ask: RunSettings, report: SingleReport, watch: GpuSampler, progress: Progress) -> None:
    """Measure one window."""
    progress(f"{ask.name}: loading")
    work = load_and_warm_up(ask.name, ask.make(), ask.device)
    report.about["how"] = getattr(work, "how", "")
    progress(f"{ask.name}: running")
    measured, log = measure(ask.name, work, ask.device, **ask.window())
    by, unit = unit_scale(work.unit)
    rate = rate_interval([measured])
    report.add("throughput", by * rate.value, f"{unit}/s", limits=Interval(*(by * x for x in rate)))
    add_quantiles(report, step_times([measured]), STEP.get(ask.name, "step"))
    duty = getattr(work, "duty", None)
    if duty is None:
        report.add("device time / wall time", measured["busy"])
    else:
        report.add("duty, requested", duty)
        report.add("duty, measured", measured["busy"])
    if ask.name == "interactive":
        _add_think_time(report, work, measured, log)
    add_memory(report, ask.device)
    add_energy(report, watch, [measured], work.unit)
    _note_starvation(report, measured, ask)


def _add_think_time(report: SingleReport, work: Any, measured: Row, log: StepLog) -> None:  # noqa: ANN401
    """Add active, idle and think time of an interactive user."""
    active = measured["busy"] * measured["seconds"]
    report.add("bursts", measured["steps"])
    report.add("active", active, "s")
    report.add("idle", measured["seconds"] - active, "s")
    report.add("think time, requested", work.think, "s")
    thought = np.asarray(log.begun[1:]) - np.asarray(log.ended[:-1])
    if len(thought) > 1:
        mean = mean_of_runs(thought, POSITIVE).interval()
        report.add("think time, measured", mean.value, "s", limits=mean)


def _note_starvation(report: SingleReport, measured: Row, ask: RunSettings) -> None:
    if ask.device.type == "cuda" and measured["starved"] > STARVED:
        report.notes.append(
            f"{100 * measured['starved']:.0f} % of the steps found the device idle: the host is the bottleneck"
        )


def by_batch(ask: RunSettings, report: SingleReport, watch: GpuSampler, progress: Progress) -> None:
    """Measure one window per batch size; the first size that does not fit into memory ends the table."""
    rows: list[Row] = []
    waits: list[Row] = []
    report.tables |= {"throughput": rows, "latency": waits}
    progress(f"{ask.name}: batches of {', '.join(map(str, ask.batches))}")
    for batch in ask.batches:
        try:
            row, wait = _batch(ask, report, watch, batch)
        except BenchError as e:
            if not rows or "out of memory" not in str(e):
                raise
            report.notes.append(f"batch {batch}: {e}; larger ones were not tried")
            break
        rows.append(row)
        waits.append(wait)
        progress(f"batch {batch}: {rows[-1]['rate']:,.0f} {report.about['unit']}s/s")
    best = max(rows, key=lambda row: row["rate"])
    limits = Interval(best["rate"], best["rate_low"], best["rate_high"])
    report.add(f"highest rate, at batch {best['batch']}", best["rate"], f"{report.about['unit']}/s", limits=limits)
    add_memory(report, ask.device)


def _batch(ask: RunSettings, report: SingleReport, watch: GpuSampler, batch: int) -> tuple[Row, Row]:
    on_card = ask.device.type == "cuda"
    if on_card:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(ask.device)
    work = load_and_warm_up(ask.name, ask.make(batch=batch), ask.device)
    report.about["unit"] = work.unit
    measured, _ = measure(ask.name, work, ask.device, **ask.window())
    rate, spent = rate_interval([measured]), joules(watch, [measured])
    columns, why = quantiles(step_times([measured]))
    row = {
        "batch": batch,
        "how": getattr(work, "how", "")[:20],
        **interval_columns("rate", rate),
        "busy": measured["busy"],
        "joules_an_item": spent / (measured["rate"] * measured["seconds"]) if spent and measured["rate"] else None,
        "memory_mib": memory_mib(ask.device),
    }
    return row, {"batch": batch, "steps": measured["steps"], **columns, "short": "; ".join(why)}
