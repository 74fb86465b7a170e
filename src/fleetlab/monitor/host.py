"""The machine itself in the place of a card, from /proc: so that everything around it runs where there is no GPU."""

from __future__ import annotations

import os
import platform
from pathlib import Path

from fleetlab.devices.errors import BenchError
from fleetlab.monitor.sources import VALUES, Card, Row, chosen

MOST = 10  # processes that are told, those with the most memory
PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


class Host:
    """One card, number 0: its use is that of all cores."""

    def __init__(self, *, index: str = "all") -> None:
        if not Path("/proc/stat").exists():
            msg = "this machine cannot be watched: it has no /proc"
            raise BenchError(msg, hint="--backend cpu is for Linux")
        chosen(index, 1)
        self.cards = (Card(0, _model(), f"cpu-{platform.node()}", "", "cpu0"),)
        self._before = _spent()
        self._lives: dict[int, int] = {}  # ticks that each process had used at the last look

    def close(self) -> None:
        """Nothing is held."""

    def look(self) -> list[Row]:
        """One row."""
        (busy, total), (was_busy, was_total) = (now := _spent()), self._before
        self._before = now
        util = round(100 * (busy - was_busy) / (total - was_total), 1) if total > was_total else None
        size, free = _memory()
        known = {"util": util, "used_mib": size - free, "free_mib": free, "total_mib": size}
        processes = self._processes(max(total - was_total, 1))
        return [{"card": 0} | dict.fromkeys(VALUES) | known | {"events": None, "processes": processes}]

    def _processes(self, ticks: int) -> list[Row]:
        found = {int(p.name): seen for p in Path("/proc").iterdir() if p.name.isdigit() and (seen := _process(p))}
        most = sorted(found, key=lambda pid: found[pid][1], reverse=True)[:MOST]
        rows = []
        for pid in most:
            name, mib, used = found[pid]
            util = round(100 * max(used - self._lives[pid], 0) / ticks, 1) if pid in self._lives else None
            rows.append({"pid": pid, "name": name, "kind": "cpu", "memory_mib": mib, "util": util, "memory_util": None})
        self._lives = {pid: used for pid, (_, _, used) in found.items()}
        return rows


def _spent() -> tuple[int, int]:
    """Ticks that all cores were busy, and ticks in all."""
    words = [int(w) for w in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    idle = words[3] + words[4]
    return sum(words) - idle, sum(words)


def _memory() -> tuple[float, float]:
    """MiB there are, and MiB that could be had."""
    lines = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines() if ":" in line)
    size, free = (int(lines[key].split()[0]) / 1024 for key in ("MemTotal", "MemAvailable"))
    return size, free


def _process(path: Path) -> tuple[str, float, int] | None:
    """Its name, its MiB and its ticks; None if it went while it was looked at."""
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
