"""Sharing modes between processes: time slicing (the driver's default), MPS, and MIG.

Each is switched on for a block and undone however the block is left; what a killed run left behind is undone by a guard
process, or by the next start (`restore`).

A run holds a lock while it has switched something on. A journal whose lock is free is that of a run that was killed,
and whose guard was killed with it or is at work.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

from fleetlab.gpu.devices.console import BenchError, Progress
from fleetlab.gpu.sharing import records
from fleetlab.gpu.sharing.mig import mode as mig_mode
from fleetlab.gpu.sharing.mig.layouts import parse_layout
from fleetlab.gpu.sharing.mig.mode import partitioned
from fleetlab.gpu.sharing.mps import CONTROL, NO_MPS, Mps, Share, Worker, guard_lock
from fleetlab.gpu.sharing.mps_guard import LONGEST

HOMES, LOCK = "fleetlab-mps-", "lock"
FRESH = 60.0  # s in which a home without a lock may be one that is being made
PATIENCE = 60.0  # s for the guard of a killed run that partitioned a GPU


def restore(*, progress: Progress) -> None:
    """Undo what killed runs of this user left behind: MPS daemons and their directories, and MIG layouts."""
    for home in mps_homes():
        _end_mps(home, progress=progress)
    for index in mig_mode.temporary_layouts():
        progress(f"GPU {index}: a run was killed while it had partitioned the GPU; restoring it")
        mig_mode.restore(index, within=PATIENCE, progress=progress)


@contextmanager
def mps_home() -> Iterator[Path]:
    """A directory for one MPS daemon, removed at the end; it is locked while its owner lives."""
    # The path of a socket is limited to about 100 characters.
    lock = None
    while lock is None:  # another run may look whether it is abandoned before it is locked, and then removes it
        home = Path(tempfile.mkdtemp(prefix=HOMES, dir="/tmp"))
        with suppress(FileNotFoundError):
            lock = records.lock_file(home / LOCK)
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
        lock = records.lock_file(home / LOCK)
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
    lock = records.lock_file(path, within=within)
    if lock is not None:
        stack.callback(os.close, lock)
    return lock is not None


__all__ = ["CONTROL", "MODES", "NO_MPS", "Mps", "Share", "SharingMode", "TimeSlicing", "check_mode", "shared"]

MODES = ("time-slicing", "mps")
MIG = "mig:"  # followed by a layout


class SharingMode(Protocol):
    """How processes share a GPU while a block runs."""

    def environment(self, share: Share) -> dict[str, str]:
        """Environment of a process with that share."""

    def verify(self, workers: Sequence[Worker]) -> dict[int, str]:
        """Why processes are not in this mode, by process id; empty if all are."""

    def report(self) -> dict[str, Any]:
        """What the manifest of a suite should tell about it."""


class TimeSlicing:
    """Time slicing: what the driver does by default."""

    def environment(self, share: Share) -> dict[str, str]:
        """Environment of a process that cannot attach to MPS."""
        if share != Share():
            msg = "time slicing has no limits per tenant"
            raise BenchError(msg, hint="thread percentage, memory limit and priority are settings of mps")
        return dict(NO_MPS)

    def verify(self, workers: Sequence[Worker]) -> dict[int, str]:
        """Return none: there is nothing to attach to."""
        return {}

    def report(self) -> dict[str, Any]:
        """Return nothing."""
        return {}


class Rehearsal(TimeSlicing):
    """Any mode on a machine without a GPU: limits are accepted and ignored."""

    def environment(self, share: Share) -> dict[str, str]:
        """Return no variables."""
        return {}


def check_mode(mode: str) -> None:
    """Refuse what is not a mode; whether a layout fits is known only with the GPU."""
    if mode.startswith(MIG):
        parse_layout(mode.removeprefix(MIG))
    elif mode not in MODES:
        msg = f"unknown sharing mode: `{mode}`"
        raise BenchError(msg, hint=f"there are {', '.join(MODES)}, and mig:LAYOUT, such as mig:2x3g.20gb")


@contextmanager
def shared(
    mode: str, *, rehearse: bool = False, allow_mig: bool = False, progress: Progress = print
) -> Iterator[SharingMode]:
    """Switch to `mode` inside the block, and restore the state however the block is left.

    A rehearsal needs no GPU: every mode is then plain processes of the operating system.
    """
    check_mode(mode)
    if rehearse or mode == "time-slicing":
        yield Rehearsal() if rehearse else TimeSlicing()
    elif mode.startswith(MIG):
        with partitioned(mode.removeprefix(MIG), allow=allow_mig, progress=progress) as mig:
            yield mig
    else:
        with _mps() as mps:
            yield mps


@contextmanager
def _mps() -> Iterator[Mps]:
    if shutil.which(CONTROL) is None:
        msg = f"MPS is not available: `{CONTROL}` is not installed"
        raise BenchError(msg, hint="it is part of NVIDIA's driver for Linux; without a GPU, use --rehearse")
    with mps_home() as home:
        mps = Mps(home)
        guard = mps.start()
        try:
            yield mps
        finally:
            mps.stop(guard)
