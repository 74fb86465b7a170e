"""MIG profiles of a GPU: the size of an instance, where it may be placed, and how `nvidia-smi` lists them.

A placement is `start:size` in memory slices, as `nvidia-smi mig -lgipp` prints it. The profiles of known models are in
`models`; an installed GPU is queried.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

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
        """Whether it includes the GPU's media extensions, of which there is one set."""
        return "+me" in self.name

    @property
    def plain(self) -> bool:
        """Whether it has no suffix: `+me` and `-me` differ in media engines, `+gfx` in graphics, none in compute."""
        return self.name.endswith("gb")


@dataclass(frozen=True, slots=True)
class MigGpu:
    """A GPU model, its MIG profiles, and its SMs without MIG: an A100 has 108, its largest instance 98."""

    name: str
    profiles: tuple[MigProfile, ...]
    sms: int
    notes: tuple[str, ...] = ()  # what is derived, not listed

    @property
    def slices(self) -> int:
        """Compute slices of the GPU."""
        return max(p.slices for p in self.profiles)

    @property
    def sizes(self) -> int:
        """Memory slices of the GPU."""
        return max(p.size for p in self.profiles)

    def profile(self, name: str) -> MigProfile:
        """Return the profile with that name; `3g` is the smallest without suffix that has 3 compute slices."""
        for one in self.profiles:
            if one.name == name:
                return one
        for one in self.plain():
            if name == f"{one.slices}g":
                return one
        msg = f"{self.name} has no profile `{name}`"
        raise BenchError(msg, hint=f"there are {', '.join(p.name for p in self.profiles)}")

    def plain(self) -> list[MigProfile]:
        """Profiles without suffix, the smallest first."""
        return sorted((p for p in self.profiles if p.plain), key=lambda p: (p.slices, p.size))


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
