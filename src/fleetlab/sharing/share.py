"""What one tenant may use of a shared GPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from fleetlab.devices.errors import BenchError

# A process that must not attach to a daemon gets a pipe directory that does not exist.
NO_MPS = {"CUDA_MPS_PIPE_DIRECTORY": "/nonexistent/mps"}


@dataclass(frozen=True, slots=True)
class Share:
    """Limits of one MPS client, or the MIG instance of a tenant; None is no limit."""

    percent: int | None = None  # active thread percentage
    memory_mib: int | None = None
    priority: int | None = None  # 0 is normal, 1 below normal
    instance: int | None = None  # of a MIG layout, counted from 0 in the order in which the layout is written

    def __post_init__(self) -> None:
        if self.percent is not None and not 1 <= self.percent <= 100:
            msg = f"not an active thread percentage: {self.percent}"
            raise BenchError(msg, hint="from 1 to 100")
        if self.memory_mib is not None and self.memory_mib < 1:
            msg = f"not a memory limit: {self.memory_mib} MiB"
            raise BenchError(msg)
        if self.priority not in (None, 0, 1):
            msg = f"not a client priority: {self.priority}"
            raise BenchError(msg, hint="0 is normal, 1 below normal")
        if self.instance is not None and (self.instance < 0 or self.limited):
            msg = f"not an instance of a MIG layout: {self.instance}"
            raise BenchError(msg, hint="instances are counted from 0, and have no limits of MPS")

    @property
    def limited(self) -> bool:
        """Whether it has limits of MPS."""
        return (self.percent, self.memory_mib, self.priority) != (None, None, None)

    def environment(self) -> dict[str, str]:
        """Environment variables of a client."""
        variables: dict[str, str] = {}
        if self.percent is not None:
            variables["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = str(self.percent)
        if self.memory_mib is not None:
            variables["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] = f"0={self.memory_mib}M"
        if self.priority is not None:
            variables["CUDA_MPS_CLIENT_PRIORITY"] = str(self.priority)
        return variables


class Worker(NamedTuple):
    """The process of a tenant: its share, and what it reported after loading (`pid`, `sms`, `card_mib`, `visible`)."""

    share: Share
    about: Mapping[str, Any]
