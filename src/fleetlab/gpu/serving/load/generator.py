"""The load generator: arrivals, drawn or replayed from a list, and an open or a closed loop that sends them."""

from __future__ import annotations

import asyncio
import gc
import json
import math
import signal
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice, takewhile
from pathlib import Path
from types import FrameType

import numpy as np
from numpy.typing import NDArray

from fleetlab.gpu.bench.llm.requests import read_trace
from fleetlab.gpu.bench.loops import arrivals
from fleetlab.gpu.devices.console import BenchError, Progress
from fleetlab.gpu.serving.load.client import Client, TokenClient, raise_file_limit, session, wait_until_ready
from fleetlab.gpu.serving.load.requests import RequestLog, Requests, request_lengths
from fleetlab.gpu.serving.load.settings import LoadSettings

Floats = NDArray[np.float64]
DISTRIBUTIONS = "poisson, gamma:B (bursty if B is below 1) and uniform"


@dataclass(frozen=True, slots=True)
class ArrivalSchedule:
    """Scheduled times in seconds from the start; those from `opens` to `closes` are measured."""

    due: Floats
    opens: float
    closes: float
    notes: tuple[str, ...] = ()


def arrival_schedule(settings: LoadSettings) -> ArrivalSchedule:
    """Make the schedule; it depends only on the settings, and a longer one starts like a shorter one.

    >>> arrival_schedule(LoadSettings(url="", rate=2, arrivals="uniform", seconds=2, warmup=1)).due.tolist()
    [0.5, 1.0, 1.5, 2.0, 2.5]
    """
    end = settings.warmup + settings.seconds
    all_due, whole = _replayed(settings) if is_replay(settings) else (_generated(settings, end), False)
    due = all_due[all_due < end][: settings.limit]
    notes = []
    if len(due) == settings.limit or (whole and len(due) == len(all_due)):
        # The schedule is shorter than requested: the window ends with it, or rates would be too low.
        last = float(due[-1] * len(due) / max(len(due) - 1, 1)) if len(due) else 0.0
        if 0 < last < end:
            notes.append(f"the schedule ends after {len(due):,} requests: {last:.1f} s instead of {end:.1f} s")
            end = last
    if not ((due >= settings.warmup) & (due < end)).any():
        msg = f"no request is scheduled after the warm-up of {settings.warmup:g} s"
        raise BenchError(msg, hint="use a higher --rate, more --seconds, a shorter --warmup or a larger --limit")
    return ArrivalSchedule(due, settings.warmup, end, tuple(notes))


def is_replay(settings: LoadSettings) -> bool:
    """Whether arrivals are replayed from a list rather than generated."""
    return settings.times is not None or not (
        settings.arrivals in ("poisson", "uniform", "dataset") or settings.arrivals.startswith("gamma:")
    )


def _generated(settings: LoadSettings, end: float) -> Floats:
    if settings.scale is not None:
        raise BenchError("--scale applies only to arrivals from a file or a trace", hint="set --rate instead")
    if settings.arrivals == "dataset":
        # Arrivals of a dataset at its own rate, or at the given one
        assert settings.dataset is not None
        speed = settings.rate / read_trace(settings.dataset).rate if settings.rate is not None else 1.0
        due = (at / speed for at, _, _ in request_lengths(settings.dataset, settings.seed))
        return np.array(list(takewhile(lambda at: at < end, islice(due, settings.limit))))
    if settings.rate is None:
        raise BenchError("no rate given", hint="--rate 50, or --clients 8 for a closed loop")
    end = min(end, (2 * settings.limit + 20) / settings.rate)  # beyond the limit nothing needs to be generated
    if settings.arrivals == "uniform":
        return np.arange(1, math.ceil(end * settings.rate) + 1) / settings.rate
    return arrivals(settings.rate, end, seed=settings.seed, burstiness=_burstiness(settings.arrivals))


def _burstiness(text: str) -> float:
    if text == "poisson":
        return 1.0
    try:
        burstiness = float(text.removeprefix("gamma:"))
    except ValueError:
        burstiness = math.nan
    if not 0.01 <= burstiness <= 1e6:
        msg = f"gamma takes a shape from 0.01 to 1e6: `{text}`"
        raise BenchError(msg, hint="gamma:1 is Poisson; gamma:0.25 has inter-arrival times with a CV of 2")
    return burstiness


def _replayed(settings: LoadSettings) -> tuple[Floats, bool]:
    """Times from the first one on, scaled to the rate."""
    listed = read_times(Path(settings.arrivals)) if settings.times is None else settings.times
    times = np.sort(np.asarray(listed, float))
    if not times.size or not np.isfinite(times).all():
        msg = f"{settings.arrivals}: not a list of arrival times"
        raise BenchError(msg, hint="at least one finite number of seconds")
    times -= times[0]
    if settings.scale is not None:
        times /= settings.scale
    if settings.rate is not None:
        if not times[-1] > 0:
            raise BenchError(f"{settings.arrivals}: all arrivals are at the same time, so they have no rate")
        times *= (len(times) - 1) / times[-1] / settings.rate
    return times, True


def read_times(path: Path) -> tuple[float, ...]:
    """Read a file of times in seconds: one per line, or a JSON list."""
    try:
        text = path.read_text("utf-8")
    except OSError as e:
        msg = f"no such arrivals: `{path}`: {e.strerror}"
        raise BenchError(
            msg, hint=f"one of {DISTRIBUTIONS}, a file of times in seconds, or the folder of a trace"
        ) from None
    except UnicodeDecodeError:
        text = "?"
    try:
        words = json.loads(text) if text.lstrip().startswith("[") else text.split()
        return tuple(float(word) for word in words)
    except (ValueError, TypeError, RecursionError) as e:
        msg = f"{path}: not a list of arrival times: {e}"
        raise BenchError(msg, hint="seconds, one per line, or a JSON list of numbers") from None


# --- the generator: an open loop with scheduled arrivals, or a closed loop of clients ---------------------------------


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
        # Exclude existing objects from garbage collection, which would delay requests
        gc.collect()
        gc.freeze()
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


async def _until(when: float) -> None:
    """Sleep, then wait busily; yield to the event loop at least once, so that answers are processed."""
    if (pause := when - time.monotonic() - AWAKE) > 0:
        await asyncio.sleep(pause)
    await asyncio.sleep(0)
    while time.monotonic() < when:
        await asyncio.sleep(0)


async def _end(tasks: set[asyncio.Task[None]]) -> None:
    for task in (remaining := list(tasks)):
        task.cancel()
    await asyncio.gather(*remaining, return_exceptions=True)


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
