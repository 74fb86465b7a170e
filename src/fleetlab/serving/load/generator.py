"""Send the load: by a timetable that waits for nobody, or by clients that wait for their answers."""

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

from fleetlab.serving.load.client import Client, may_open, session
from fleetlab.serving.load.requests import Book, Rows
from fleetlab.serving.load.settings import Asked
from fleetlab.serving.load.target import ready
from fleetlab.serving.load.timetable import Timetable

AWAKE = 2e-3  # s before a request is due from which on nobody sleeps: sleepers wake by whole milliseconds
LEAD = 0.1  # s until the timetable begins
EVERY = 2.0  # s between two words about how it goes

Tell = Callable[[str], None]
Send = Callable[[Client, float], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Driven:
    """Every request, the window in which those due count, and whether the user stopped it."""

    rows: Rows
    opens: float
    closes: float
    stopped: bool
    notes: tuple[str, ...] = ()


def by_timetable(asked: Asked, url: str, table: Timetable, *, tell: Tell) -> Driven:
    """An open loop: each request is sent when it is due."""

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

    rows, ended = asyncio.run(_drive(asked, url, send, float(table.due[-1]), tell))
    closes = table.closes if ended is None else min(table.closes, ended)
    return Driven(rows, table.opens, closes, ended is not None, table.notes)


def by_clients(asked: Asked, url: str, *, tell: Tell) -> Driven:
    """A closed loop: each client sends when it was answered."""
    until = asked.warmup + asked.seconds
    count = iter(range(asked.limit))

    async def send(client: Client, begin: float) -> None:
        async def one() -> None:
            await _until(begin)
            while (now := time.monotonic()) < begin + until and (k := next(count, None)) is not None:
                await client.ask(k, now)

        clients = {asyncio.create_task(one()) for _ in range(asked.clients or 1)}
        try:
            await asyncio.gather(*clients)
        finally:
            await _end(clients)

    rows, ended = asyncio.run(_drive(asked, url, send, until, tell))
    closes, notes = until if ended is None else min(until, ended), tuple[str, ...]()
    if len(rows.done) == asked.limit and rows.done.max() < closes:
        closes, notes = float(rows.done.max()), (f"ended after {asked.limit:,} requests",)
    return Driven(rows, asked.warmup, closes, ended is not None, notes)


async def _drive(asked: Asked, url: str, send: Send, last: float, tell: Tell) -> tuple[Rows, float | None]:
    """The rows, and when the user stopped it, if that is so."""
    may_open(asked.connections)
    book = Book()
    async with session() as connections:
        await ready(connections, url, tell)
        _calm()
        begin = time.monotonic() + LEAD
        sending = asyncio.ensure_future(send(Client(connections, url, asked, book), begin))
        saying = asyncio.create_task(_say(book, begin, last, tell))
        with _stoppable(sending):
            try:
                await sending
            except asyncio.CancelledError:
                return book.rows(begin), time.monotonic() - begin
            finally:
                saying.cancel()
                gc.unfreeze()
    return book.rows(begin), None


def _calm() -> None:
    """What is there now is not looked through again: the collector would hold up the timetable."""
    gc.collect()
    gc.freeze()


async def _until(when: float) -> None:
    """Sleep, but the last moments awake; the loop has at least one turn, so that answers are heard."""
    if (left := when - time.monotonic() - AWAKE) > 0:
        await asyncio.sleep(left)
    await asyncio.sleep(0)
    while time.monotonic() < when:
        await asyncio.sleep(0)


async def _end(tasks: set[asyncio.Task[None]]) -> None:
    for task in (left := list(tasks)):
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)


async def _say(book: Book, begin: float, last: float, tell: Tell) -> None:
    while True:
        await asyncio.sleep(EVERY)
        now = time.monotonic() - begin
        rest = f"of {last:.0f} s" if now < last else "s, waiting for the last answers"
        tell(f"{now:4.0f} {rest}: {len(book):,} requests have ended")


@contextmanager
def _stoppable(sending: asyncio.Future[None]) -> Iterator[None]:
    """Ctrl-C and SIGTERM end the sending, not the program: what was measured is kept."""
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
