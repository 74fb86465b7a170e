"""Which MIG instances fit on a GPU together, and where: an exhaustive search over placements.

Memory slices decide: an instance takes `size` consecutive slices from one of its start positions, without overlap.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fleetlab.devices.errors import BenchError
from fleetlab.sharing.mig.profiles import MigGpu, MigProfile


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


def parse_layout(words: str) -> list[str]:
    """Parse a layout into profile names.

    >>> parse_layout("3g.71gb, 2x1g.18gb")
    ['3g.71gb', '1g.18gb', '1g.18gb']
    """
    parts = [re.fullmatch(r"(?:([1-9]\d?)x)?([^\s,]+)", word.strip()) for word in words.split(",")]
    profiles = [part[2] for part in parts if part for _ in range(int(part[1] or 1))]
    if not all(parts):
        msg = f"not a layout: `{words}`"
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
    msg = f"not possible on {cut.name}: {why or _no_room(profiles)}"
    raise BenchError(msg, hint=f"`fleetlab share mig layouts --model {cut.name}` lists all layouts")


def maximal_layouts(cut: MigGpu) -> list[Layout]:
    """All layouts of profiles without suffix to which nothing can be added, by placement."""
    every = [Placement(start, p) for p in cut.profiles if p.plain for start in p.starts]
    every.sort(key=lambda one: (one.start, -one.profile.size, -one.profile.slices))
    return [layout for layout in _packed(every, cut) if not _more(layout, every, cut)]


def profile_counts(layout: Layout) -> dict[str, int]:
    """Count each profile, largest first."""
    order = sorted(layout, key=lambda one: (-one.profile.slices, -one.profile.size, one.profile.name))
    return dict(Counter(one.profile.name for one in order))


def layout_name(layout: Layout) -> str:
    """Format a layout as `parse_layout` reads it.

    >>> from fleetlab.sharing.mig.models import mig_gpu
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


def _more(layout: Layout, every: Sequence[Placement], cut: MigGpu) -> bool:
    return any(_fits(one, layout, cut) for one in every)


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


def _no_room(profiles: Sequence[MigProfile]) -> str:
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
