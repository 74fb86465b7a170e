"""The commander's end of a tenant's process: start it, tell it, wait for its answer, and bear its death."""

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


class WorkerFailed(Exception):
    """A worker gave no answer: `kind` is `died` or `hung`."""

    def __init__(self, detail: str, *, kind: str) -> None:
        super().__init__(detail)
        self.kind, self.detail = kind, detail


class Worker:
    """One process; its errors go to `log`, of which the end is quoted if it dies."""

    def __init__(self, name: str, env: dict[str, str], log: Path) -> None:
        self.name, self._log, self._rest = name, log, b""
        with log.open("ab") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "fleetlab.bench.workers"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=os.environ | importable() | env,
                start_new_session=True,  # a Ctrl-C is for the commander, who ends its workers in order
            )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._into, self._out = self.process.stdin, self.process.stdout

    def tell(self, **order: Any) -> None:  # noqa: ANN401
        """Give an order; a worker that died says so when it is asked for the answer."""
        with contextlib.suppress(BrokenPipeError):
            self._into.write(json.dumps(order).encode() + b"\n")
            self._into.flush()

    def answer(self, *, within: float) -> dict[str, Any]:
        """Its next answer; `WorkerFailed` if it dies first or takes longer than `within` seconds."""
        deadline = time.monotonic() + within
        while b"\n" not in self._rest:
            ready, _, _ = select.select([self._out], [], [], max(deadline - time.monotonic(), 0))
            if not ready:
                msg = f"no answer within {within:.0f} s"
                raise WorkerFailed(msg, kind="hung")
            if not (more := os.read(self._out.fileno(), 1 << 16)):
                raise WorkerFailed(self._epitaph(), kind="died")
            self._rest += more
        line, _, self._rest = self._rest.partition(b"\n")
        told: dict[str, Any] = json.loads(line)
        return told

    def _epitaph(self) -> str:
        status = self.process.wait()
        by = f"by signal {-status}" if status < 0 else f"with status {status}"
        last = " / ".join(self._log.read_text("utf-8", "replace").strip().splitlines()[-3:])
        return f"ended {by}" + (f": {last[-500:]}" if last else "")

    def end(self, *, within: float = 5) -> None:
        """Ask it to go, and see that it has."""
        self.tell(do="quit")
        with contextlib.suppress(OSError):
            self._into.close()
        try:
            self.process.wait(timeout=within)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._out.close()


def importable() -> dict[str, str]:
    """A worker finds what its commander finds, wherever that was started."""
    here = str(Path(__file__).parents[3])
    paths = [here, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return {"PYTHONPATH": os.pathsep.join(dict.fromkeys(paths))}
