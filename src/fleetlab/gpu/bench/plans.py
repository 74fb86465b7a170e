"""Plans of a suite: tenants, cells and their order.

A cell is one measurement: some tenants run at the same time. Cells with the same processes form a stage, so that
processes start once. Inside a block of a stage the order is random, and each block measures every tenant alone, too,
so that drift (temperature, clocks) affects both sides of a ratio.
"""

from __future__ import annotations

import math
import os
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import astuple, dataclass, field, replace
from itertools import combinations_with_replacement
from typing import Any

from fleetlab.gpu.devices import nvidia_smi
from fleetlab.gpu.devices.console import BenchError
from fleetlab.gpu.sharing.mig.layouts import MigGpu, gpu_profiles, mig_gpu, parse_layout
from fleetlab.gpu.sharing.mig.mode import ALLOW
from fleetlab.gpu.sharing.modes import MIG, Share

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
            raise BenchError(f"{self.work}: rest and poisson exclude each other")


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
            raise BenchError(f"{self.name}: nothing to measure", hint="a plan needs cells, and a window above 0 s")
        if len({cell.name for cell in self.cells}) < len(self.cells):
            raise BenchError(f"{self.name}: two cells have the same name")

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


# --- built-in plans by name: isolation, the speed model, MIG profiles, language models and notebooks -----------------


WITHOUT_GPU = "A100-40"  # whose profiles a rehearsal uses on a machine without a GPU


def mig_cells(mode: str, mixes: Iterable[Sequence[str]]) -> list[BenchCell]:
    """Each mix, its tenants on the instances in the order of the layout; and each alone on each profile that it has."""
    profiles = parse_layout(mode.removeprefix(MIG))
    cells: dict[str, BenchCell] = {}
    for mix in mixes:
        if len(mix) > len(profiles):
            msg = f"{mode}: {len(mix)} tenants, but the layout has {len(profiles)} instances"
            raise BenchError(msg, hint="each tenant has an instance of its own")
        seats = [Seat(t, list(mix[:k]).count(t), Share(instance=k)) for k, t in enumerate(mix)]
        for seat in seats:
            cells.setdefault(f"{seat.tenant} {profiles[seat.share.instance or 0]}", BenchCell(mode, mode, 0, (seat,)))
        if len(seats) > 1:
            cells["+".join(mix)] = BenchCell(mode, mode, 0, tuple(seats))
    return list(cells.values())


def mig_plan(seed: int = 0, blocks: int = 2, model: str | None = None) -> SuitePlan:
    """The six tenants on every MIG profile of the GPU, alone and beside each other; whole and on fewer SMs.

    `model` is that of a GPU elsewhere; without it the plan is that of this machine.
    """
    alone = [BenchCell("alone", "time-slicing", 0, (Seat(tenant),)) for tenant in MATRIX]
    cells = [*shuffle_cells(alone, blocks=blocks, seed=seed), *sm_curve(seed=seed).cells]
    for profile in (mig_gpu(model) if model else _card()).plain():
        mode = f"{MIG}{profile.most}x{profile.name}"
        # Each on an instance of its own as far as there are enough: all six do not fit into the memory of a small one.
        seats = [Seat(t, share=Share(instance=k % profile.most)) for k, t in enumerate(MATRIX)]
        stage = [BenchCell(mode, mode, 0, (seat,)) for seat in seats]
        if profile.most > 1:
            stage.append(BenchCell(mode, mode, 0, tuple(seats[: profile.most])))
        cells += shuffle_cells(stage, blocks=blocks, seed=seed)
    return SuitePlan("mig", SIX, tuple(cells), settle=0.8, window=3.0, seed=seed)


def _card() -> MigGpu:
    """The GPU that may be partitioned, or the first; a known model on a machine without a GPU, for a rehearsal."""
    try:
        here = nvidia_smi.gpus()
    except nvidia_smi.NoGpu:
        return mig_gpu(WITHOUT_GPU)
    named = [one.index for one in here if one.uuid == os.environ.get(ALLOW)]
    return gpu_profiles(named[0] if named else here[0].index)


def has_gpu() -> bool:
    """Whether the plan is of a GPU of this machine."""
    try:
        nvidia_smi.gpus()
    except nvidia_smi.NoGpu:
        return False
    return True


# --- plans with servers of a language model and users of notebooks ---------------------------------------------------


def llm(seed: int = 0, blocks: int = 1, counts: Sequence[int] = (1, 2, 4)) -> SuitePlan:
    """Servers of a language model: several, and one beside a training.

    A window is some ten times as long as a request, or it does not tell whether a server keeps up.
    """
    trainings, half = ("resnet-train", "bert-train"), Share(50)
    cells: list[BenchCell] = []
    for name, mode, share in (
        ("llm-ts", "time-slicing", WHOLE),
        ("llm-mps", "mps", WHOLE),
        ("llm-mps-50", "mps", half),
    ):
        # With limits each of four gets a quarter, as the device plugin of Kubernetes divides a GPU.
        once = [_copies(name, mode, "llm-serve", n, Share(25) if share == half and n > 2 else share) for n in counts]
        once += [BenchCell(name, mode, 0, mix_seats(("llm-serve", t), share)) for t in trainings]
        once += [BenchCell(name, mode, 0, (Seat(t),)) for t in trainings if share == WHOLE]
        cells += shuffle_cells(once, blocks=blocks, seed=seed)
    tenants = {"llm-serve": Tenant("llm-serve")} | {t: SIX[t] for t in trainings}
    return SuitePlan("llm", tenants, tuple(cells), settle=5.0, window=30.0, seed=seed)


