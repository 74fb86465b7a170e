"""Options of the monitor."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class MonitorOptions:
    """Sample GPUs: utilization, memory, temperature, power, energy, clocks, throttling, processes. Stop with Ctrl-C.

    Parameters
    ----------
    every
        Seconds between samples.
    seconds
        Duration in seconds (default: until Ctrl-C or SIGTERM).
    out
        Folder for samples.jsonl, and for Parquet files at the end; an existing file is appended to.
    index
        GPU indexes, such as 0,1, or all.
    backend
        nvml, or cpu to sample the host instead of a GPU.
    prometheus
        Port at which the latest sample is served to Prometheus; 0 chooses a free port.
    address
        Address for Prometheus; the default is reachable from this machine only.
    dcgm_names
        Metric names and units of the DCGM exporter: up to version 4.8, from 4.9 on, or both.
    quiet
        Print no samples.
    """

    every: float = 1.0
    seconds: float | None = None
    out: Path | None = None
    index: str = "all"
    backend: Literal["nvml", "cpu"] = "nvml"
    prometheus: int | None = None
    address: str = "127.0.0.1"
    dcgm_names: Literal["4.8", "4.9", "both"] = "4.8"
    quiet: bool = False
