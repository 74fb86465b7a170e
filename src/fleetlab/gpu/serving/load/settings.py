"""Settings of a load, validated before anything is sent."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, asdict, dataclass, fields
from pathlib import Path
from typing import Any

from fleetlab.gpu.devices.console import BenchError


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
    dataset: str | None = None  # lengths of requests to a language model
    goals: str | None = None  # such as ttft:200,tpot:50, in ms
    lag: float = 1e-3  # s, maximum P99 lag of the generator
    seed: int = 0

    def __post_init__(self) -> None:
        for name, low, high in LIMITS:
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and low <= value <= high):
                raise BenchError(f"{name} must be from {low:g} to {high:g}, not {value:g}")
        if self.clients is not None and (self.rate is not None or self.times is not None or self.arrivals != "poisson"):
            msg = "a closed loop has neither a rate nor arrivals"
            raise BenchError(msg, hint="--clients for a closed loop, --rate or --arrivals for an open one")
        if self.dataset is None and (self.goals is not None or self.arrivals == "dataset"):
            raise BenchError("goals of tokens and arrivals of a dataset need a dataset", hint="--dataset azure-conv")
        if self.dataset is not None and self.batch > 1:
            raise BenchError("a request to a language model has one input", hint="omit --batch")
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


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """Send load to a server on this machine; report latency from the scheduled time, throughput, refusals and failures.

    Parameters
    ----------
    url
        URL of a server on this machine; requests go to /predict unless the URL has a path.
    rate
        Requests per second (open loop: they do not wait for answers).
    arrivals
        Inter-arrival times: poisson; gamma:B, bursty if B is below 1; uniform; a file with one time in s per line; or
        a TRACE, whose submission times are replayed (with `fleetlab bench load`); dataset: those of --dataset.
    scale
        Speed-up of the arrivals of a file or a trace; --rate sets their mean rate instead.
    clients
        Number of clients that each wait for their answer (closed loop, instead of --rate). For capacity, not latency.
    seconds
        Length of the measurement.
    warmup
        Seconds of the same load before the measurement.
    slo_ms
        Latency goal in milliseconds; goodput counts the answers within it.
    dataset
        Send requests to a language model (/v1/completions) and read their tokens, with the lengths of azure-conv,
        azure-code, a CSV file with their columns, or random:INPUT,OUTPUT tokens.
    goodput
        Goals of such requests in ms, as ttft:200,tpot:50; there are ttft, tpot and e2el. Goodput counts what meets all.
    search
        LOW:HIGH: search the highest rate at which --percentile is within --slo-ms and fewer than 1 in 1,000 fail.
    percentile
        Percentile of the search.
    within
        Relative precision of the search.
    batch
        Inputs per request; more than 1 go to /predict/batch.
    timeout
        Seconds after the scheduled time at which a request fails.
    connections
        Maximum number of connections; a request without a free one waits, and that counts as latency.
    limit
        Maximum number of requests.
    lag_ms
        Maximum P99 lag of the generator in milliseconds; above it the result is invalid.
    seed
        Seed of the arrivals and inputs.
    out
        Folder for load.json or search.json.
    each
        Write every request to requests.jsonl, too.
    """

    url: str
    _: KW_ONLY
    rate: float | None = None
    arrivals: str = "poisson"
    scale: float | None = None
    clients: int | None = None
    seconds: float = 10.0
    warmup: float = 1.0
    slo_ms: float | None = None
    dataset: str | None = None
    goodput: str | None = None
    search: str | None = None
    percentile: float = 99.0
    within: float = 0.05
    batch: int = 1
    timeout: float = 10.0
    connections: int = 1_000
    limit: int = 1_000_000
    lag_ms: float = 1.0
    seed: int = 0
    out: Path | None = None
    each: bool = False

    def settings(self, times: tuple[float, ...] | None = None) -> LoadSettings:
        """The settings of the load, with the times of a trace to replay."""
        same = {f.name: getattr(self, f.name) for f in fields(LoadSettings) if hasattr(self, f.name)}
        slo = None if self.slo_ms is None else self.slo_ms / 1000
        return LoadSettings(**same, times=times, slo=slo, goals=self.goodput, lag=self.lag_ms / 1000)
