"""How much a server takes on, and how long it waits for anything."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from fleetlab.devices.errors import BenchError


@dataclass(frozen=True, slots=True)
class Limits:
    """Checked once; every wait has an end and every buffer a size."""

    batch: int = 8  # inputs computed together
    wait: float = 2.0  # ms that the oldest input waits for company
    queue: int = 256  # inputs that may wait
    deadline: float = 10.0  # s that an input may wait
    max_body: float = 4.0  # MiB
    body_timeout: float = 5.0  # s for the headers to come, and again for the body
    drain: float = 10.0  # s to finish what is queued when told to stop
    connections: int = 1024

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            least = 1 if field.type == "int" else 0
            above = field.name in ("deadline", "max_body", "body_timeout")
            if not math.isfinite(value) or value < least or (above and value == 0):
                msg = f"not a limit: --{field.name.replace('_', '-')} {value}"
                raise BenchError(msg, hint=f"above {least}" if above else f"{least} or more")

    @property
    def most_bytes(self) -> int:
        """Of a body."""
        return int(self.max_body * 2**20)
