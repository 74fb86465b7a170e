"""Compare speeds that were measured on MIG instances with those that were predicted without MIG."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from fleetlab.bench.analysis.folders import suites
from fleetlab.bench.profile.mig import mig_model, predict_slices
from fleetlab.bench.profile.observations import Observations, RateSample
from fleetlab.bench.profile.reader import read_observations, within_window_error
from fleetlab.bench.results.cells import Cell
from fleetlab.core import DeviceError, Estimate, Provenance, Result
from fleetlab.sharing.mig.layouts import parse_layout
from fleetlab.sharing.mig.profiles import MigGpu
from fleetlab.sharing.modes import MIG
from fleetlab.stats import Interval, student_quantile

MEASURE = (
    "sudo env FLEETLAB_ALLOW_MIG=$(nvidia-smi -i 0 --query-gpu=uuid --format=csv,noheader) "
    "fleetlab bench suite mig --allow-mig --out mig && fleetlab bench mig check mig"
)
TENTHS = 10


@dataclass(frozen=True, slots=True)
class SliceCheck(Result):
    """Measured and predicted speeds, and their differences by profile and by workload."""

    frames: dict[str, pl.DataFrame]
    provenance: Provenance
    estimates: tuple[Estimate, ...] = ()
    notes: tuple[str, ...] = ()


def check_slices(folders: Sequence[Path], *, curves: Sequence[Path] = ()) -> SliceCheck:
    """Compare the MIG cells in folders with predictions from runs on fewer SMs, there or in `curves`."""
    seen = read_observations(folders)
    card = mig_model(seen.device)
    cells, doubtful = _mig_cells(folders)
    measured = _measured(seen, card, cells)
    if not measured:
        msg = "no workload was measured on a MIG instance"
        raise DeviceError(msg, hint=f"on a GPU of your own: {MEASURE}")
    predicted = predict_slices(curves or folders, model=card.name if curves else None)
    told = {(row["workload"], row["profile"]): row for row in predicted.frame.iter_rows(named=True)}
    rows = [_row(*at, speed, told[at]) for at, speed in sorted(measured.items()) if at in told]
    if not rows:
        msg = "none of the workloads on MIG instances was measured on fewer SMs"
        raise DeviceError(msg, hint="the plan mig has both; or name other folders with --curves")
    frame = pl.DataFrame(rows)
    frames = {
        "slices": frame,
        "profiles": _by(frame, "profile"),
        "workloads": _by(frame, "workload"),
        "neighbors": pl.DataFrame(list(_neighbors(card, cells)), infer_schema_length=None),
    }
    settings = {"folders": sorted(map(str, folders)), "curves": sorted(map(str, curves)), "card": card.name}
    notes = [
        "speeds are relative to the workload alone on the GPU without MIG; `error` is predicted over measured, minus 1",
        *([f"{doubtful} cells ignored: a tenant was not proved to see its instance"] if doubtful else []),
    ]
    return SliceCheck(
        {name: made for name, made in frames.items() if made.height},
        Provenance("bench mig check", seen.device, settings),
        tuple(_estimates(frame)),
        tuple(notes),
    )


def _mig_cells(folders: Sequence[Path]) -> tuple[list[Cell], int]:
    cells = [
        cell
        for folder in folders
        for suite in suites(folder)
        for cell in suite.cells
        if str(cell["mode"]).startswith(MIG) and cell["status"] == "ok" and cell["tenants"]
    ]
    proved = [cell for cell in cells if all(one.get("attached") for one in cell["tenants"])]
    return proved, len(cells) - len(proved)


def _profile(card: MigGpu, cell: Cell, one: Cell) -> str:
    """The profile of a tenant: its instance is the position in the layout as it was written."""
    return card.profile(parse_layout(cell["mode"].removeprefix(MIG))[int(one["seat"].rpartition("#")[2])]).name


def _measured(seen: Observations, card: MigGpu, cells: Iterable[Cell]) -> dict[tuple[str, str], Interval]:
    """Speed of each workload alone on an instance of each profile."""
    runs: dict[tuple[str, str], list[RateSample]] = defaultdict(list)
    for cell in cells:
        if len(cell["tenants"]) == 1 and (one := cell["tenants"][0])["rate"] > 0:
            sample = RateSample(math.log(one["rate"]), within_window_error([one]))
            runs[one["tenant"], _profile(card, cell, one)].append(sample)
    return {at: _speed(seen.alone(at[0]), some) for at, some in runs.items()}


def _speed(alone: Interval, runs: Sequence[RateSample]) -> Interval:
    logs = np.array([run.log for run in runs])
    if logs.size > 1:
        half = student_quantile(0.975, logs.size - 1) * float(logs.std(ddof=1)) / math.sqrt(logs.size)
    else:
        half = student_quantile(0.975, TENTHS - 1) * runs[0].wobble
    half = math.hypot(half, math.log(alone.high / alone.value))
    middle = float(logs.mean()) - math.log(alone.value)
    return Interval(math.exp(middle), math.exp(middle - half), math.exp(middle + half))


def _row(workload: str, profile: str, speed: Interval, told: dict[str, Any]) -> dict[str, Any]:
    return {
        "workload": workload,
        "profile": profile,
        "measured": speed.value,
        "measured_low": speed.low,
        "measured_high": speed.high,
        "predicted": told["speed"],
        "low": told["low"],
        "high": told["high"],
        "error": told["speed"] / speed.value - 1,
        "inside": told["low"] <= speed.value <= told["high"],
    }


def _by(frame: pl.DataFrame, column: str) -> pl.DataFrame:
    far = pl.col("error").abs()
    return frame.group_by(column, maintain_order=True).agg(
        pl.len().alias("speeds"),
        far.median().alias("median_error"),
        far.mean().alias("mean_error"),
        far.max().alias("worst_error"),
        pl.col("error").mean().alias("bias"),
        pl.col("inside").sum().alias("inside"),
    )


def _neighbors(card: MigGpu, cells: Sequence[Cell]) -> Iterable[dict[str, Any]]:
    """Rate beside tenants on other instances over the rate alone on the same instance: 1 is full isolation."""
    alone: dict[tuple[str, str], list[float]] = defaultdict(list)
    beside: dict[tuple[str, str], list[float]] = defaultdict(list)
    for cell in cells:
        for one in cell["tenants"]:
            rates = alone if len(cell["tenants"]) == 1 else beside
            rates[one["tenant"], _profile(card, cell, one)].append(one["rate"])
    for (workload, profile), rates_beside in sorted(beside.items()):
        if own := alone.get((workload, profile)):
            ratio = float(np.median(rates_beside) / np.median(own))
            yield {"workload": workload, "profile": profile, "beside_others": ratio, "runs": len(rates_beside)}


def _estimates(frame: pl.DataFrame) -> Iterable[Estimate]:
    yield Estimate.exact("speeds compared", frame.height)
    yield Estimate.exact("inside the predicted interval", int(frame["inside"].sum()))
    yield Estimate.exact("median error", float(np.median(frame["error"].abs().to_numpy())))
