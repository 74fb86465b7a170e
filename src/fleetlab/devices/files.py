"""Atomic writes without polars: a reader sees the old file or the new one, never a part."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fleetlab.devices.errors import BenchError


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path in the same folder; at the end of the block it is synced and replaces `path`."""
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")
    try:
        yield temporary
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def check_folder(out: Path) -> None:
    """Check that a folder is writable before a long run."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        trial = out / f".{uuid.uuid4().hex[:8]}"
        trial.touch()
        trial.unlink()
    except OSError as e:
        msg = f"{out}: not writable: {e.strerror or e}"
        raise BenchError(msg, hint="name another folder with --out") from None


def atomic_write(path: Path, content: str | bytes) -> None:
    """Write text or bytes."""
    with replacing(path) as temporary:
        temporary.write_bytes(content.encode() if isinstance(content, str) else content)
