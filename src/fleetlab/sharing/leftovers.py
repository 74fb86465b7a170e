"""What a killed run left behind, found and undone at the next start.

A run holds a lock while it has switched something on. A journal whose lock is free is that of a run that was killed,
and whose guard was killed with it or is at work.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from fleetlab.devices.errors import BenchError
from fleetlab.devices.progress import Progress
from fleetlab.sharing import locks
from fleetlab.sharing.mig import guard as mig_guard
from fleetlab.sharing.mps import Mps, guard_lock
from fleetlab.sharing.mps_guard import LONGEST

HOMES, LOCK = "fleetlab-mps-", "lock"
FRESH = 60.0  # s in which a home without a lock may be one that is being made
PATIENCE = 60.0  # s for the guard of a killed run that partitioned a GPU


def restore(*, progress: Progress) -> None:
    """Undo what killed runs of this user left behind: MPS daemons and their directories, and MIG layouts."""
    for home in mps_homes():
        _end_mps(home, progress=progress)
    for index in mig_guard.temporary_layouts():
        progress(f"GPU {index}: a run was killed while it had partitioned the GPU; restoring it")
        mig_guard.restore(index, within=PATIENCE, progress=progress)


@contextmanager
def mps_home() -> Iterator[Path]:
    """A directory for one MPS daemon, removed at the end; it is locked while its owner lives."""
    # The path of a socket is limited to about 100 characters.
    lock = None
    while lock is None:  # another run may look whether it is abandoned before it is locked, and then removes it
        home = Path(tempfile.mkdtemp(prefix=HOMES, dir="/tmp"))
        with suppress(FileNotFoundError):
            lock = locks.take(home / LOCK)
    try:
        yield home
    finally:
        shutil.rmtree(home, ignore_errors=True)
        os.close(lock)


def mps_homes() -> list[Path]:
    """Directories of MPS daemons whose owner is gone."""
    return [home for home in sorted(Path("/tmp").glob(f"{HOMES}*")) if _ours(home) and _abandoned(home)]


def _ours(home: Path) -> bool:
    try:
        status = home.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid()


def _abandoned(home: Path) -> bool:
    if not (home / LOCK).exists():
        return time.time() - home.stat().st_mtime > FRESH
    try:
        lock = locks.take(home / LOCK)
    except OSError:
        return False  # removed meanwhile
    if lock is not None:
        os.close(lock)
    return lock is not None


def _end_mps(home: Path, *, progress: Progress) -> None:
    """Stop its daemon, if there is one, after its guard, which may still wait for a daemon that is being started."""
    with ExitStack() as stack:
        try:
            if not _hold(stack, home / LOCK):
                return  # another run removes it, or has only now locked it as its own
            progress(f"{home}: a run was killed while it had started MPS; removing what is left")
            if not _hold(stack, guard_lock(home), within=LONGEST):
                progress(f"  its guard is still at work after {LONGEST:.0f} s")
                return
        except OSError:
            return  # removed by another run meanwhile
        mps = Mps.at(home / "pipe", home / "log")
        try:
            mps.stop(mps.guard())
            shutil.rmtree(home, ignore_errors=True)
        except BenchError as e:
            progress(f"  {e}")


def _hold(stack: ExitStack, path: Path, *, within: float = 0.0) -> bool:
    """Hold the lock until the stack ends; whether it could be had."""
    lock = locks.take(path, within=within)
    if lock is not None:
        stack.callback(os.close, lock)
    return lock is not None
