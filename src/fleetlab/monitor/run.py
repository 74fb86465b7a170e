"""Look at cards again and again, on time, until told to stop; every row goes to all that want it."""

from __future__ import annotations

import json
import os
import platform
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TextIO

from fleetlab.devices.errors import BenchError
from fleetlab.monitor.log import SAMPLES, Log
from fleetlab.monitor.prometheus import LOOPBACK, Exporter, served
from fleetlab.monitor.sources import VALUES, Row, Source, source
from fleetlab.monitor.terminal import view

KEPT = 10_000  # rows that are remembered where no file keeps them all
Tell = Callable[[str], None]
Take = Callable[[list[Row]], None]


@dataclass(frozen=True, slots=True)
class Served:
    """Where Prometheus finds the rows, and under which names."""

    port: int
    address: str = LOOPBACK
    names: str = "4.8"


@dataclass
class Seen:
    """What a watch leaves behind: its file, or where there is none its last rows."""

    path: Path | None = None
    rows: deque[Row] = field(default_factory=lambda: deque(maxlen=KEPT))
    looks: int = 0
    late: int = 0  # looks that were left out because the one before took too long


def watch(
    *,
    backend: str = "nvml",
    index: str = "all",
    every: float = 1.0,
    seconds: float | None = None,
    out: Path | None = None,
    prometheus: Served | None = None,
    stream: TextIO | None = None,
    tell: Tell = print,
) -> Seen:
    """Watch for some seconds, or until Ctrl-C or SIGTERM; shown on `stream`, if there is one."""
    if not 0.01 <= every <= 3600:
        msg = f"not an interval to look at cards: {every} s"
        raise BenchError(msg, hint="0.01 to 3600 seconds")
    if seconds is not None and not 0 < seconds < 1e9:
        msg = f"not a time to watch for: {seconds} s"
        raise BenchError(msg)
    with ExitStack() as stack:
        cards = source(backend, index=index)
        stack.callback(cards.close)
        seen, takers = Seen(out and out / SAMPLES), [_quiet_cards(tell)]
        if out is not None:
            takers.append(stack.enter_context(Log(out / SAMPLES)).write)
            _declare(out, cards, every=every, backend=backend)
        else:
            takers.append(seen.rows.extend)
        if prometheus is not None:
            exporter = Exporter(cards.cards, prometheus.names)
            takers.append(lambda rows: setattr(exporter, "rows", rows))
            where = stack.enter_context(served(exporter, port=prometheus.port, address=prometheus.address))
            tell(f"metrics at {where}")
        if stream is not None:
            takers.append(stack.enter_context(view(cards.cards, stream)))
        over = stack.enter_context(until_told())
        _look_on(cards, takers, seen, over, every=every, seconds=seconds)
    return seen


def _look_on(
    cards: Source, takers: list[Take], seen: Seen, over: threading.Event, *, every: float, seconds: float | None
) -> None:
    began = time.monotonic()
    due = began
    while not over.wait(max(due - time.monotonic(), 0)):
        at = round(time.time(), 3)
        rows = [{"at": at} | row for row in cards.look()]
        for take in takers:
            take(rows)
        seen.looks += 1
        due += every
        # A look that took long must not be followed by a burst: what is missed is missed, and counted.
        if (behind := int((time.monotonic() - due) / every)) > 0:
            seen.late += behind
            due += behind * every
        if seconds is not None and due > began + seconds:
            over.wait(max(began + seconds - time.monotonic(), 0))
            return


@contextmanager
def until_told() -> Iterator[threading.Event]:
    """An event that Ctrl-C and SIGTERM set; before and after they mean what they always did."""
    over = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield over
        return
    before = {n: signal.signal(n, lambda *_: over.set()) for n in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield over
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _quiet_cards(tell: Tell) -> Take:
    """Say once when a card has no answer to anything any more, and when it has again."""
    silent = set[int]()

    def take(rows: list[Row]) -> None:
        now = {row["card"] for row in rows if all(row[key] is None for key in VALUES)}
        for card in sorted(now - silent):
            tell(f"card {card} no longer answers; its rows stay empty until it does")
        for card in sorted(silent - now):
            tell(f"card {card} answers again")
        silent.clear()
        silent.update(now)

    return take


def _declare(out: Path, cards: Source, *, every: float, backend: str) -> None:
    about = {
        "backend": backend,
        "every": every,
        "host": platform.node(),
        "python": sys.version.split()[0],
        "started": round(time.time(), 3),
        "cards": [asdict(card) for card in cards.cards],
    }
    beside = out / ".watch.json.new"
    try:
        beside.write_text(json.dumps(about, indent=1), "utf-8")
        os.replace(beside, out / "watch.json")  # noqa: PTH105  the same, and says what it does
    except OSError as e:
        msg = f"{out}: {e.strerror}"
        raise BenchError(msg, hint="--out names a folder that can be written to") from None
