"""MIG profiles of a GPU: the size of an instance and where it may be placed.

There are 7 compute slices and 8 memory slices. A placement is `start:size` in memory slices, as `nvidia-smi mig -lgipp`
prints it. Sources: NVIDIA's MIG User Guide (fractions, counts), published `-lgip` and `-lgipp` output of an A100 and an
H100 (SMs, memory, placements), our own probe of an H200 (docs/measurements/h200/probe.json). Memory differs by a
quarter of a GiB between drivers, so an installed GPU is queried.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from fleetlab.devices import nvidia_smi
from fleetlab.devices.errors import BenchError

ROW = re.compile(r"^\|\s*(\d+)\s+MIG\s+(\S+)\s+(\d+)\s+(\d+)/(\d+)\s+([\d.]+)\s+\S+\s+(\d+)\s", re.MULTILINE)
PLACES = re.compile(r"^GPU\s+(\d+)\s+Profile ID\s+(\d+)\s+Placements?\s*:\s*\{([\d,\s]*)\}:(\d+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class MigProfile:
    """The size of an instance, the maximum number per GPU, and its start positions."""

    name: str
    id: int
    sms: int
    memory_gib: float
    most: int
    size: int  # memory slices
    starts: tuple[int, ...]

    @property
    def slices(self) -> int:
        """Compute slices: `3g.71gb` has 3."""
        return int(self.name.partition("g")[0])

    @property
    def media(self) -> bool:
        """Whether it includes the GPU's media extensions."""
        return "+" in self.name


@dataclass(frozen=True, slots=True)
class MigGpu:
    """A GPU model and its MIG profiles."""

    name: str
    profiles: tuple[MigProfile, ...]

    @property
    def slices(self) -> int:
        """Compute slices of the GPU."""
        return max(p.slices for p in self.profiles)

    @property
    def sizes(self) -> int:
        """Memory slices of the GPU."""
        return max(p.size for p in self.profiles)

    def profile(self, name: str) -> MigProfile:
        """Return the profile with that name."""
        for one in self.profiles:
            if one.name == name:
                return one
        msg = f"{self.name} has no profile `{name}`"
        raise BenchError(msg, hint=f"there are {', '.join(p.name for p in self.profiles)}")


# Profile ids and placements are the same on these GPUs: id, memory slices, starts, maximum count.
SHAPES = {
    "1": (19, 1, (0, 1, 2, 3, 4, 5, 6), 7),
    "1+me": (20, 1, (0, 1, 2, 3, 4, 5, 6), 1),
    "1 wide": (15, 2, (0, 2, 4, 6), 4),
    "2": (14, 2, (0, 2, 4), 3),
    "3": (9, 4, (0, 4), 2),
    "4": (5, 4, (0,), 1),
    "7": (0, 8, (0,), 1),
}
AMPERE, HOPPER = (14, 14, 14, 28, 42, 56, 98), (16, 16, 26, 32, 60, 64, 132)  # SMs


def _known(card: str, gigabytes: tuple[int, int, int, int], sms: Sequence[int], gib: Sequence[float]) -> MigGpu:
    one, two, half, whole = gigabytes
    names = [f"1g.{one}gb", f"1g.{one}gb+me", f"1g.{two}gb", f"2g.{two}gb", f"3g.{half}gb", f"4g.{half}gb"]
    usable = (gib[0], gib[0], gib[1], gib[1], gib[2], gib[2], gib[3])
    rows = zip([*names, f"7g.{whole}gb"], SHAPES.values(), sms, usable, strict=True)
    return MigGpu(card, tuple(MigProfile(name, i, n, m, most, size, at) for name, (i, size, at, most), n, m in rows))


BY_NAME = {
    cut.name: cut
    for cut in (
        _known("A100-40", (5, 10, 20, 40), AMPERE, (4.75, 9.62, 19.5, 39.25)),
        _known("A100-80", (10, 20, 40, 80), AMPERE, (9.5, 19.5, 39.25, 79.0)),
        _known("H100-80", (10, 20, 40, 80), HOPPER, (9.75, 19.62, 39.5, 79.25)),
        _known("H200-141", (18, 35, 71, 141), HOPPER, (16.0, 32.5, 69.75, 140.0)),
    )
}


def mig_gpu(name: str) -> MigGpu:
    """Look up a GPU model; a prefix such as `H200` is enough if it is unambiguous.

    >>> mig_gpu("H200").profile("3g.71gb").sms
    60
    """
    matches = [cut for model, cut in BY_NAME.items() if model.lower().startswith(name.lower())] if name else []
    exact = [cut for cut in matches if cut.name.lower() == name.lower()]
    if len(exact or matches) == 1:
        return (exact or matches)[0]
    several = f"ambiguous GPU model: `{name}`" if matches else f"unknown GPU model with MIG: `{name}`"
    raise BenchError(several, hint=f"there are {', '.join(c.name for c in matches) or ', '.join(BY_NAME)}")


def gpu_profiles(index: int) -> MigGpu:
    """Query the profiles of an installed GPU; placements that the driver does not report come from the known models."""
    one = nvidia_smi.gpu(index)
    if one.mig is None:
        msg = f"GPU {index} does not support MIG: {one.name}"
        raise BenchError(msg, hint=f"known models with MIG: {', '.join(BY_NAME)}")
    rows = parse_profiles(nvidia_smi.run_smi("mig", "-i", str(index), "-lgip"), index)
    try:
        placements = parse_placements(nvidia_smi.run_smi("mig", "-i", str(index), "-lgipp"), index)
    except BenchError:
        placements = {}  # some drivers report placements only in MIG mode
    return MigGpu(one.name, tuple(_placed(row, placements) for row in rows))


def parse_profiles(said: str, index: int) -> list[tuple[str, int, int, float, int]]:
    """Parse the output of `nvidia-smi mig -lgip`: name, id, SMs, GiB and maximum count of each profile."""
    rows = [
        (name, int(i), int(sms), float(gib), int(most))
        for gpu, name, i, _free, most, gib, sms in ROW.findall(said)
        if int(gpu) == index
    ]
    if not rows:
        msg = f"nvidia-smi lists no MIG profiles for GPU {index}: `{' '.join(said.split())[:200]}`"
        raise BenchError(msg, hint=f"run `nvidia-smi mig -i {index} -lgip` by hand")
    return rows


def parse_placements(said: str, index: int) -> dict[int, tuple[int, tuple[int, ...]]]:
    """Parse the output of `nvidia-smi mig -lgipp`: size and starts by profile id.

    >>> parse_placements("GPU  0 Profile ID  9 Placements: {0,4}:4", 0)
    {9: (4, (0, 4))}
    """
    return {
        int(i): (int(size), tuple(int(s) for s in starts.split(",") if s.strip()))
        for gpu, i, starts, size in PLACES.findall(said)
        if int(gpu) == index
    }


def _placed(row: tuple[str, int, int, float, int], told: dict[int, tuple[int, tuple[int, ...]]]) -> MigProfile:
    name, number, sms, gib, most = row
    if number in told:
        size, starts = told[number]
        return MigProfile(name, number, sms, gib, most, size, starts)
    for cut in BY_NAME.values():
        for profile in cut.profiles:
            if (profile.name, profile.id) == (name, number):
                return MigProfile(name, number, sms, gib, most, profile.size, profile.starts)
    msg = f"unknown placements of profile `{name}`: nvidia-smi does not report them"
    raise BenchError(msg, hint="enable MIG by hand and run `nvidia-smi mig -lgipp`")
