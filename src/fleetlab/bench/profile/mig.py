"""Predicted speeds on MIG slices."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from fleetlab.bench.profile.observations import Observations
from fleetlab.bench.profile.reader import read_observations
from fleetlab.bench.profile.slice_model import GpuSlice, on_slice, stretch_curve
from fleetlab.core import DeviceError, Estimate, Provenance, Result
from fleetlab.devices.errors import BenchError
from fleetlab.sharing.mig.models import mig_gpu
from fleetlab.sharing.mig.profiles import MigGpu
from fleetlab.stats import Interval

HALF = 3  # compute slices: two such instances share a GPU evenly


@dataclass(frozen=True, slots=True)
class SlicePrediction(Result):
    """Predicted speeds on every slice of a GPU."""

    frame: pl.DataFrame
    provenance: Provenance
    notes: tuple[str, ...] = ()

    def summary(self) -> list[Estimate]:
        """Mean speed by slice."""
        by = self.frame.group_by("profile", maintain_order=True).agg(pl.col("speed", "low", "high").mean())
        return [Estimate(f"predicted mean speed, {name}", v, lo, hi, "of a GPU") for name, v, lo, hi in by.rows()]

    def tables(self) -> dict[str, pl.DataFrame]:
        """Every workload on every slice."""
        return {"slices": self.frame}


def predict_slices(folders: Sequence[Path], *, model: str | None = None) -> SlicePrediction:
    """Predict the speed of each workload on each MIG slice of the measured GPU, or of another model."""
    observations = read_observations(folders)
    cut = mig_model(model or observations.device)
    rows = list(_rows(observations, cut))
    if not rows:
        msg = "no workload was measured on fewer SMs"
        raise DeviceError(msg, hint="measure the plan sm-curve: `fleetlab bench suite sm-curve --out sm-curve`")
    settings = {"folders": sorted(str(folder) for folder in folders), "card": cut.name}
    notes = ["predicted, not measured: from runs on fewer SMs and the utilization of memory"]
    if model:
        notes.append(
            f"measured on {observations.device}: the same fraction of another model is assumed to give the same speed"
        )
    return SlicePrediction(pl.DataFrame(rows), Provenance("bench mig", observations.device, settings), tuple(notes))


def half_gpu(seen: Observations, works: Sequence[str]) -> dict[str, Interval]:
    """Speed of each on half a GPU; empty unless all can be predicted and the GPU supports MIG."""
    try:
        half = next(part for part in _parts(mig_model(seen.device)) if part.name.startswith(f"{HALF}g."))
    except DeviceError:
        return {}
    speeds = {work: speed for work in works if (speed := _on(seen, work, half))}
    return speeds if len(speeds) == len(works) else {}


def _rows(seen: Observations, cut: MigGpu) -> Iterable[dict[str, Any]]:
    for work in seen.works:
        for part in _parts(cut):
            if speed := _on(seen, work, part):
                about = {"workload": work, "profile": part.name, "sms": part.sms, "memory": part.memory}
                yield about | {"speed": speed.value, "low": speed.low, "high": speed.high, "kind": "predicted"}


def _on(seen: Observations, work: str, part: GpuSlice) -> Interval | None:
    """From its own SM curve, or from that of the same workload without pauses; None if there is neither."""
    if work in seen.curve:
        return on_slice(stretch_curve(seen.curve[work]), seen.memory[work], part)
    mine = {key: value for key, value in seen.works[work].items() if key != "rest"}
    for other, settings in seen.works.items():
        if other in seen.curve and settings == mine and work in seen.busy:
            return on_slice(stretch_curve(seen.curve[other]), seen.memory[other], part, seen.busy[work])
    return None


def _parts(cut: MigGpu) -> list[GpuSlice]:
    """Fractions of the whole GPU without MIG: the largest instance of an A100 has 98 of its 108 SMs."""
    return [GpuSlice(p.name, p.sms / cut.sms, p.size / cut.sizes) for p in cut.profiles if p.plain]


def mig_model(card: str) -> MigGpu:
    """The MIG profiles of a GPU model, by our name or by that of the driver."""
    try:
        return mig_gpu(card)
    except BenchError as e:
        raise DeviceError(str(e), hint=e.hint) from None
