"""One way to share a card, in words that belong to no stack; checked once, and never changed after."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from fleetlab.devices.errors import BenchError
from fleetlab.sharing.mig.layouts import place
from fleetlab.sharing.mig.profiles import Cut
from fleetlab.sharing.modes import Share
from fleetlab.stacks import gpu_models as models

MODES = ("exclusive", "time-slicing", "mps", "mig")
INTERVALS = ("default", "short", "medium", "long")
MOST = 100  # tenants of a card; no stack goes that far
MOST_MIB = 2**24  # of memory: no card has so much, and some stacks count in 32 bits
LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,48}[a-z0-9])?")
KEY = re.compile(r"([a-z0-9.-]{1,253}/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
IMAGE = re.compile(r"[a-z0-9][-a-z0-9._:/@]{0,250}", re.IGNORECASE)
PROFILE = re.compile(r"([1-7])g\.(\d+)gb(\+me)?")


@dataclass(frozen=True, slots=True)
class Spec:
    """Who shares a card and how: tenants with their limits, or the instances it is cut into."""

    mode: str
    tenants: tuple[Share, ...] = ()  # empty under mig: there an instance is the limit
    layout: tuple[str, ...] = ()  # profiles, largest first
    turns: int = 1  # tenants that take turns on each instance
    card: str | None = None
    interval: str = "default"  # how long a turn is
    name: str = "shared-gpu"
    namespace: str = "default"
    image: str = "example.com/tenant:1.0"
    queue: str = "default-queue"
    node: tuple[tuple[str, str], ...] = ()  # labels that a node must have

    def __post_init__(self) -> None:
        one_of("mode", self.mode, MODES)
        one_of("interval", self.interval, INTERVALS)
        _words(self)
        if self.mode == "mig":
            _instances(self)
        else:
            _sharers(self)

    @property
    def model(self) -> models.Model | None:
        """The card, where it is named."""
        return models.known(self.card) if self.card else None

    @property
    def equal(self) -> bool:
        """Do all tenants have the same limits?"""
        return len(set(self.tenants)) <= 1

    @property
    def counts(self) -> dict[str, int]:
        """How many instances of each profile, largest first."""
        return dict(Counter(self.layout))


def by_size(layout: Sequence[str]) -> tuple[str, ...]:
    """Profiles, largest first.

    >>> by_size(["1g.18gb", "3g.71gb"])
    ('3g.71gb', '1g.18gb')
    """

    def size(profile: str) -> tuple[int, int, str]:
        found = PROFILE.fullmatch(profile)
        return (-int(found[1]), -int(found[2]), profile) if found else (0, 0, profile)

    return tuple(sorted(layout, key=size))


def cuts_with(profiles: Sequence[str], card: str | None) -> list[Cut]:
    """The cards that have all these profiles: the one named, or any that we know."""
    names = [card] if card else list(models.BY_NAME)
    cuts = [cut for name in names if (cut := models.known(name).cut) is not None]
    return [cut for cut in cuts if set(profiles) <= {p.name for p in cut.profiles}]


def refused(cuts: Sequence[Cut], layout: Sequence[str]) -> BenchError | None:
    """Why a layout fits on none of these cards; `1g.10gb` is of two, and one holds four of it, the other seven."""
    why = None
    for cut in cuts:
        try:
            place(cut, layout)
        except BenchError as e:
            why = why or e
        else:
            return None
    return why


# --- what cannot be --------------------------------------------------------------------------------------------------


def one_of(what: str, word: str, there: Sequence[str]) -> None:
    """Refuse a word that is none of them."""
    if word not in there:
        msg = f"no {what} by that name: `{word}`"
        raise BenchError(msg, hint=f"there are {', '.join(there)}")


def _words(spec: Spec) -> None:
    for what in ("name", "namespace", "queue"):
        if not LABEL.fullmatch(getattr(spec, what)):
            msg = f"not a {what} for Kubernetes: `{getattr(spec, what)}`"
            raise BenchError(msg, hint="small letters, digits and dashes, at most 50, as in `gpu-lab`")
    if not IMAGE.fullmatch(spec.image):
        msg = f"not an image: `{spec.image}`"
        raise BenchError(msg, hint="as in `example.com/tenant:1.0`")
    for key, value in spec.node:
        if not KEY.fullmatch(key) or not VALUE.fullmatch(value):
            msg = f"not a label of a node: `{key}={value}`"
            raise BenchError(msg, hint='as in node = {"nvidia.com/gpu.product" = "NVIDIA-H200"}')
    if spec.card is not None and models.known(spec.card).name != spec.card:
        msg = f"not the full name of a card: `{spec.card}`"
        raise BenchError(msg, hint=f"it is {models.known(spec.card).name}")


def _instances(spec: Spec) -> None:
    if spec.tenants:
        msg = "limits under mig: an instance is the limit itself"
        raise BenchError(msg, hint="leave out percent, memory_mib, priority and fractions, or take another mode")
    if not spec.layout:
        msg = "mig without a layout"
        raise BenchError(msg, hint='layout = "3g.71gb,2x2g.35gb"; `fleetlab share mig layouts --card H200` lists them')
    if not 1 <= spec.turns <= MOST:
        msg = f"not a number of tenants that take turns: {spec.turns}"
        raise BenchError(msg, hint=f"1 to {MOST}")
    if spec.interval != "default":
        msg = "the length of a turn is set for a whole card, not for an instance"
        raise BenchError(msg, hint="leave out interval under mig")
    if spec.model is not None and spec.model.cut is None:
        msg = f"no MIG on the card {spec.card}"
        raise BenchError(msg, hint=f"cards with MIG: {', '.join(m.name for m in models.BY_NAME.values() if m.cut)}")
    _possible(spec)


def _possible(spec: Spec) -> None:
    cuts = cuts_with(spec.layout, spec.card)
    if not cuts and spec.card is not None:
        cut = models.known(spec.card).cut
        assert cut is not None
        for profile in spec.layout:
            cut.profile(profile)  # says which one it does not have
    if not cuts:
        msg = f"no card that we know has these profiles: {', '.join(dict.fromkeys(spec.layout))}"
        raise BenchError(msg, hint="`fleetlab share mig profiles --card H200` lists those of a card")
    if why := refused(cuts, spec.layout):
        raise why


def _sharers(spec: Spec) -> None:
    if spec.layout or spec.turns != 1:
        msg = f"a layout belongs to mig, and the mode is {spec.mode}"
        raise BenchError(msg, hint='mode = "mig"')
    least = 2 if spec.mode == "time-slicing" else 1
    if not least <= len(spec.tenants) <= MOST:
        many = f"more than {MOST}" if len(spec.tenants) > MOST else len(spec.tenants)
        msg = f"not a number of tenants for {spec.mode}: {many}"
        raise BenchError(msg, hint=f"{least} to {MOST}; one alone is exclusive")
    if spec.mode == "exclusive" and spec.tenants != (Share(),):
        msg = "exclusive is one tenant without limits"
        raise BenchError(msg, hint="leave out replicas, fractions and limits, or take another mode")
    if spec.interval != "default" and spec.mode != "time-slicing":
        msg = f"the length of a turn belongs to time-slicing, and the mode is {spec.mode}"
        raise BenchError(msg)
    for share in spec.tenants:
        if share.priority is not None and spec.mode != "mps":
            msg = f"a client's priority belongs to mps, and the mode is {spec.mode}"
            raise BenchError(msg)
        if (share.memory_mib or 0) > MOST_MIB:
            msg = f"a limit above the memory of any card: {share.memory_mib} MiB"
            raise BenchError(msg, hint="memory_mib is in MiB: 20000 is about 20 GB")
        if spec.model is not None and (share.memory_mib or 0) > spec.model.memory_mib:
            msg = f"a limit above the memory of the card {spec.card}: {share.memory_mib} MiB"
            raise BenchError(msg, hint=f"it has {spec.model.memory_mib} MiB")
