"""The latest sample for Prometheus, with the metric names and units of NVIDIA's DCGM exporter.

Version 4.9 of the exporter renamed its metrics and uses base units; both sets of names are supported. Names
of 4.8: NVIDIA/dcgm-exporter, etc/default-counters.csv. Names of 4.9: NVIDIA/go-dcgm, pkg/dcgm/const_fields.go and
base_unit_fields_test.go, and the release notes; names of used, free and reserved memory and of memory utilization
come from a text about DCGM 4.7 whose other names agree with NVIDIA's.
"""

from __future__ import annotations

import platform
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from fleetlab.devices.errors import BenchError
from fleetlab.monitor.sources import MonitoredGpu, Row

if TYPE_CHECKING:
    from prometheus_client.core import Metric
    from prometheus_client.registry import Collector

NAMES = ("4.8", "4.9", "both")
LOOPBACK = "127.0.0.1"
MIB = 2.0**20


class Field(NamedTuple):
    """One value under its two names; each is the sampled value times a factor."""

    key: str
    old: str
    old_unit: str
    old_factor: float
    new: str
    new_unit: str
    new_factor: float
    counter: bool = False


FIELDS = (
    Field("util", "GPU_UTIL", "GPU utilization (in %)", 1, "GPU_UTIL_RATIO", "GPU utilization (0 to 1)", 0.01),
    Field("memory_util", "MEM_COPY_UTIL", "Memory use (in %)", 1, "MEMORY_UTIL_RATIO", "Memory use (0 to 1)", 0.01),
    Field("used_mib", "FB_USED", "Memory used (in MiB)", 1, "FB_USED_BYTES", "Memory used (in bytes)", MIB),
    Field("free_mib", "FB_FREE", "Memory free (in MiB)", 1, "FB_FREE_BYTES", "Memory free (in bytes)", MIB),
    Field("reserved_mib", "FB_RESERVED", "Reserved (in MiB)", 1, "FB_RESERVED_BYTES", "Reserved (in bytes)", MIB),
    Field("total_mib", "FB_TOTAL", "Memory (in MiB)", 1, "FB_CAPACITY_BYTES", "Memory (in bytes)", MIB),
    Field("celsius", "GPU_TEMP", "GPU temperature (in C)", 1, "GPU_TEMP_CELSIUS", "GPU temperature (in C)", 1),
    Field("memory_celsius", "MEMORY_TEMP", "Memory temp. (in C)", 1, "MEMORY_TEMP_CELSIUS", "Memory temp. (in C)", 1),
    Field("watts", "POWER_USAGE", "Power draw (in W)", 1, "BOARD_POWER_WATTS", "Power draw (in W)", 1),
    Field(
        "joules",
        "TOTAL_ENERGY_CONSUMPTION",
        "Energy since the driver was loaded (in mJ)",
        1000,
        "GPU_ENERGY_JOULES_TOTAL",
        "Energy since the driver was loaded (in J)",
        1,
        counter=True,
    ),
    Field("sm_mhz", "SM_CLOCK", "SM clock (in MHz)", 1, "SM_CLOCK_HERTZ", "SM clock (in Hz)", 1e6),
    Field("memory_mhz", "MEM_CLOCK", "Memory clock (in MHz)", 1, "MEMORY_CLOCK_HERTZ", "Memory clock (in Hz)", 1e6),
    Field("reasons", "CLOCKS_EVENT_REASONS", "Bits", 1, "CLOCKS_EVENT_REASONS", "Bits", 1),
)


class Exporter:
    """Exports the latest rows."""

    def __init__(self, gpus: Iterable[MonitoredGpu], names: str = "4.8") -> None:
        if names not in NAMES:
            msg = f"unknown DCGM version: `{names}`"
            raise BenchError(msg, hint=f"there are {', '.join(NAMES)}")
        self._labels = {gpu.index: _labels(gpu) for gpu in gpus}
        self._names = names
        self.rows: list[Row] = []

    def collect(self) -> Iterator[Metric]:
        """Each value that a GPU reports."""
        rows = self.rows
        names = set[str]()
        for f in FIELDS:
            old, new = (f.old, f.old_unit, f.old_factor), (f.new, f.new_unit, f.new_factor)
            for name, unit, factor in {"4.8": (old,), "4.9": (new,), "both": (old, new)}[self._names]:
                if name not in names:
                    names.add(name)
                    yield self._metric(f, name, unit, factor, rows)

    def _metric(self, field: Field, name: str, unit: str, factor: float, rows: list[Row]) -> Metric:
        from prometheus_client.core import Metric

        # This library appends `_total` to counters, and DCGM's names have none: an untyped metric keeps its name.
        metric = Metric(f"DCGM_FI_DEV_{name}", unit, "unknown" if field.counter else "gauge")
        for row in rows:
            if row[field.key] is not None:
                metric.add_sample(metric.name, self._labels[row["gpu"]], _scaled(row[field.key], factor))
        return metric


@contextmanager
def serve_metrics(
    exporter: Collector, *, port: int, address: str = LOOPBACK, option: str = "--prometheus"
) -> Iterator[str]:
    """Serve metrics at `http://address:port/metrics` inside the block; port 0 chooses a free port."""
    try:
        from prometheus_client import CollectorRegistry, start_http_server
    except ImportError:
        msg = "cannot serve metrics: prometheus-client is not installed"
        raise BenchError(msg, hint="`pip install 'fleetlab[watch]'`") from None
    registry = CollectorRegistry()
    registry.register(exporter)
    try:
        server, thread = start_http_server(port, addr=address, registry=registry)
    except (OSError, OverflowError) as e:
        msg = f"cannot serve metrics at {address}:{port}: {getattr(e, 'strerror', None) or e}"
        raise BenchError(msg, hint=f"choose another port with {option}, 0 for any free port") from None
    try:
        yield f"http://{address}:{server.server_port}/metrics"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _labels(gpu: MonitoredGpu) -> dict[str, str]:
    return {
        "gpu": str(gpu.index),
        "UUID": gpu.uuid,
        "pci_bus_id": gpu.bus,
        "device": gpu.device,
        "modelName": gpu.name,
        "hostname": platform.node(),
    }


def _scaled(value: float, factor: float) -> float:
    """Scale a value and round off binary noise: 1.001 J is 1001 mJ."""
    scaled = value * factor
    return float(round(scaled)) if factor > 1 else round(scaled, 6)
