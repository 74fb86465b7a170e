"""What a work took of the machine: memory, and energy by the card's own counter."""

from __future__ import annotations

import resource
from collections.abc import Sequence

import torch

from fleetlab.bench.single.report import Row, Told
from fleetlab.devices.nvml import Monitor
from fleetlab.devices.units import scaled

STEADY = 5.0  # s: below this the counter, which moves about fifteen times a second, says little


def memory_mib(device: torch.device) -> int:
    """The most that was held: of the card by PyTorch, or of the host by this process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_reserved(device) >> 20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10


def tell_memory(told: Told, device: torch.device) -> None:
    """Say whose memory it is."""
    of = "card's" if device.type == "cuda" else "host's"
    told.add(f"{of} memory, peak", memory_mib(device), "MiB")


def joules(watch: Monitor, windows: Sequence[Row]) -> float | None:
    """Energy of all windows: the power that the counter gives for each, times its length; None where it cannot say."""
    seen = [(watch.between(w["opens"], w["opens"] + w["seconds"]), w["seconds"]) for w in windows]
    if watch.absent or not seen or not all(about.get("watts", -1) > 0 for about, _ in seen):
        return None
    return float(sum(about["watts"] * seconds for about, seconds in seen))


def tell_energy(told: Told, watch: Monitor, windows: Sequence[Row], unit: str) -> None:
    """Joules an item, and the power."""
    spent, items = joules(watch, windows), sum(w["rate"] * w["seconds"] for w in windows)
    if spent is None or not items:
        return
    seconds = sum(w["seconds"] for w in windows)
    by, name = scaled(unit)
    told.add("power", spent / seconds, "W")
    told.add("energy", spent / (items * by), f"J/{name}")
    if min(w["seconds"] for w in windows) < STEADY:
        told.notes.append(f"energy of windows below {STEADY:g} s is rough")
