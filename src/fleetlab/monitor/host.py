"""The host in place of a GPU, from /proc, so that the monitor runs where there is no GPU."""

from __future__ import annotations

import os
import platform
from pathlib import Path

from fleetlab.devices.errors import BenchError
from fleetlab.monitor.sources import VALUES, MonitoredGpu, Row, selected_gpus

MOST = 10  # processes that are listed: those with the most memory
PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


class HostSource:
    """One device with index 0; its utilization is that of all cores."""

    def __init__(self, *, index: str = "all") -> None:
        if not Path("/proc/stat").exists():
            msg = "the host cannot be sampled: there is no /proc"
            raise BenchError(msg, hint="--backend cpu needs Linux")
        selected_gpus(index, 1)
        self.gpus = (MonitoredGpu(0, _model(), f"cpu-{platform.node()}", "", "cpu0"),)
        self._before = _spent()
        self._lives: dict[int, int] = {}  # CPU ticks of each process at the last sample

    def close(self) -> None:
        """Do nothing."""

    def look(self) -> list[Row]:
        """Take one sample."""
        (busy, total), (was_busy, was_total) = (now := _spent()), self._before
        self._before = now
        util = round(100 * (busy - was_busy) / (total - was_total), 1) if total > was_total else None
        size, free = _memory()
        known = {"util": util, "used_mib": size - free, "free_mib": free, "total_mib": size}
        processes = self._processes(max(total - was_total, 1))
        return [{"gpu": 0} | dict.fromkeys(VALUES) | known | {"events": None, "processes": processes}]

    def _processes(self, ticks: int) -> list[Row]:
        processes = {int(p.name): usage for p in Path("/proc").iterdir() if p.name.isdigit() and (usage := _process(p))}
        most = sorted(processes, key=lambda pid: processes[pid][1], reverse=True)[:MOST]
        rows = []
        for pid in most:
            name, mib, used = processes[pid]
            util = round(100 * max(used - self._lives[pid], 0) / ticks, 1) if pid in self._lives else None
            rows.append({"pid": pid, "name": name, "kind": "cpu", "memory_mib": mib, "util": util, "memory_util": None})
        self._lives = {pid: used for pid, (_, _, used) in processes.items()}
        return rows


def _spent() -> tuple[int, int]:
    """Busy CPU ticks of all cores, and all ticks."""
    words = [int(w) for w in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    idle = words[3] + words[4]
    return sum(words) - idle, sum(words)


def _memory() -> tuple[float, float]:
    """Total and available memory in MiB."""
    lines = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines() if ":" in line)
    size, free = (int(lines[key].split()[0]) / 1024 for key in ("MemTotal", "MemAvailable"))
    return size, free


def _process(path: Path) -> tuple[str, float, int] | None:
    """Name, MiB and CPU ticks of a process; None if it has ended."""
    try:
        head, _, tail = (path / "stat").read_text(errors="replace").rpartition(")")
    except OSError:
        return None
    words = tail.split()
    return head.partition("(")[2], int(words[21]) * PAGE / 2**20, int(words[11]) + int(words[12])


def _model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.machine()
