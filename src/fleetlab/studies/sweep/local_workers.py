"""Workers on the cores of this machine: processes that keep the compiled simulator and the traces loaded."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from multiprocessing.connection import wait as wait_for
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

from fleetlab.studies.sweep.cell_queue import DEATHS
from fleetlab.studies.sweep.dispatch import CellWorker

PATIENCE = 10.0  # seconds that a worker has to end by itself


class WorkerProcess:
    """One worker process and the socket to it."""

    def __init__(self, folder: Path, texts: Mapping[str, str]) -> None:
        ours, theirs = socket.socketpair()
        self._stderr: IO[bytes] = TemporaryFile()  # noqa: SIM115  closed when the worker has ended
        command = [sys.executable, "-P", "-m", "fleetlab.studies.sweep.worker"]
        env = {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p), "POLARS_MAX_THREADS": "1"}
        with theirs:
            self._process = subprocess.Popen(
                [*command, str(theirs.fileno()), str(os.getpid()), str(folder)],
                env=os.environ | env,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._stderr,
                start_new_session=True,  # Ctrl-C is for the parent alone, which ends them
            )
        self.pipe = Connection(ours.detach())
        self.give(texts)

    def give(self, question: Mapping[str, Any]) -> None:
        """Send it a question."""
        try:
            self.pipe.send_bytes(json.dumps(question).encode())
        except OSError:  # dead: `receive` will notice
            return

    def receive(self) -> Mapping[str, Any] | None:
        """Return its next message; None: it is dead."""
        try:
            answer: dict[str, Any] = json.loads(self.pipe.recv_bytes())
        except (EOFError, OSError):
            return None
        return answer

    def reason(self) -> str:
        """Return how it ended, and the last line of its stderr."""
        status = self._wait()
        how = signal.Signals(-status).name if status < 0 else f"status {status}"
        self._stderr.seek(0)
        last = self._stderr.read().decode(errors="replace").strip().splitlines()[-1:]
        return f"{how}: {last[0]}" if last else how

    def stop(self, *, now: bool) -> None:
        """End it: when it has noticed that there are no more questions, or at once."""
        self.pipe.close()
        if now:
            self._process.kill()
        self._wait()
        self._stderr.close()

    def _wait(self) -> int:
        try:
            return self._process.wait(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()


class LocalBackend:
    """Worker processes on this machine."""

    name = "local"
    most_deaths = DEATHS

    def __init__(self, folder: Path, texts: Mapping[str, str], *, workers: int | None) -> None:
        self._folder, self._texts = folder, texts
        self._count = workers or len(os.sched_getaffinity(0))

    def count(self) -> int:
        """Return how many workers there should be."""
        return self._count

    def start(self) -> CellWorker:
        """Start one more worker."""
        return WorkerProcess(self._folder, self._texts)

    def wait(self, workers: Sequence[CellWorker], timeout: float | None) -> list[CellWorker]:
        """Return the workers that have an answer, waiting for the first."""
        pipes = {w.pipe: w for w in workers if isinstance(w, WorkerProcess)}
        return [pipes[p] for p in wait_for(list(pipes), timeout) if isinstance(p, Connection)]

    def close(self) -> None:
        """Do nothing: each worker has ended."""
