"""Samples on the terminal: a live table, or one line per GPU if the output is not a terminal."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO

from fleetlab.monitor.sources import MonitoredGpu, Row

if TYPE_CHECKING:
    from rich.console import Group

Show = Callable[[list[Row]], None]
MOST = 12  # processes per GPU in the table
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
    events = f"  {_words(row['events'])}" if row["events"] else ""
    return f"{at} GPU {row['gpu']}  " + "  ".join(_cells(row)) + events + processes


def tables(gpus: Sequence[MonitoredGpu], rows: list[Row]) -> Group:
    """Tables of GPUs and processes."""
    from rich.console import Group
    from rich.text import Text

    names = {gpu.index: gpu.name for gpu in gpus}
    first = [[f"{r['gpu']} {names[r['gpu']]}", *_cells(r), _words(r["events"])] for r in rows]
    second = [
        [r["gpu"], p["pid"], p["name"], p["kind"], _gib(p["memory_mib"]), _number(p["util"], "%")]
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
    memory = f"{_number(row['used_mib'], '', 1 / 1024, 1)} of {_gib(row['total_mib'])}"
    return [
        _number(row["util"], "%"),
        memory,
        _number(row["celsius"], "°C"),
        _number(row["watts"], "W"),
        _number(row["sm_mhz"], "MHz"),
    ]


def _gib(mib: float | None) -> str:
    return _number(mib, "GiB", 1 / 1024, 1)


def _number(value: float | None, unit: str, factor: float = 1, digits: int = 0) -> str:
    text = "–" if value is None else f"{value * factor:,.{digits}f}"
    return f"{text} {unit}".strip()


def _words(events: list[str] | None) -> str:
    return ", ".join(events or [])


def _plain(value: object) -> str:
    """Replace control characters: the name of a process can be anything."""
    return "".join(c if c.isprintable() else "?" for c in str("–" if value is None else value))
