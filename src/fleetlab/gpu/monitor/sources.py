"""Sources of samples: NVIDIA GPUs, or the host."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fleetlab.gpu.devices.console import BenchError
from fleetlab.gpu.devices.nvml import open_nvml, query, reason_names

Row = dict[str, Any]
# Values of one sample; each may be null. `used_mib` excludes memory that the driver reserves; `joules` is a counter.
VALUES = (
    "util",
    "memory_util",
    "used_mib",
    "free_mib",
    "reserved_mib",
    "total_mib",
    "celsius",
    "memory_celsius",
    "watts",
    "joules",
    "sm_mhz",
    "memory_mhz",
    "reasons",
)
BACKENDS = ("nvml", "cpu")


@dataclass(frozen=True, slots=True)
class MonitoredGpu:
    """Identification of a GPU, as monitoring tools name it."""

    index: int
    name: str
    uuid: str
    bus: str
    device: str


def open_source(backend: str = "nvml", *, index: str = "all") -> HostSource | NvmlSource:
    """Open the GPUs of this machine, or the host in place of one."""
    if backend not in BACKENDS:
        raise BenchError(f"unknown backend: `{backend}`", hint=f"there are {', '.join(BACKENDS)}")
    return HostSource(index=index) if backend == "cpu" else NvmlSource(index=index)


def selected_gpus(index: str, count: int) -> list[int]:
    """Parse a selection of GPUs.

    >>> selected_gpus("all", 3), selected_gpus("2,0,2", 3)
    ([0, 1, 2], [0, 2])
    """
    if index == "all":
        return list(range(count))
    words = [word.strip() for word in index.split(",")]
    if wrong := [w for w in words if not (w.isascii() and w.isdigit() and int(w) < count)]:
        msg = f"no GPU with index {', '.join(wrong) or '(none)'}"
        raise BenchError(msg, hint=f"there are {', '.join(map(str, range(count)))}; or `all`")
    return sorted({int(w) for w in words})


# --- the host in place of a GPU, from /proc, so that the monitor runs where there is no GPU --------------------------


MOST = 10  # processes that are listed: those with the most memory
PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


class HostSource:
    """One device with index 0; its utilization is that of all cores."""

    def __init__(self, *, index: str = "all") -> None:
        if not Path("/proc/stat").exists():
            raise BenchError("the host cannot be sampled: there is no /proc", hint="--backend cpu needs Linux")
        selected_gpus(index, 1)
        self.gpus = (MonitoredGpu(0, _model(), f"cpu-{platform.node()}", "", "cpu0"),)
        self._before = _spent()
        self._lives: dict[int, int] = {}  # CPU ticks of each process at the last sample

    def close(self) -> None:
        """Do nothing."""

    def look(self) -> list[Row]:
        """Take one row: `gpu`, `VALUES`, `events` (names of clock events) and `processes`."""
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


# --- NVIDIA GPUs through NVML; a value that a GPU does not report, or no longer, is null -----------------------------


MIB = 1 << 20
HINT = "NVML comes with the driver and `pip install 'fleetlab[bench]'`; --backend cpu samples the host instead"


class NvmlSource:
    """All GPUs, or selected ones."""

    def __init__(self, *, index: str = "all") -> None:
        self._n, why = open_nvml()
        if self._n is None:
            raise BenchError(f"no NVIDIA GPU can be sampled: {why}", hint=HINT)
        n = self._n
        try:
            count = query(n.nvmlDeviceGetCount) or 0
            if not count:
                raise BenchError("no NVIDIA GPU on this machine: NVML lists none", hint=HINT)
            self._handles = {k: query(n.nvmlDeviceGetHandleByIndex, k) for k in selected_gpus(index, count)}
        except BenchError:
            n.nvmlShutdown()
            raise
        self._since = dict.fromkeys(self._handles, 0)  # µs: start of the next query for process utilization
        self.gpus = tuple(self._card(k, handle) for k, handle in self._handles.items())

    def close(self) -> None:
        """Shut NVML down."""
        query(self._n.nvmlShutdown)

    def look(self) -> list[Row]:
        """Take one sample per GPU."""
        return [self._row(k, handle) for k, handle in self._handles.items()]

    def _card(self, k: int, handle: object) -> MonitoredGpu:
        n = self._n
        bus = getattr(query(n.nvmlDeviceGetPciInfo, handle), "busId", "") if handle else ""
        minor = query(n.nvmlDeviceGetMinorNumber, handle) if handle else None
        name = query(n.nvmlDeviceGetName, handle) if handle else None
        uuid = query(n.nvmlDeviceGetUUID, handle) if handle else None
        return MonitoredGpu(k, _text(name), _text(uuid), _text(bus), f"nvidia{k if minor is None else minor}")

    def _row(self, k: int, handle: Any) -> Row:  # noqa: ANN401  what a handle is, only NVML knows
        if handle is None:
            return {"gpu": k} | dict.fromkeys(VALUES) | {"events": None, "processes": None}
        n = self._n
        use = query(n.nvmlDeviceGetUtilizationRates, handle)
        reasons = query(n.nvmlDeviceGetCurrentClocksEventReasons, handle)
        return {
            "gpu": k,
            "util": use.gpu if use else None,
            "memory_util": use.memory if use else None,
            **self._memory(handle),
            "celsius": query(n.nvmlDeviceGetTemperature, handle, n.NVML_TEMPERATURE_GPU),
            "memory_celsius": self._memory_celsius(handle),
            "watts": _thousandth(query(n.nvmlDeviceGetPowerUsage, handle)),
            "joules": _thousandth(query(n.nvmlDeviceGetTotalEnergyConsumption, handle)),
            "sm_mhz": query(n.nvmlDeviceGetClockInfo, handle, n.NVML_CLOCK_SM),
            "memory_mhz": query(n.nvmlDeviceGetClockInfo, handle, n.NVML_CLOCK_MEM),
            "reasons": reasons,
            "events": None if reasons is None else reason_names(reasons),
            "processes": self._processes(k, handle),
        }

    def _memory(self, handle: object) -> Row:
        n = self._n
        # Version 2 separates the memory that the driver reserves; version 1 counts it as used.
        detailed = query(n.nvmlDeviceGetMemoryInfo, handle, n.nvmlMemory_v2)
        plain = detailed or query(n.nvmlDeviceGetMemoryInfo, handle)
        parts = {"used_mib": plain, "free_mib": plain, "reserved_mib": detailed, "total_mib": plain}
        return {key: None if of is None else getattr(of, key[:-4]) / MIB for key, of in parts.items()}

    def _memory_celsius(self, handle: object) -> int | None:
        n = self._n
        values = query(n.nvmlDeviceGetFieldValues, handle, [n.NVML_FI_DEV_MEMORY_TEMP])
        if not values or values[0].nvmlReturn != n.NVML_SUCCESS:
            return None
        return int(values[0].value.uiVal)

    def _processes(self, k: int, handle: object) -> list[Row] | None:
        n = self._n
        lists = {
            "compute": query(n.nvmlDeviceGetComputeRunningProcesses, handle),
            "mps": query(n.nvmlDeviceGetMPSComputeRunningProcesses, handle),
            "graphics": query(n.nvmlDeviceGetGraphicsRunningProcesses, handle),
        }
        if all(processes is None for processes in lists.values()):
            return None
        use = self._use(k, handle)
        rows: dict[int, Row] = {}
        for kind, processes in lists.items():
            for one in processes or []:
                memory = None if one.usedGpuMemory is None else one.usedGpuMemory / MIB
                about = {"pid": one.pid, "name": self._name(one.pid), "kind": kind, "memory_mib": memory}
                rows.setdefault(one.pid, about | use.get(one.pid, {"util": None, "memory_util": None}))
        return list(rows.values())

    def _use(self, k: int, handle: object) -> dict[int, Row]:
        """Utilization by process since the last sample; an idle GPU answers with an error, which means none."""
        samples: Iterable[Any] = query(self._n.nvmlDeviceGetProcessUtilization, handle, self._since[k]) or []
        usage: dict[int, Row] = {}
        for one in sorted(samples, key=lambda one: int(one.timeStamp)):
            usage[one.pid] = {"util": int(one.smUtil), "memory_util": int(one.memUtil)}
            self._since[k] = int(one.timeStamp)
        return usage

    def _name(self, pid: int) -> str | None:
        path = query(self._n.nvmlSystemGetProcessName, pid)
        return Path(_text(path)).name or None if path else None


def _thousandth(value: int | None) -> float | None:
    return None if value is None else value / 1000


def _text(value: object) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value or "")
