"""Stop MPS when the process that started it is gone, even if that was killed: standard input is closed then.

It runs as its own program, outside the process group of its parent, so that no signal to the parent reaches it.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

PATIENCE = 10  # s for clients to end before their server is stopped
START = 10  # s in which a daemon that was being started may still appear
LAUNCHING = "--launching"


def main() -> None:
    """Wait, then quit the daemon of this environment; kill it by its process id if it does not answer."""
    for deaf in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(deaf, signal.SIG_IGN)
    if not sys.stdin.buffer.read() and LAUNCHING in sys.argv:
        _await_daemon()  # killed between the start of the program that starts the daemon and its end
    daemon, servers = _daemon(), _servers()
    for word in (f"quit -t {PATIENCE}", "quit"):
        _ask(word)
        # A server outlives its daemon for a moment and holds the GPU meanwhile.
        if _gone([daemon, *servers]):
            return
    for pid in (daemon, *servers):
        if pid is not None and process_state(pid) not in ("", "Z"):
            os.kill(pid, signal.SIGTERM)


def _await_daemon() -> None:
    for _ in range(10 * START):
        if _daemon() is not None:
            return
        time.sleep(0.1)


def _daemon() -> int | None:
    try:
        return int(Path(os.environ["CUDA_MPS_PIPE_DIRECTORY"], "nvidia-cuda-mps-control.pid").read_text())
    except (OSError, ValueError):
        return None


def _servers() -> list[int]:
    return [int(word) for word in _ask("get_server_list").split() if word.isdigit() and _serves(int(word))]


def _serves(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/comm").read_text().startswith("nvidia-cuda-mps")
    except OSError:
        return False


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


def _gone(pids: list[int | None]) -> bool:
    for _ in range(20):
        if all(pid is None or process_state(pid) in ("", "Z") for pid in pids):  # zombies count as gone
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
