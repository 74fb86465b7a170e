"""MIG as a sharing mode: partition a GPU for a block, pin tenants to instances, prove what each sees, and undo it.

It must be allowed twice: by an option, and by the UUID of the GPU in an environment variable. Root is needed, no
process may run on the GPU, and an existing layout is never touched.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from fleetlab.devices import nvidia_smi
from fleetlab.devices.errors import BenchError
from fleetlab.devices.nvidia_smi import Gpu
from fleetlab.devices.progress import Progress
from fleetlab.sharing.mig import apply
from fleetlab.sharing.mig.guard import guarded, undo_when_idle
from fleetlab.sharing.mig.layouts import parse_layout, place
from fleetlab.sharing.mig.models import gpu_profiles
from fleetlab.sharing.mig.profiles import MigProfile
from fleetlab.sharing.share import NO_MPS, Share, Worker

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
    found = [one for one in here if uuid and one.uuid == uuid]
    if not found:
        missing.append(f"the UUID of the GPU in {ALLOW}" + (f", not `{uuid}`" if uuid else ""))
    if missing:
        msg = f"partitioning a GPU is not allowed: it needs {' and '.join(missing)}"
        listed = ", ".join(f"{one.uuid} ({one.name})" for one in here if one.mig is not None) or "none with MIG"
        raise BenchError(msg, hint=f"GPUs of this machine: {listed}")
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    if len(here) > 1 and visible != uuid:
        msg = f"this machine has {len(here)} GPUs, and CUDA_VISIBLE_DEVICES does not select the one to be partitioned"
        raise BenchError(msg, hint=f"CUDA_VISIBLE_DEVICES={uuid}, so that all modes are measured on the same GPU")
    return found[0]


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
    left = list(devices)
    parts = []
    for profile in profiles:
        device = next(one for one in left if one[0] == profile.name)
        left.remove(device)
        parts.append(MigPart(profile, device[1]))
    return parts
