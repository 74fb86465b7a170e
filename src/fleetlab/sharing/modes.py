"""Sharing modes between processes: time slicing (the driver's default), MPS, and MIG.

Each is switched on for a block and undone however the block is left; what a killed run left behind is undone by a guard
process, or by the next start (`leftovers.restore`).
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from fleetlab.devices.errors import BenchError
from fleetlab.devices.progress import Progress
from fleetlab.sharing.leftovers import mps_home
from fleetlab.sharing.mig.layouts import parse_layout
from fleetlab.sharing.mig.mode import partitioned
from fleetlab.sharing.mps import CONTROL, Mps
from fleetlab.sharing.share import NO_MPS, Share, Worker

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
