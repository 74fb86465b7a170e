"""Works that do the same over and over: how fast, how long a step takes, and how much of the time they work."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from fleetlab.bench.loops import Fed
from fleetlab.bench.quantiles import quantiles
from fleetlab.bench.single.measure import measure, ready
from fleetlab.bench.single.report import Row, Told, rate_of, tell_quantiles, times_of
from fleetlab.bench.single.settings import Ask
from fleetlab.bench.single.usage import joules, memory_mib, tell_energy, tell_memory
from fleetlab.bench.workloads import Work
from fleetlab.devices.errors import BenchError
from fleetlab.devices.nvml import Monitor
from fleetlab.devices.units import scaled
from fleetlab.stats import POSITIVE, Interval, mean_of_runs

Tell = Callable[[str], None]
STARVED = 0.05  # of the steps that found the device idle: from here on the host is the limit
STEP = {"llm-decode": "time per token", "interactive": "burst"}  # what a step is called


def steady(ask: Ask, told: Told, watch: Monitor, tell: Tell) -> None:
    """One window of a work."""
    tell(f"{ask.name}: loading")
    work = ready(ask.name, ask.make(), ask.device)
    told.about["how"] = getattr(work, "how", "")
    tell(f"{ask.name}: running")
    made, fed = measure(ask.name, work, ask.device, **ask.window())
    by, unit = scaled(work.unit)
    rate = rate_of([made])
    told.add("throughput", by * rate.value, f"{unit}/s", limits=Interval(*(by * x for x in rate)))
    tell_quantiles(told, times_of([made]), STEP.get(ask.name, "step"))
    _tell_time(told, work, made)
    if ask.name == "interactive":
        _tell_person(told, work, made, fed)
    tell_memory(told, ask.device)
    tell_energy(told, watch, [made], work.unit)
    _tell_host(told, made, ask)


def _tell_time(told: Told, work: Work, made: Row) -> None:
    duty = getattr(work, "duty", None)
    if duty is None:
        told.add("device time / wall time", made["busy"])
    else:
        told.add("duty, asked", duty)
        told.add("duty, got", made["busy"])


def _tell_person(told: Told, work: Any, made: Row, fed: Fed) -> None:  # noqa: ANN401
    """When somebody waited for the device, and when the device for somebody."""
    active = made["busy"] * made["seconds"]
    told.add("bursts", made["steps"])
    told.add("active", active, "s")
    told.add("idle", made["seconds"] - active, "s")
    told.add("think time, asked", work.think, "s")
    thought = np.asarray(fed.begun[1:]) - np.asarray(fed.ended[:-1])
    if len(thought) > 1:
        mean = mean_of_runs(thought, POSITIVE).interval()
        told.add("think time, got", mean.value, "s", limits=mean)


def _tell_host(told: Told, made: Row, ask: Ask) -> None:
    if ask.device.type == "cuda" and made["starved"] > STARVED:
        told.notes.append(f"{made['starved']:.0%} of the steps found the device idle: the host is the limit")


def by_batch(ask: Ask, told: Told, watch: Monitor, tell: Tell) -> None:
    """One window a batch size; a size that does not fit ends the row, and those before are kept."""
    rows: list[Row] = []
    waits: list[Row] = []
    told.tables |= {"throughput": rows, "latency": waits}
    tell(f"{ask.name}: batches of {', '.join(map(str, ask.batches))}")
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
        tell(f"batch {batch}: {rows[-1]['rate']:,.0f} {told.about['unit']}s/s")
    best = max(rows, key=lambda row: row["rate"])
    limits = Interval(best["rate"], best["rate_low"], best["rate_high"])
    told.add(f"highest rate, at batch {best['batch']}", best["rate"], f"{told.about['unit']}/s", limits=limits)
    tell_memory(told, ask.device)


def _batch(ask: Ask, told: Told, watch: Monitor, batch: int) -> tuple[Row, Row]:
    on_card = ask.device.type == "cuda"
    if on_card:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(ask.device)
    work = ready(ask.name, ask.make(batch=batch), ask.device)
    told.about["unit"] = work.unit
    made, _ = measure(ask.name, work, ask.device, **ask.window())
    rate, spent = rate_of([made]), joules(watch, [made])
    found, why = quantiles(times_of([made]))
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
