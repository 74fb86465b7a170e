"""What a person sees while cards are watched: a table on a terminal, a line a card elsewhere; no colour needed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO

from fleetlab.monitor.sources import Card, Row

if TYPE_CHECKING:
    from rich.console import Group

Show = Callable[[list[Row]], None]
MOST = 12  # processes of a card in the table
CARDS = ("card", "use", "memory", "heat", "power", "SM clock", "clocks")
PROCESSES = ("card", "process", "name", "kind", "memory", "use")


@contextmanager
def view(cards: Sequence[Card], stream: TextIO) -> Iterator[Show]:
    """A way to show rows on `stream`, as they come."""
    if not stream.isatty():
        yield lambda rows: print("\n".join(line(row) for row in rows), file=stream, flush=True)
        return
    from rich.console import Console
    from rich.live import Live

    with Live(console=Console(file=stream), auto_refresh=False, vertical_overflow="ellipsis") as live:
        yield lambda rows: live.update(tables(cards, rows), refresh=True)


def line(row: Row) -> str:
    """One card at one time.

    >>> line({"at": 0, "card": 1, "util": 83, "used_mib": 2048, "total_mib": 4096, "celsius": 61, "watts": None,
    ...       "sm_mhz": 1980, "events": ["power cap"], "processes": []})[9:]
    'card 1  83 %  2.0 of 4.0 GiB  61 °C  – W  1,980 MHz  power cap  0 processes'
    """
    at = time.strftime("%H:%M:%S", time.localtime(row["at"]))
    processes = "" if row["processes"] is None else f"  {len(row['processes'])} processes"
    events = f"  {_words(row['events'])}" if row["events"] else ""
    return f"{at} card {row['card']}  " + "  ".join(_said(row)) + events + processes


def tables(cards: Sequence[Card], rows: list[Row]) -> Group:
    """All cards and who is on them."""
    from rich.console import Group
    from rich.text import Text

    names = {card.index: card.name for card in cards}
    first = [[f"{r['card']} {names[r['card']]}", *_said(r), _words(r["events"])] for r in rows]
    second = [
        [r["card"], p["pid"], p["name"], p["kind"], _gib(p["memory_mib"]), _number(p["util"], "%")]
        for r in rows
        for p in (r["processes"] or [])[:MOST]
    ]
    at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(rows[0]["at"])) if rows else ""
    parts: list[Any] = [Text(f"{at}   Ctrl-C ends it"), _table(CARDS, first)]
    return Group(*parts, _table(PROCESSES, second)) if second else Group(*parts)


def _table(columns: Sequence[str], rows: list[list[Any]]) -> Any:  # noqa: ANN401
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(*columns, box=box.SIMPLE)
    for row in rows:
        table.add_row(*(Text(_plain(value)) for value in row))
    return table


def _said(row: Row) -> list[str]:
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
    said = "–" if value is None else f"{value * factor:,.{digits}f}"
    return f"{said} {unit}".strip()


def _words(events: list[str] | None) -> str:
    return ", ".join(events or [])


def _plain(value: object) -> str:
    """A process may be called anything: nothing that a terminal would obey."""
    return "".join(c if c.isprintable() else "?" for c in str("–" if value is None else value))
