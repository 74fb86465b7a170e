"""A persistent MPS daemon: started by one command, stopped by another.

Its directory contains a record, so that it is found again and never started twice.
"""

from __future__ import annotations

import os
import re
import shutil
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fleetlab.devices import nvidia_smi
from fleetlab.devices.errors import BenchError
from fleetlab.sharing import records
from fleetlab.sharing.mps import CONTROL, Mps
from fleetlab.sharing.mps_guard import process_state
from fleetlab.sharing.share import Share

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
    made = _check_pipe(where)
    _claim(home, {"pipe": str(where), "log": str(home / "log"), "made": made, "since": time.time()})
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
            msg = f"{pipe.parent}: no such folder"
            raise BenchError(msg, hint="create it first, or omit --pipe")
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
        msg = "another process is starting MPS at this moment"
        raise BenchError(msg, hint="see `fleetlab share status`") from None


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


def parse_number(told: str) -> float | None:
    """Parse the numeric answer of a daemon; None if it is not a number."""
    return float(told) if re.fullmatch(r"\d+(\.\d+)?", told) else None
