"""Which instances fit on a card together, and where: found by trying every place.

Slices of memory decide. An instance takes `size` of them in a row from one of its starts, and no two may overlap.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fleetlab.devices.errors import BenchError
from fleetlab.sharing.mig.profiles import Cut, Profile


@dataclass(frozen=True, slots=True, order=True)
class Placed:
    """An instance and the slice of memory it starts at."""

    start: int
    profile: Profile

    @property
    def bits(self) -> int:
        """The slices it takes, one bit each."""
        return ((1 << self.profile.size) - 1) << self.start

    def __str__(self) -> str:
        return f"{self.profile.name}:{self.start}"


Layout = tuple[Placed, ...]  # in order of start


def names(words: str) -> list[str]:
    """The profiles that a layout names.

    >>> names("3g.71gb, 2x1g.18gb")
    ['3g.71gb', '1g.18gb', '1g.18gb']
    """
    parts = [re.fullmatch(r"(?:([1-9]\d?)x)?([^\s,]+)", word.strip()) for word in words.split(",")]
    found = [part[2] for part in parts if part for _ in range(int(part[1] or 1))]
    if not all(parts):
        msg = f"not a layout: `{words}`"
        raise BenchError(msg, hint="profiles with commas between them: 3g.71gb,2g.35gb,1g.18gb or 7x1g.18gb")
    return found


def place(cut: Cut, wanted: Sequence[str]) -> Layout:
    """Where each of `wanted` lies, so that most can be added yet; an error that says what does not fit."""
    profiles = sorted((cut.profile(name) for name in wanted), key=lambda p: (-p.size, -p.slices, p.name))
    why = _too_many(cut, profiles)
    if not why and (ways := list(_ways(profiles))):
        every = [Placed(start, p) for p in cut.profiles for start in p.starts]
        best = max(ways, key=lambda layout: sum(_fits(one, layout, cut) for one in every))
        return tuple(sorted(best, key=lambda one: one.start))
    msg = f"not possible on the card {cut.card}: {why or _no_room(profiles)}"
    raise BenchError(msg, hint=f"`fleetlab share mig layouts --card {cut.card}` lists what is possible")


def maximal(cut: Cut) -> list[Layout]:
    """Every layout, place by place, to which nothing can be added; media extensions are left out, being no size."""
    every = [Placed(start, p) for p in cut.profiles if not p.media for start in p.starts]
    every.sort(key=lambda one: (one.start, -one.profile.size, -one.profile.slices))
    return [layout for layout in _packed(every, cut) if not _more(layout, every, cut)]


def counted(layout: Layout) -> dict[str, int]:
    """How many of each profile, largest first."""
    order = sorted(layout, key=lambda one: (-one.profile.slices, -one.profile.size, one.profile.name))
    return dict(Counter(one.profile.name for one in order))


def told(layout: Layout) -> str:
    """The layout as one would ask for it.

    >>> from fleetlab.sharing.mig.profiles import known
    >>> told(place(known("H200"), ["1g.18gb", "3g.71gb", "1g.18gb"]))
    '3g.71gb,2x1g.18gb'
    """
    return ",".join(name if n == 1 else f"{n}x{name}" for name, n in counted(layout).items())


def left(layout: Layout, cut: Cut) -> tuple[int, int]:
    """Slices of compute and of memory that nobody has."""
    return cut.slices - sum(p.profile.slices for p in layout), cut.sizes - sum(p.profile.size for p in layout)


# --- the search ------------------------------------------------------------------------------------------------------


def _ways(profiles: Sequence[Profile], before: Layout = ()) -> Iterator[Layout]:
    if not profiles:
        yield before
        return
    taken, last = sum(one.bits for one in before), before[-1] if before else None
    for start in profiles[0].starts:
        one = Placed(start, profiles[0])
        # Two of a kind changed over are the same way.
        if not one.bits & taken and not (last and last.profile == one.profile and last.start > start):
            yield from _ways(profiles[1:], (*before, one))


def _packed(every: Sequence[Placed], cut: Cut) -> Iterator[Layout]:
    """All that fit, each once: whoever is added starts behind the last."""
    stack: list[Layout] = [()]
    while stack:
        layout = stack.pop()
        if layout:
            yield layout
        behind = [one for one in every if not layout or one.start > layout[-1].start]
        stack += [(*layout, one) for one in behind if _fits(one, layout, cut)]


def _fits(one: Placed, layout: Layout, cut: Cut) -> bool:
    taken = sum(other.bits for other in layout)
    same = sum(other.profile == one.profile for other in layout)
    compute = sum(other.profile.slices for other in layout) + one.profile.slices
    return not one.bits & taken and same < one.profile.most and compute <= cut.slices


def _more(layout: Layout, every: Sequence[Placed], cut: Cut) -> bool:
    return any(_fits(one, layout, cut) for one in every)


# --- why not ---------------------------------------------------------------------------------------------------------


def _too_many(cut: Cut, profiles: Sequence[Profile]) -> str:
    for profile, n in Counter(profiles).items():
        if n > profile.most:
            return f"{n} of {profile.name}, and a card holds at most {profile.most}"
    if sum(p.media for p in profiles) > 1:
        return "two instances with media extensions, and a card has one set of them"
    for total, what, of in ((cut.slices, "compute", "slices"), (cut.sizes, "memory", "size")):
        parts = [getattr(p, of) for p in profiles]
        if sum(parts) > total:
            sums = " + ".join(map(str, parts))
            return f"{_and(profiles)} take {sums} = {sum(parts)} slices of {what}, and a card has {total}"
    return ""


def _no_room(profiles: Sequence[Profile]) -> str:
    """The slices would do in all, but not where they are: name the first that finds no place."""
    for n in range(1, len(profiles) + 1):
        if not any(True for _ in _ways(profiles[:n])):
            break
    one, before = profiles[n - 1], profiles[: n - 1]
    at = ", ".join(str(s) for s in one.starts)
    lies = f"takes {one.size} slice{'s' * (one.size > 1)} of memory from slice {at}"
    held = "; ".join(f"{p.name} from {', '.join(map(str, p.starts))} ({p.size})" for p in dict.fromkeys(before))
    return f"{one.name} {lies}, and beside {_and(before)} none of these is free (they lie: {held})"


def _and(profiles: Sequence[Profile]) -> str:
    listed = [name if n == 1 else f"{n}x{name}" for name, n in Counter(p.name for p in profiles).items()]
    return " and ".join([", ".join(listed[:-1]), listed[-1]] if len(listed) > 1 else listed)
