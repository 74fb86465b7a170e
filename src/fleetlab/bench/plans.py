"""What to measure: tenants, the cells in which they meet, and in what order.

A cell is one meeting: some tenants run at once for a while. Cells that need the same processes form a stage, so that
these start once. Inside a block of a stage the order is random by seed, and each block has every solo run of its own,
so that what drifts over an hour (heat, clocks) drifts through both sides of each ratio.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations_with_replacement
from typing import Any

from fleetlab.devices.errors import BenchError
from fleetlab.sharing.modes import Share

WHOLE = Share()  # all of the card, as far as others leave it


@dataclass(frozen=True, slots=True)
class Tenant:
    """A work and its settings, under a name of its own; it saturates unless it rests or has a timetable."""

    work: str
    settings: dict[str, Any] = field(default_factory=dict, hash=False)
    rest: float = 0.0  # s that its host is busy elsewhere after each step, on the mean
    poisson: float = 0.0  # steps a second that fall due at random, whether or not those before are done

    def __post_init__(self) -> None:
        if not (0 <= self.rest < math.inf and 0 <= self.poisson < math.inf):
            msg = f"{self.work}: not a rest or a rate: {self.rest} s, {self.poisson} a second"
            raise BenchError(msg, hint="both are at least 0")
        if self.rest and self.poisson:
            msg = f"{self.work}: either rests or has a timetable"
            raise BenchError(msg)


@dataclass(frozen=True, slots=True)
class Seat:
    """One process: which copy of which tenant, and what it may have of the card."""

    tenant: str
    copy: int = 0
    share: Share = WHOLE

    def __str__(self) -> str:
        share = "".join(
            f"{mark}{value}"
            for mark, value in zip("@~!", (self.share.percent, self.share.memory_mib, self.share.priority), strict=True)
            if value is not None
        )
        return self.tenant + share


@dataclass(frozen=True, slots=True)
class Cell:
    """Who runs at once; nobody is the idle card."""

    stage: str
    mode: str
    block: int
    seats: tuple[Seat, ...]
    label: str = ""

    @property
    def name(self) -> str:
        """The same in every run of the same plan."""
        return f"{self.stage}/{self.block}/{self.label or '+'.join(map(str, self.seats)) or 'idle'}"


@dataclass(frozen=True, slots=True)
class Plan:
    """Cells in the order in which they are measured, stage by stage."""

    name: str
    tenants: dict[str, Tenant]
    cells: tuple[Cell, ...]
    settle: float = 1.5  # s before the window opens
    window: float = 5.0  # s
    seed: int = 0

    def __post_init__(self) -> None:
        named = {seat.tenant for cell in self.cells for seat in cell.seats}
        if missing := sorted(named - set(self.tenants)):
            msg = f"{self.name}: no such tenant: {', '.join(missing)}"
            raise BenchError(msg, hint=f"there are {', '.join(self.tenants)}")
        if not self.cells or not self.window > 0 or not self.settle >= 0:
            msg = f"{self.name}: nothing to measure"
            raise BenchError(msg, hint="a plan needs cells, and windows longer than 0 s")
        if len({cell.name for cell in self.cells}) < len(self.cells):
            msg = f"{self.name}: two cells have one name"
            raise BenchError(msg)

    def stages(self) -> list[tuple[Cell, ...]]:
        """Cells by stage, in order."""
        names = dict.fromkeys(cell.stage for cell in self.cells)
        return [tuple(c for c in self.cells if c.stage == name) for name in names]


MATRIX = ("resnet-train", "bert-train", "resnet-infer", "bert-infer", "llm-decode", "launch")
SIX = {name: Tenant(name) for name in MATRIX}
STRESSORS = {name: Tenant(name) for name in ("gemm", "hbm", "l2", "h2d")}
ALONE = {
    "resnet-infer-64": Tenant("resnet-infer", {"batch": 64}),
    "interactive": Tenant("interactive"),
    "resnet-train-eager": Tenant("resnet-train", {"graph": False}),
    "bert-train-eager": Tenant("bert-train", {"graph": False}),
}
PERCENTS = (12, 25, 37, 50, 67, 85, 100)


def shuffled(cells: Iterable[Cell], *, blocks: int, seed: int) -> tuple[Cell, ...]:
    """Each cell once a block, in an order of its own in each."""
    chance, once = random.Random(seed), list(cells)
    return tuple(replace(cell, block=block) for block in range(blocks) for cell in chance.sample(once, len(once)))


def solo(seed: int = 0, blocks: int = 2) -> Plan:
    """Each tenant and stressor by itself, and the idle card: rates, power, memory, and whether the host keeps up."""
    tenants = SIX | STRESSORS | ALONE
    cells = [Cell("alone", "time-slicing", 0, (Seat(t),)) for t in tenants] + [Cell("alone", "time-slicing", 0, ())]
    return Plan("solo", tenants, shuffled(cells, blocks=blocks, seed=seed), seed=seed)


def sm_curve(seed: int = 0, blocks: int = 1) -> Plan:
    """The six tenants of the matrix, each alone on a part of the SMs."""
    order = random.Random(seed).sample(PERCENTS, len(PERCENTS))
    cells: list[Cell] = []
    for stage, percents in (("first", order[:4]), ("second", order[4:])):  # all at once would fill the card's memory
        once = [Cell(stage, "mps", 0, (Seat(t, share=Share(p)),)) for p in percents for t in MATRIX]
        cells += shuffled(once, blocks=blocks, seed=seed)
    return Plan("sm-curve", SIX, tuple(cells), settle=0.8, window=3.0, seed=seed)


def pairs(mode: str, seed: int = 0, blocks: int = 2, share: Share = WHOLE) -> Plan:
    """Every pair of the six, also with itself, and each alone."""
    name = "pairs-" + {"time-slicing": "ts", "mps": "mps"}[mode] + (f"-{share.percent}" if share.percent else "")
    cells = meetings(name, mode, tuple(combinations_with_replacement(MATRIX, 2)), share)
    # With shares there are six cells more, in the same time.
    settle, window = (1.5, 5.0) if share == WHOLE else (1.0, 4.5)
    return Plan(name, SIX, shuffled(cells, blocks=blocks, seed=seed), settle=settle, window=window, seed=seed)


def meetings(stage: str, mode: str, mixes: Iterable[Sequence[str]], share: Share = WHOLE) -> list[Cell]:
    """Each mix, and each of its tenants alone; with a share, alone both with and without it."""
    mixes = [tuple(mix) for mix in mixes]
    tenants = dict.fromkeys(tenant for mix in mixes for tenant in mix)
    alone = [(Seat(t),) for t in tenants]
    capped = [(Seat(t, share=share),) for t in tenants] if share != WHOLE else []
    together = [_seated(mix, share) for mix in mixes if len(mix) > 1]
    return [Cell(stage, mode, 0, seats) for seats in (*alone, *capped, *together)]


def _seated(mix: Sequence[str], share: Share) -> tuple[Seat, ...]:
    return tuple(Seat(tenant, mix[:k].count(tenant), share) for k, tenant in enumerate(mix))


def breaking(
    seed: int = 0, blocks: int = 2, tenant: str = "resnet-infer", counts: Sequence[int] = (1, 2, 4, 8, 16)
) -> Plan:
    """More and more of the same, by turns and side by side: where does it break?"""
    cells: list[Cell] = []
    for mode in ("time-slicing", "mps"):
        once = (Cell(mode, mode, 0, tuple(Seat(tenant, k) for k in range(n)), label=f"{n}x{tenant}") for n in counts)
        cells += shuffled(once, blocks=blocks, seed=seed)
    return Plan("breaking", {tenant: Tenant(tenant)}, tuple(cells), seed=seed)


# --- plans with pauses and timetables --------------------------------------------------------------------------------

# Rests that make a training step, 17.2 ms and 10.1 ms on an H200, keep the card busy 0.2 and 0.55 of the time.
RESTS = {"resnet": {"light": 0.0690, "medium": 0.0141}, "bert": {"light": 0.0405, "medium": 0.0083}}
CLASSES = {
    f"{family}-{kind}": Tenant(f"{family}-train", rest=RESTS[family].get(kind, 0.0))
    for kind in ("light", "medium", "heavy")
    for family in RESTS
}
GROUPS = (
    "resnet-light bert-light resnet-light",
    "resnet-light bert-light bert-medium",
    "resnet-light bert-medium resnet-medium",
    "resnet-light bert-light resnet-heavy",
    "resnet-medium bert-medium resnet-heavy",
    "resnet-heavy bert-heavy resnet-heavy",
    "resnet-light bert-light resnet-light bert-light",
    "resnet-light bert-light resnet-medium bert-medium",
    "resnet-medium bert-medium resnet-medium bert-medium",
    "resnet-heavy bert-heavy resnet-heavy bert-heavy",
)


def classes(seed: int = 0, blocks: int = 1) -> Plan:
    """Training that keeps the card busy a little, half and all of the time: pairs, and some threes and fours."""
    mixes = [*combinations_with_replacement(CLASSES, 2), *(tuple(words.split()) for words in GROUPS)]
    cells: list[Cell] = []
    for name, mode in (("classes-ts", "time-slicing"), ("classes-mps", "mps")):
        cells += shuffled(meetings(name, mode, mixes), blocks=blocks, seed=seed)
    return Plan("classes", CLASSES, tuple(cells), settle=0.6, window=3.0, seed=seed)


def stressed(seed: int = 0, blocks: int = 1) -> Plan:
    """The six tenants of the matrix, each beside each stressor: who minds what, and who presses on what."""
    mixes = [(tenant, stressor) for tenant in MATRIX for stressor in STRESSORS]
    cells = shuffled(meetings("stressors-mps", "mps", mixes), blocks=blocks, seed=seed)
    return Plan("stressors", SIX | STRESSORS, cells, settle=0.6, window=2.5, seed=seed)


RATES = (200, 400, 800)  # requests a second; one card alone answers about 1,250, under MPS 1,050
BELOW = Share(priority=1)


def serving(seed: int = 0, blocks: int = 1, rates: Sequence[int] = RATES) -> Plan:
    """Single images by a timetable beside nothing, a training or a decoder, the same timetables in every mode."""
    background = ("resnet-train", "llm-decode")
    tenants = {f"serve-{rate}": Tenant("resnet-infer", poisson=rate) for rate in rates}
    cells: list[Cell] = []
    for name, mode, served, other in (
        ("serving-ts", "time-slicing", WHOLE, WHOLE),
        ("serving-mps", "mps", WHOLE, WHOLE),
        ("serving-mps-50", "mps", Share(50), Share(50)),
        ("serving-mps-prio", "mps", Share(priority=0), BELOW),
    ):
        alone = [Cell(name, mode, 0, (Seat(b, share=other),)) for b in background]
        for t in tenants:
            alone.append(Cell(name, mode, 0, (Seat(t, share=served),)))
            alone += [Cell(name, mode, 0, (Seat(t, share=served), Seat(b, share=other))) for b in background]
        cells += shuffled(alone, blocks=blocks, seed=seed)
    return Plan("serving", tenants | {b: SIX[b] for b in background}, tuple(cells), settle=0.8, window=6.0, seed=seed)


def crowded(
    seed: int = 0,
    blocks: int = 1,
    rate: float = 200,
    turns: Sequence[int] = (1, 2, 3, 4, 5, 6),
    together: Sequence[int] = (1, 4, 8, 12, 16, 18, 20, 22, 24),
) -> Plan:
    """How many servers of single images, each with requests of its own, can one card hold?"""
    cells: list[Cell] = []
    for name, mode, counts in (("crowded-ts", "time-slicing", turns), ("crowded-mps", "mps", together)):
        once = [Cell(name, mode, 0, tuple(Seat("serve", k) for k in range(n)), label=f"{n}xserve") for n in counts]
        cells += shuffled(once, blocks=blocks, seed=seed)
    tenants = {"serve": Tenant("resnet-infer", poisson=rate)}
    return Plan("crowded", tenants, tuple(cells), settle=1.0, window=5.0, seed=seed)


BY_NAME: dict[str, Callable[..., Plan]] = {
    "solo": solo,
    "sm-curve": sm_curve,
    "pairs-ts": lambda **k: pairs("time-slicing", **k),
    "pairs-mps": lambda **k: pairs("mps", **k),
    "pairs-mps-50": lambda **k: pairs("mps", share=Share(50), **k),
    "breaking": breaking,
    "classes": classes,
    "stressors": stressed,
    "serving": serving,
    "crowded": crowded,
}
