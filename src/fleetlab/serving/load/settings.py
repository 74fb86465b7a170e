"""Settings of a load, validated before anything is sent."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from fleetlab.devices.errors import BenchError


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadSettings:
    """An open loop sends by `rate` or `times`; a closed loop has `clients` that wait for answers."""

    url: str
    rate: float | None = None  # requests per second
    clients: int | None = None
    arrivals: str = "poisson"  # or gamma:B, uniform, a file
    times: tuple[float, ...] | None = None  # s: a list to replay; `arrivals` names its source
    scale: float | None = None  # speed-up of a replayed list
    seconds: float = 10.0
    warmup: float = 1.0  # s of load before the measurement
    limit: int = 1_000_000  # maximum number of requests
    connections: int = 1_000
    timeout: float = 10.0  # s after the scheduled time
    batch: int = 1  # inputs per request
    slo: float | None = None  # s, latency goal
    lag: float = 1e-3  # s, maximum P99 lag of the generator
    seed: int = 0

    def __post_init__(self) -> None:
        for name, low, high in LIMITS:
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and low <= value <= high):
                msg = f"{name} must be from {low:g} to {high:g}, not {value:g}"
                raise BenchError(msg)
        if self.clients is not None and (self.rate is not None or self.times is not None or self.arrivals != "poisson"):
            msg = "a closed loop has neither a rate nor arrivals"
            raise BenchError(msg, hint="--clients for a closed loop, --rate or --arrivals for an open one")
        if self.rate is not None and self.scale is not None:
            msg = "--rate and --scale exclude each other"
            raise BenchError(msg, hint="--rate 50 sets the mean rate, --scale 2 doubles the speed")

    @property
    def is_open(self) -> bool:
        """Whether it is an open loop."""
        return self.clients is None

    def settings(self) -> dict[str, Any]:
        """All settings; of a replayed list only its length."""
        return asdict(self) | {"times": None if self.times is None else len(self.times)}


LIMITS: tuple[tuple[str, float, float], ...] = (
    ("rate", 1e-3, 1e5),
    ("clients", 1, 10_000),
    ("scale", 1e-6, 1e6),
    ("seconds", 0.1, 86_400),
    ("warmup", 0, 3_600),
    ("limit", 1, 20_000_000),
    ("connections", 1, 10_000),
    ("timeout", 0.01, 600),
    ("batch", 1, 10_000),
    ("slo", 1e-6, 600),
    ("lag", 1e-6, 600),
    ("seed", 0, 2**63),
)
