"""Which MIG instances fit on a GPU together, and where: an exhaustive search over placements.

Memory slices decide: an instance takes `size` consecutive slices from one of its start positions, without overlap.

A placement is `start:size` in memory slices, as `nvidia-smi mig -lgipp` prints it. Known models, with
sources, are in `gpus.toml`; an installed GPU is queried.
"""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from fleetlab.gpu.devices import nvidia_smi
from fleetlab.gpu.devices.console import BenchError

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


def parse_profiles(output: str, index: int) -> list[tuple[str, int, int, float, int]]:
    """Parse the output of `nvidia-smi mig -lgip`: name, id, SMs, GiB and maximum count of each profile."""
    rows = [
        (name, int(i), int(sms), float(gib), int(most))
        for gpu, name, i, _free, most, gib, sms in ROW.findall(output)
        if int(gpu) == index
    ]
    if not rows:
        msg = f"nvidia-smi lists no MIG profiles for GPU {index}: `{' '.join(output.split())[:200]}`"
        raise BenchError(msg, hint=f"run `nvidia-smi mig -i {index} -lgip` by hand")
    return rows


def parse_placements(output: str, index: int) -> dict[int, tuple[int, tuple[int, ...]]]:
    """Parse the output of `nvidia-smi mig -lgipp`: size and starts by profile id.

    >>> parse_placements("GPU  0 Profile ID  9 Placements: {0,4}:4", 0)
    {9: (4, (0, 4))}
    """
    return {
        int(i): (int(size), tuple(int(s) for s in starts.split(",") if s.strip()))
        for gpu, i, starts, size in PLACES.findall(output)
        if int(gpu) == index
    }


# --- GPU models with MIG ---------------------------------------------------------------------------------------------


# What is known of each, by name: memory, compute capability, ids, and the profiles of those with MIG.
CATALOG: dict[str, dict[str, Any]] = tomllib.loads((files("fleetlab.gpu.sharing") / "gpus.toml").read_text("utf-8"))


def _model(name: str, about: dict[str, Any]) -> MigGpu:
    rows: list[tuple[str, int, int, float, int, int, list[int]]] = about["profiles"]
    profiles = (MigProfile(n, k, sms, gib, most, size, tuple(starts)) for n, k, sms, gib, most, size, starts in rows)
    return MigGpu(name, tuple(profiles), about["sms"], (about["note"],) if "note" in about else ())


BY_NAME = {name: _model(name, about) for name, about in CATALOG.items() if "profiles" in about}


def mig_gpu(name: str) -> MigGpu:
    """Look up a GPU model; a prefix such as `H200` is enough if it is unambiguous, as is a product name of NVIDIA.

    >>> mig_gpu("H200").profile("3g.71gb").sms, mig_gpu("NVIDIA A100-SXM4-40GB").name
    (60, 'A100-40')
    """
    matches = [cut for model, cut in BY_NAME.items() if model.lower().startswith(name.lower())] if name else []
    exact = [cut for cut in matches if cut.name.lower() == name.lower()]
    products = [cut for model, cut in BY_NAME.items() if re.search(CATALOG[model]["product"], name)][:1]
    for models in (exact, matches, products):
        if len(models) == 1:
            return models[0]
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
    profiles = tuple(_placed(row, placements) for row in rows)
    return MigGpu(one.name, profiles, max(_whole(one.name), *(p.sms for p in profiles)))


def _whole(product: str) -> int:
    try:
        return mig_gpu(product).sms
    except BenchError:
        return 0  # nvidia-smi does not report the SMs of a GPU; its largest instance is a lower limit


def _placed(row: tuple[str, int, int, float, int], placements: dict[int, tuple[int, tuple[int, ...]]]) -> MigProfile:
    name, number, sms, gib, most = row
    if number in placements:
        size, starts = placements[number]
        return MigProfile(name, number, sms, gib, most, size, starts)
    for cut in BY_NAME.values():
        for profile in cut.profiles:
            if (profile.name, profile.id) == (name, number):
                return MigProfile(name, number, sms, gib, most, profile.size, profile.starts)
    msg = f"unknown placements of profile `{name}`: nvidia-smi does not report them"
    raise BenchError(msg, hint="enable MIG by hand and run `nvidia-smi mig -lgipp`")


@dataclass(frozen=True, slots=True, order=True)
class Placement:
    """An instance and the memory slice at which it starts."""

    start: int
    profile: MigProfile

    @property
    def bits(self) -> int:
        """Occupied memory slices as a bit mask."""
        return ((1 << self.profile.size) - 1) << self.start

    def __str__(self) -> str:
        return f"{self.profile.name}:{self.start}"


Layout = tuple[Placement, ...]  # in order of start


def parse_layout(text: str) -> list[str]:
    """Parse a layout into profile names.

    >>> parse_layout("3g.71gb, 2x1g.18gb")
    ['3g.71gb', '1g.18gb', '1g.18gb']
    """
    parts = [re.fullmatch(r"(?:([1-9]\d?)x)?([^\s,]+)", word.strip()) for word in text.split(",")]
    profiles = [part[2] for part in parts if part for _ in range(int(part[1] or 1))]
    if not all(parts):
        msg = f"not a layout: `{text}`"
        raise BenchError(msg, hint="profiles separated by commas: 3g.71gb,2g.35gb,1g.18gb or 7x1g.18gb")
    return profiles


