"""The load generator: an open loop with scheduled arrivals, or a closed loop of clients."""

from __future__ import annotations

import asyncio
import gc
import signal
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

import numpy as np
from numpy.typing import NDArray

from fleetlab.devices.progress import Progress
from fleetlab.serving.load.client import Client, TokenClient, raise_file_limit, session
from fleetlab.serving.load.requests import RequestLog, Requests
from fleetlab.serving.load.schedule import ArrivalSchedule
from fleetlab.serving.load.settings import LoadSettings
from fleetlab.serving.load.target import wait_until_ready

AWAKE = 2e-3  # s of busy waiting before a request is due: sleep has a resolution of milliseconds
LEAD = 0.1  # s until the schedule begins
EVERY = 2.0  # s between progress reports

Send = Callable[[Client, float], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class LoadRun:
    """All requests, the measurement window, and whether the user stopped it."""

    rows: Requests
    opens: float
    closes: float
    stopped: bool
    notes: tuple[str, ...] = ()
    gaps: NDArray[np.float64] | None = None  # s between tokens, of requests due in the window


def open_loop(settings: LoadSettings, url: str, table: ArrivalSchedule, *, progress: Progress) -> LoadRun:
    """Open loop: send each request at its scheduled time."""

    async def send(client: Client, begin: float) -> None:
        flying = set[asyncio.Task[None]]()
        try:
            for k, when in enumerate(table.due.tolist()):
                await _until(begin + when)
                task = asyncio.create_task(client.ask(k, begin + when))
                flying.add(task)
                task.add_done_callback(flying.discard)
            await asyncio.gather(*flying)
        finally:
            await _end(flying)

    book, begin, ended = asyncio.run(_send_load(settings, url, send, float(table.due[-1]), progress))
    closes = table.closes if ended is None else min(table.closes, ended)
    gaps = book.gaps(begin, table.opens, closes)
    return LoadRun(book.rows(begin), table.opens, closes, ended is not None, table.notes, gaps)


def closed_loop(settings: LoadSettings, url: str, *, progress: Progress) -> LoadRun:
    """Closed loop: each client sends its next request when it has its answer."""
    until = settings.warmup + settings.seconds
    count = iter(range(settings.limit))

    async def send(client: Client, begin: float) -> None:
        async def one() -> None:
            await _until(begin)
            while (now := time.monotonic()) < begin + until and (k := next(count, None)) is not None:
                await client.ask(k, now)

        clients = {asyncio.create_task(one()) for _ in range(settings.clients or 1)}
        try:
            await asyncio.gather(*clients)
        finally:
            await _end(clients)

    book, begin, ended = asyncio.run(_send_load(settings, url, send, until, progress))
    rows = book.rows(begin)
    closes, notes = until if ended is None else min(until, ended), tuple[str, ...]()
    if len(rows.done) == settings.limit and rows.done.max() < closes:
        closes, notes = float(rows.done.max()), (f"ended after {settings.limit:,} requests",)
    gaps = book.gaps(begin, settings.warmup, closes)
    return LoadRun(rows, settings.warmup, closes, ended is not None, notes, gaps)


async def _send_load(
    settings: LoadSettings, url: str, send: Send, last: float, progress: Progress
) -> tuple[RequestLog, float, float | None]:
    """Return the requests, the start, and the time at which the user stopped it, if so."""
    raise_file_limit(settings.connections)
    book = RequestLog()
    async with session() as connections:
        await wait_until_ready(connections, url, progress)
        _freeze_gc()
        begin = time.monotonic() + LEAD
        kind = Client if settings.dataset is None else TokenClient
        sending = asyncio.ensure_future(send(kind(connections, url, settings, book), begin))
        saying = asyncio.create_task(_report_progress(book, begin, last, progress))
        with _stoppable(sending):
            try:
                await sending
            except asyncio.CancelledError:
                return book, begin, time.monotonic() - begin
            finally:
                saying.cancel()
                gc.unfreeze()
    return book, begin, None


def _freeze_gc() -> None:
    """Exclude existing objects from garbage collection, which would delay requests."""
    gc.collect()
    gc.freeze()


async def _until(when: float) -> None:
    """Sleep, then wait busily; yield to the event loop at least once, so that answers are processed."""
    if (left := when - time.monotonic() - AWAKE) > 0:
        await asyncio.sleep(left)
    await asyncio.sleep(0)
    while time.monotonic() < when:
        await asyncio.sleep(0)


async def _end(tasks: set[asyncio.Task[None]]) -> None:
    for task in (left := list(tasks)):
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)


async def _report_progress(book: RequestLog, begin: float, last: float, progress: Progress) -> None:
    while True:
        await asyncio.sleep(EVERY)
        now = time.monotonic() - begin
        rest = f"of {last:.0f} s" if now < last else "s, waiting for the last answers"
        progress(f"{now:4.0f} {rest}: {len(book):,} requests have ended")


@contextmanager
def _stoppable(sending: asyncio.Future[None]) -> Iterator[None]:
    """Have Ctrl-C and SIGTERM end the load, not the program: results so far are kept."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()

    def stop(_number: int, _frame: FrameType | None) -> None:
        loop.call_soon_threadsafe(sending.cancel)

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
