"""What is to be asked of which server, how often and how long: checked once, before anything is sent."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from fleetlab.devices.errors import BenchError


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """An open loop sends by `rate` or `times`, whatever the server does; a closed loop has `clients` that wait."""

    url: str
    rate: float | None = None  # requests a second
    clients: int | None = None
    arrivals: str = "poisson"  # or gamma:B, uniform, a file
    times: tuple[float, ...] | None = None  # s: a list in place of a law; `arrivals` says whose
    scale: float | None = None  # a list's times come so many times as fast
    seconds: float = 10.0
    warmup: float = 1.0  # s of the same load before, which are not counted
    limit: int = 1_000_000  # requests
    connections: int = 1_000
    timeout: float = 10.0  # s from when a request is due
    batch: int = 1  # inputs of a request
    slo: float | None = None  # s that an answer may take
    lag: float = 1e-3  # s that the generator may be behind, in 99 of 100 requests
    seed: int = 0

    def __post_init__(self) -> None:
        for name, low, high in LIMITS:
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and low <= value <= high):
                msg = f"{name} is from {low:g} to {high:g}, not {value:g}"
                raise BenchError(msg)
        if self.clients is not None and (self.rate is not None or self.times is not None or self.arrivals != "poisson"):
            msg = "clients send when they are answered, so they have neither a rate nor arrivals"
            raise BenchError(msg, hint="--clients for a closed loop, --rate or --arrivals for an open one")
        if self.rate is not None and self.scale is not None:
            msg = "a rate and a scale: one of them says how fast the arrivals come"
            raise BenchError(msg, hint="--rate 50 for 50 a second, --scale 2 for twice as fast as they were")

    @property
    def is_open(self) -> bool:
        """Does the load come by a timetable?"""
        return self.clients is None

    def settings(self) -> dict[str, Any]:
        """All of it but the list of times, which is told by its length."""
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
