"""Sharing modes between processes: time slicing (the driver's default) and MPS.

Nothing is set that affects other users of the GPU: no clocks, no compute mode, no time-slice length. MPS runs in its
own directories, is verified by querying it, and is stopped however the run ends.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from fleetlab.devices.errors import BenchError
from fleetlab.sharing import mps_guard

CONTROL = "nvidia-cuda-mps-control"
MODES = ("time-slicing", "mps")
# A process that must not attach to a daemon gets a pipe directory that does not exist.
NO_MPS = {"CUDA_MPS_PIPE_DIRECTORY": "/nonexistent/mps"}


@dataclass(frozen=True, slots=True)
class Share:
    """Limits of one MPS client; None is no limit."""

    percent: int | None = None  # active thread percentage
    memory_mib: int | None = None
    priority: int | None = None  # 0 is normal, 1 below normal

    def __post_init__(self) -> None:
        if self.percent is not None and not 1 <= self.percent <= 100:
            msg = f"not an active thread percentage: {self.percent}"
            raise BenchError(msg, hint="from 1 to 100")
        if self.memory_mib is not None and self.memory_mib < 1:
            msg = f"not a memory limit: {self.memory_mib} MiB"
            raise BenchError(msg)
        if self.priority not in (None, 0, 1):
            msg = f"not a client priority: {self.priority}"
            raise BenchError(msg, hint="0 is normal, 1 below normal")

    def environment(self) -> dict[str, str]:
        """Environment variables of a client."""
        variables: dict[str, str] = {}
        if self.percent is not None:
            variables["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = str(self.percent)
        if self.memory_mib is not None:
            variables["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] = f"0={self.memory_mib}M"
        if self.priority is not None:
            variables["CUDA_MPS_CLIENT_PRIORITY"] = str(self.priority)
        return variables


class TimeSlicing:
    """Time slicing: what the driver does by default."""

    name = "time-slicing"

    def environment(self, share: Share) -> dict[str, str]:
        """Environment of a process that cannot attach to MPS."""
        if share != Share():
            msg = "time slicing has no limits per tenant"
            raise BenchError(msg, hint="thread percentage, memory limit and priority are settings of mps")
        return dict(NO_MPS)

    def attached(self, pids: set[int]) -> set[int]:
        """Return all of them: there is nothing to attach to."""
        return pids


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
        return self._folders | share.environment()

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
        """Start the daemon and its guard process, which stops it when we exit or are killed."""
        guard = self.guard()
        try:
            self.launch()
        except BaseException:
            self.stop(guard)
            raise
        return guard

    def guard(self) -> subprocess.Popen[bytes]:
        """Start the process that stops the daemon when its standard input is closed."""
        return subprocess.Popen(
            [sys.executable, "-I", mps_guard.__file__],
            stdin=subprocess.PIPE,
            env=os.environ | self._folders,
            start_new_session=True,
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
            guard.wait(timeout=60)
        except subprocess.TimeoutExpired:
            guard.kill()
            guard.wait()
        if self.alive():
            msg = "MPS could not be stopped: its daemon still answers"
            raise BenchError(msg, hint=f"CUDA_MPS_PIPE_DIRECTORY={self._folders['CUDA_MPS_PIPE_DIRECTORY']} {CONTROL}")


@contextmanager
def shared(mode: str, *, rehearse: bool = False) -> Iterator[TimeSlicing | Mps]:
    """Switch to `mode` inside the block, and restore the state however the block is left.

    A rehearsal needs no GPU: every mode is then plain processes of the operating system.
    """
    if mode not in MODES:
        msg = f"unknown sharing mode: `{mode}`"
        raise BenchError(msg, hint=f"there are {', '.join(MODES)}")
    if rehearse or mode == "time-slicing":
        yield Rehearsal() if rehearse else TimeSlicing()
        return
    if shutil.which(CONTROL) is None:
        msg = f"MPS is not available: `{CONTROL}` is not installed"
        raise BenchError(msg, hint="it is part of NVIDIA's driver for Linux; without a GPU, use --rehearse")
    # The path of a socket is limited to about 100 characters.
    home = Path(tempfile.mkdtemp(prefix="mps-", dir="/tmp"))
    mps = Mps(home)
    try:
        guard = mps.start()
        try:
            yield mps
        finally:
            mps.stop(guard)
    finally:
        shutil.rmtree(home, ignore_errors=True)


class Rehearsal(TimeSlicing):
    """Any mode on a machine without a GPU: limits are accepted and ignored."""

    def environment(self, share: Share) -> dict[str, Any]:
        """Return no variables."""
        return {}
