"""Restore a partitioned GPU when the run that partitioned it is gone, even if that was killed.

A run holds a lock, and so does each `nvidia-smi` that it starts to change the GPU: the lock is free only after the last
of them has ended, so that nothing is created after the guard has looked. What to restore is in the record that `apply`
wrote before the first change. It runs as its own program: `python -m fleetlab.sharing.mig.guard INDEX`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fleetlab.devices.errors import BenchError
from fleetlab.devices.progress import Progress, print_progress
from fleetlab.devices.start import python_path
from fleetlab.sharing import locks, records
from fleetlab.sharing.mig import apply

FOREVER = 7 * 24 * 3600.0  # s; a guard waits as long as its run
PATIENCE = 300.0  # s for processes on the GPU to end


@contextmanager
def guarded(index: int) -> Iterator[int]:
    """Hold the lock of a GPU while the block runs, watched by a guard; gives the descriptor of the lock."""
    lock = locks.take(lock_path(index))
    if lock is None:
        msg = f"another run has partitioned GPU {index}, or its guard is restoring it"
        raise BenchError(msg, hint="wait until it has ended; `fleetlab share status` lists instances and processes")
    try:
        guard = subprocess.Popen(
            [sys.executable, "-m", __name__, str(index)],
            stdin=subprocess.DEVNULL,
            env=os.environ | python_path(),
            start_new_session=True,
        )
    except BaseException:
        os.close(lock)
        raise
    try:
        yield lock
    finally:
        os.close(lock)
        with suppress(subprocess.TimeoutExpired):  # it keeps trying if the GPU could not be restored
            guard.wait(timeout=10)


def lock_path(index: int) -> Path:
    """The lock file of a GPU."""
    return records.folder() / f"mig-{index}.lock"


def temporary_layouts() -> list[int]:
    """GPUs with a layout of a run that has not been undone, whether or not the run is alive."""
    return [int(name[4:]) for name in records.names("mig-") if (records.read(name) or {}).get("temporary")]


def restore(index: int, *, within: float, progress: Progress) -> None:
    """Undo the layout of a run that is gone; nothing if its guard did."""
    lock = locks.take(lock_path(index), within=within)
    if lock is None:
        msg = f"another run has partitioned GPU {index}, or its guard is restoring it"
        raise BenchError(msg, hint="wait until it has ended")
    try:
        undo_when_idle(index, within=within, lock=lock, progress=progress)
    finally:
        os.close(lock)


def undo_when_idle(index: int, *, within: float, lock: int, progress: Progress) -> None:
    """Undo the layout as soon as the processes on the GPU have ended."""
    deadline = time.monotonic() + within
    while records.read(apply.record_name(index)) is not None:
        try:
            apply.undo(index, progress=progress, hold=(lock,))
        except BenchError:
            if time.monotonic() >= deadline:
                raise
            time.sleep(0.5)


def main(index: int) -> None:
    """Wait for the end of the run, then restore."""
    for deaf in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(deaf, signal.SIG_IGN)
    lock = locks.take(lock_path(index), within=FOREVER)
    if lock is None:
        return
    try:
        undo_when_idle(index, within=PATIENCE, lock=lock, progress=print_progress)
    except BenchError as e:
        print_progress(f"GPU {index} is not restored: {e}")
        print_progress(f"run `fleetlab share mig undo --gpu {index} --really`, or start the suite again")


if __name__ == "__main__":
    main(int(sys.argv[1]))
