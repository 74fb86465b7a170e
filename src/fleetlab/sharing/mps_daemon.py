"""An MPS that stays when the command that started it has ended, until it is stopped.

It lives in a folder of its own with its record in it, so that it is found again and never started twice.
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

from fleetlab.devices import nvidia_smi as cards
from fleetlab.devices.errors import BenchError
from fleetlab.sharing import records as _state
from fleetlab.sharing.modes import CONTROL, Mps, Share
from fleetlab.sharing.mps_guard import _state as _process_state

RECORD = "mps/record"
LONGEST = 88  # letters of a pipe directory: the sockets inside may have about 107 with their names


def start(*, percent: int | None = None, memory_mib: int | None = None, pipe: Path | None = None) -> dict[str, str]:
    """Start a daemon that stays; what a client needs in its environment. If anything fails, all is put back."""
    limits = Share(percent, memory_mib)
    if shutil.which(CONTROL) is None:
        msg = f"no MPS on this machine: `{CONTROL}` is not there"
        raise BenchError(msg, hint="it comes with NVIDIA's driver for Linux")
    _only_one()
    home = _state.folder() / "mps"
    where = (home / "pipe" if pipe is None else pipe).absolute()
    made = _usable(where)
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
    """End the daemon that `start` left, and prove that it is gone; the clients that it had."""
    record = recorded()
    home = _state.folder() / "mps"
    if record is None:
        msg = "no MPS was started from here"
        raise BenchError(msg, hint="`fleetlab share status` shows what runs; others' daemons are not stopped")
    mps = Mps.at(Path(record["pipe"]))
    if mps.alive():
        clients = sorted(mps.clients())
    else:
        clients = []
        if (pid := _pid(Path(record["pipe"]))) and _lives(pid) and not anyway:
            msg = f"MPS does not answer, but its process {pid} lives: whether clients are attached cannot be told"
            raise BenchError(msg, hint="--anyway stops it all the same")
    if clients and not anyway:
        msg = f"MPS has clients: {', '.join(map(str, clients))}"
        raise BenchError(msg, hint="let them end first; --anyway stops it all the same, and they fail")
    _end(home)
    return clients


def recorded() -> dict[str, Any] | None:
    """Where `start` left one; None if it did not, or `stop` ended it."""
    record = _state.read(RECORD)
    if record is not None and not {"pipe", "made"} <= record.keys():
        msg = f"{_state.folder() / RECORD}.json: does not say where MPS was started"
        raise BenchError(msg, hint="look at it by hand, then remove it")
    return record


def _only_one() -> None:
    record = recorded()
    home = _state.folder() / "mps"
    if record is None:
        return
    pipe = Path(record["pipe"])
    if Mps.at(pipe).alive() or _lives(_pid(pipe)):
        msg = f"MPS was started from here already: {pipe}"
        raise BenchError(msg, hint="`fleetlab share stop mps` ends it; `fleetlab share status` shows who uses it")
    _remove(home, record)


def _usable(pipe: Path) -> bool:
    """Is the folder ours to make? One that is there must be empty, or a daemon of somebody else may be in it."""
    if len(str(pipe)) > LONGEST:
        msg = f"a pipe directory of more than {LONGEST} letters, too long for its sockets: {pipe}"
        raise BenchError(msg, hint="--pipe takes a shorter one, such as /tmp/mps")
    if not pipe.exists():
        if not pipe.parent.is_dir() and pipe.parent != _state.folder() / "mps":
            msg = f"{pipe.parent}: no such folder"
            raise BenchError(msg, hint="make it first, or leave --pipe out")
        return True
    if not pipe.is_dir() or any(pipe.iterdir()):
        msg = f"{pipe}: not an empty folder"
        raise BenchError(msg, hint="somebody's daemon may be there: name another, or leave --pipe out")
    return False


def _claim(home: Path, record: dict[str, Any]) -> None:
    """Take the one place that there is, with its record in it, in one step."""
    beside = home.with_name(f"mps-{uuid.uuid4().hex[:8]}")
    beside.mkdir(mode=0o700)
    try:
        _state.write(f"{beside.name}/record", record)
        beside.rename(home)
    except OSError:
        shutil.rmtree(beside, ignore_errors=True)
        msg = "MPS is being started from here by somebody else at this moment"
        raise BenchError(msg, hint="`fleetlab share status` shows it") from None


def _limit(mps: Mps, limits: Share) -> None:
    """Set what a client gets unless told otherwise, and ask whether it is so."""
    if limits.percent is not None:
        mps.ask(f"set_default_active_thread_percentage {limits.percent}")
        told = mps.ask("get_default_active_thread_percentage")
        if number(told) != limits.percent:
            msg = f"MPS did not take the percentage {limits.percent}: it answers `{told}`"
            raise BenchError(msg, hint="nothing was left running")
    if limits.memory_mib is not None:
        for device in range(_devices()):
            mps.ask(f"set_default_device_pinned_mem_limit {device} {limits.memory_mib}M")
            told = mps.ask(f"get_default_device_pinned_mem_limit {device}")
            if not _same_memory(told, limits.memory_mib):
                msg = f"MPS did not take the limit of {limits.memory_mib} MiB on card {device}: it answers `{told}`"
                raise BenchError(msg, hint="nothing was left running")


def _devices() -> int:
    if visible := os.environ.get("CUDA_VISIBLE_DEVICES"):
        return len(visible.split(","))
    try:
        return len(cards.cards())
    except BenchError:
        return 1  # MPS answers where nvidia-smi does not: set what it can be set on


def _same_memory(told: str, mib: int) -> bool:
    """Drivers answer in M, or rounded down to whole G."""
    found = re.search(r"(\d+)\s*([MG])", told)
    return found is not None and int(found[1]) == (mib if found[2] == "M" else mib // 1024)


def _end(home: Path) -> None:
    """Have a guard end the daemon, see that it is gone, and only then forget it."""
    record = recorded()
    assert record is not None
    pipe = Path(record["pipe"])
    mps, pid = Mps.at(pipe), _pid(pipe)
    mps.stop(mps.guard())
    if _lives(pid):
        msg = f"MPS could not be stopped: its process {pid} lives"
        raise BenchError(msg, hint=f"look at it by hand: CUDA_MPS_PIPE_DIRECTORY={pipe} {CONTROL}")
    _remove(home, record)


def _remove(home: Path, record: Mapping[str, Any]) -> None:
    if record["made"]:
        shutil.rmtree(record["pipe"], ignore_errors=True)
    # Away in one step, so that whoever starts the next finds all of it or nothing.
    gone = home.with_name(f"mps-{uuid.uuid4().hex[:8]}")
    home.rename(gone)
    shutil.rmtree(gone, ignore_errors=True)


def _pid(pipe: Path) -> int | None:
    try:
        return int((pipe / "nvidia-cuda-mps-control.pid").read_text())
    except (OSError, ValueError):
        return None


def _lives(pid: int | None) -> bool:
    return pid is not None and _process_state(pid) not in ("", "Z")


def number(told: str) -> float | None:
    """What a daemon answers that was asked for a number; None if it is none."""
    return float(told) if re.fullmatch(r"\d+(\.\d+)?", told) else None
