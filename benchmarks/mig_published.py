"""Errors of predicted speeds on MIG slices, held out, on published tables of A100s.

The tables are MISO's (Li and others, SoCC 2022), ParvaGPU's (Lee and others, SC 2024) and MIGProfiler's (Zhang and
others, 2023); they are not part of this project, but read if present. Speeds are relative to the largest slice. Three
predictions of a model's speed on a slice: the mean of the other models there (nothing of this model is known), Amdahl's
law from its speed on a 2g slice, and SMs and memory from the same (only MISO reports memory utilization). Nothing of
the held-out model is used otherwise; the limits of its errors are the P90 of the other models in the same table.

`python -m benchmarks.mig_published FOLDER` prints them: the folder has miso_mig_speed.csv, parvagpu, migprofiler.
"""

from __future__ import annotations

import csv
import math
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from fleetlab.commands import screen
from fleetlab.core import DeviceError, Provenance
from fleetlab.core.result import FieldsResult
from fleetlab.gpu.bench.histogram import interval_columns
from fleetlab.gpu.bench.profile.mig import GpuSlice
from fleetlab.gpu.sharing.mig.layouts import mig_gpu
from fleetlab.stats import Floats, bootstrap_units

ANCHOR = 2  # compute slices of the one that is measured
# By compute slices; profiles with twice the memory are in none of the tables.
PARTS = {
    p.slices: GpuSlice(p.name, p.sms / 98, p.size / 8)
    for p in mig_gpu("A100-40").profiles
    if not p.media and p.name != "1g.10gb"
}
CONFIDENCE = 0.9  # of the limits
NOTES = (
    "errors are relative to the published speed; intervals are 95 %, by bootstrap over models",
    "`within`: held-out speeds whose error is at most the P90 of the other models",
)
MEMORY = {"40": 7, "20": 3, "10": 2, "5": 1}  # GB of a slice in MIGProfiler's first tables


class Setting(NamedTuple):
    """A model in one setting: its speed by compute slices, relative to all 7, and memory utilization."""

    model: str
    speeds: dict[int, float]
    memory: float | None


class Miss(NamedTuple):
    """One held-out speed: its model, compute slices, and the relative error of its prediction."""

    model: str
    slices: int
    error: float


def check_published(folder: Path, *, seed: int = 0) -> FieldsResult:
    """Held-out errors of predicted speeds on the published tables in a folder."""
    by_table, by_profile = [], []
    for source, settings in _tables(folder).items():
        formulas = {"mean of other models": list(from_others(settings)), "Amdahl": list(misses(settings, memory=False))}
        if any(setting.memory is not None for setting in settings):
            formulas["SMs and memory"] = list(misses(settings, memory=True))
        for formula, missed in formulas.items():
            about = {"table": source, "formula": formula}
            by_table.append(about | _errors(missed, seed=seed) | _within(missed))
            for g in sorted({miss.slices for miss in missed}):
                some = [miss for miss in missed if miss.slices == g]
                by_profile.append(about | {"profile": f"{g}g"} | _errors(some, seed=seed) | _within(some))
    frames = {"tables": pl.DataFrame(by_table), "profiles": pl.DataFrame(by_profile)}
    return FieldsResult(Provenance("benchmarks.mig_published", str(folder), {"seed": seed}), frames=frames, notes=NOTES)


def _tables(folder: Path) -> dict[str, list[Setting]]:
    return {"MISO": miso(folder), "ParvaGPU": parvagpu(folder), "MIGProfiler": migprofiler(folder)}


def misses(settings: Sequence[Setting], *, memory: bool) -> Iterable[Miss]:
    """Errors on the other slices, each predicted from the speed on a 2g slice."""
    for model, speeds, busy in settings:
        if ANCHOR not in speeds:
            continue
        others = {g: speed for g, speed in speeds.items() if g not in (ANCHOR, 7)}
        predicted = from_one(speeds[ANCHOR], PARTS[ANCHOR], (busy or 0.0) * memory, [PARTS[g] for g in others])
        yield from (Miss(model, g, abs(predicted[PARTS[g].name] / speed - 1)) for g, speed in others.items())


def from_others(settings: Sequence[Setting]) -> Iterable[Miss]:
    """Errors of the mean over the other models, whose settings count equally for each model."""
    by: dict[int, dict[str, list[float]]] = {}
    for model, speeds, _ in settings:
        for g, speed in speeds.items():
            by.setdefault(g, {}).setdefault(model, []).append(speed)
    for g, models in by.items():
        if g in (ANCHOR, 7):
            continue
        for model, speeds_here in models.items():
            others = [float(np.mean(speed)) for other, speed in models.items() if other != model]
            if others:
                yield from (Miss(model, g, abs(float(np.mean(others)) / speed - 1)) for speed in speeds_here)


