"""Samples as data frames, and as Parquet files beside their log."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import polars as pl

from fleetlab.devices.errors import BenchError
from fleetlab.monitor.sources import VALUES, Row

WHOLE = {"reasons"}
SAMPLES: dict[str, Any] = {
    "at": pl.Float64,
    "gpu": pl.Int64,
    **{key: pl.Int64 if key in WHOLE else pl.Float64 for key in VALUES},
    "events": pl.List(pl.String),
}
PROCESSES: dict[str, Any] = {
    "at": pl.Float64,
    "gpu": pl.Int64,
    "pid": pl.Int64,
    "name": pl.String,
    "kind": pl.String,
    "memory_mib": pl.Float64,
    "util": pl.Float64,
    "memory_util": pl.Float64,
}
AT_ONCE = 20_000  # rows that are Python objects at the same time


def write_parquet(path: Path, made: dict[str, pl.DataFrame]) -> tuple[Path, Path]:
    """Write `samples.parquet` and `processes.parquet` beside a log, atomically."""
    targets = [path.with_suffix(".parquet"), path.with_name("processes.parquet")]
    beside = [target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}") for target in targets]
    try:
        for key, file in zip(("samples", "processes"), beside, strict=True):
            made[key].write_parquet(file)
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
