"""Locks, and records of what was switched on, which are kept until it is undone.

A lock ends with the last process that holds it: the owner, and its children that were given the descriptor.
"""

from __future__ import annotations

import fcntl
import json
import os
import stat
import tempfile
import time
from pathlib import Path
from typing import Any

from fleetlab.gpu.devices.console import BenchError, atomic_write


def lock_file(path: Path, *, within: float = 0.0) -> int | None:
    """Take the lock and return its file descriptor, which is closed to release it; None if another process has it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    deadline = time.monotonic() + within
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                os.close(descriptor)
                return None
            time.sleep(0.1)
        else:
            return descriptor


# --- A private directory with records of what was switched on, kept until it is undone -------------------------------


def folder() -> Path:
    """Create the directory if needed; only its owner may write to it, or others could make us stop or remove things."""
    path = _path()
    path.mkdir(mode=0o700, exist_ok=True)
    return _trusted(path)


def _path() -> Path:
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    if runtime and Path(runtime).is_dir():
        return Path(runtime) / "fleetlab"
    return Path(tempfile.gettempdir()) / f"fleetlab-{os.getuid()}"


def _trusted(path: Path) -> Path:
    status = path.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o022:
        msg = f"{path}: not a directory that only you can write to"
        raise BenchError(msg, hint="remove it, or set XDG_RUNTIME_DIR to a private directory")
    return path


def read(name: str) -> dict[str, Any] | None:
    """Read the record `name`; None if there is none. Reading creates no directory."""
    path = _path() / f"{name}.json"
    try:
        _trusted(_path())
        record = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as e:
        msg = f"{path}: cannot be read: {e}"
        raise BenchError(msg, hint="inspect the file; it records what was switched on") from None
    if not isinstance(record, dict):
        raise BenchError(f"{path}: not a record", hint="inspect the file; it records what was switched on")
    return record


def names(prefix: str) -> list[str]:
    """Names of the records with that prefix; listing creates no directory."""
    return sorted(path.stem for path in _path().glob(f"{prefix}*.json"))


def write(name: str, values: dict[str, Any]) -> None:
    """Write the record atomically."""
    path = folder() / f"{name}.json"
    atomic_write(path, json.dumps(values, indent=1))


def forget(name: str) -> None:
    """Remove the record: its change was undone."""
    (folder() / f"{name}.json").unlink(missing_ok=True)
