"""Speeds on MIG slices: predicted from those on fewer SMs, and compared with those that were measured.

A step has a constant part, a part that the SMs take, and a part that memory takes. A slice with a fraction f of the SMs
and b of the memory bandwidth stretches the second by 1/f and the third by 1/b. The third is the memory utilization of
the workload alone. In the worst case the three do not overlap; if SMs and memory overlap, the longer one counts
(roofline). The interval spans both cases. No step is shorter on a slice than on the whole GPU: no speed, and no limit
of its interval, is above 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from fleetlab.core import DeviceError, Estimate, Provenance
from fleetlab.core.result import FieldsResult
from fleetlab.gpu.bench.histogram import interval_columns
from fleetlab.gpu.bench.profile.observations import (
    Observations,
    RateSample,
    around,
    noise_of_runs,
    read_observations,
    within_window_error,
)
from fleetlab.gpu.bench.results.cells import CellResult, TenantResult, grouped, suites
from fleetlab.gpu.devices.console import BenchError
from fleetlab.gpu.sharing.mig.layouts import MigGpu, mig_gpu, parse_layout
from fleetlab.gpu.sharing.modes import MIG
from fleetlab.stats import Interval, isotonic

# P90 of the relative error of predictions between A100 slices, in the worst of three published tables.
ERROR_P90 = 0.22


class GpuSlice(NamedTuple):
    """A slice of a GPU."""

    name: str
    sms: float  # fraction
    memory: float  # fraction of the bandwidth


def stretch_curve(rates: Mapping[int, float]) -> dict[float, float]:
    """Relative step time by fraction of SMs, made monotonic to remove noise."""
    flat = isotonic([rates[sms] for sms in sorted(rates)], np.ones(len(rates))).tolist()
    return {sms / max(rates): flat[-1] / rate for sms, rate in zip(sorted(rates), flat, strict=True)}


def on_slice(stretch: Mapping[float, float], memory: float, part: GpuSlice, busy: float = 1.0) -> Interval:
    """Predict the speed on a slice from the step-time curve; `busy` is the fraction of time in steps."""
    sms = _between(stretch, part.sms)
    all_cut = max(1 / part.sms, 1 / part.memory)  # no step is stretched more than by the scarcest resource
    slow = min(sms + memory * (1 / part.memory - 1), max(sms, all_cut))
    fast = max(sms, memory / part.memory)
    value, low, high = (
        1 / (1 - busy + busy * max(t, 1.0)) for t in (slow, slow * (1 + ERROR_P90), min(fast, slow) / (1 + ERROR_P90))
    )
    return Interval(value, low, high)


def _between(stretch: Mapping[float, float], part: float) -> float:
    """Interpolate log(time) over log(SMs); below the first point time is inverse to SMs."""
    points = sorted(stretch.items())
    if part <= points[0][0]:
        return points[0][1] * points[0][0] / part
    for (x0, y0), (x1, y1) in pairwise(points):
        if part <= x1:
            at = math.log(part / x0) / math.log(x1 / x0)
            return math.exp(math.log(y0) + at * math.log(y1 / y0))
    return points[-1][1]


# --- predicted speeds on MIG slices ----------------------------------------------------------------------------------


HALF = 3  # compute slices: two such instances share a GPU evenly


def predict_slices(folders: Sequence[Path], *, model: str | None = None) -> FieldsResult:
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
    frame = pl.DataFrame(rows)
    means = frame.group_by("profile", maintain_order=True).agg(pl.col("speed", "low", "high").mean())
    estimates = [Estimate(f"predicted mean speed, {name}", v, lo, hi, "of a GPU") for name, v, lo, hi in means.rows()]
    provenance = Provenance("bench mig", observations.device, settings)
    return FieldsResult(provenance, estimates=estimates, frames={"slices": frame}, notes=tuple(notes))


def half_gpu(observations: Observations, works: Sequence[str]) -> dict[str, Interval]:
    """Speed of each on half a GPU; empty unless all can be predicted and the GPU supports MIG."""
    try:
        half = next(part for part in _parts(mig_model(observations.device)) if part.name.startswith(f"{HALF}g."))
    except DeviceError:
        return {}
    speeds = {work: speed for work in works if (speed := _on(observations, work, half))}
    return speeds if len(speeds) == len(works) else {}


def _rows(observations: Observations, cut: MigGpu) -> Iterable[dict[str, Any]]:
    for work in observations.works:
        for part in _parts(cut):
            if speed := _on(observations, work, part):
                about = {"workload": work, "profile": part.name, "sms": part.sms, "memory": part.memory}
                yield about | {"speed": speed.value, "low": speed.low, "high": speed.high, "kind": "predicted"}


def _on(observations: Observations, work: str, part: GpuSlice) -> Interval | None:
    """From its own SM curve, or from that of the same workload without pauses; None if there is neither."""
    if work in observations.curve:
        return on_slice(stretch_curve(observations.curve[work]), observations.memory[work], part)
    mine = {key: value for key, value in observations.works[work].items() if key != "rest"}
    for other, settings in observations.works.items():
        if other in observations.curve and settings == mine and work in observations.busy:
            return on_slice(
                stretch_curve(observations.curve[other]), observations.memory[other], part, observations.busy[work]
            )
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


# --- compare speeds that were measured on MIG instances with those that were predicted without MIG -------------------


MEASURE = (
    "sudo env FLEETLAB_ALLOW_MIG=$(nvidia-smi -i 0 --query-gpu=uuid --format=csv,noheader) "
    "fleetlab bench suite mig --allow-mig --out mig && fleetlab bench mig check mig"
)


def check_slices(folders: Sequence[Path], *, curves: Sequence[Path] = ()) -> FieldsResult:
    """Compare the MIG cells in folders with predictions from runs on fewer SMs, there or in `curves`."""
    observations = read_observations(folders)
    card = mig_model(observations.device)
    cells, doubtful = _mig_cells(folders)
    measured = _measured(observations, card, cells)
    if not measured:
        raise DeviceError("no workload was measured on a MIG instance", hint=f"on a GPU of your own: {MEASURE}")
    predicted = predict_slices(curves or folders, model=card.name if curves else None)
    prediction = {(row["workload"], row["profile"]): row for row in predicted.frames["slices"].iter_rows(named=True)}
    rows = [_row(*at, speed, prediction[at]) for at, speed in sorted(measured.items()) if at in prediction]
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
    estimates = [
        Estimate.exact("speeds compared", frame.height),
        Estimate.exact("inside the predicted interval", int(frame["inside"].sum())),
        Estimate.exact("median error", float(np.median(frame["error"].abs().to_numpy()))),
    ]
    frames = {name: table for name, table in frames.items() if table.height}
    provenance = Provenance("bench mig check", observations.device, settings)
    return FieldsResult(provenance, estimates=estimates, frames=frames, notes=tuple(notes))


def _mig_cells(folders: Sequence[Path]) -> tuple[list[CellResult], int]:
    cells = [
        cell
        for folder in folders
        for suite in suites(folder)
        for cell in suite.cells
        if cell.mode.startswith(MIG) and cell.ok and cell.tenants
    ]
    proved = [cell for cell in cells if all(one.about.get("attached") for one in cell.tenants)]
    return proved, len(cells) - len(proved)


def _profile(card: MigGpu, cell: CellResult, one: TenantResult) -> str:
    """The profile of a tenant: its instance is the position in the layout as it was written."""
    return card.profile(parse_layout(cell.mode.removeprefix(MIG))[one.limits.instance or 0]).name


def _measured(observations: Observations, card: MigGpu, cells: Iterable[CellResult]) -> dict[tuple[str, str], Interval]:
    """Speed of each workload alone on an instance of each profile."""
    runs = grouped(
        ((one.name, _profile(card, cell, one)), RateSample(math.log(one.rate), within_window_error([one])))
        for cell in cells
        if (one := cell.alone) and one.rate > 0
    )
    return {at: _speed(observations.alone(at[0]), some) for at, some in runs.items()}


def _speed(alone: Interval, runs: Sequence[RateSample]) -> Interval:
    half = math.hypot(noise_of_runs([runs]).over(len(runs)).half(), math.log(alone.high / alone.value))
    return around(sum(run.log for run in runs) / len(runs) - math.log(alone.value), half)


def _row(workload: str, profile: str, speed: Interval, prediction: dict[str, Any]) -> dict[str, Any]:
    return {
        "workload": workload,
        "profile": profile,
        **interval_columns("measured", speed),
        "predicted": prediction["speed"],
        "low": prediction["low"],
        "high": prediction["high"],
        "error": prediction["speed"] / speed.value - 1,
        "inside": prediction["low"] <= speed.value <= prediction["high"],
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


def _neighbors(card: MigGpu, cells: Sequence[CellResult]) -> Iterable[dict[str, Any]]:
    """Rate beside tenants on other instances over the rate alone on the same instance: 1 is full isolation."""
    each = [(cell, one) for cell in cells for one in cell.tenants]
    alone = grouped(((one.name, _profile(card, cell, one)), one.rate) for cell, one in each if cell.alone)
    beside = grouped(((one.name, _profile(card, cell, one)), one.rate) for cell, one in each if not cell.alone)
    for (workload, profile), rates_beside in sorted(beside.items()):
        if own := alone.get((workload, profile)):
            ratio = float(np.median(rates_beside) / np.median(own))
            yield {"workload": workload, "profile": profile, "beside_others": ratio, "runs": len(rates_beside)}
