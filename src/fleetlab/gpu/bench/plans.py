"""Plans of a suite: tenants, cells and their order.

A cell is one measurement: some tenants run at the same time. Cells with the same processes form a stage, so that
processes start once. Inside a block of a stage the order is random, and each block measures every tenant alone, too,
so that drift (temperature, clocks) affects both sides of a ratio.
"""

from __future__ import annotations

import math
import os
import random
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from functools import partial
from importlib.resources import files
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


CATALOG: dict[str, Any] = tomllib.loads((files("fleetlab.gpu.bench") / "plans.toml").read_text("utf-8"))
STRESSORS = ("gemm", "hbm", "l2", "h2d")
MATRIX: tuple[str, ...] = tuple(CATALOG["plan"]["pairs-ts"]["pairs"])
CLASSES: tuple[str, ...] = tuple(CATALOG["plan"]["classes"]["pairs"])
PERCENTS = (12, 25, 37, 50, 67, 85, 100)
SEAT = re.compile(r"(\S+?)(?:@(\d+))?(?:!(\d))?")  # a tenant with a part of the SMs, or a priority


def tenant(name: str) -> Tenant:
    """The tenant of that name in built-in plans: a workload, if nothing else is said."""
    return Tenant(**CATALOG["tenant"].get(name, {"work": name}))


SIX = {name: tenant(name) for name in MATRIX}


def shuffle_cells(cells: Iterable[BenchCell], *, blocks: int, seed: int) -> tuple[BenchCell, ...]:
    """Repeat the cells in each block, in random order."""
    chance, once = random.Random(seed), list(cells)
    return tuple(replace(cell, block=block) for block in range(blocks) for cell in chance.sample(once, len(once)))


def named_plan(name: str, seed: int = 0, blocks: int | None = None) -> SuitePlan:
    """A plan of the catalog; its cells are shuffled stage by stage."""
    plan = CATALOG["plan"][name]
    cells = tuple(
        cell
        for stage in plan["stages"]
        for cell in shuffle_cells(_stage(plan | stage), blocks=blocks or plan["blocks"], seed=seed)
    )
    tenants = {seat.tenant: tenant(seat.tenant) for cell in cells for seat in cell.seats}
    lengths = {key: plan[key] for key in ("settle", "window") if key in plan}
    return SuitePlan(name, tenants, cells, seed=seed, **lengths)


def _stage(about: Mapping[str, Any]) -> list[BenchCell]:
    """Its cells; of mixes and pairs also each tenant alone."""
    name, mode, share = about["name"], about["mode"], about.get("share", "")
    if "cells" in about:
        return [_cell(name, mode, text, share) for text in about["cells"]]
    mixes = [
        *combinations_with_replacement(about.get("pairs", ()), 2),
        *(mix.split() for mix in about.get("mixes", ())),
    ]
    return mix_cells(name, mode, mixes, _seat(f"all{share}").share)


def _cell(stage: str, mode: str, text: str, share: str) -> BenchCell:
    copies = re.fullmatch(r"(\d+)x(.*)", text)
    seats = [_seat(word + share) for word in ([copies[2]] * int(copies[1]) if copies else text.split())]
    numbered = [replace(seat, copy=seats[:k].count(seat)) for k, seat in enumerate(seats)]
    return BenchCell(stage, mode, 0, tuple(numbered), label=text if copies else "")


def _seat(text: str) -> Seat:
    match = SEAT.fullmatch(text)
    assert match is not None
    percent, priority = (None if number is None else int(number) for number in match.groups()[1:])
    return Seat(match[1], share=Share(percent, priority=priority))


def sm_curve(seed: int = 0, blocks: int = 1) -> SuitePlan:
    """The six tenants of the matrix, each alone on a part of the SMs."""
    order = random.Random(seed).sample(PERCENTS, len(PERCENTS))
    cells: list[BenchCell] = []
    for stage, percents in (("first", order[:4]), ("second", order[4:])):  # all together would exceed GPU memory
        once = [BenchCell(stage, "mps", 0, (Seat(t, share=Share(p)),)) for p in percents for t in MATRIX]
        cells += shuffle_cells(once, blocks=blocks, seed=seed)
    return SuitePlan(
        "sm-curve", {name: tenant(name) for name in MATRIX}, tuple(cells), settle=0.8, window=3.0, seed=seed
    )


def mix_cells(stage: str, mode: str, mixes: Iterable[Sequence[str]], share: Share = WHOLE) -> list[BenchCell]:
    """Each mix, and each of its tenants alone; with limits, alone both with and without them."""
    mixes = [tuple(mix) for mix in mixes]
    tenants = dict.fromkeys(tenant for mix in mixes for tenant in mix)
    alone = [(Seat(t),) for t in tenants]
    capped = [(Seat(t, share=share),) for t in tenants] if share != WHOLE else []
    together = [mix_seats(mix, share) for mix in mixes if len(mix) > 1]
    return [BenchCell(stage, mode, 0, seats) for seats in (*alone, *capped, *together)]


def mix_seats(mix: Sequence[str], share: Share) -> tuple[Seat, ...]:
    """Seat the tenants of a mix; several of one name are numbered."""
    return tuple(Seat(tenant, mix[:k].count(tenant), share) for k, tenant in enumerate(mix))


# --- MIG profiles ----------------------------------------------------------------------------------------------------


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


BY_NAME: dict[str, Callable[..., SuitePlan]] = {name: partial(named_plan, name) for name in CATALOG["plan"]}
BY_NAME |= {"sm-curve": sm_curve, "mig": mig_plan}
