"""Workloads without epochs: rate, step time, and device time over wall time."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from fleetlab.bench.loops import StepLog
from fleetlab.bench.quantiles import quantiles
from fleetlab.bench.single.measure import load_and_warm_up, measure
from fleetlab.bench.single.report import Row, SingleReport, add_quantiles, rate_interval, step_times
from fleetlab.bench.single.settings import RunSettings
from fleetlab.bench.single.usage import add_energy, add_memory, joules, memory_mib
from fleetlab.bench.workloads import BenchWorkload
from fleetlab.devices.errors import BenchError
from fleetlab.devices.nvml import GpuSampler
from fleetlab.devices.progress import Progress
from fleetlab.devices.units import unit_scale
from fleetlab.stats import POSITIVE, Interval, mean_of_runs

STARVED = 0.05  # fraction of steps that found the device idle: above it the host is the bottleneck
STEP = {"llm-decode": "time per token", "interactive": "burst"}  # name of a step


def steady(ask: RunSettings, told: SingleReport, watch: GpuSampler, progress: Progress) -> None:
    """Measure one window."""
    progress(f"{ask.name}: loading")
    work = load_and_warm_up(ask.name, ask.make(), ask.device)
    told.about["how"] = getattr(work, "how", "")
    progress(f"{ask.name}: running")
    made, fed = measure(ask.name, work, ask.device, **ask.window())
    by, unit = unit_scale(work.unit)
    rate = rate_interval([made])
    told.add("throughput", by * rate.value, f"{unit}/s", limits=Interval(*(by * x for x in rate)))
    add_quantiles(told, step_times([made]), STEP.get(ask.name, "step"))
    _add_busy_time(told, work, made)
    if ask.name == "interactive":
        _add_think_time(told, work, made, fed)
    add_memory(told, ask.device)
    add_energy(told, watch, [made], work.unit)
    _note_starvation(told, made, ask)


def _add_busy_time(told: SingleReport, work: BenchWorkload, made: Row) -> None:
    duty = getattr(work, "duty", None)
    if duty is None:
        told.add("device time / wall time", made["busy"])
    else:
        told.add("duty, requested", duty)
        told.add("duty, measured", made["busy"])


def _add_think_time(told: SingleReport, work: Any, made: Row, fed: StepLog) -> None:  # noqa: ANN401
    """Add active, idle and think time of an interactive user."""
    active = made["busy"] * made["seconds"]
    told.add("bursts", made["steps"])
    told.add("active", active, "s")
    told.add("idle", made["seconds"] - active, "s")
    told.add("think time, requested", work.think, "s")
    thought = np.asarray(fed.begun[1:]) - np.asarray(fed.ended[:-1])
    if len(thought) > 1:
        mean = mean_of_runs(thought, POSITIVE).interval()
        told.add("think time, measured", mean.value, "s", limits=mean)


def _note_starvation(told: SingleReport, made: Row, ask: RunSettings) -> None:
    if ask.device.type == "cuda" and made["starved"] > STARVED:
        told.notes.append(
            f"{100 * made['starved']:.0f} % of the steps found the device idle: the host is the bottleneck"
        )


def by_batch(ask: RunSettings, told: SingleReport, watch: GpuSampler, progress: Progress) -> None:
    """Measure one window per batch size; the first size that does not fit into memory ends the table."""
    rows: list[Row] = []
    waits: list[Row] = []
    told.tables |= {"throughput": rows, "latency": waits}
    progress(f"{ask.name}: batches of {', '.join(map(str, ask.batches))}")
    for batch in ask.batches:
        try:
            row, wait = _batch(ask, told, watch, batch)
        except BenchError as e:
            if not rows or "out of memory" not in str(e):
                raise
            told.notes.append(f"batch {batch}: {e}; larger ones were not tried")
            break
        rows.append(row)
        waits.append(wait)
        progress(f"batch {batch}: {rows[-1]['rate']:,.0f} {told.about['unit']}s/s")
    best = max(rows, key=lambda row: row["rate"])
    limits = Interval(best["rate"], best["rate_low"], best["rate_high"])
    told.add(f"highest rate, at batch {best['batch']}", best["rate"], f"{told.about['unit']}/s", limits=limits)
    add_memory(told, ask.device)


def _batch(ask: RunSettings, told: SingleReport, watch: GpuSampler, batch: int) -> tuple[Row, Row]:
    on_card = ask.device.type == "cuda"
    if on_card:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(ask.device)
    work = load_and_warm_up(ask.name, ask.make(batch=batch), ask.device)
    told.about["unit"] = work.unit
    made, _ = measure(ask.name, work, ask.device, **ask.window())
    rate, spent = rate_interval([made]), joules(watch, [made])
    found, why = quantiles(step_times([made]))
    row = {
        "batch": batch,
        "how": getattr(work, "how", "")[:20],
        "rate": rate.value,
        "rate_low": rate.low,
        "rate_high": rate.high,
        "busy": made["busy"],
        "joules_an_item": spent / (made["rate"] * made["seconds"]) if spent and made["rate"] else None,
        "memory_mib": memory_mib(ask.device),
    }
    return row, {"batch": batch, "steps": made["steps"], **found, "short": "; ".join(why)}
