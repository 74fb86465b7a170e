"""Locks that end with the last process that holds them: the owner, and its children that were given the descriptor."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path


def take(path: Path, *, within: float = 0.0) -> int | None:
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
