"""Sample a GPU five times per second through NVML: utilization, memory, temperature, power, energy, clocks, throttling.

Energy is read from the GPU's counter; its power reading covers only a part of the time.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

FIELDS = ("t", "util", "memory_util", "memory_mib", "celsius", "watts", "joules", "sm_mhz", "memory_mhz", "reasons")
POWER_CAP, THERMAL = 0x4, 0x20 | 0x40  # clock-event bits
THROTTLE_REASONS = POWER_CAP | 0x8 | THERMAL | 0x80  # bits that mean that clocks are throttled
REASONS = {  # names of NVML's clock-event bits
    0x1: "idle",
    0x2: "application clocks",
    POWER_CAP: "power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "thermal (software)",
    0x40: "thermal (hardware)",
    0x80: "power brake",
    0x100: "display clocks",
}


def reason_names(bits: int) -> list[str]:
    """Name the clock-event bits that are set; unknown bits are shown in hexadecimal.

    >>> reason_names(0x4 | 0x20), reason_names(0), reason_names(0x400)
    (['power cap', 'thermal (software)'], [], ['0x400'])
    """
    set_ = [1 << k for k in range(int(bits).bit_length()) if bits >> k & 1]
    return [REASONS.get(bit, hex(bit)) for bit in set_]


class GpuSampler:
    """Sample in the background inside a `with` block; without NVML there are no samples, and `absent` says why."""

    def __init__(self, path: Path, *, every: float = 0.2, index: int = 0) -> None:
        self._path, self._every, self._index = path, every, index
        self._open = threading.Lock()  # NVML is open while it is held
        self.samples: list[tuple[float, ...]] = []
        self.unwritten = ""  # why samples are no longer written; sampling continues
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.absent, self.about = "", {}
        self._nvml, self._card = _open_card(index)
        if self._nvml is None:
            self.absent = str(self._card)
        else:
            self.about = _about(self._nvml, self._card)

    def __enter__(self) -> Self:
        if self._nvml is not None:
            self._file = self._path.open("a", encoding="utf-8")
            self._file.write(json.dumps({"fields": FIELDS}) + "\n")
            self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, trace: TracebackType | None) -> None:
        if self._nvml is not None:
            self._over.set()
            self._thread.join()
            with contextlib.suppress(OSError):  # the disk is full: nothing more can be written
                self._file.close()
            self._nvml.nvmlShutdown()

    def _watch(self) -> None:
        while not self._over.wait(self._every):
            with self._open:
                sample = self.look()
            self.samples.append(sample)
            self._write(json.dumps(sample) + "\n")

    @contextlib.contextmanager
    def released(self) -> Iterator[None]:
        """Close NVML inside the block: MIG mode cannot be switched while a process has the GPU open, even to sample."""
        if self._nvml is None:
            yield
            return
        with self._open:
            self._nvml.nvmlShutdown()
            try:
                yield
            finally:
                self._card = self._reopen()

    def _reopen(self) -> Any:  # noqa: ANN401
        self._nvml.nvmlInit()
        for _ in range(20):
            with contextlib.suppress(self._nvml.NVMLError):
                return self._nvml.nvmlDeviceGetHandleByIndex(self._index)
            time.sleep(0.5)  # a GPU that was just reset needs a moment
        return self._nvml.nvmlDeviceGetHandleByIndex(self._index)

    def _write(self, line: str) -> None:
        if self.unwritten:
            return
        try:
            self._file.write(line)
            self._file.flush()
        except OSError as e:  # a full disk must not stop sampling: cells use the samples
            self.unwritten = f"{self._path}: {e.strerror}"

    def look(self) -> tuple[float, ...]:
        """Take one sample."""
        n, card = self._nvml, self._card
        use, memory = query(n.nvmlDeviceGetUtilizationRates, card), query(n.nvmlDeviceGetMemoryInfo, card)
        return (
            round(time.monotonic(), 4),
            use.gpu if use else -1,
            use.memory if use else -1,
            memory.used >> 20 if memory else -1,
            _number(n.nvmlDeviceGetTemperature, card, n.NVML_TEMPERATURE_GPU),
            round(_number(n.nvmlDeviceGetPowerUsage, card) / 1000, 1),
            round(_number(n.nvmlDeviceGetTotalEnergyConsumption, card) / 1000, 3),
            _number(n.nvmlDeviceGetClockInfo, card, n.NVML_CLOCK_SM),
            _number(n.nvmlDeviceGetClockInfo, card, n.NVML_CLOCK_MEM),
            _number(n.nvmlDeviceGetCurrentClocksEventReasons, card),
        )

    def between(self, opens: float, closes: float) -> dict[str, Any]:
        """Summarize a time window; power is the energy counter's difference over the time between samples."""
        rows = [s for s in self.samples if opens <= s[0] <= closes]
        if len(rows) < 2:
            return {}
        of = {name: [row[k] for row in rows] for k, name in enumerate(FIELDS)}
        reasons = 0
        for bits in of["reasons"]:
            reasons |= int(bits) if bits >= 0 else 0
        span = of["t"][-1] - of["t"][0]
        known = [name for name in ("util", "memory_util") if min(of[name]) >= 0]  # NVML has none in MIG mode
        return {
            **{name: _mean(of[name]) for name in known},
            "memory_mib": max(of["memory_mib"]),
            "celsius": max(of["celsius"]),
            "watts": round((of["joules"][-1] - of["joules"][0]) / span, 1),
            "sm_mhz": _mean(of["sm_mhz"]),
            "sm_mhz_low": min(of["sm_mhz"]),
            "reasons": reasons,
            "samples": len(rows),
        }


def open_nvml() -> tuple[Any, str]:
    """NVML; None where it is not available, and why."""
    try:
        import pynvml  # type: ignore[import-untyped]

        pynvml.nvmlInit()
    except ImportError:
        return None, "nvidia-ml-py is not installed"
    except pynvml.NVMLError as e:
        return None, f"NVML is not available: {e}"
    return pynvml, ""


def _open_card(index: int) -> tuple[Any, Any]:
    """NVML and a GPU, or None and why there is none."""
    nvml, why = open_nvml()
    try:
        return nvml, nvml.nvmlDeviceGetHandleByIndex(index) if nvml else why
    except nvml.NVMLError as e:
        return None, f"NVML is not available: {e}"


def _about(n: Any, card: Any) -> dict[str, Any]:  # noqa: ANN401
    return {
        "name": query(n.nvmlDeviceGetName, card),
        "uuid": query(n.nvmlDeviceGetUUID, card),
        "driver": query(n.nvmlSystemGetDriverVersion),
        "cuda": query(n.nvmlSystemGetCudaDriverVersion),
        "compute_mode": query(n.nvmlDeviceGetComputeMode, card),
        "power_limit_w": _number(n.nvmlDeviceGetEnforcedPowerLimit, card) / 1000,
        "max_sm_mhz": _number(n.nvmlDeviceGetMaxClockInfo, card, n.NVML_CLOCK_SM),
        "max_memory_mhz": _number(n.nvmlDeviceGetMaxClockInfo, card, n.NVML_CLOCK_MEM),
    }


def query(ask: Any, *of: Any) -> Any:  # noqa: ANN401
    """Call NVML; None if this GPU does not support the query."""
    import pynvml

    try:
        return ask(*of)
    except pynvml.NVMLError:
        return None


def _number(ask: Any, *of: Any) -> float:  # noqa: ANN401
    value = query(ask, *of)
    return -1.0 if value is None else value


def _mean(values: list[float]) -> float:
    return round(sum(values) / len(values), 1)
