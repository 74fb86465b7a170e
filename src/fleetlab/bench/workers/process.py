"""The parent's side of a worker process: start it, send requests, wait for answers, handle its death."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from fleetlab.devices.start import python_path


class WorkerError(Exception):
    """A worker did not answer: `kind` is `died` or `hung`."""

    def __init__(self, detail: str, *, kind: str) -> None:
        super().__init__(detail)
        self.kind, self.detail = kind, detail


class TenantWorker:
    """One process; its stderr goes to `log`, whose end is quoted if it dies."""

    def __init__(self, name: str, env: dict[str, str], log: Path) -> None:
        self.name, self._log, self._rest = name, log, b""
        with log.open("ab") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "fleetlab.bench.workers"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=os.environ | python_path() | env,
                start_new_session=True,  # Ctrl-C goes to the parent, which ends its workers in order
            )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._into, self._out = self.process.stdin, self.process.stdout

    def send(self, **order: Any) -> None:  # noqa: ANN401
        """Send a request; if the worker is dead, the next `answer` reports it."""
        with contextlib.suppress(BrokenPipeError):
            self._into.write(json.dumps(order).encode() + b"\n")
            self._into.flush()

    def answer(self, *, within: float) -> dict[str, Any]:
        """Wait for the next answer; `WorkerError` if it dies or takes longer than `within` seconds."""
        deadline = time.monotonic() + within
        while b"\n" not in self._rest:
            ready, _, _ = select.select([self._out], [], [], max(deadline - time.monotonic(), 0))
            if not ready:
                msg = f"no answer within {within:.0f} s"
                raise WorkerError(msg, kind="hung")
            if not (more := os.read(self._out.fileno(), 1 << 16)):
                raise WorkerError(self._epitaph(), kind="died")
            self._rest += more
        line, _, self._rest = self._rest.partition(b"\n")
        record: dict[str, Any] = json.loads(line)
        return record

    def _epitaph(self) -> str:
        status = self.process.wait()
        by = f"by signal {-status}" if status < 0 else f"with status {status}"
        last = " / ".join(self._log.read_text("utf-8", "replace").strip().splitlines()[-3:])
        return f"ended {by}" + (f": {last[-500:]}" if last else "")

    def end(self, *, within: float = 5) -> None:
        """End the process and wait for it."""
        self.send(do="quit")
        with contextlib.suppress(OSError):
            self._into.close()
        try:
            self.process.wait(timeout=within)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._out.close()
