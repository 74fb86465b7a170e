"""Where samples go: a live table on the terminal or a line per GPU, and metrics for Prometheus.

Version 4.9 of the exporter renamed its metrics and uses base units; both sets of names are supported, see `dcgm.toml`.
"""

from __future__ import annotations

import platform
import socket
import time
import tomllib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib.resources import files
from socketserver import ThreadingMixIn
from threading import BoundedSemaphore, Thread
from typing import TYPE_CHECKING, Any, TextIO
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from fleetlab.gpu.devices.console import BenchError
from fleetlab.gpu.monitor.sources import MonitoredGpu, Row

if TYPE_CHECKING:
    from prometheus_client.core import Metric
    from prometheus_client.registry import Collector
    from rich.console import Group

Show = Callable[[list[Row]], None]
MOST = 12  # processes per GPU in the table
MOST_CONNECTIONS = 16  # of scrapers at once
GPU_COLUMNS = ("GPU", "utilization", "memory", "temp.", "power", "SM clock", "clock events")
PROCESSES = ("GPU", "process", "name", "kind", "memory", "utilization")


@contextmanager
def terminal_view(gpus: Sequence[MonitoredGpu], stream: TextIO) -> Iterator[Show]:
    """Return a function that prints rows on `stream`."""
    if not stream.isatty():
        yield lambda rows: print("\n".join(line(row) for row in rows), file=stream, flush=True)
        return
    from rich.console import Console
    from rich.live import Live

    with Live(console=Console(file=stream), auto_refresh=False, vertical_overflow="ellipsis") as live:
        yield lambda rows: live.update(tables(gpus, rows), refresh=True)


def line(row: Row) -> str:
    """Format one sample of one GPU.

    >>> line({"at": 0, "gpu": 1, "util": 83, "used_mib": 2048, "total_mib": 4096, "celsius": 61, "watts": None,
    ...       "sm_mhz": 1980, "events": ["power cap"], "processes": []})[9:]
    'GPU 1  83 %  2.0 of 4.0 GiB  61 °C  – W  1,980 MHz  power cap  0 processes'
    """
    at = time.strftime("%H:%M:%S", time.localtime(row["at"]))
    processes = "" if row["processes"] is None else f"  {len(row['processes'])} processes"
    events = f"  {_event_text(row['events'])}" if row["events"] else ""
    return f"{at} GPU {row['gpu']}  " + "  ".join(_cells(row)) + events + processes


def tables(gpus: Sequence[MonitoredGpu], rows: list[Row]) -> Group:
    """Tables of GPUs and processes."""
    from rich.console import Group
    from rich.text import Text

    names = {gpu.index: gpu.name for gpu in gpus}
    first = [[f"{r['gpu']} {names[r['gpu']]}", *_cells(r), _event_text(r["events"])] for r in rows]
    second = [
        [r["gpu"], p["pid"], p["name"], p["kind"], _gib(p["memory_mib"]), _amount(p["util"], "%")]
        for r in rows
        for p in (r["processes"] or [])[:MOST]
    ]
    at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(rows[0]["at"])) if rows else ""
    parts: list[Any] = [Text(f"{at}   stop with Ctrl-C"), _table(GPU_COLUMNS, first)]
    return Group(*parts, _table(PROCESSES, second)) if second else Group(*parts)


def _table(columns: Sequence[str], rows: list[list[Any]]) -> Any:  # noqa: ANN401
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(*columns, box=box.SIMPLE)
    for row in rows:
        table.add_row(*(Text(_plain(value)) for value in row))
    return table


def _cells(row: Row) -> list[str]:
    memory = f"{_amount(row['used_mib'], '', 1 / 1024, 1)} of {_gib(row['total_mib'])}"
    return [
        _amount(row["util"], "%"),
        memory,
        _amount(row["celsius"], "°C"),
        _amount(row["watts"], "W"),
        _amount(row["sm_mhz"], "MHz"),
    ]


