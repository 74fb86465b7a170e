"""The profiles of a card: how much of it an instance may have, and where on the card it may lie.

Compute has 7 slices and memory has 8. A place is `start:size` in slices of memory, as `nvidia-smi mig -lgipp` prints
it. Sources: NVIDIA's MIG User Guide (fractions, counts), published `-lgip` and `-lgipp` output of an A100 and an H100
(SMs, memory, places), an H200 asked by us (docs/measurements/h200/probe.json). Memory differs by a quarter of a GiB
between drivers: a card that is here is asked itself.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from fleetlab.devices import nvidia_smi as cards
from fleetlab.devices.errors import BenchError

ROW = re.compile(r"^\|\s*(\d+)\s+MIG\s+(\S+)\s+(\d+)\s+(\d+)/(\d+)\s+([\d.]+)\s+\S+\s+(\d+)\s", re.MULTILINE)
PLACES = re.compile(r"^GPU\s+(\d+)\s+Profile ID\s+(\d+)\s+Placements?\s*:\s*\{([\d,\s]*)\}:(\d+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Profile:
    """What one instance has, how many of it a card holds, and where each may start."""

    name: str
    id: int
    sms: int
    memory_gib: float
    most: int
    size: int  # slices of memory
    starts: tuple[int, ...]

    @property
    def slices(self) -> int:
        """Of compute: `3g.71gb` has 3."""
        return int(self.name.partition("g")[0])

    @property
    def media(self) -> bool:
        """Does it have the card's one set of media extensions?"""
        return "+" in self.name


@dataclass(frozen=True, slots=True)
class Cut:
    """A card by name, and the profiles it can be cut into."""

    card: str
    profiles: tuple[Profile, ...]

    @property
    def slices(self) -> int:
        """Of compute, in all."""
        return max(p.slices for p in self.profiles)

    @property
    def sizes(self) -> int:
        """Slices of memory, in all."""
        return max(p.size for p in self.profiles)

    def profile(self, name: str) -> Profile:
        """The profile by that name."""
        for one in self.profiles:
            if one.name == name:
                return one
        msg = f"no profile by that name on the card {self.card}: `{name}`"
        raise BenchError(msg, hint=f"there are {', '.join(p.name for p in self.profiles)}")


# Profile ids and places are the same on these cards: id, slices of memory, starts, how many.
SHAPES = {
    "1": (19, 1, (0, 1, 2, 3, 4, 5, 6), 7),
    "1+me": (20, 1, (0, 1, 2, 3, 4, 5, 6), 1),
    "1 wide": (15, 2, (0, 2, 4, 6), 4),
    "2": (14, 2, (0, 2, 4), 3),
    "3": (9, 4, (0, 4), 2),
    "4": (5, 4, (0,), 1),
    "7": (0, 8, (0,), 1),
}
AMPERE, HOPPER = (14, 14, 14, 28, 42, 56, 98), (16, 16, 26, 32, 60, 64, 132)  # SMs of each


def _known(card: str, gigabytes: tuple[int, int, int, int], sms: Sequence[int], gib: Sequence[float]) -> Cut:
    one, two, half, whole = gigabytes
    names = [f"1g.{one}gb", f"1g.{one}gb+me", f"1g.{two}gb", f"2g.{two}gb", f"3g.{half}gb", f"4g.{half}gb"]
    usable = (gib[0], gib[0], gib[1], gib[1], gib[2], gib[2], gib[3])
    rows = zip([*names, f"7g.{whole}gb"], SHAPES.values(), sms, usable, strict=True)
    return Cut(card, tuple(Profile(name, i, n, m, most, size, at) for name, (i, size, at, most), n, m in rows))


BY_NAME = {
    cut.card: cut
    for cut in (
        _known("A100-40", (5, 10, 20, 40), AMPERE, (4.75, 9.62, 19.5, 39.25)),
        _known("A100-80", (10, 20, 40, 80), AMPERE, (9.5, 19.5, 39.25, 79.0)),
        _known("H100-80", (10, 20, 40, 80), HOPPER, (9.75, 19.62, 39.5, 79.25)),
        _known("H200-141", (18, 35, 71, 141), HOPPER, (16.0, 32.5, 69.75, 140.0)),
    )
}


def known(name: str) -> Cut:
    """A card that we know by heart; `H200` is enough where there is one of it.

    >>> known("H200").profile("3g.71gb").sms
    60
    """
    found = [cut for card, cut in BY_NAME.items() if card.lower().startswith(name.lower())] if name else []
    exact = [cut for cut in found if cut.card.lower() == name.lower()]
    if len(exact or found) == 1:
        return (exact or found)[0]
    several = f"several cards by that name: `{name}`" if found else f"no card with MIG by that name: `{name}`"
    raise BenchError(several, hint=f"there are {', '.join(c.card for c in found) or ', '.join(BY_NAME)}")


def here(index: int) -> Cut:
    """What the card of that number says of itself; where it does not tell the places, those known of its kind."""
    one = cards.card(index)
    if one.mig is None:
        msg = f"card {index} has no MIG: {one.name}"
        raise BenchError(msg, hint=f"cards known to have it: {', '.join(BY_NAME)}")
    rows = listed(cards.ask("mig", "-i", str(index), "-lgip"), index)
    try:
        told = places(cards.ask("mig", "-i", str(index), "-lgipp"), index)
    except BenchError:
        told = {}  # some drivers tell places only once MIG is on
    return Cut(one.name, tuple(_placed(row, told) for row in rows))


def listed(said: str, index: int) -> list[tuple[str, int, int, float, int]]:
    """Name, id, SMs, GiB and count of each profile in what `nvidia-smi mig -lgip` printed."""
    rows = [
        (name, int(i), int(sms), float(gib), int(most))
        for gpu, name, i, _free, most, gib, sms in ROW.findall(said)
        if int(gpu) == index
    ]
    if not rows:
        msg = f"nvidia-smi lists no MIG profiles of card {index}: `{' '.join(said.split())[:200]}`"
        raise BenchError(msg, hint=f"run `nvidia-smi mig -i {index} -lgip` by hand")
    return rows


def places(said: str, index: int) -> dict[int, tuple[int, tuple[int, ...]]]:
    """Size and starts by the id of a profile, in what `nvidia-smi mig -lgipp` printed.

    >>> places("GPU  0 Profile ID  9 Placements: {0,4}:4", 0)
    {9: (4, (0, 4))}
    """
    return {
        int(i): (int(size), tuple(int(s) for s in starts.split(",") if s.strip()))
        for gpu, i, starts, size in PLACES.findall(said)
        if int(gpu) == index
    }


def _placed(row: tuple[str, int, int, float, int], told: dict[int, tuple[int, tuple[int, ...]]]) -> Profile:
    name, number, sms, gib, most = row
    if number in told:
        size, starts = told[number]
        return Profile(name, number, sms, gib, most, size, starts)
    for cut in BY_NAME.values():
        for profile in cut.profiles:
            if (profile.name, profile.id) == (name, number):
                return Profile(name, number, sms, gib, most, profile.size, profile.starts)
    msg = f"nvidia-smi does not tell where an instance of `{name}` may lie, and it is not known"
    raise BenchError(msg, hint="switch MIG on by hand and look at `nvidia-smi mig -lgipp`")
