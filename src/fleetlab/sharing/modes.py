"""How tenants share a card: by turns (the driver's default between processes), or side by side under MPS.

Nothing is set that others on the card would feel: no clocks, no compute mode, no time-slice length. MPS runs in
folders of its own, is proved by asking it, and is put back however the run ends.
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
from fleetlab.sharing import mps_guard as _guard

CONTROL = "nvidia-cuda-mps-control"
MODES = ("time-slicing", "mps")
# A process that must not find a daemon by chance is pointed at a folder that is not there.
APART = {"CUDA_MPS_PIPE_DIRECTORY": "/nonexistent/mps"}


@dataclass(frozen=True, slots=True)
class Share:
    """What one tenant may have of the card under MPS; None is no limit."""

    percent: int | None = None  # of the SMs
    memory_mib: int | None = None
    priority: int | None = None  # 0 normal, 1 below normal

    def __post_init__(self) -> None:
        if self.percent is not None and not 1 <= self.percent <= 100:
            msg = f"not a percentage of the SMs: {self.percent}"
            raise BenchError(msg, hint="1 to 100")
        if self.memory_mib is not None and self.memory_mib < 1:
            msg = f"not an amount of memory: {self.memory_mib} MiB"
            raise BenchError(msg)
        if self.priority not in (None, 0, 1):
            msg = f"not a client priority: {self.priority}"
            raise BenchError(msg, hint="0 is normal, 1 below normal")

    def environment(self) -> dict[str, str]:
        """For a client, before it opens the card."""
        told: dict[str, str] = {}
        if self.percent is not None:
            told["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = str(self.percent)
        if self.memory_mib is not None:
            told["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] = f"0={self.memory_mib}M"
        if self.priority is not None:
            told["CUDA_MPS_CLIENT_PRIORITY"] = str(self.priority)
        return told


class TimeSlicing:
    """What a driver does between processes when nobody asks for anything."""

    name = "time-slicing"

    def environment(self, share: Share) -> dict[str, str]:
        """A client that can attach to nothing."""
        if share != Share():
            msg = "time slicing has no shares to give"
            raise BenchError(msg, hint="thread percentage, memory limit and priority belong to mps")
        return dict(APART)

    def attached(self, pids: set[int]) -> set[int]:
        """Nobody attaches to anything: all are as they should be."""
        return pids


class Mps:
    """A running daemon, in folders of its own."""

    name = "mps"

    def __init__(self, home: Path) -> None:
        self._folders = {"CUDA_MPS_PIPE_DIRECTORY": str(home / "pipe"), "CUDA_MPS_LOG_DIRECTORY": str(home / "log")}
        for folder in self._folders.values():
            Path(folder).mkdir()

    @classmethod
    def at(cls, pipe: Path, log: Path | None = None) -> Self:
        """The daemon of a pipe directory, if there is one."""
        found = cls.__new__(cls)
        found._folders = {"CUDA_MPS_PIPE_DIRECTORY": str(pipe)}
        if log is not None:
            found._folders["CUDA_MPS_LOG_DIRECTORY"] = str(log)
        return found

    def environment(self, share: Share) -> dict[str, str]:
        """A client of this daemon."""
        return self._folders | share.environment()

    def ask(self, word: str) -> str:
        """What the daemon answers; nothing, if there is none."""
        try:
            said = subprocess.run(
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
        return said.stdout.strip()

    def alive(self) -> bool:
        """Does it answer as a daemon does? Its exit status says nothing: it is 0 even where nothing started."""
        return re.fullmatch(r"\d+(\.\d+)?", self.ask("get_default_active_thread_percentage")) is not None

    def servers(self) -> dict[int, set[int]]:
        """Its servers, and the processes attached to each."""
        servers = re.findall(r"^\d+$", self.ask("get_server_list"), re.MULTILINE)
        listed = {int(s): re.findall(r"^\d+$", self.ask(f"get_client_list {s}"), re.MULTILINE) for s in servers}
        return {server: {int(pid) for pid in pids} for server, pids in listed.items()}

    def clients(self) -> set[int]:
        """The processes attached to its servers."""
        return {pid for pids in self.servers().values() for pid in pids}

    def attached(self, pids: set[int]) -> set[int]:
        """Those of `pids` that its servers list; a client needs about a second to appear."""
        for _ in range(6):
            if pids <= (found := self.clients()):
                break
            time.sleep(0.5)
        return found & pids

    def start(self) -> subprocess.Popen[bytes]:
        """Start the daemon; the guard that puts it back when its input is closed, or when we are gone."""
        guard = self.guard()
        try:
            self.launch()
        except BaseException:
            self.stop(guard)
            raise
        return guard

    def guard(self) -> subprocess.Popen[bytes]:
        """Whoever ends the daemon once its own input ends."""
        return subprocess.Popen(
            [sys.executable, "-I", _guard.__file__],
            stdin=subprocess.PIPE,
            env=os.environ | self._folders,
            start_new_session=True,
        )

    def launch(self) -> None:
        """Start the daemon, and see that it answers."""
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
        msg = "MPS did not start: its control program ran, but no daemon answers"
        raise BenchError(msg, hint="look at nvidia-smi; MPS needs Linux and a card of compute capability 3.5 or later")

    def stop(self, guard: subprocess.Popen[bytes]) -> None:
        """Have the guard put it back, and wait until it has."""
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
    """Have tenants share a card by `mode`, and put it back however the block is left.

    A rehearsal has no card: every mode is then what the operating system does with processes.
    """
    if mode not in MODES:
        msg = f"no sharing mode by that name: `{mode}`"
        raise BenchError(msg, hint=f"there are {', '.join(MODES)}")
    if rehearse or mode == "time-slicing":
        yield Rehearsal() if rehearse else TimeSlicing()
        return
    if shutil.which(CONTROL) is None:
        msg = f"no MPS on this machine: `{CONTROL}` is not there"
        raise BenchError(msg, hint="it comes with NVIDIA's driver for Linux; without a GPU, rehearse with --rehearse")
    # The path of a socket holds about 100 letters: keep it short.
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
    """Any mode on a machine without a card: shares are taken and mean nothing."""

    def environment(self, share: Share) -> dict[str, Any]:
        """Nothing to tell."""
        return {}
