"""The summary of a monitoring run, utilization, energy and throttling of each GPU, and its samples as Parquet.

Energy is the sum of the counter's differences, and mean power is energy over time, never the reverse.
"""

from __future__ import annotations

import math
import os
import uuid
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from fleetlab.core import Estimate, Provenance
from fleetlab.core.result import FieldsResult
from fleetlab.gpu.devices.console import BenchError
from fleetlab.gpu.devices.nvml import THROTTLE_REASONS
from fleetlab.gpu.monitor.run import MAX_ROWS, MonitorRun, read_samples
from fleetlab.gpu.monitor.sources import VALUES, Row
from fleetlab.stats import mean_of_runs

WHOLE = {"reasons"}
SAMPLES: dict[str, Any] = {
    "at": pl.Float64,
    "gpu": pl.Int64,
    **{key: pl.Int64 if key in WHOLE else pl.Float64 for key in VALUES},
    "events": pl.List(pl.String),
}
PROCESSES: dict[str, Any] = {"at": pl.Float64, "gpu": pl.Int64, "pid": pl.Int64, "name": pl.String, "kind": pl.String}
PROCESSES |= dict.fromkeys(("memory_mib", "util", "memory_util"), pl.Float64)
AT_ONCE = 20_000  # rows that are Python objects at the same time


def write_parquet(path: Path, frames: dict[str, pl.DataFrame]) -> tuple[Path, Path]:
    """Write `samples.parquet` and `processes.parquet` beside a log, atomically."""
    targets = [path.with_suffix(".parquet"), path.with_name("processes.parquet")]
    beside = [target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}") for target in targets]
    try:
        for key, file in zip(("samples", "processes"), beside, strict=True):
            frames[key].write_parquet(file)
        for file, target in zip(beside, targets, strict=True):
            os.replace(file, target)  # noqa: PTH105
    except (OSError, pl.exceptions.ComputeError) as e:
        msg = f"{path.parent}: cannot write the Parquet files: {getattr(e, 'strerror', None) or e}"
        raise BenchError(msg, hint=f"free space, then `fleetlab bench monitor --pack {path}`") from None
    finally:
        for file in beside:
            file.unlink(missing_ok=True)
    return targets[0], targets[1]


def sample_frames(rows: Iterable[Row]) -> dict[str, pl.DataFrame]:
    """Make `samples` (one row per GPU and sample) and `processes` (one row per process)."""
    parts: list[tuple[pl.DataFrame, pl.DataFrame]] = [_frames([])]
    batch: list[Row] = []
    for row in rows:
        batch.append(row)
        if len(batch) == AT_ONCE:
            parts.append(_frames(batch))
            batch = []
    parts.append(_frames(batch))
    samples, processes = zip(*parts, strict=True)
    return {"samples": pl.concat(samples), "processes": pl.concat(processes)}


def _frames(rows: list[Row]) -> tuple[pl.DataFrame, pl.DataFrame]:
    samples = pl.DataFrame({key: [row.get(key) for row in rows] for key in SAMPLES}, schema=SAMPLES, strict=False)
    one = [{"at": row["at"], "gpu": row["gpu"], **p} for row in rows for p in row.get("processes") or []]
    processes = pl.DataFrame({key: [p.get(key) for p in one] for key in PROCESSES}, schema=PROCESSES, strict=False)
    return samples, processes


# --- the summary of a monitoring run ---------------------------------------------------------------------------------


BATCHES = 10  # batch means: neighboring samples are autocorrelated


def monitor_result(run: MonitorRun) -> FieldsResult:
    """Summarize a finished run; its log, if any, is converted to Parquet."""
    late = [f"{run.late} samples were skipped: the previous one took too long"] if run.late else []
    if run.path is not None:
        packed_log = pack_log(run.path)
        return replace(packed_log, notes=(*late, *packed_log.notes))
    if run.samples > MAX_ROWS:
        late.append(f"only the last {MAX_ROWS} rows are summarized; --out keeps all")
    return _result(sample_frames(run.rows), "this machine", late)


