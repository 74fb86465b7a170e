"""A folder of one's own where what was switched on is remembered until it is put back."""

from __future__ import annotations

import json
import os
import stat
import tempfile
import uuid
from pathlib import Path
from typing import Any

from fleetlab.devices.errors import BenchError


def folder() -> Path:
    """Made if it is not there; nobody else may write into it, or they could have us stop or remove anything."""
    path = _path()
    path.mkdir(mode=0o700, exist_ok=True)
    return _trusted(path)


def _path() -> Path:
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    if runtime and Path(runtime).is_dir():
        return Path(runtime) / "fleetlab"
    return Path(tempfile.gettempdir()) / f"fleetlab-{os.getuid()}"


def _trusted(path: Path) -> Path:
    seen = path.lstat()
    if not stat.S_ISDIR(seen.st_mode) or seen.st_uid != os.getuid() or seen.st_mode & 0o022:
        msg = f"{path}: not a folder that only you can write to"
        raise BenchError(msg, hint="somebody else made it: remove it, or set XDG_RUNTIME_DIR to a folder of your own")
    return path


def read(name: str) -> dict[str, Any] | None:
    """What was remembered under `name`; None if nothing was. Reading makes no folder."""
    path = _path() / f"{name}.json"
    try:
        _trusted(_path())
        found = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as e:
        msg = f"{path}: cannot be read: {e}"
        raise BenchError(msg, hint="look at it by hand; it says what was switched on") from None
    if not isinstance(found, dict):
        msg = f"{path}: holds no record"
        raise BenchError(msg, hint="look at it by hand; it says what was switched on")
    return found


def write(name: str, values: dict[str, Any]) -> None:
    """Remember, so that a reader sees the old record or the new one, never half of one."""
    path = folder() / f"{name}.json"
    beside = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")
    try:
        with beside.open("w", encoding="utf-8") as f:
            json.dump(values, f, indent=1)
            f.flush()
            os.fsync(f.fileno())
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def forget(name: str) -> None:
    """It was put back."""
    (folder() / f"{name}.json").unlink(missing_ok=True)
