"""Writing a file so that a reader sees the old one or the new one, never half of one."""

from __future__ import annotations

import os
import uuid
from pathlib import Path


def replace(path: Path, text: str) -> None:
    """Write `text` beside `path`, make sure that it is on disk, and rename it there."""
    beside = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")
    try:
        with beside.open("w", encoding="utf-8") as f:
            f.write(text)
            f.flush()
            os.fsync(f.fileno())
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
