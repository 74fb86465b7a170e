"""An MPS control daemon: start it with a guard process, query it, stop it.

Nothing is set that affects other users of the GPU: no compute mode, no time-slice length. It runs in its own
directories, is verified by querying it, and is stopped however the run ends.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from fleetlab.devices.errors import BenchError
from fleetlab.sharing import locks, mps_guard
from fleetlab.sharing.share import Share, Worker

CONTROL = "nvidia-cuda-mps-control"


class Mps:
    """An MPS control daemon with its own directories."""

    name = "mps"

    def __init__(self, home: Path) -> None:
        self._folders = {"CUDA_MPS_PIPE_DIRECTORY": str(home / "pipe"), "CUDA_MPS_LOG_DIRECTORY": str(home / "log")}
        for folder in self._folders.values():
            Path(folder).mkdir()

    @classmethod
    def at(cls, pipe: Path, log: Path | None = None) -> Self:
        """Refer to the daemon of a pipe directory, which may not be running."""
        daemon = cls.__new__(cls)
        daemon._folders = {"CUDA_MPS_PIPE_DIRECTORY": str(pipe)}
        if log is not None:
            daemon._folders["CUDA_MPS_LOG_DIRECTORY"] = str(log)
        return daemon

    def environment(self, share: Share) -> dict[str, str]:
        """Environment of a client of this daemon."""
        if share.instance is not None:
            msg = "MPS has no instances"
            raise BenchError(msg, hint="an instance is one of a MIG layout")
        return self._folders | share.environment()

    def verify(self, workers: Sequence[Worker]) -> dict[int, str]:
        """Why processes are not in this mode, by process id: they are not clients of this daemon."""
        # A command of the user's own has processes of its own; its worker does not open the GPU.
        processes = {worker.about["pid"]: set(worker.about.get("pids") or [worker.about["pid"]]) for worker in workers}
        clients = self.attached(set().union(*processes.values())) if processes else set()
        return {pid: "not a client of MPS" for pid, own in processes.items() if not own & clients}

    def report(self) -> dict[str, Any]:
        """For the manifest of a suite."""
        return {"mps": {word: self.ask(word) for word in ("get_server_list", "ps")}}

    def ask(self, word: str) -> str:
        """Send a command to the daemon and return its answer; empty if it does not run."""
        try:
            done = subprocess.run(
                [CONTROL],
                input=word + "\n",
                text=True,
                capture_output=True,
                timeout=15,
                check=False,
                env=os.environ | self._folders,
            )
        except (OSError, subprocess.TimeoutExpired):
            return ""
        return done.stdout.strip()

    def alive(self) -> bool:
        """Whether the daemon answers. The exit status says nothing: it is 0 even if nothing was started."""
        return re.fullmatch(r"\d+(\.\d+)?", self.ask("get_default_active_thread_percentage")) is not None

    def servers(self) -> dict[int, set[int]]:
        """Its servers, and the client processes of each."""
        servers = re.findall(r"^\d+$", self.ask("get_server_list"), re.MULTILINE)
        listed = {int(s): re.findall(r"^\d+$", self.ask(f"get_client_list {s}"), re.MULTILINE) for s in servers}
        return {server: {int(pid) for pid in pids} for server, pids in listed.items()}

    def clients(self) -> set[int]:
        """Client processes of all its servers."""
        return {pid for pids in self.servers().values() for pid in pids}

    def attached(self, pids: set[int]) -> set[int]:
        """Those of `pids` that are clients; a client takes about a second to appear."""
        for _ in range(6):
            if pids <= (found := self.clients()):
                break
            time.sleep(0.5)
        return found & pids

    def start(self) -> subprocess.Popen[bytes]:
        """Start the daemon and its guard process, which stops it when we exit or are killed, also while it starts."""
        # The guard alone holds it: who finds this directory after a kill waits until the guard has done its work.
        lock = locks.take(guard_lock(Path(self._folders["CUDA_MPS_PIPE_DIRECTORY"]).parent))
        assert lock is not None
        try:
            guard = self.guard(launching=True, hold=(lock,))
        finally:
            os.close(lock)
        assert guard.stdin is not None
        try:
            self.launch()
            guard.stdin.write(b"launched")
            guard.stdin.flush()
        except BaseException:
            self.stop(guard)
            raise
        return guard

    def guard(self, *, launching: bool = False, hold: tuple[int, ...] = ()) -> subprocess.Popen[bytes]:
        """Start the process that stops the daemon when its standard input is closed; it holds the locks of `hold`."""
        return subprocess.Popen(
            [sys.executable, "-I", mps_guard.__file__, *([mps_guard.LAUNCHING] if launching else [])],
            stdin=subprocess.PIPE,
            env=os.environ | self._folders,
            start_new_session=True,
            pass_fds=hold,
        )

    def launch(self) -> None:
        """Start the daemon and wait until it answers."""
        try:
            quiet = subprocess.DEVNULL
            env = os.environ | self._folders
            subprocess.run([CONTROL, "-d"], env=env, timeout=30, check=False, stdout=quiet, stderr=quiet)
        except (OSError, subprocess.TimeoutExpired) as e:
            msg = f"MPS cannot be started: {e}"
            raise BenchError(msg, hint=f"`{CONTROL}` comes with NVIDIA's driver") from None
        for _ in range(20):
            if self.alive():
                return
            time.sleep(0.1)
        msg = "MPS did not start: the control program ran, but no daemon answers"
        raise BenchError(msg, hint="check nvidia-smi; MPS needs Linux and compute capability 3.5 or later")

    def stop(self, guard: subprocess.Popen[bytes]) -> None:
        """Have the guard stop the daemon, and wait for it."""
        assert guard.stdin is not None
        guard.stdin.close()
        try:
            guard.wait(timeout=mps_guard.LONGEST)
        except subprocess.TimeoutExpired:
            guard.kill()
            guard.wait()
        if self.alive():
            msg = "MPS could not be stopped: its daemon still answers"
            raise BenchError(msg, hint=f"CUDA_MPS_PIPE_DIRECTORY={self._folders['CUDA_MPS_PIPE_DIRECTORY']} {CONTROL}")


def guard_lock(home: Path) -> Path:
    """The lock that the guard of a daemon holds while it lives."""
    return home / "guard"
