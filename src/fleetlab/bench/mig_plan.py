"""Cells on MIG instances, and the plan that measures every profile of a GPU and what predicts it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from fleetlab.bench.plans import MATRIX, SIX, BenchCell, Seat, SuitePlan, shuffle_cells, sm_curve
from fleetlab.devices import nvidia_smi
from fleetlab.devices.errors import BenchError
from fleetlab.sharing.mig.layouts import parse_layout
from fleetlab.sharing.mig.mode import ALLOW
from fleetlab.sharing.mig.models import gpu_profiles, mig_gpu
from fleetlab.sharing.mig.profiles import MigGpu
from fleetlab.sharing.modes import MIG, Share

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