def pack_log(path: Path) -> FieldsResult:
    """Convert a log to Parquet and summarize it."""
    frames = sample_frames(read_samples(path))
    samples, processes = write_parquet(path, frames)
    return _result(frames, str(path.parent), [f"converted to {samples} and {processes.name}"])


def _result(frames: dict[str, pl.DataFrame], source: str, notes: Iterable[str]) -> FieldsResult:
    samples, processes = frames["samples"], frames["processes"]
    gpus = [_gpu_row(int(key[0]), rows.sort("at")) for key, rows in samples.group_by("gpu", maintain_order=True)]
    tables = {"gpus": pl.DataFrame(gpus, schema=GPU_COLUMNS, orient="row"), "processes": _processes(processes)}
    estimates = []
    for row in tables["gpus"].iter_rows(named=True):
        name, use = f"GPU {row['gpu']}", row["util"]
        if use is not None:
            estimates.append(Estimate(f"{name}: utilization", use, _nan(row["low"]), _nan(row["high"]), "%"))
        if row["joules"] is not None:
            estimates.append(Estimate.exact(f"{name}: energy", row["joules"], "J"))
    estimates.append(Estimate.exact("samples", max(tables["gpus"]["samples"], default=0)))
    notes = (*notes, *_notes(samples))
    return FieldsResult(Provenance("bench monitor", source), estimates=estimates, frames=tables, notes=notes)


GPU_COLUMNS: dict[str, Any] = {"gpu": pl.Int64, "samples": pl.Int64}
GPU_COLUMNS |= dict.fromkeys(("seconds", "util", "low", "high", "used_mib", "celsius", "joules", "watts"), pl.Float64)
GPU_COLUMNS |= dict.fromkeys(("sm_mhz_low", "throttled"), pl.Float64)


def _gpu_row(gpu: int, rows: pl.DataFrame) -> dict[str, Any]:
    counter = rows.drop_nulls("joules").select("at", "joules")
    span = counter["at"][-1] - counter["at"][0] if counter.height > 1 else 0.0
    joules = float(counter["joules"].diff().clip(lower_bound=0).sum()) if span else None
    reasons = rows["reasons"].drop_nulls()
    return {
        "gpu": gpu,
        "samples": rows.height,
        "seconds": rows["at"][-1] - rows["at"][0],
        **_use(rows["util"].drop_nulls().to_numpy()),
        "used_mib": rows["used_mib"].max(),
        "celsius": rows["celsius"].max(),
        "joules": joules,
        "watts": None if joules is None else joules / span,
        "sm_mhz_low": rows["sm_mhz"].min(),
        "throttled": float(((reasons.to_numpy() & THROTTLE_REASONS) != 0).mean()) if len(reasons) else None,
    }


def _use(util: np.ndarray[Any, Any]) -> dict[str, float | None]:
    """Mean with an interval from batch means, if there are enough samples."""
    if not util.size:
        return {"util": None, "low": None, "high": None}
    if util.size < 2 * BATCHES:
        return {"util": float(util.mean()), "low": None, "high": None}
    mean = mean_of_runs([part.mean() for part in np.array_split(util, BATCHES)], (0.0, 100.0)).interval()
    return {"util": float(util.mean()), "low": mean.low, "high": mean.high}


def _processes(processes: pl.DataFrame) -> pl.DataFrame:
    # A process id is a label: as a number it would get thousands separators.
    return (
        processes.with_columns(pl.col("pid").cast(pl.String))
        .group_by("gpu", "pid", "name", "kind", maintain_order=True)
        .agg(samples=pl.len(), memory_mib=pl.col("memory_mib").max(), util=pl.col("util").mean())
        .sort("gpu", "memory_mib", descending=[False, True], nulls_last=True)
    )


def _notes(samples: pl.DataFrame) -> Iterable[str]:
    for key, rows in samples.drop_nulls("joules").group_by("gpu", maintain_order=True):
        if (rows.sort("at")["joules"].diff() < 0).any():
            yield f"GPU {key[0]}: its energy counter was reset; the energy before the reset is partly lost"
    if samples.height < 2 * BATCHES * samples["gpu"].n_unique():
        yield f"fewer than {2 * BATCHES} samples: too few for intervals"


def _nan(value: float | None) -> float:
    return math.nan if value is None else value