def _within(missed: Sequence[Miss]) -> dict[str, Any]:
    """Fraction of held-out speeds within the P90 error of the other models."""
    inside = []
    for model in dict.fromkeys(miss.model for miss in missed):
        others = [miss.error for miss in missed if miss.model != model]
        if others:
            limit = float(np.quantile(others, CONFIDENCE))
            inside += [miss.error <= limit for miss in missed if miss.model == model]
    return {"within": sum(inside) / len(inside) if inside else None}


def from_one(speed: float, known: GpuSlice, memory: float, parts: Sequence[GpuSlice]) -> dict[str, float]:
    """Predict speeds on other slices from that on one, without a curve.

    >>> half, quarter = GpuSlice("half", 0.5, 0.5), GpuSlice("quarter", 0.25, 0.25)
    >>> from_one(0.5, half, 0.0, [quarter])
    {'quarter': 0.25}
    """
    shared = (1 / speed - 1) / (1 / known.memory - 1)  # if memory were the only bottleneck
    if shared > memory:
        late = 1 / speed - 1 + memory / known.sms - memory / known.memory
        shared = late / (1 / known.sms - 1)
    bound = min(memory, shared)
    return {p.name: 1 / (1 - shared + (shared - bound) / p.sms + bound / p.memory) for p in parts}


def _errors(missed: Sequence[Miss], *, seed: int) -> dict[str, Any]:
    """Median, mean and P90 of the errors with bootstrap intervals over models, whose settings are correlated."""
    models = dict.fromkeys(miss.model for miss in missed)
    rows = [np.array([miss.error for miss in missed if miss.model == model]) for model in models]
    summary: dict[str, Any] = {"models": len(rows), "speeds": sum(map(len, rows))}
    for name, of in (("median", np.median), ("mean", np.mean), ("p90", lambda x: np.quantile(x, 0.9))):

        def statistic(drawn: Floats, of: Any = of) -> float:  # noqa: ANN401
            return float(of(np.concatenate([rows[int(k)] for k in drawn[:, 0]])))

        whole = np.arange(len(rows), dtype=float)[:, None]
        limits = bootstrap_units(whole, statistic, seed=seed)
        summary |= interval_columns(name, limits)
    return summary


# --- the tables ------------------------------------------------------------------------------------------------------


def miso(folder: Path) -> list[Setting]:
    """Training step times by model and batch size."""
    settings = []
    for row in _rows(folder / "miso_mig_speed.csv"):
        speeds = {int(name[4]): float(value) for name, value in row.items() if name.startswith("rel_")}
        good = {g: speed for g, speed in speeds.items() if math.isfinite(speed)}
        settings.append(Setting(row["model"], good, float(row["util_mem"]) / 100))
    return settings


def parvagpu(folder: Path) -> list[Setting]:
    """Inference throughput by model and batch size, one process per slice."""
    by: dict[tuple[str, str], dict[int, float]] = {}
    for path in sorted((folder / "parvagpu").glob("*.csv")):
        for row in _rows(path):
            if row["Workload Number"] == "1" and float(row["Throughput"]) > 0:
                by.setdefault((path.stem, row["Batch size"]), {})[int(row["Mig instance"])] = float(row["Throughput"])
    return list(_against_whole(by))


def migprofiler(folder: Path) -> list[Setting]:
    """Step times of training and inference by model, batch size and sequence length."""
    by: dict[tuple[str, ...], dict[int, float]] = {}
    for path in sorted((folder / "migprofiler").glob("*.csv")):
        if "integrated" in path.name or path.name.endswith(
            ("_infer_bsz.csv", "_infer_seq.csv", "_train_bsz.csv", "_train_seq.csv")
        ):
            continue  # duplicates
        for row in _rows(path):
            size = row.get("mig_profile") or row.get("instance_memory") or row.get("mig")
            if size and float(row["latency"]) > 0:
                key = (row["model_name"], path.name, row["batch_size"], row.get("seq_length", ""))
                by.setdefault(key, {})[MEMORY.get(size) or int(size[0])] = 1 / float(row["latency"])
    return list(_against_whole(by))


def _against_whole(by: dict[Any, dict[int, float]]) -> Iterable[Setting]:
    for key, rates in by.items():
        if 7 in rates:
            yield Setting(key[0], {g: rate / rates[7] for g, rate in rates.items()}, None)


def _rows(path: Path) -> list[dict[str, str]]:
    try:
        with path.open(encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))
    except (OSError, ValueError) as e:
        msg = f"cannot read the published table: {path.name}: {e}"
        raise DeviceError(
            msg, hint="a folder of co-location tables has miso_mig_speed.csv, parvagpu and migprofiler"
        ) from None


if __name__ == "__main__":
    screen.show(check_published(Path(sys.argv[1])), json=False, most=200)