def place(cut: MigGpu, wanted: Sequence[str]) -> Layout:
    """Place the wanted profiles so that most others still fit; raise an error that says what does not fit."""
    profiles = sorted((cut.profile(name) for name in wanted), key=lambda p: (-p.size, -p.slices, p.name))
    why = _too_many(cut, profiles)
    if not why and (ways := list(_ways(profiles))):
        every = [Placement(start, p) for p in cut.profiles for start in p.starts]
        best = max(ways, key=lambda layout: sum(_fits(one, layout, cut) for one in every))
        return tuple(sorted(best, key=lambda one: one.start))
    msg = f"not possible on {cut.name}: {why or _why_unplaced(profiles)}"
    raise BenchError(msg, hint=f"`fleetlab share mig layouts --model {cut.name}` lists all layouts")


def maximal_layouts(cut: MigGpu) -> list[Layout]:
    """All layouts of profiles without suffix to which nothing can be added, by placement."""
    every = [Placement(start, p) for p in cut.profiles if p.plain for start in p.starts]
    every.sort(key=lambda one: (one.start, -one.profile.size, -one.profile.slices))
    return [layout for layout in _packed(every, cut) if not any(_fits(one, layout, cut) for one in every)]


def profile_counts(layout: Layout) -> dict[str, int]:
    """Count each profile, largest first."""
    order = sorted(layout, key=lambda one: (-one.profile.slices, -one.profile.size, one.profile.name))
    return dict(Counter(one.profile.name for one in order))


def layout_name(layout: Layout) -> str:
    """Format a layout as `parse_layout` reads it.

    >>> from fleetlab.gpu.sharing.mig.layouts import mig_gpu
    >>> layout_name(place(mig_gpu("H200"), ["1g.18gb", "3g.71gb", "1g.18gb"]))
    '3g.71gb,2x1g.18gb'
    """
    return ",".join(name if n == 1 else f"{n}x{name}" for name, n in profile_counts(layout).items())


def slices_left(layout: Layout, cut: MigGpu) -> tuple[int, int]:
    """Unused compute slices and memory slices."""
    return cut.slices - sum(p.profile.slices for p in layout), cut.sizes - sum(p.profile.size for p in layout)


# --- the search ------------------------------------------------------------------------------------------------------


def _ways(profiles: Sequence[MigProfile], before: Layout = ()) -> Iterator[Layout]:
    if not profiles:
        yield before
        return
    taken, last = sum(one.bits for one in before), before[-1] if before else None
    for start in profiles[0].starts:
        one = Placement(start, profiles[0])
        # Exchanging two instances of one profile gives the same layout.
        if not one.bits & taken and not (last and last.profile == one.profile and last.start > start):
            yield from _ways(profiles[1:], (*before, one))


def _packed(every: Sequence[Placement], cut: MigGpu) -> Iterator[Layout]:
    """Every set of placements that fits, once: each added instance starts after the last one."""
    stack: list[Layout] = [()]
    while stack:
        layout = stack.pop()
        if layout:
            yield layout
        behind = [one for one in every if not layout or one.start > layout[-1].start]
        stack += [(*layout, one) for one in behind if _fits(one, layout, cut)]


def _fits(one: Placement, layout: Layout, cut: MigGpu) -> bool:
    taken = sum(other.bits for other in layout)
    same = sum(other.profile == one.profile for other in layout)
    compute = sum(other.profile.slices for other in layout) + one.profile.slices
    return not one.bits & taken and same < one.profile.most and compute <= cut.slices


# --- error messages --------------------------------------------------------------------------------------------------


def _too_many(cut: MigGpu, profiles: Sequence[MigProfile]) -> str:
    for profile, n in Counter(profiles).items():
        if n > profile.most:
            return f"{n} of {profile.name}, but a GPU holds at most {profile.most}"
    if sum(p.media for p in profiles) > 1:
        return "two instances with media extensions, but a GPU has only one set"
    for total, what, of in ((cut.slices, "compute", "slices"), (cut.sizes, "memory", "size")):
        parts = [getattr(p, of) for p in profiles]
        if sum(parts) > total:
            sums = " + ".join(map(str, parts))
            return f"{_and(profiles)} need {sums} = {sum(parts)} {what} slices, but a GPU has {total}"
    return ""


def _why_unplaced(profiles: Sequence[MigProfile]) -> str:
    """There are enough slices, but not at the right positions: name the first profile that cannot be placed."""
    for n in range(1, len(profiles) + 1):
        if not any(True for _ in _ways(profiles[:n])):
            break
    one, before = profiles[n - 1], profiles[: n - 1]
    at = ", ".join(str(s) for s in one.starts)
    lies = f"needs {one.size} memory slice{'s' * (one.size > 1)} starting at {at}"
    placements = "; ".join(f"{p.name} from {', '.join(map(str, p.starts))} ({p.size})" for p in dict.fromkeys(before))
    return f"{one.name} {lies}, and beside {_and(before)} none of these is free (placements: {placements})"


def _and(profiles: Sequence[MigProfile]) -> str:
    listed = [name if n == 1 else f"{n}x{name}" for name, n in Counter(p.name for p in profiles).items()]
    return " and ".join([", ".join(listed[:-1]), listed[-1]] if len(listed) > 1 else listed)
