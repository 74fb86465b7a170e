"""MIG as a sharing mode: partition a GPU for a block, pin tenants to instances, prove what each sees, and undo it.

It must be allowed twice: by an option, and by the UUID of the GPU in an environment variable. Root is needed, no
process may run on the GPU, and an existing layout is never touched.

A guard restores the GPU when the run that partitioned it is gone, even if that was killed. A run holds a lock, and so
does each `nvidia-smi` that it starts to change the GPU: the lock is free only after the last of them has ended, so that
nothing is created after the guard has looked. What to restore is in the record that `apply` wrote before the first
change. The guard is a program of its own: `python -m fleetlab.gpu.sharing.mig.mode INDEX`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fleetlab.gpu.devices import nvidia_smi
from fleetlab.gpu.devices.console import BenchError, Progress, print_progress, python_path
from fleetlab.gpu.devices.nvidia_smi import Gpu
from fleetlab.gpu.sharing import records
from fleetlab.gpu.sharing.mig import apply
from fleetlab.gpu.sharing.mig.layouts import MigProfile, gpu_profiles, parse_layout, place
from fleetlab.gpu.sharing.mps import NO_MPS, Share, Worker

FOREVER = 7 * 24 * 3600.0  # s; a guard waits as long as its run
PATIENCE = 300.0  # s for processes on the GPU to end


@contextmanager
def guarded(index: int) -> Iterator[int]:
    """Hold the lock of a GPU while the block runs, watched by a guard; gives the descriptor of the lock."""
    lock = records.lock_file(lock_path(index))
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
    lock = records.lock_file(lock_path(index), within=within)
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
    lock = records.lock_file(lock_path(index), within=FOREVER)
    if lock is None:
        return
    try:
        undo_when_idle(index, within=PATIENCE, lock=lock, progress=print_progress)
    except BenchError as e:
        print_progress(f"GPU {index} is not restored: {e}")
        print_progress(f"run `fleetlab share mig undo --gpu {index} --really`, or start the suite again")


if __name__ == "__main__":
    main(int(sys.argv[1]))


# --- the mode ---------------------------------------------------------------------------------------------------------


ALLOW = "FLEETLAB_ALLOW_MIG"
MEMORY_TOLERANCE = 0.05  # usable memory differs a little between drivers and from what CUDA reports
IDLE = 30.0  # s in which a process that has ended may still be listed


@dataclass(frozen=True, slots=True)
class MigPart:
    """An instance of the layout, and the UUID under which CUDA finds it."""

    profile: MigProfile
    uuid: str


class Mig:
    """A partitioned GPU; a share's `instance` is the position in the layout as it was written."""

    def __init__(self, gpu: Gpu, parts: Sequence[MigPart]) -> None:
        self._gpu, self._parts = gpu, tuple(parts)

    def part(self, share: Share) -> MigPart:
        """The instance of a share."""
        if share.instance is None or share.instance >= len(self._parts):
            msg = f"no instance {share.instance}: the layout has {len(self._parts)}"
            raise BenchError(msg, hint="each tenant of a MIG cell has an instance, counted from 0")
        return self._parts[share.instance]

    def environment(self, share: Share) -> dict[str, str]:
        """Environment of a process that sees one instance and cannot attach to MPS."""
        return NO_MPS | {"CUDA_VISIBLE_DEVICES": self.part(share).uuid}

    def verify(self, workers: Sequence[Worker]) -> dict[int, str]:
        """Compare what each process sees with its instance: UUID, SMs and memory."""
        return {w.about["pid"]: why for w in workers if (why := differences(self.part(w.share), w.about))}

    def report(self) -> dict[str, Any]:
        """The GPU and its instances."""
        parts = [
            {"profile": p.profile.name, "uuid": p.uuid, "sms": p.profile.sms, "memory_gib": p.profile.memory_gib}
            for p in self._parts
        ]
        return {"mig": {"gpu": self._gpu.uuid, "before": self._gpu.mig, "instances": parts}}


def differences(part: MigPart, about: Any) -> str:  # noqa: ANN401
    """What a process sees that is not its instance; empty if all that it reported is right."""
    wrong = []
    if about.get("visible") != part.uuid:
        wrong.append(f"CUDA_VISIBLE_DEVICES is {about.get('visible')}, not {part.uuid}")
    if about.get("sms", part.profile.sms) != part.profile.sms:
        wrong.append(f"{about['sms']} SMs, not {part.profile.sms}")
    mib = 1024 * part.profile.memory_gib
    if abs(about.get("card_mib", mib) / mib - 1) > MEMORY_TOLERANCE:
        wrong.append(f"{about['card_mib']} MiB, not {mib:.0f}")
    return "; ".join(wrong)


def permitted_gpu(*, allow: bool) -> Gpu:
    """The GPU that may be partitioned: named by its UUID in the environment, and allowed by an option."""
    uuid = os.environ.get(ALLOW, "")
    here = nvidia_smi.gpus()
    missing = [] if allow else ["the option --allow-mig"]
    matches = [one for one in here if uuid and one.uuid == uuid]
    if not matches:
        missing.append(f"the UUID of the GPU in {ALLOW}" + (f", not `{uuid}`" if uuid else ""))
    if missing:
        msg = f"partitioning a GPU is not allowed: it needs {' and '.join(missing)}"
        listed = ", ".join(f"{one.uuid} ({one.name})" for one in here if one.mig is not None) or "none with MIG"
        raise BenchError(msg, hint=f"GPUs of this machine: {listed}")
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    if len(here) > 1 and visible != uuid:
        msg = f"this machine has {len(here)} GPUs, and CUDA_VISIBLE_DEVICES does not select the one to be partitioned"
        raise BenchError(msg, hint=f"CUDA_VISIBLE_DEVICES={uuid}, so that all modes are measured on the same GPU")
    return matches[0]


@contextmanager
def partitioned(words: str, *, allow: bool, progress: Progress) -> Iterator[Mig]:
    """Create a layout inside the block, and restore the GPU however the block is left."""
    one = permitted_gpu(allow=allow)
    names = parse_layout(words)
    cut = gpu_profiles(one.index)
    layout = place(cut, names)
    with guarded(one.index) as lock:
        devices = apply.apply(layout, one.index, progress=progress, hold=(lock,), temporary=True)
        try:
            yield Mig(one, _parts([cut.profile(name) for name in names], devices))
        finally:
            undo_when_idle(one.index, within=IDLE, lock=lock, progress=progress)


def _parts(profiles: Sequence[MigProfile], devices: Sequence[tuple[str, str]]) -> list[MigPart]:
    """Devices in the order in which the layout is written; those of one profile are alike."""
    unassigned = list(devices)
    parts = []
    for profile in profiles:
        device = next(one for one in unassigned if one[0] == profile.name)
        unassigned.remove(device)
        parts.append(MigPart(profile, device[1]))
    return parts
