"""A watch as frames, and as Parquet files beside its log: small, typed and quick to read."""

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
    "card": pl.Int64,
    **{key: pl.Int64 if key in WHOLE else pl.Float64 for key in VALUES},
    "events": pl.List(pl.String),
}
PROCESSES: dict[str, Any] = {
    "at": pl.Float64,
    "card": pl.Int64,
    "pid": pl.Int64,
    "name": pl.String,
    "kind": pl.String,
    "memory_mib": pl.Float64,
    "util": pl.Float64,
    "memory_util": pl.Float64,
}
AT_ONCE = 20_000  # rows held as Python objects while a log is read


def pack(path: Path, made: dict[str, pl.DataFrame]) -> tuple[Path, Path]:
    """Write `samples.parquet` and `processes.parquet` beside a log; what is there is replaced whole or not at all."""
    targets = [path.with_suffix(".parquet"), path.with_name("processes.parquet")]
    beside = [target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}") for target in targets]
    try:
        for key, file in zip(("samples", "processes"), beside, strict=True):
            made[key].write_parquet(file)
        for file, target in zip(beside, targets, strict=True):
            os.replace(file, target)  # noqa: PTH105
    except (OSError, pl.exceptions.ComputeError) as e:
        msg = f"{path.parent}: the Parquet files cannot be written: {getattr(e, 'strerror', None) or e}"
        raise BenchError(msg, hint=f"make room, then `fleetlab bench monitor --pack {path}`") from None
    finally:
        for file in beside:
            file.unlink(missing_ok=True)
    return targets[0], targets[1]


def frames(rows: Iterable[Row]) -> dict[str, pl.DataFrame]:
    """`samples`, one row a card and look, and `processes`, one row a process of these."""
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
    one = [{"at": row["at"], "card": row["card"], **p} for row in rows for p in row.get("processes") or []]
    processes = pl.DataFrame({key: [p.get(key) for p in one] for key in PROCESSES}, schema=PROCESSES, strict=False)
    return samples, processes