def notebook(seed: int = 0, blocks: int = 1, counts: Sequence[int] = (1, 2, 4, 8)) -> SuitePlan:
    """Users of notebooks: several, and four of them beside a training or a server of a language model."""
    others = ("resnet-train", "llm-serve")
    cells: list[BenchCell] = []
    for name, mode in (("notebook-ts", "time-slicing"), ("notebook-mps", "mps")):
        once = [_copies(name, mode, "notebook", n) for n in counts]
        once += [BenchCell(name, mode, 0, mix_seats((*("notebook",) * 4, other), WHOLE)) for other in others]
        once += [BenchCell(name, mode, 0, (Seat(other),)) for other in others]
        cells += shuffle_cells(once, blocks=blocks, seed=seed)
    tenants = {name: Tenant(name) for name in ("notebook", *others)}
    return SuitePlan("notebook", tenants, tuple(cells), settle=2.0, window=25.0, seed=seed)


def _copies(stage: str, mode: str, tenant: str, n: int, share: Share = WHOLE) -> BenchCell:
    seats = tuple(Seat(tenant, k, share) for k in range(n))
    return BenchCell(stage, mode, 0, seats, label=f"{n}x{seats[0]}" if n > 1 else "")


# --- built-in plans by name, among them those that measure isolation and test the speed model ------------------------


# Pairs and triples that no other plan measures: every tenant that only computes forward beside every training that
# rests, and groups of three of which no more than pairs are known. Without `launch`, whose rate alone varies by 15 %.
HELD_OUT = (
    *(
        f"{tenant} {resting}"
        for tenant in ("resnet-infer", "bert-infer", "llm-decode")
        for resting in ("resnet-light", "bert-light", "resnet-medium", "bert-medium")
    ),
    "resnet-train resnet-infer llm-decode",
    "bert-train bert-infer resnet-infer",
    "resnet-train bert-train llm-decode",
    "resnet-infer bert-infer llm-decode",
    "llm-decode llm-decode resnet-infer",
    "resnet-infer bert-light resnet-medium",
    "llm-decode resnet-light bert-medium",
    "bert-infer bert-light resnet-medium",
)
DUTIES = (0.25, 0.5, 1.0)
WORST = {f"{name}-{duty * 100:.0f}": Tenant(name, {"duty": duty}) for name in STRESSORS for duty in DUTIES}
VICTIMS = ("resnet-train", "resnet-infer")


QUICK = ("resnet-train", "resnet-infer", "llm-decode")
HALVES = {"time-slicing": ("time-slicing", WHOLE), "mps": ("mps", WHOLE), "mps@50": ("mps", Share(50))}


def quick(seed: int = 0, blocks: int = 2) -> SuitePlan:
    """A training, an inference and a decoder in pairs, under time slicing, MPS, and MPS with half of the SMs each."""
    mixes = [("resnet-infer", "resnet-train"), ("llm-decode", "resnet-train"), *((t, t) for t in QUICK[:2])]
    cells = mode_cells(HALVES, mixes, blocks=blocks, seed=seed)
    return SuitePlan("quick", {t: SIX[t] for t in QUICK}, cells, settle=0.6, window=2.0, seed=seed)


def held_out(seed: int = 0, blocks: int = 1) -> SuitePlan:
    """Pairs and triples to test predictions on: nothing else measures them."""
    mixes = [tuple(words.split()) for words in HELD_OUT]
    cells: list[BenchCell] = []
    for name, mode in (("heldout-ts", "time-slicing"), ("heldout-mps", "mps")):
        cells += shuffle_cells(mix_cells(name, mode, mixes), blocks=blocks, seed=seed)
    named = {tenant for mix in mixes for tenant in mix}
    tenants = {name: tenant for name, tenant in (SIX | CLASSES).items() if name in named}
    return SuitePlan("heldout", tenants, tuple(cells), settle=0.4, window=2.0, seed=seed)


def neighbors(seed: int = 0, blocks: int = 1) -> SuitePlan:
    """A training and an inference beside each stressor at each duty: the worst neighbor."""
    cells: list[BenchCell] = []
    for name, mode, share in (
        ("neighbors-ts", "time-slicing", WHOLE),
        ("neighbors-mps", "mps", WHOLE),
        ("neighbors-mps-50", "mps", Share(50)),
    ):
        once = [BenchCell(name, mode, 0, (Seat(victim, share=share),)) for victim in VICTIMS]
        once += [
            BenchCell(name, mode, 0, (Seat(victim, share=share), Seat(worst, share=share)))
            for victim in VICTIMS
            for worst in WORST
        ]
        cells += shuffle_cells(once, blocks=blocks, seed=seed)
    tenants = {victim: SIX[victim] for victim in VICTIMS} | WORST
    return SuitePlan("neighbors", tenants, tuple(cells), settle=0.25, window=0.8, seed=seed)


BY_NAME: dict[str, Callable[..., SuitePlan]] = {
    "quick": quick,
    "solo": solo,
    "sm-curve": sm_curve,
    "pairs-ts": lambda **k: pairs("time-slicing", **k),
    "pairs-mps": lambda **k: pairs("mps", **k),
    "pairs-mps-50": lambda **k: pairs("mps", share=Share(50), **k),
    "breaking": breaking,
    "classes": classes,
    "stressors": stressor_pairs,
    "serving": serving,
    "crowded": crowded,
    "heldout": held_out,
    "neighbors": neighbors,
    "llm": llm,
    "notebook": notebook,
    "mig": mig_plan,
}
