"""Test the prediction for MIG slices on published tables of A100s: from the speed on one slice, the others.

The tables are MISO's (Li and others, SoCC 2022), ParvaGPU's (Lee and others, SC 2024) and MIGProfiler's (Zhang and
others, 2023); they are not part of this project, but read if present. Speeds are relative to the largest
slice. Only MISO reports memory utilization; for the others it is assumed to be 0, which is Amdahl's law.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from fleetlab.bench.profile.slice_model import GpuSlice
from fleetlab.core import DeviceError
from fleetlab.sharing.mig.models import mig_gpu
from fleetlab.stats import Floats, bootstrap_units

ANCHOR = 2  # compute slices of the one that is measured
# By compute slices; profiles with twice the memory are in none of the tables.
PARTS = {
    p.slices: GpuSlice(p.name, p.sms / 98, p.size / 8)
    for p in mig_gpu("A100-40").profiles
    if not p.media and p.name != "1g.10gb"
}
MEMORY = {"40": 7, "20": 3, "10": 2, "5": 1}  # GB of a slice in MIGProfiler's first tables


class Setting(NamedTuple):
    """A model in one setting: its speed by compute slices, relative to all 7, and memory utilization."""

    model: str
    speeds: dict[int, float]
    memory: float | None


def against(folder: Path, *, seed: int = 0) -> pl.DataFrame:
    """Errors of predictions from the speed on a 2g slice, by table and formula."""
    rows = []
    for source, settings in (
        ("MISO", miso(folder)),
        ("ParvaGPU", parvagpu(folder)),
        ("MIGProfiler", migprofiler(folder)),
    ):
        rows.append({"table": source, "formula": "Amdahl", **_errors(misses(settings, memory=False), seed=seed)})
        if any(setting.memory is not None for setting in settings):
            errors = _errors(misses(settings, memory=True), seed=seed)
            rows.append({"table": source, "formula": "SMs and memory", **errors})
    return pl.DataFrame(rows)


def misses(settings: Sequence[Setting], *, memory: bool) -> dict[str, list[float]]:
    """Relative errors of the other slices, by model."""
    relative: dict[str, list[float]] = {}
    for model, speeds, busy in settings:
        if ANCHOR not in speeds:
            continue
        others = {g: speed for g, speed in speeds.items() if g not in (ANCHOR, 7)}
        predicted = from_one(speeds[ANCHOR], PARTS[ANCHOR], (busy or 0.0) * memory, [PARTS[g] for g in others])
        relative.setdefault(model, []).extend(abs(predicted[PARTS[g].name] / speed - 1) for g, speed in others.items())
    return relative


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


def _errors(by_model: dict[str, list[float]], *, seed: int) -> dict[str, Any]:
    """Median, mean and P90 of the errors with bootstrap intervals over models, whose settings are correlated."""
    rows = [np.array(off) for off in by_model.values() if off]
    summary: dict[str, Any] = {"models": len(rows), "speeds": sum(map(len, rows))}
    for name, of in (("median", np.median), ("mean", np.mean), ("p90", lambda x: np.quantile(x, 0.9))):

        def statistic(drawn: Floats, of: Any = of) -> float:  # noqa: ANN401
            return float(of(np.concatenate([rows[int(k)] for k in drawn[:, 0]])))

        whole = np.arange(len(rows), dtype=float)[:, None]
        limits = bootstrap_units(whole, statistic, seed=seed)
        summary |= dict(zip((name, f"{name}_low", f"{name}_high"), limits, strict=True))
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
