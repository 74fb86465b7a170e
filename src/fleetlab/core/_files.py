"""Writing a file so that a reader sees the old one or the new one, never half of one."""

from __future__ import annotations

import os
import uuid
from contextlib import suppress
from pathlib import Path

from fleetlab.core.errors import FleetlabError


def may_write(path: Path) -> None:
    """Raise if no file can be written there: to be asked before an hour of work, not after."""
    if path.exists() and not path.is_file():
        msg = f"not a file: {path}"
        raise FleetlabError(msg, hint="name a file to write")
    if not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
        msg = f"cannot write {path}: " + ("not allowed in that folder" if path.parent.is_dir() else "no such folder")
        raise FleetlabError(msg, hint="name a file in a folder that is there, and that you may write into")


def replace(path: Path, text: str | bytes) -> None:
    """Write `text` beside `path`, make sure that it is on disk, and rename it there."""
    beside = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")
    try:
        with beside.open("wb") as f:
            f.write(text if isinstance(text, bytes) else text.encode("utf-8"))
            f.flush()
            os.fsync(f.fileno())
        beside.replace(path)
    except OSError as e:
        raise OSError(e.errno, e.strerror, str(path)) from None  # the name that was asked for, not the one beside it
    finally:
        with suppress(OSError):
            beside.unlink(missing_ok=True)
