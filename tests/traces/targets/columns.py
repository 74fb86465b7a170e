"""The columns of a synthetic trace as arrays, for the check to measure."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from fleetlab.core import Trace
from fleetlab.traces.synthesize.joint_law import A_DAY, CPU_ONLY, TYPES, Bools, Floats, Ints

USED = {"cpu": "cpu_milli", "gpu": "gpu_milli", "memory": "memory_mib"}


@dataclass(frozen=True, slots=True)
class TraceColumns:
    """One entry a job, in order of submission."""

    submit: Floats
    instances: Floats
    milli: Ints
    cpu: Ints
    memory: Ints
    type: Ints  # of TYPES, or CPU_ONLY
    runtime: Floats  # not a number where unknown, as are `wait` and `used`
    wait: Floats
    status: Ints  # completed, failed, cancelled, running, waiting
    user: Ints
    group: Ints
    used: dict[str, Floats]
    days: float

    @classmethod
    def of(cls, trace: Trace) -> TraceColumns:
        """Take a trace apart."""
        f = trace.workload.frame
        assert trace.names is not None
        type = trace.names.select("gpu_type").collect()["gpu_type"]
        codes = type.replace_strict(list(TYPES), list(range(len(TYPES))), default=CPU_ONLY, return_dtype=pl.Int64)
        return cls(
            f["submit"].to_numpy(),
            f["instances"].cast(pl.Float64).to_numpy(),
            f["gpu_milli"].cast(pl.Int64).to_numpy(),
            f["cpu_milli"].to_numpy(),
            f["memory_mib"].to_numpy(),
            codes.to_numpy(),
            _floats(f["runtime"]),
            _floats(f["start"] - f["submit"]),
            f["status"].to_physical().cast(pl.Int64).to_numpy(),
            _codes(f["user"]),
            _codes(f["group"]),
            _used(trace),
            float(trace.provenance.settings["days"] or max(f.height / A_DAY, 1 / 24)),
        )

    @property
    def gpu(self) -> Bools:
        """Which jobs ask for a GPU."""
        return self.milli > 0

    @property
    def thinner(self) -> float:
        """How many times fewer jobs a day than the real trace it has: 1, unless `days` were asked for."""
        return A_DAY / (len(self.submit) / self.days)


def _used(trace: Trace) -> dict[str, Floats]:
    assert trace.usage is not None
    jobs = trace.workload.frame.select("job")
    used = jobs.join(trace.usage.drop("instances").collect(), on="job", how="left", maintain_order="left")
    return {what: _floats(used[column]) for what, column in USED.items()}


def _floats(column: pl.Series) -> Floats:
    return column.cast(pl.Float64).fill_null(np.nan).to_numpy()


def _codes(column: pl.Series) -> Ints:
    """Number the names from 0, without gaps."""
    _, codes = np.unique(column.to_physical().to_numpy(), return_inverse=True)
    return codes.astype(np.int64)
