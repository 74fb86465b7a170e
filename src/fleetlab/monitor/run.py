"""Sample GPUs at a fixed interval until stopped; every sample goes to file, terminal and Prometheus."""

from __future__ import annotations

import json
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
from fleetlab.devices.files import atomic_write
from fleetlab.devices.progress import Progress
from fleetlab.monitor.log import SAMPLES, SampleLog
from fleetlab.monitor.options import MonitorOptions
from fleetlab.monitor.prometheus import Exporter, serve_metrics
from fleetlab.monitor.sources import VALUES, Row, SampleSource, open_source
from fleetlab.monitor.terminal import terminal_view

MAX_ROWS = 10_000  # rows that are kept in memory if there is no file
Take = Callable[[list[Row]], None]


@dataclass
class MonitorRun:
    """A finished run: its file, or its last rows if there is no file."""

    path: Path | None = None
    rows: deque[Row] = field(default_factory=lambda: deque(maxlen=MAX_ROWS))
    samples: int = 0
    late: int = 0  # samples that were skipped because the previous one took too long


def monitor(options: MonitorOptions, *, stream: TextIO | None = None, progress: Progress = print) -> MonitorRun:
    """Sample for some seconds, or until Ctrl-C or SIGTERM; print to `stream` if given."""
    every, seconds, out = options.every, options.seconds, options.out
    if not 0.01 <= every <= 3600:
        msg = f"not a sampling interval: {every} s"
        raise BenchError(msg, hint="from 0.01 to 3600 seconds")
    if seconds is not None and not 0 < seconds < 1e9:
        msg = f"not a duration: {seconds} s"
        raise BenchError(msg)
    with ExitStack() as stack:
        gpus = open_source(options.backend, index=options.index)
        stack.callback(gpus.close)
        run, takers = MonitorRun(out and out / SAMPLES), [_report_lost_gpus(progress)]
        if out is not None:
            takers.append(stack.enter_context(SampleLog(out / SAMPLES)).write)
            _declare(out, gpus, every=every, backend=options.backend)
        else:
            takers.append(run.rows.extend)
        if options.prometheus is not None:
            exporter = Exporter(gpus.gpus, options.dcgm_names)
            takers.append(lambda rows: setattr(exporter, "rows", rows))
            where = stack.enter_context(serve_metrics(exporter, port=options.prometheus, address=options.address))
            progress(f"metrics at {where}")
        if stream is not None:
            takers.append(stack.enter_context(terminal_view(gpus.gpus, stream)))
        over = stack.enter_context(stop_event())
        _sample_loop(gpus, takers, run, over, every=every, seconds=seconds)
    return run


def _sample_loop(
    gpus: SampleSource,
    takers: list[Take],
    run: MonitorRun,
    over: threading.Event,
    *,
    every: float,
    seconds: float | None,
) -> None:
    began = time.monotonic()
    due = began
    while not over.wait(max(due - time.monotonic(), 0)):
        at = round(time.time(), 3)
        rows = [{"at": at} | row for row in gpus.look()]
        for take in takers:
            take(rows)
        run.samples += 1
        due += every
        # A slow sample must not be followed by a burst: missed samples are counted and skipped.
        if (behind := int((time.monotonic() - due) / every)) > 0:
            run.late += behind
            due += behind * every
        if seconds is not None and due > began + seconds:
            over.wait(max(began + seconds - time.monotonic(), 0))
            return


@contextmanager
def stop_event() -> Iterator[threading.Event]:
    """An event that Ctrl-C and SIGTERM set; the previous handlers are restored afterwards."""
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


def _report_lost_gpus(progress: Progress) -> Take:
    """Report once when a GPU stops answering, and once when it answers again."""
    silent = set[int]()

    def take(rows: list[Row]) -> None:
        now = {row["gpu"] for row in rows if all(row[key] is None for key in VALUES)}
        for gpu in sorted(now - silent):
            progress(f"GPU {gpu} does not answer; its values are null until it does")
        for gpu in sorted(silent - now):
            progress(f"GPU {gpu} answers again")
        silent.clear()
        silent.update(now)

    return take


def _declare(out: Path, gpus: SampleSource, *, every: float, backend: str) -> None:
    about = {
        "backend": backend,
        "every": every,
        "host": platform.node(),
        "python": sys.version.split()[0],
        "started": round(time.time(), 3),
        "gpus": [asdict(gpu) for gpu in gpus.gpus],
    }
    try:
        atomic_write(out / "watch.json", json.dumps(about, indent=1))
    except OSError as e:
        msg = f"{out}: {e.strerror}"
        raise BenchError(msg, hint="--out needs a writable folder") from None
