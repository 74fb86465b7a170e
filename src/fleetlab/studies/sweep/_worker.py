"""A worker on this machine: takes questions from its parent through a socket, one by one, and answers them.

Started anew, not forked, with one thread for frames: sums of floats must not depend on how many cores a machine has.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path

from fleetlab.studies.sweep._cell import Desk, Tables, play
from fleetlab.studies.sweep._code import code
from fleetlab.studies.sweep._packed import Packed

PDEATHSIG = 1  # of prctl(2): which signal to get when the parent is gone


def mapped(folder: Path, digest: str) -> Tables:
    """The tables of a source, as files that all workers of a machine share in memory."""
    return {path.name: Packed.mapped(path) for path in (folder / digest).iterdir()}


def main() -> None:
    """Answer until the parent hangs up."""
    fd, parent, folder = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]).resolve()
    _die_with(parent)
    pipe = Connection(fd)
    try:
        texts = json.loads(pipe.recv_bytes())
        desk = Desk.laid(partial(mapped, folder), texts)
        import fleetlab.sim.simulate  # noqa: F401  before the first question, not while it waits

        pipe.send_bytes(json.dumps({"code": code()}).encode())
        while True:
            answer = play(json.loads(pipe.recv_bytes()), desk)
            pipe.send_bytes(json.dumps(answer, allow_nan=False).encode())
    except (EOFError, ConnectionError):
        return


def _die_with(parent: int) -> None:
    """A killed parent must not leave workers behind; compiled code cannot look for itself."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(0)


if __name__ == "__main__":
    main()
