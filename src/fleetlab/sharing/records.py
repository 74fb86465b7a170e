"""A private directory with records of what was switched on, kept until it is undone."""

from __future__ import annotations

import json
import os
import stat
import tempfile
from pathlib import Path
from typing import Any

from fleetlab.devices.errors import BenchError
from fleetlab.devices.files import atomic_write


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
        msg = f"{path}: not a record"
        raise BenchError(msg, hint="inspect the file; it records what was switched on")
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
