"""Plans of a suite: tenants, cells and their order.

A cell is one measurement: some tenants run at the same time. Cells with the same processes form a stage, so that
processes start once. Inside a block of a stage the order is random, and each block measures every tenant alone, too,
so that drift (temperature, clocks) affects both sides of a ratio.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, field, replace
from itertools import combinations_with_replacement
from typing import Any

from fleetlab.devices.errors import BenchError
from fleetlab.sharing.modes import Share

WHOLE = Share()  # no limits


@dataclass(frozen=True, slots=True)
class Tenant:
    """A workload with settings, under a name; a closed loop unless it has pauses or scheduled steps."""

    work: str
    settings: dict[str, Any] = field(default_factory=dict, hash=False)
    rest: float = 0.0  # mean pause after each step, s
    poisson: float = 0.0  # scheduled steps per second (open loop)

    def __post_init__(self) -> None:
        if not (0 <= self.rest < math.inf and 0 <= self.poisson < math.inf):
            msg = f"{self.work}: not a pause or a rate: {self.rest} s, {self.poisson} per second"
            raise BenchError(msg, hint="both must be at least 0")
        if self.rest and self.poisson:
            msg = f"{self.work}: rest and poisson exclude each other"
            raise BenchError(msg)


@dataclass(frozen=True, slots=True)
class Seat:
    """One process: a copy of a tenant, with its MPS limits or its MIG instance."""

    tenant: str
    copy: int = 0
    share: Share = WHOLE

    def __str__(self) -> str:
        share = "".join(
            f"{mark}{value}" for mark, value in zip("@~!#", astuple(self.share), strict=True) if value is not None
        )
        return self.tenant + share


@dataclass(frozen=True, slots=True)
class BenchCell:
    """Tenants that run at the same time; none measures the idle GPU."""

    stage: str
    mode: str
    block: int
    seats: tuple[Seat, ...]
    label: str = ""

    @property
    def name(self) -> str:
        """A name that is the same in every run of a plan."""
        return f"{self.stage}/{self.block}/{self.label or '+'.join(map(str, self.seats)) or 'idle'}"


@dataclass(frozen=True, slots=True)
class SuitePlan:
    """Cells in the order of their measurement, by stage."""

    name: str
    tenants: dict[str, Tenant]
    cells: tuple[BenchCell, ...]
    settle: float = 1.5  # s before the measurement
    window: float = 5.0  # s
    seed: int = 0

    def __post_init__(self) -> None:
        named = {seat.tenant for cell in self.cells for seat in cell.seats}
        if missing := sorted(named - set(self.tenants)):
            msg = f"{self.name}: unknown tenant: {', '.join(missing)}"
            raise BenchError(msg, hint=f"there are {', '.join(self.tenants)}")
        if not self.cells or not self.window > 0 or not self.settle >= 0:
            msg = f"{self.name}: nothing to measure"
            raise BenchError(msg, hint="a plan needs cells, and a window above 0 s")
        if len({cell.name for cell in self.cells}) < len(self.cells):
            msg = f"{self.name}: two cells have the same name"
            raise BenchError(msg)

    def stages(self) -> list[tuple[BenchCell, ...]]:
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
Cells = tuple[BenchCell, ...]
PERCENTS = (12, 25, 37, 50, 67, 85, 100)


def shuffle_cells(cells: Iterable[BenchCell], *, blocks: int, seed: int) -> tuple[BenchCell, ...]:
    """Repeat the cells in each block, in random order."""
    chance, once = random.Random(seed), list(cells)
    return tuple(replace(cell, block=block) for block in range(blocks) for cell in chance.sample(once, len(once)))


def solo(seed: int = 0, blocks: int = 2) -> SuitePlan:
    """Each tenant and stressor alone, and the idle GPU: rates, power, memory, and starvation by the host."""
    tenants = SIX | STRESSORS | ALONE
    cells = [BenchCell("alone", "time-slicing", 0, (Seat(t),)) for t in tenants] + [
        BenchCell("alone", "time-slicing", 0, ())
    ]
    return SuitePlan("solo", tenants, shuffle_cells(cells, blocks=blocks, seed=seed), seed=seed)


def sm_curve(seed: int = 0, blocks: int = 1) -> SuitePlan:
    """The six tenants of the matrix, each alone on a part of the SMs."""
    order = random.Random(seed).sample(PERCENTS, len(PERCENTS))
    cells: list[BenchCell] = []
    for stage, percents in (("first", order[:4]), ("second", order[4:])):  # all together would exceed GPU memory
        once = [BenchCell(stage, "mps", 0, (Seat(t, share=Share(p)),)) for p in percents for t in MATRIX]
        cells += shuffle_cells(once, blocks=blocks, seed=seed)
    return SuitePlan("sm-curve", SIX, tuple(cells), settle=0.8, window=3.0, seed=seed)


def pairs(mode: str, seed: int = 0, blocks: int = 2, share: Share = WHOLE) -> SuitePlan:
    """All pairs of the six tenants, also with themselves, and each alone."""
    name = "pairs-" + {"time-slicing": "ts", "mps": "mps"}[mode] + (f"-{share.percent}" if share.percent else "")
    cells = mix_cells(name, mode, tuple(combinations_with_replacement(MATRIX, 2)), share)
    # With limits there are six more cells, in the same time.
    settle, window = (1.5, 5.0) if share == WHOLE else (1.0, 4.5)
    return SuitePlan(name, SIX, shuffle_cells(cells, blocks=blocks, seed=seed), settle=settle, window=window, seed=seed)


def mix_cells(stage: str, mode: str, mixes: Iterable[Sequence[str]], share: Share = WHOLE) -> list[BenchCell]:
    """Each mix, and each of its tenants alone; with limits, alone both with and without them."""
    mixes = [tuple(mix) for mix in mixes]
    tenants = dict.fromkeys(tenant for mix in mixes for tenant in mix)
    alone = [(Seat(t),) for t in tenants]
    capped = [(Seat(t, share=share),) for t in tenants] if share != WHOLE else []
    together = [mix_seats(mix, share) for mix in mixes if len(mix) > 1]
    return [BenchCell(stage, mode, 0, seats) for seats in (*alone, *capped, *together)]


def mode_cells(modes: dict[str, tuple[str, Share]], mixes: Iterable[Sequence[str]], *, blocks: int, seed: int) -> Cells:
    """The same mixes in several modes, each a stage: its name, mode and limits."""
    mixes = list(mixes)
    return tuple(
        cell
        for name, (mode, share) in modes.items()
        for cell in shuffle_cells(mix_cells(name, mode, mixes, share), blocks=blocks, seed=seed)
    )


def mix_seats(mix: Sequence[str], share: Share) -> tuple[Seat, ...]:
    """Seat the tenants of a mix; several of one name are numbered."""
    return tuple(Seat(tenant, mix[:k].count(tenant), share) for k, tenant in enumerate(mix))


def breaking(
    seed: int = 0, blocks: int = 2, tenant: str = "resnet-infer", counts: Sequence[int] = (1, 2, 4, 8, 16)
) -> SuitePlan:
    """An increasing number of copies of one tenant, under time slicing and MPS."""
    cells: list[BenchCell] = []
    for mode in ("time-slicing", "mps"):
        once = (
            BenchCell(mode, mode, 0, tuple(Seat(tenant, k) for k in range(n)), label=f"{n}x{tenant}") for n in counts
        )
        cells += shuffle_cells(once, blocks=blocks, seed=seed)
    return SuitePlan("breaking", {tenant: Tenant(tenant)}, tuple(cells), seed=seed)


# --- plans with pauses and scheduled steps ----------------------------------------------------------------------------

# Pauses with which a training step (17.2 ms and 10.1 ms on an H200) keeps the GPU busy 20 % and 55 % of the time.
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


def classes(seed: int = 0, blocks: int = 1) -> SuitePlan:
    """Training at low, medium and full utilization: pairs, and some groups of three and four."""
    mixes = [*combinations_with_replacement(CLASSES, 2), *(tuple(words.split()) for words in GROUPS)]
    cells: list[BenchCell] = []
    for name, mode in (("classes-ts", "time-slicing"), ("classes-mps", "mps")):
        cells += shuffle_cells(mix_cells(name, mode, mixes), blocks=blocks, seed=seed)
    return SuitePlan("classes", CLASSES, tuple(cells), settle=0.6, window=3.0, seed=seed)


def stressor_pairs(seed: int = 0, blocks: int = 1) -> SuitePlan:
    """Each of the six tenants beside each stressor: sensitivity to contention on one resource."""
    mixes = [(tenant, stressor) for tenant in MATRIX for stressor in STRESSORS]
    cells = shuffle_cells(mix_cells("stressors-mps", "mps", mixes), blocks=blocks, seed=seed)
    return SuitePlan("stressors", SIX | STRESSORS, cells, settle=0.6, window=2.5, seed=seed)


RATES = (200, 400, 800)  # requests per second; one GPU alone answers about 1,250, under MPS 1,050
BELOW = Share(priority=1)


def serving(seed: int = 0, blocks: int = 1, rates: Sequence[int] = RATES) -> SuitePlan:
    """Scheduled single-image inference beside nothing, a training or a decoder; the same schedules in every mode."""
    background = ("resnet-train", "llm-decode")
    tenants = {f"serve-{rate}": Tenant("resnet-infer", poisson=rate) for rate in rates}
    cells: list[BenchCell] = []
    for name, mode, served, other in (
        ("serving-ts", "time-slicing", WHOLE, WHOLE),
        ("serving-mps", "mps", WHOLE, WHOLE),
        ("serving-mps-50", "mps", Share(50), Share(50)),
        ("serving-mps-prio", "mps", Share(priority=0), BELOW),
    ):
        alone = [BenchCell(name, mode, 0, (Seat(b, share=other),)) for b in background]
        for t in tenants:
            alone.append(BenchCell(name, mode, 0, (Seat(t, share=served),)))
            alone += [BenchCell(name, mode, 0, (Seat(t, share=served), Seat(b, share=other))) for b in background]
        cells += shuffle_cells(alone, blocks=blocks, seed=seed)
    return SuitePlan(
        "serving", tenants | {b: SIX[b] for b in background}, tuple(cells), settle=0.8, window=6.0, seed=seed
    )


def crowded(
    seed: int = 0,
    blocks: int = 1,
    rate: float = 200,
    turns: Sequence[int] = (1, 2, 3, 4, 5, 6),
    together: Sequence[int] = (1, 4, 8, 12, 16, 18, 20, 22, 24),
) -> SuitePlan:
    """How many servers of single images, each with its own requests, one GPU can hold."""
    cells: list[BenchCell] = []
    for name, mode, counts in (("crowded-ts", "time-slicing", turns), ("crowded-mps", "mps", together)):
        once = [BenchCell(name, mode, 0, tuple(Seat("serve", k) for k in range(n)), label=f"{n}xserve") for n in counts]
        cells += shuffle_cells(once, blocks=blocks, seed=seed)
    tenants = {"serve": Tenant("resnet-infer", poisson=rate)}
    return SuitePlan("crowded", tenants, tuple(cells), settle=1.0, window=5.0, seed=seed)
