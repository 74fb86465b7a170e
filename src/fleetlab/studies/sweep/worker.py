"""A worker process on this machine: it takes questions from its parent through a socket, one by one.

It is started anew, not forked, with one thread for frames: sums must not depend on how many cores a machine has.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path

from fleetlab.core import Trace
from fleetlab.studies.code_version import code_version
from fleetlab.studies.sweep.cell import CellInputs, run_cell
from fleetlab.studies.sweep.plan import CELL

PDEATHSIG = 1  # of prctl(2): which signal to get when the parent is gone


def main() -> None:
    """Answer until the parent closes the socket."""
    fd, parent, folder = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]).resolve()
    _end_with(parent)
    pipe = Connection(fd)
    try:
        texts = json.loads(pipe.recv_bytes())
        inputs = CellInputs.with_files(lambda source: Trace.load(folder / source), texts)
        import_module("fleetlab.sim").simulate  # noqa: B018  loaded before the first question
        pipe.send_bytes(json.dumps({"code": code_version(CELL)}).encode())
        while True:
            answer = run_cell(json.loads(pipe.recv_bytes()), inputs)
            pipe.send_bytes(json.dumps(answer, allow_nan=False).encode())
    except (EOFError, ConnectionError):
        return


def _end_with(parent: int) -> None:
    """End when the parent is killed; compiled code cannot look for itself."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(0)


if __name__ == "__main__":
    main()
