"""Limits and timeouts of a server."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from fleetlab.devices.errors import BenchError


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """Validated limits; every wait has a timeout and every buffer a maximum size."""

    batch: int = 8  # maximum batch size
    wait: float = 2.0  # ms that the oldest input waits to form a batch
    queue: int = 256  # queued inputs
    deadline: float = 10.0  # s that an input may be queued
    max_body: float = 4.0  # MiB
    body_timeout: float = 5.0  # s for the headers to arrive, and again for the body
    drain: float = 10.0  # s to finish queued inputs after SIGTERM
    connections: int = 1024

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            least = 1 if field.type == "int" else 0
            above = field.name in ("deadline", "max_body", "body_timeout")
            if not math.isfinite(value) or value < least or (above and value == 0):
                msg = f"invalid limit: --{field.name.replace('_', '-')} {value}"
                raise BenchError(msg, hint=f"above {least}" if above else f"{least} or more")

    @property
    def most_bytes(self) -> int:
        """Maximum size of a body."""
        return int(self.max_body * 2**20)
