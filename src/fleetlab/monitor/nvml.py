"""NVIDIA GPUs through NVML; a value that a GPU does not report, or no longer, is null."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from fleetlab.devices.errors import BenchError
from fleetlab.devices.nvml import query, reason_names
from fleetlab.monitor.sources import VALUES, MonitoredGpu, Row, selected_gpus

MIB = 1 << 20
HINT = "NVML comes with the driver and `pip install 'fleetlab[bench]'`; --backend cpu samples the host instead"


class NvmlSource:
    """All GPUs, or selected ones."""

    def __init__(self, *, index: str = "all") -> None:
        self._n = _opened()
        n = self._n
        try:
            count = query(n.nvmlDeviceGetCount) or 0
            if not count:
                msg = "no NVIDIA GPU on this machine: NVML lists none"
                raise BenchError(msg, hint=HINT)
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


def _opened() -> Any:  # noqa: ANN401
    try:
        import pynvml  # type: ignore[import-untyped]
    except ImportError:
        msg = "no NVIDIA GPU can be sampled: nvidia-ml-py is not installed"
        raise BenchError(msg, hint=HINT) from None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as e:
        msg = f"no NVIDIA GPU on this machine: {e}"
        raise BenchError(msg, hint=HINT) from None
    return pynvml


def _thousandth(value: int | None) -> float | None:
    return None if value is None else value / 1000


def _text(value: object) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value or "")
