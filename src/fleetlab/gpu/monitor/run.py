"""Sample GPUs at a fixed interval until stopped; every sample goes to file, terminal and Prometheus.

A file has one JSON object per line; a kill can truncate only the last line.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Literal, Self, TextIO

from fleetlab.gpu.devices.console import BenchError, Progress, atomic_write
from fleetlab.gpu.monitor.outputs import Exporter, serve_metrics, terminal_view
from fleetlab.gpu.monitor.sources import VALUES, HostSource, NvmlSource, Row, open_source


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


# --- samples on disk, one JSON object per line; a kill can truncate only the last line -------------------------------


SAMPLES = "samples.jsonl"


class SampleLog:
    """A file that is appended to."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            _mend(path)
            self._file = path.open("ab", buffering=0)
        except OSError as e:
            raise BenchError(f"{e.filename or path}: {e.strerror}", hint="--out needs a writable folder") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, trace: TracebackType | None) -> None:
        self._file.close()

    def write(self, rows: Iterable[Row]) -> None:
        """Append rows; they are handed to the operating system at once, so that a kill loses none."""
        text = "".join(json.dumps(row) + "\n" for row in rows).encode()
        end = os.fstat(self._file.fileno()).st_size
        try:
            while text:
                text = text[self._file.write(text) :]
        except OSError as e:
            with contextlib.suppress(OSError):  # remove the truncated line
                os.ftruncate(self._file.fileno(), end)
            msg = f"{self._path}: cannot be written: {e.strerror}; earlier samples are kept"
            raise BenchError(msg, hint="free space, and run the command again with the same --out") from None


def _mend(path: Path) -> None:
    """Remove a truncated last line."""
    if not path.is_file() or not path.stat().st_size:
        return
    with path.open("rb+") as file:
        file.seek(0, os.SEEK_END)
        end = at = file.tell()
        tail = b""
        while at and b"\n" not in tail:
            back = min(at, 1 << 16)
            at -= back
            file.seek(at)
            tail = file.read(back) + tail
        whole = at + tail.rfind(b"\n") + 1
        if whole < end:
            file.truncate(whole)


def read_samples(path: Path) -> Iterator[Row]:
    """Read a log; a truncated last line is ignored."""
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if not line.endswith(b"\n"):
                    return
                yield _row(line, number, path)
    except OSError as e:
        msg = f"{path}: {e.strerror}"
        raise BenchError(msg, hint="`fleetlab bench monitor --out FOLDER` writes FOLDER/samples.jsonl") from None


def _row(line: bytes, number: int, path: Path) -> Row:
    try:
        row = json.loads(line)
    except ValueError:
        row = None
    if isinstance(row, dict) and "card" in row:
        row["gpu"] = row.pop("card")  # written by 0.1
    if not isinstance(row, dict) or not isinstance(row.get("gpu"), int) or not isinstance(row.get("at"), int | float):
        msg = f"{path}: line {number} is not a sample of a GPU"
        raise BenchError(msg, hint="`fleetlab bench monitor --out FOLDER` writes FOLDER/samples.jsonl")
    return row


# --- sample GPUs at a fixed interval until stopped; every sample goes to file ----------------------------------------


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
        raise BenchError(f"not a sampling interval: {every} s", hint="from 0.01 to 3600 seconds")
    if seconds is not None and not 0 < seconds < 1e9:
        raise BenchError(f"not a duration: {seconds} s")
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
    gpus: HostSource | NvmlSource,
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


def _declare(out: Path, gpus: HostSource | NvmlSource, *, every: float, backend: str) -> None:
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
        raise BenchError(f"{out}: {e.strerror}", hint="--out needs a writable folder") from None
