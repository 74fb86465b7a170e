"""Run a command: `guard.py WORD…`. It ends, with every process that it started, when standard input is closed.

A worker that is killed cannot end what it started, so this process does. It adopts orphans of the command, so that
none is missed; `0` on standard input stops all of them, `1` lets them go on. The exit status is that of the command.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER of <linux/prctl.h>
GRACE = 2.0  # s to end after SIGTERM


def descendants(of: int) -> list[int]:
    """Every process below one."""
    return list(states(of))


def states(of: int) -> dict[int, str]:
    """Every process below one, by the parents that the kernel lists, and its state: T if it is stopped."""
    below: dict[int, dict[int, str]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            state, parent = stat.read_text("utf-8", "replace").rpartition(")")[2].split()[:2]
            if state != "Z":
                below.setdefault(int(parent), {})[int(stat.parent.name)] = state
    processes, new = dict[int, str](), {of: ""}
    while new:
        new = {child: state for parent in new for child, state in below.get(parent, {}).items()}
        processes |= new
    return processes


def send(sign: signal.Signals) -> None:
    """Send a signal to all of them."""
    for pid in descendants(os.getpid()):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, sign)


def finish() -> None:
    """End all of them; who does not obey is killed."""
    send(signal.SIGTERM)
    send(signal.SIGCONT)  # a stopped process ends only when it goes on
    until = time.monotonic() + GRACE
    while descendants(os.getpid()):
        if time.monotonic() > until:
            send(signal.SIGKILL)
        reap()
        time.sleep(0.02)


def reap() -> None:
    """Take note of ended orphans."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def main(words: list[str]) -> int:
    """Run the command and obey standard input until either ends."""
    ctypes.CDLL(None).prctl(SUBREAPER, 1, 0, 0, 0)
    try:
        child = subprocess.Popen(words, stdin=subprocess.DEVNULL, start_new_session=True)
    except OSError as e:
        print(f"cannot be started: {words[0]}: {e.strerror}", flush=True)
        return 127
    while child.poll() is None:
        ready, _, _ = select.select([0], [], [], 0.05)
        if ready:
            command = os.read(0, 64)
            if not command:
                break
            send(signal.SIGSTOP if command.endswith(b"0") else signal.SIGCONT)
    finish()
    status = child.returncode if child.returncode is not None else 0
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
