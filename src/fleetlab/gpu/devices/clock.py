"""Timestamps of steps on the host's clock; on a GPU they come from CUDA events, without blocking."""

from __future__ import annotations

import time
from typing import Any

import torch


class HostClock:
    """Marks in a device's stream, and their times by `time.monotonic`: a CPU ends each step before it returns."""

    def mark(self) -> Any:  # noqa: ANN401  what a mark is, only its clock knows
        """Record this point in the stream."""
        return time.monotonic()

    def done(self, mark: Any) -> bool:  # noqa: ANN401
        """Return whether the device has reached the mark."""
        return True

    def wait(self, mark: Any) -> None:  # noqa: ANN401
        """Wait until the device has reached the mark."""

    def time(self, mark: Any) -> float:  # noqa: ANN401
        """Return the time of the mark; call after `wait`."""
        return float(mark)


class CudaClock(HostClock):
    """CUDA events of the current stream, anchored to the host's clock while the GPU is idle."""

    def __init__(self) -> None:
        tries = [self._bracket() for _ in range(5)]
        _, self.anchor, self.at = min(tries, key=lambda one: one[0])

    @staticmethod
    def _bracket() -> tuple[float, torch.cuda.Event, float]:
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        torch.cuda.synchronize()
        before = time.monotonic()
        event.record()
        event.synchronize()
        after = time.monotonic()
        return after - before, event, (before + after) / 2

    def mark(self) -> torch.cuda.Event:
        """Record an event that the host waits for asleep: sixteen tenants that spin would starve each other."""
        event = torch.cuda.Event(enable_timing=True, blocking=True)  # type: ignore[no-untyped-call]
        event.record()
        return event

    def done(self, mark: torch.cuda.Event) -> bool:
        """Query without waiting."""
        return bool(mark.query())  # type: ignore[no-untyped-call]

    def wait(self, mark: torch.cuda.Event) -> None:
        """Asleep."""
        mark.synchronize()

    def time(self, mark: torch.cuda.Event) -> float:
        """Elapsed GPU time since the anchor, added to the anchor's host time."""
        return self.at + float(self.anchor.elapsed_time(mark)) / 1000


def clock_for(device: torch.device) -> HostClock:
    """Return the clock for a device."""
    return CudaClock() if device.type == "cuda" else HostClock()
