"""The cores of this machine: a worker is a process that keeps the compiled simulator warm and maps the traces."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

from fleetlab.studies.sweep import _engine
from fleetlab.studies.sweep._queue import DEATHS

PATIENCE = 10.0  # seconds that a worker gets to leave by itself


class Process:
    """One worker process and the socket to it."""

    def __init__(self, folder: Path, texts: Mapping[str, str]) -> None:
        ours, theirs = socket.socketpair()
        self._said: IO[bytes] = TemporaryFile()  # noqa: SIM115  closed when the worker has ended
        words = [sys.executable, "-P", "-m", "fleetlab.studies.sweep._worker"]
        path = {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p), "POLARS_MAX_THREADS": "1"}
        with theirs:
            self._process = subprocess.Popen(
                [*words, str(theirs.fileno()), str(os.getpid()), str(folder)],
                env=os.environ | path,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._said,
                start_new_session=True,  # Ctrl-C is for us alone: we end them
            )
        self.pipe = Connection(ours.detach())
        self.give(texts)

    def give(self, ask: Mapping[str, Any]) -> None:
        """Hand it a question."""
        try:
            self.pipe.send_bytes(json.dumps(ask).encode())
        except OSError:  # dead: its end of the socket will say so when we listen
            return

    def hear(self) -> Mapping[str, Any] | None:
        """What it says; None: it is dead."""
        try:
            said: dict[str, Any] = json.loads(self.pipe.recv_bytes())
        except (EOFError, OSError):
            return None
        return said

    def why(self) -> str:
        """How it died, and its last words."""
        status = self._wait()
        how = signal.Signals(-status).name if status < 0 else f"status {status}"
        self._said.seek(0)
        last = self._said.read().decode(errors="replace").strip().splitlines()[-1:]
        return f"{how}: {last[0]}" if last else how

    def stop(self, *, now: bool) -> None:
        """End it: when it has heard that nobody asks any more, or at once."""
        self.pipe.close()
        if now:
            self._process.kill()
        self._wait()
        self._said.close()

    def _wait(self) -> int:
        try:
            return self._process.wait(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()


class Local:
    """So many processes on this machine."""

    name = "local"
    most_deaths = DEATHS

    def __init__(self, folder: Path, texts: Mapping[str, str], *, workers: int | None) -> None:
        self._folder, self._texts = folder, texts
        self._count = workers or len(os.sched_getaffinity(0))

    def count(self) -> int:
        """How many workers there should be."""
        return self._count

    def hire(self) -> _engine.Worker:
        """Start one more."""
        return Process(self._folder, self._texts)

    def listen(self, workers: Sequence[_engine.Worker], timeout: float | None) -> list[_engine.Worker]:
        """Those who have something to say, waiting for the first."""
        pipes = {w.pipe: w for w in workers if isinstance(w, Process)}
        return [pipes[p] for p in wait(list(pipes), timeout) if isinstance(p, Connection)]

    def close(self) -> None:
        """Nothing is left to do: each worker has ended."""
