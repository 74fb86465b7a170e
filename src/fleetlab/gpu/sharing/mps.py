"""An MPS control daemon: start it with a guard process, query it, stop it.

Nothing is set that affects other users of the GPU: no compute mode, no time-slice length. It runs in its own
directories, is verified by querying it, and is stopped however the run ends.

Its directory contains a record, so that it is found again and never started twice.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self

from fleetlab.gpu.devices import nvidia_smi
from fleetlab.gpu.devices.console import BenchError
from fleetlab.gpu.sharing import mps_guard, records
from fleetlab.gpu.sharing.mps_guard import process_state

# A process that must not attach to a daemon gets a pipe directory that does not exist.
NO_MPS = {"CUDA_MPS_PIPE_DIRECTORY": "/nonexistent/mps"}


@dataclass(frozen=True, slots=True)
class Share:
    """Limits of one MPS client, or the MIG instance of a tenant; None is no limit."""

    percent: int | None = None  # active thread percentage
    memory_mib: int | None = None
    priority: int | None = None  # 0 is normal, 1 below normal
    instance: int | None = None  # of a MIG layout, counted from 0 in the order in which the layout is written

    def __post_init__(self) -> None:
        if self.percent is not None and not 1 <= self.percent <= 100:
            raise BenchError(f"not an active thread percentage: {self.percent}", hint="from 1 to 100")
        if self.memory_mib is not None and self.memory_mib < 1:
            raise BenchError(f"not a memory limit: {self.memory_mib} MiB")
        if self.priority not in (None, 0, 1):
            raise BenchError(f"not a client priority: {self.priority}", hint="0 is normal, 1 below normal")
        if self.instance is not None and (self.instance < 0 or self.limited):
            msg = f"not an instance of a MIG layout: {self.instance}"
            raise BenchError(msg, hint="instances are counted from 0, and have no limits of MPS")

    @property
    def limited(self) -> bool:
        """Whether it has limits of MPS."""
        return (self.percent, self.memory_mib, self.priority) != (None, None, None)

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


class Worker(NamedTuple):
    """The process of a tenant: its share, and what it reported after loading (`pid`, `sms`, `card_mib`, `visible`)."""

    share: Share
    about: Mapping[str, Any]


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
            raise BenchError("MPS has no instances", hint="an instance is one of a MIG layout")
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
            if pids <= (clients := self.clients()):
                break
            time.sleep(0.5)
        return clients & pids

    def start(self) -> subprocess.Popen[bytes]:
        """Start the daemon and its guard process, which stops it when we exit or are killed, also while it starts."""
        # The guard alone holds it: who finds this directory after a kill waits until the guard has done its work.
        lock = records.lock_file(guard_lock(Path(self._folders["CUDA_MPS_PIPE_DIRECTORY"]).parent))
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
            raise BenchError(f"MPS cannot be started: {e}", hint=f"`{CONTROL}` comes with NVIDIA's driver") from None
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


# --- A persistent MPS daemon: started by one command, stopped by another ---------------------------------------------


RECORD = "mps/record"
MAX_PIPE_PATH = 88  # characters: with the names of its sockets it must stay below about 107


def start(*, percent: int | None = None, memory_mib: int | None = None, pipe: Path | None = None) -> dict[str, str]:
    """Start the daemon and return the environment of its clients. If a step fails, everything is rolled back."""
    limits = Share(percent, memory_mib)
    if shutil.which(CONTROL) is None:
        msg = f"MPS is not available: `{CONTROL}` is not installed"
        raise BenchError(msg, hint="it is part of NVIDIA's driver for Linux")
    _check_not_running()
    home = records.folder() / "mps"
    where = (home / "pipe" if pipe is None else pipe).absolute()
    is_new = _check_pipe(where)
    _claim(home, {"pipe": str(where), "log": str(home / "log"), "made": is_new, "since": time.time()})
    mps = Mps.at(where, home / "log")
    try:
        for folder in (where, home / "log"):
            folder.mkdir(mode=0o700, exist_ok=True)
        mps.launch()
        _limit(mps, limits)
    except BaseException:
        _end(home)
        raise
    return mps.environment(Share())


def stop(*, anyway: bool = False) -> list[int]:
    """Stop the daemon that `start` started, verify that it is gone, and return the clients that it had."""
    record = mps_record()
    home = records.folder() / "mps"
    if record is None:
        msg = "fleetlab started no MPS daemon"
        raise BenchError(msg, hint="`fleetlab share status` lists daemons; those of others are not stopped")
    mps = Mps.at(Path(record["pipe"]))
    if mps.alive():
        clients = sorted(mps.clients())
    else:
        clients = []
        if (pid := _pid(Path(record["pipe"]))) and _is_alive(pid) and not anyway:
            msg = f"MPS does not answer, but its process {pid} is alive: its clients are unknown"
            raise BenchError(msg, hint="--anyway stops it")
    if clients and not anyway:
        msg = f"MPS has clients: {', '.join(map(str, clients))}"
        raise BenchError(msg, hint="wait until they end; --anyway stops it, and the clients fail")
    _end(home)
    return clients


def mps_record() -> dict[str, Any] | None:
    """Return the record of the running daemon; None if there is none."""
    record = records.read(RECORD)
    if record is not None and not {"pipe", "made"} <= record.keys():
        msg = f"{records.folder() / RECORD}.json: not a record of an MPS daemon"
        raise BenchError(msg, hint="inspect the file, then remove it")
    return record


def _check_not_running() -> None:
    record = mps_record()
    home = records.folder() / "mps"
    if record is None:
        return
    pipe = Path(record["pipe"])
    if Mps.at(pipe).alive() or _is_alive(_pid(pipe)):
        msg = f"fleetlab started MPS already: {pipe}"
        raise BenchError(msg, hint="`fleetlab share stop mps` stops it; `fleetlab share status` lists its clients")
    _remove(home, record)


def _check_pipe(pipe: Path) -> bool:
    """Whether we create the pipe directory. An existing one must be empty, or another daemon may use it."""
    if len(str(pipe)) > MAX_PIPE_PATH:
        msg = f"the pipe directory is longer than {MAX_PIPE_PATH} characters, too long for its sockets: {pipe}"
        raise BenchError(msg, hint="use a shorter --pipe, such as /tmp/mps")
    if not pipe.exists():
        if not pipe.parent.is_dir() and pipe.parent != records.folder() / "mps":
            raise BenchError(f"{pipe.parent}: no such folder", hint="create it first, or omit --pipe")
        return True
    if not pipe.is_dir() or any(pipe.iterdir()):
        msg = f"{pipe}: not an empty directory"
        raise BenchError(msg, hint="another daemon may use it: choose another, or omit --pipe")
    return False


def _claim(home: Path, record: dict[str, Any]) -> None:
    """Create the directory with its record in one atomic step."""
    beside = home.with_name(f"mps-{uuid.uuid4().hex[:8]}")
    beside.mkdir(mode=0o700)
    try:
        records.write(f"{beside.name}/record", record)
        beside.rename(home)
    except OSError:
        shutil.rmtree(beside, ignore_errors=True)
        raise BenchError("another process is starting MPS at this moment", hint="see `fleetlab share status`") from None


def _limit(mps: Mps, limits: Share) -> None:
    """Set the default limits of clients, and verify them."""
    if limits.percent is not None:
        mps.ask(f"set_default_active_thread_percentage {limits.percent}")
        answer = mps.ask("get_default_active_thread_percentage")
        if parse_number(answer) != limits.percent:
            msg = f"MPS did not accept the thread percentage {limits.percent}: it answers `{answer}`"
            raise BenchError(msg, hint="the daemon was stopped again")
    if limits.memory_mib is not None:
        for device in range(_devices()):
            mps.ask(f"set_default_device_pinned_mem_limit {device} {limits.memory_mib}M")
            answer = mps.ask(f"get_default_device_pinned_mem_limit {device}")
            if not _same_memory(answer, limits.memory_mib):
                msg = f"MPS did not accept the limit of {limits.memory_mib} MiB on GPU {device}: it answers `{answer}`"
                raise BenchError(msg, hint="the daemon was stopped again")


def _devices() -> int:
    if visible := os.environ.get("CUDA_VISIBLE_DEVICES"):
        return len(visible.split(","))
    try:
        return len(nvidia_smi.gpus())
    except BenchError:
        return 1  # MPS may answer where nvidia-smi does not


def _same_memory(answer: str, mib: int) -> bool:
    """Drivers answer in M, or rounded down to whole G."""
    match = re.search(r"(\d+)\s*([MG])", answer)
    return match is not None and int(match[1]) == (mib if match[2] == "M" else mib // 1024)


def _end(home: Path) -> None:
    """Stop the daemon, verify that it is gone, and only then remove the record."""
    record = mps_record()
    assert record is not None
    pipe = Path(record["pipe"])
    mps, pid = Mps.at(pipe), _pid(pipe)
    mps.stop(mps.guard())
    if _is_alive(pid):
        msg = f"MPS could not be stopped: its process {pid} is alive"
        raise BenchError(msg, hint=f"inspect it: CUDA_MPS_PIPE_DIRECTORY={pipe} {CONTROL}")
    _remove(home, record)


def _remove(home: Path, record: Mapping[str, Any]) -> None:
    if record["made"]:
        shutil.rmtree(record["pipe"], ignore_errors=True)
    # Renamed in one step, so that the next start finds all of it or nothing.
    gone = home.with_name(f"mps-{uuid.uuid4().hex[:8]}")
    home.rename(gone)
    shutil.rmtree(gone, ignore_errors=True)


def _pid(pipe: Path) -> int | None:
    try:
        return int((pipe / "nvidia-cuda-mps-control.pid").read_text())
    except (OSError, ValueError):
        return None


def _is_alive(pid: int | None) -> bool:
    return pid is not None and process_state(pid) not in ("", "Z")


def parse_number(answer: str) -> float | None:
    """Parse the numeric answer of a daemon; None if it is not a number."""
    return float(answer) if re.fullmatch(r"\d+(\.\d+)?", answer) else None
