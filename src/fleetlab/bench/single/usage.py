"""Memory and energy of a run."""

from __future__ import annotations

import resource
from collections.abc import Sequence

import torch

from fleetlab.bench.single.report import Row, SingleReport
from fleetlab.devices.nvml import GpuSampler
from fleetlab.devices.units import unit_scale

STEADY = 5.0  # s: in shorter windows the energy counter, updated about fifteen times per second, is imprecise


def memory_mib(device: torch.device) -> int:
    """Peak memory: GPU memory reserved by PyTorch, or resident memory of this process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_reserved(device) >> 20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10


def add_memory(told: SingleReport, device: torch.device) -> None:
    """Add peak memory."""
    of = "card's" if device.type == "cuda" else "host's"
    told.add(f"{of} memory, peak", memory_mib(device), "MiB")


def joules(watch: GpuSampler, windows: Sequence[Row]) -> float | None:
    """Energy of all windows: mean power by the counter times length; None if unknown."""
    samples = [(watch.between(w["opens"], w["opens"] + w["seconds"]), w["seconds"]) for w in windows]
    if watch.absent or not samples or not all(about.get("watts", -1) > 0 for about, _ in samples):
        return None
    return float(sum(about["watts"] * seconds for about, seconds in samples))


def add_energy(told: SingleReport, watch: GpuSampler, windows: Sequence[Row], unit: str) -> None:
    """Add mean power, and energy per item."""
    spent, items = joules(watch, windows), sum(w["rate"] * w["seconds"] for w in windows)
    if spent is None or not items:
        return
    seconds = sum(w["seconds"] for w in windows)
    by, name = unit_scale(unit)
    told.add("power", spent / seconds, "W")
    told.add("energy", spent / (items * by), f"J/{name}")
    if min(w["seconds"] for w in windows) < STEADY:
        told.notes.append(f"energy is imprecise in windows below {STEADY:g} s")
