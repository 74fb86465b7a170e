"""When did a step begin and end, on the host's clock? On a GPU its own events tell, without waiting for it."""

from __future__ import annotations

import time
from typing import Any, Protocol

import torch


class Clock(Protocol):
    """Marks in a device's stream of work, and their times as `time.monotonic` would have read them."""

    def mark(self) -> Any:  # noqa: ANN401  what a mark is, only its clock knows
        """Note this point in the stream."""

    def done(self, mark: Any) -> bool:  # noqa: ANN401
        """Has the device come this far?"""

    def wait(self, mark: Any) -> None:  # noqa: ANN401
        """Until the device has come this far."""

    def time(self, mark: Any) -> float:  # noqa: ANN401
        """When it came by; after `wait` only."""


class HostClock:
    """The CPU does each step at once, so a mark is a time."""

    def mark(self) -> float:
        """Now."""
        return time.monotonic()

    def done(self, mark: float) -> bool:
        """Always."""
        return True

    def wait(self, mark: float) -> None:
        """Nothing to wait for."""

    def time(self, mark: float) -> float:
        """The mark itself."""
        return mark


class CudaClock:
    """Events of the current stream, anchored to the host's clock when nothing else ran."""

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
        """An event that a waiting host sleeps for: sixteen tenants that spin would starve each other."""
        event = torch.cuda.Event(enable_timing=True, blocking=True)  # type: ignore[no-untyped-call]
        event.record()
        return event

    def done(self, mark: torch.cuda.Event) -> bool:
        """Without waiting."""
        return bool(mark.query())  # type: ignore[no-untyped-call]

    def wait(self, mark: torch.cuda.Event) -> None:
        """Asleep."""
        mark.synchronize()

    def time(self, mark: torch.cuda.Event) -> float:
        """By the GPU's own clock, from the anchor on."""
        return self.at + float(self.anchor.elapsed_time(mark)) / 1000


def clock_of(device: torch.device) -> Clock:
    """The clock of a device."""
    return CudaClock() if device.type == "cuda" else HostClock()
