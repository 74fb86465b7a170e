"""NVIDIA cards, asked through NVML; what a card does not answer, or no longer, is null."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from fleetlab.devices.errors import BenchError
from fleetlab.devices.nvml import in_words, or_none
from fleetlab.monitor.sources import VALUES, Card, Row, chosen

MIB = 1 << 20
HINT = "the driver and `pip install fleetlab[bench]` bring NVML; --backend cpu watches the host instead"


class Nvml:
    """All cards, or some."""

    def __init__(self, *, index: str = "all") -> None:
        self._n = _opened()
        n = self._n
        try:
            count = or_none(n.nvmlDeviceGetCount) or 0
            if not count:
                msg = "no NVIDIA GPU on this machine: NVML lists none"
                raise BenchError(msg, hint=HINT)
            self._handles = {k: or_none(n.nvmlDeviceGetHandleByIndex, k) for k in chosen(index, count)}
        except BenchError:
            n.nvmlShutdown()
            raise
        self._since = dict.fromkeys(self._handles, 0)  # µs: process utilisation is asked for from here on
        self.cards = tuple(self._card(k, handle) for k, handle in self._handles.items())

    def close(self) -> None:
        """Let NVML go."""
        or_none(self._n.nvmlShutdown)

    def look(self) -> list[Row]:
        """One row a card."""
        return [self._row(k, handle) for k, handle in self._handles.items()]

    def _card(self, k: int, handle: object) -> Card:
        n = self._n
        bus = getattr(or_none(n.nvmlDeviceGetPciInfo, handle), "busId", "") if handle else ""
        minor = or_none(n.nvmlDeviceGetMinorNumber, handle) if handle else None
        name = or_none(n.nvmlDeviceGetName, handle) if handle else None
        uuid = or_none(n.nvmlDeviceGetUUID, handle) if handle else None
        return Card(k, _text(name), _text(uuid), _text(bus), f"nvidia{k if minor is None else minor}")

    def _row(self, k: int, handle: Any) -> Row:  # noqa: ANN401  what a handle is, only NVML knows
        if handle is None:
            return {"card": k} | dict.fromkeys(VALUES) | {"events": None, "processes": None}
        n = self._n
        use = or_none(n.nvmlDeviceGetUtilizationRates, handle)
        reasons = or_none(n.nvmlDeviceGetCurrentClocksEventReasons, handle)
        return {
            "card": k,
            "util": use.gpu if use else None,
            "memory_util": use.memory if use else None,
            **self._memory(handle),
            "celsius": or_none(n.nvmlDeviceGetTemperature, handle, n.NVML_TEMPERATURE_GPU),
            "memory_celsius": self._memory_celsius(handle),
            "watts": _thousandth(or_none(n.nvmlDeviceGetPowerUsage, handle)),
            "joules": _thousandth(or_none(n.nvmlDeviceGetTotalEnergyConsumption, handle)),
            "sm_mhz": or_none(n.nvmlDeviceGetClockInfo, handle, n.NVML_CLOCK_SM),
            "memory_mhz": or_none(n.nvmlDeviceGetClockInfo, handle, n.NVML_CLOCK_MEM),
            "reasons": reasons,
            "events": None if reasons is None else in_words(reasons),
            "processes": self._processes(k, handle),
        }

    def _memory(self, handle: object) -> Row:
        n = self._n
        # The second version tells apart what the driver reserves; the first counts it as used.
        held = or_none(n.nvmlDeviceGetMemoryInfo, handle, n.nvmlMemory_v2)
        plain = held or or_none(n.nvmlDeviceGetMemoryInfo, handle)
        parts = {"used_mib": plain, "free_mib": plain, "reserved_mib": held, "total_mib": plain}
        return {key: None if of is None else getattr(of, key[:-4]) / MIB for key, of in parts.items()}

    def _memory_celsius(self, handle: object) -> int | None:
        n = self._n
        found = or_none(n.nvmlDeviceGetFieldValues, handle, [n.NVML_FI_DEV_MEMORY_TEMP])
        if not found or found[0].nvmlReturn != n.NVML_SUCCESS:
            return None
        return int(found[0].value.uiVal)

    def _processes(self, k: int, handle: object) -> list[Row] | None:
        n = self._n
        asked = {
            "compute": or_none(n.nvmlDeviceGetComputeRunningProcesses, handle),
            "mps": or_none(n.nvmlDeviceGetMPSComputeRunningProcesses, handle),
            "graphics": or_none(n.nvmlDeviceGetGraphicsRunningProcesses, handle),
        }
        if all(found is None for found in asked.values()):
            return None
        use = self._use(k, handle)
        rows: dict[int, Row] = {}
        for kind, found in asked.items():
            for one in found or []:
                held = None if one.usedGpuMemory is None else one.usedGpuMemory / MIB
                about = {"pid": one.pid, "name": self._name(one.pid), "kind": kind, "memory_mib": held}
                rows.setdefault(one.pid, about | use.get(one.pid, {"util": None, "memory_util": None}))
        return list(rows.values())

    def _use(self, k: int, handle: object) -> dict[int, Row]:
        """What each process used since the last look; an idle card answers with an error, which means nobody."""
        seen: Iterable[Any] = or_none(self._n.nvmlDeviceGetProcessUtilization, handle, self._since[k]) or []
        found: dict[int, Row] = {}
        for one in sorted(seen, key=lambda one: int(one.timeStamp)):
            found[one.pid] = {"util": int(one.smUtil), "memory_util": int(one.memUtil)}
            self._since[k] = int(one.timeStamp)
        return found

    def _name(self, pid: int) -> str | None:
        path = or_none(self._n.nvmlSystemGetProcessName, pid)
        return Path(_text(path)).name or None if path else None


def _opened() -> Any:  # noqa: ANN401
    try:
        import pynvml  # type: ignore[import-untyped]
    except ImportError:
        msg = "no NVIDIA GPU can be watched: nvidia-ml-py is not installed"
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
