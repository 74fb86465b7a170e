"""Write a file atomically: a reader sees the old content or the new one, never a part."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from fleetlab.core.errors import FleetlabError


def may_write(path: Path | None) -> None:
    """Raise if no file can be written to `path`, where there is one; call it before a long computation."""
    if path is None:
        return
    if path.exists() and not path.is_file():
        msg = f"not a file: {path}"
        raise FleetlabError(msg, hint="name a file to write")
    if not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
        why = "permission denied in that folder" if path.parent.is_dir() else "no such folder"
        msg = f"cannot write {path}: {why}"
        raise FleetlabError(msg, hint="name a file in a folder that exists and that you may write to")


def may_create(path: Path | None, *, folder: bool = False) -> None:
    """Raise if no file, or folder, can be made there, with the folders that it is in; call it before the work."""
    if path is None:
        return
    if path.exists() and path.is_dir() != folder:
        what = "not a folder" if folder else "not a file"
        msg = f"{what}: {path}"
        raise FleetlabError(msg, hint=f"name a {'folder' if folder else 'file'} to write")
    above = next(one for one in (path, *path.absolute().parents) if one.exists() and (folder or one != path))
    if not above.is_dir() or not os.access(above, os.W_OK):
        why = f"permission denied in {above}" if above.is_dir() else f"{above} is not a folder"
        msg = f"cannot write {path}: {why}"
        raise FleetlabError(msg, hint="name a place that you may write to")


def atomic_write(path: Path, content: str | bytes | Callable[[Path], object]) -> None:
    """Write text, bytes, or what a function writes to the path it is given; sync to disk, then rename to `path`."""
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")
    try:
        if callable(content):
            content(temporary)
        else:
            temporary.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8"))
        with temporary.open("rb") as f:
            os.fsync(f.fileno())
        temporary.replace(path)
    except OSError as e:
        raise OSError(e.errno, e.strerror, str(path)) from None  # name the target, not the temporary file
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
