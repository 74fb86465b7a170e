"""Stop MPS when the process that started it is gone, even if that was killed: standard input is closed then.

It runs as its own program, outside the process group of its parent, so that no signal to the parent reaches it.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Collection
from pathlib import Path

PATIENCE = 10  # s for clients to end before their server is stopped
START = 10  # s in which a daemon that was being started may still appear
QUIT = 2  # s after an answered `quit` until daemon and servers are gone
END = 5  # s after a signal
LONGEST = 100  # s that a guard may take: three answers that do not come, and what it waits for around them
LAUNCHING = "--launching"
PIPE = "CUDA_MPS_PIPE_DIRECTORY"
NAME = "nvidia-cuda-mps"  # the first 15 characters of the names of daemons and servers


def main() -> None:
    """Wait, then quit the daemon of this environment; end what is left of it and its servers by process id."""
    for deaf in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(deaf, signal.SIG_IGN)
    if not sys.stdin.buffer.read() and LAUNCHING in sys.argv:
        _await_daemon()  # killed between the start of the program that starts the daemon and its end
    # What the daemon names: itself in a file, and its servers. Another process may have that id by now
    named = {int(word) for word in (_daemon(), *_ask("get_server_list").split()) if word.isdigit()}
    for word in (f"quit -t {PATIENCE}", "quit"):
        _ask(word)
        # A server outlives its daemon for a moment and holds the GPU meanwhile.
        if _gone(named, within=QUIT):
            return
    # A server whose client was killed within a kernel may hear neither its daemon nor a signal that it can handle.
    for number in (signal.SIGTERM, signal.SIGKILL):
        for pid in _processes(named):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        if _gone(named, within=END):
            return


def _await_daemon() -> None:
    for _ in range(10 * START):
        if _daemon():
            return
        time.sleep(0.1)


def _daemon() -> str:
    """What stands in the daemon's file; empty until it is written."""
    try:
        return Path(os.environ[PIPE], "nvidia-cuda-mps-control.pid").read_text().strip()
    except OSError:
        return ""


def _processes(named: Collection[int]) -> list[int]:
    """The daemon of this pipe directory and its servers that live: those named, and those with it in their environment.

    A server that is being started is not named yet, nor is a daemon. Zombies count as gone.
    """
    mark, pids = f"{PIPE}={os.environ[PIPE]}".encode(), []
    for folder in Path("/proc").glob("[0-9]*"):
        pid = int(folder.name)
        try:
            if not (folder / "comm").read_text().startswith(NAME) or process_state(pid) in ("", "Z"):
                continue
            if pid in named or mark in (folder / "environ").read_bytes().split(b"\0"):
                pids.append(pid)
        except OSError:
            continue
    return pids


def _ask(word: str) -> str:
    try:
        done = subprocess.run(
            ["nvidia-cuda-mps-control"],
            input=word + "\n",
            stdout=subprocess.PIPE,
            text=True,
            timeout=PATIENCE + 10,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as e:
        print(f"{word}: {e}", file=sys.stderr)
        return ""
    return done.stdout


def _gone(named: Collection[int], *, within: int) -> bool:
    for _ in range(10 * within):
        if not _processes(named):
            return True
        time.sleep(0.1)
    return False


def process_state(pid: int) -> str:
    """State letter of a process in /proc; empty if it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


if __name__ == "__main__":
    main()
