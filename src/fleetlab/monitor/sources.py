"""Sources of samples: NVIDIA GPUs, or the host."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from fleetlab.devices.errors import BenchError

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


class SampleSource(Protocol):
    """Devices that can be sampled."""

    @property
    def gpus(self) -> tuple[MonitoredGpu, ...]:
        """The sampled GPUs in order."""

    def look(self) -> list[Row]:
        """Take one row per GPU: `gpu`, `VALUES`, `events` (names of clock events) and `processes`."""

    def close(self) -> None:
        """Release the devices."""


def open_source(backend: str = "nvml", *, index: str = "all") -> SampleSource:
    """Open the GPUs of this machine, or the host in place of one."""
    if backend not in BACKENDS:
        msg = f"unknown backend: `{backend}`"
        raise BenchError(msg, hint=f"there are {', '.join(BACKENDS)}")
    if backend == "cpu":
        from fleetlab.monitor.host import HostSource

        return HostSource(index=index)
    from fleetlab.monitor.nvml import NvmlSource

    return NvmlSource(index=index)


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
