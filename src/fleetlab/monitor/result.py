"""The summary of a monitoring run: utilization, energy and throttling of each GPU.

Energy is the sum of the counter's differences, and mean power is energy over time, never the reverse.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from fleetlab.core import Estimate, Provenance, Result
from fleetlab.devices.nvml import THROTTLE_REASONS
from fleetlab.monitor.log import read_samples
from fleetlab.monitor.parquet import sample_frames, write_parquet
from fleetlab.monitor.run import MAX_ROWS, MonitorRun
from fleetlab.stats import mean_of_runs

BATCHES = 10  # batch means: neighboring samples are autocorrelated


@dataclass(frozen=True, slots=True, repr=False)
class MonitorResult(Result):
    """Tables of GPUs and processes."""

    frames: dict[str, pl.DataFrame]
    provenance: Provenance
    notes: tuple[str, ...] = ()

    def summary(self) -> list[Estimate]:
        """Utilization and energy of each GPU."""
        estimates = []
        for row in self.frames["gpus"].iter_rows(named=True):
            name = f"GPU {row['gpu']}"
            if row["util"] is not None:
                estimates.append(
                    Estimate(f"{name}: utilization", row["util"], _nan(row["low"]), _nan(row["high"]), "%")
                )
            if row["joules"] is not None:
                estimates.append(Estimate.exact(f"{name}: energy", row["joules"], "J"))
        return [*estimates, Estimate.exact("samples", max(self.frames["gpus"]["samples"], default=0))]


def monitor_result(run: MonitorRun) -> MonitorResult:
    """Summarize a finished run; its log, if any, is converted to Parquet."""
    late = [f"{run.late} samples were skipped: the previous one took too long"] if run.late else []
    if run.path is not None:
        packed_log = pack_log(run.path)
        return MonitorResult(packed_log.frames, packed_log.provenance, (*late, *packed_log.notes))
    if run.samples > MAX_ROWS:
        late.append(f"only the last {MAX_ROWS} rows are summarized; --out keeps all")
    return _result(sample_frames(run.rows), "this machine", late)


def pack_log(path: Path) -> MonitorResult:
    """Convert a log to Parquet and summarize it."""
    made = sample_frames(read_samples(path))
    samples, processes = write_parquet(path, made)
    return _result(made, str(path.parent), [f"converted to {samples} and {processes.name}"])


def _result(found: dict[str, pl.DataFrame], source: str, notes: Iterable[str]) -> MonitorResult:
    samples, processes = found["samples"], found["processes"]
    gpus = [_gpu_row(int(key[0]), rows.sort("at")) for key, rows in samples.group_by("gpu", maintain_order=True)]
    tables = {"gpus": pl.DataFrame(gpus, schema=GPU_COLUMNS, orient="row"), "processes": _processes(processes)}
    return MonitorResult(tables, Provenance("bench monitor", source), (*notes, *_notes(samples)))


GPU_COLUMNS: dict[str, Any] = {
    "gpu": pl.Int64,
    "samples": pl.Int64,
    "seconds": pl.Float64,
    "util": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "used_mib": pl.Float64,
    "celsius": pl.Float64,
    "joules": pl.Float64,
    "watts": pl.Float64,
    "sm_mhz_low": pl.Float64,
    "throttled": pl.Float64,
}


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


def _processes(seen: pl.DataFrame) -> pl.DataFrame:
    # A process id is a label: as a number it would get thousands separators.
    return (
        seen.with_columns(pl.col("pid").cast(pl.String))
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