def _gib(mib: float | None) -> str:
    return _amount(mib, "GiB", 1 / 1024, 1)


def _amount(value: float | None, unit: str, factor: float = 1, digits: int = 0) -> str:
    text = "–" if value is None else f"{value * factor:,.{digits}f}"
    return f"{text} {unit}".strip()


def _event_text(events: list[str] | None) -> str:
    return ", ".join(events or [])


def _plain(value: object) -> str:
    """Replace control characters: the name of a process can be anything."""
    return "".join(c if c.isprintable() else "?" for c in str("–" if value is None else value))


# --- the latest sample for Prometheus, with the names of NVIDIA's DCGM exporter ---------------------------------------


NAMES = ("4.8", "4.9", "both")
LOOPBACK = "127.0.0.1"
# Of each sampled value: whether it is a counter, and its name, help and factor before version 4.9 and from it on.
FIELDS: dict[str, dict[str, Any]] = tomllib.loads((files("fleetlab.gpu.monitor") / "dcgm.toml").read_text("utf-8"))


class Exporter:
    """Exports the latest rows."""

    def __init__(self, gpus: Iterable[MonitoredGpu], names: str = "4.8") -> None:
        if names not in NAMES:
            raise BenchError(f"unknown DCGM version: `{names}`", hint=f"there are {', '.join(NAMES)}")
        self._labels = {gpu.index: _labels(gpu) for gpu in gpus}
        self._names = names
        self.rows: list[Row] = []

    def collect(self) -> Iterator[Metric]:
        """Each value that a GPU reports."""
        rows = self.rows
        names = set[str]()
        versions = {"4.8": ("old",), "4.9": ("new",), "both": ("old", "new")}[self._names]
        for key, field in FIELDS.items():
            for name, text, factor in (field[version] for version in versions):
                if name not in names:
                    names.add(name)
                    yield self._metric(key, name, text, factor, rows, counter="counter" in field)

    def _metric(self, key: str, name: str, text: str, factor: float, rows: list[Row], *, counter: bool) -> Metric:
        from prometheus_client.core import Metric

        # This library appends `_total` to counters, and DCGM's names have none: an untyped metric keeps its name.
        metric = Metric(f"DCGM_FI_DEV_{name}", text, "unknown" if counter else "gauge")
        for row in rows:
            if row[key] is not None:
                metric.add_sample(metric.name, self._labels[row["gpu"]], _scaled(row[key], factor))
        return metric


class _Handler(WSGIRequestHandler):
    """Answers in silence; a connection that asks nothing is closed."""

    timeout = 5.0  # s

    def log_message(self, format: str, *args: object) -> None:
        """Write no line for a request."""


class _Server(ThreadingMixIn, WSGIServer):
    """Answers so many at once; a connection beyond them is closed at once."""

    daemon_threads = True

    def __init__(self, address: tuple[str, int], handler: type[_Handler]) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self._free = BoundedSemaphore(MOST_CONNECTIONS)
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401  of the library
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:  # noqa: ANN401
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()


@contextmanager
def serve_metrics(
    exporter: Collector, *, port: int, address: str = LOOPBACK, option: str = "--prometheus"
) -> Iterator[str]:
    """Serve metrics at `http://address:port/metrics` inside the block; port 0 chooses a free port."""
    try:
        from prometheus_client import CollectorRegistry, make_wsgi_app
    except ImportError:
        msg = "cannot serve metrics: prometheus-client is not installed"
        raise BenchError(msg, hint="`pip install 'fleetlab[watch]'`") from None
    registry = CollectorRegistry()
    registry.register(exporter)
    try:
        server = _Server((address, port), _Handler)
    except (OSError, OverflowError) as e:
        msg = f"cannot serve metrics at {address}:{port}: {getattr(e, 'strerror', None) or e}"
        raise BenchError(msg, hint=f"choose another port with {option}, 0 for any free port") from None
    server.set_app(make_wsgi_app(registry))
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
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
