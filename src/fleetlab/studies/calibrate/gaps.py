"""How far simulated waits are from the recorded ones, of the same jobs: overall and by class."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fleetlab.core.job_classes import GPU_REQUEST, gpu_request, in_order
from fleetlab.stats import POSITIVE, BlockBootstrap, Floats, Interval, Replicates, paired_difference
from fleetlab.studies.calibrate.recorded import Recorded
from fleetlab.studies.diagnose.ledger import clock, clock_name

LEVELS = {"median": 0.5, "P90": 0.9, "P99": 0.99}
MOST = 12  # classes of a kind that has no end of them: the others are one together
OTHERS = "others"
BEFORE, AFTER = "simulated", "calibrated"
WHO = ("user", "group", "app")  # columns of a log that say whose a job is


@dataclass(frozen=True, eq=False)
class Gaps:
    """Recorded waits, and simulated ones before and after calibration, of the same jobs."""

    log: Recorded
    rows: NDArray[np.int64]  # the jobs that are compared
    waits: Mapping[str, Floats]  # by side: of these jobs
    span: float

    @classmethod
    def of(cls, log: Recorded, part: NDArray[np.bool_], starts: Mapping[str, Floats]) -> Gaps:
        """Take the jobs of a part of the log that started on every side."""
        both = part & log.known
        for start in starts.values():
            both = both & ~np.isnan(start)
        rows = np.flatnonzero(both)
        waits = {side: np.maximum(start[rows] - log.submit[rows], 0.0) for side, start in starts.items()}
        return cls(log, rows, waits, float(log.submit[-1]))

    @property
    def recorded(self) -> Floats:
        """The recorded waits."""
        return self.log.wait[self.rows]

    @cached_property
    def blocks(self) -> BlockBootstrap:
        """Blocks of time in which jobs were submitted."""
        return BlockBootstrap.of_times(self.log.submit[self.rows], self.span)

    def error(self, side: str) -> Interval:
        """Return the simulated less the recorded mean wait, with its paired interval."""
        return paired_difference(self.blocks.means(self.recorded), self.blocks.means(self.waits[side])).interval()

    def means(self) -> dict[str, Interval]:
        """Return the mean wait of each side, the recorded one first."""
        sides = {"recorded": self.recorded} | dict(self.waits)
        return {side: self.blocks.mean(wait, POSITIVE).interval() for side, wait in sides.items()}

    def overall(self, part: str) -> pl.DataFrame:
        """Return mean, median, P90 and P99 of the waits, recorded and simulated."""
        recorded, waits = self._statistics(self.recorded), {s: self._statistics(w) for s, w in self.waits.items()}
        rows = []
        for name, value in recorded.items():
            row: dict[str, object] = {"part": part, "statistic": name, "jobs": len(self.rows)}
            row["recorded wait"] = float(value.values[0])
            for side, found in waits.items():
                row |= _side(side, float(found[name].values[0]), paired_difference(value, found[name]).interval())
            rows.append(row)
        return _frame(rows)

    def _statistics(self, wait: Floats) -> dict[str, Replicates]:
        quantiles = self.blocks.quantiles(wait, list(LEVELS.values()))
        return {"mean": self.blocks.means(wait)} | dict(zip(LEVELS, quantiles, strict=True))

    def by_class(self, partition: pl.Series | None = None) -> dict[str, pl.DataFrame]:
        """Return the mean waits of classes of jobs: by partition, whose they are, GPU type, size, and hour of the day.

        `partition` has the partition of each job of the log, where it tells them.
        """
        jobs = self.log.jobs[self.rows]
        tables = {
            "by GPU type": self._by("GPU type", _foremost(self.log.gpu_type[self.rows])),
            f"by {GPU_REQUEST}": self._by(GPU_REQUEST, jobs.select(gpu_request()).to_series()),
        }
        tables[f"by {GPU_REQUEST}"] = tables[f"by {GPU_REQUEST}"].sort(in_order(GPU_REQUEST))
        if partition is not None:
            tables["by partition"] = self._by("partition", _foremost(partition[self.rows]))
        for name in WHO:
            if jobs[name].n_unique() > 1:
                tables[f"by {name}"] = self._by(name, _foremost(jobs[name].cast(pl.String).fill_null("")))
        hour = pl.select(hour=clock(jobs["submit"], self.log.workload).dt.hour()).to_series()
        by_hour = self._by("hour", hour.cast(pl.String)).sort(pl.col("hour").cast(pl.Int64))
        return tables | {"by hour of the day": by_hour.rename({"hour": f"hour ({clock_name(self.log.workload)})"})}

    def _by(self, title: str, names: pl.Series) -> pl.DataFrame:
        rows = []
        hours = self.log.gpu_hours[self.rows]
        for name in names.unique().sort().to_list():
            inside = (names == name).to_numpy()
            blocks, recorded = self.blocks.part(inside), self.recorded[inside]
            row: dict[str, object] = {title: name, "jobs": int(inside.sum()), "GPU-hours": float(hours[inside].sum())}
            row["recorded mean wait"] = float(recorded.mean())
            for side, wait in self.waits.items():
                own = wait[inside]
                error = paired_difference(blocks.means(recorded), blocks.means(own)).interval()
                row |= _side(side, float(own.mean()), error, "mean wait")
            rows.append(row)
        return _frame(rows).sort("GPU-hours", title, descending=[True, False])


def _frame(rows: list[dict[str, object]]) -> pl.DataFrame:
    """Return rows as a table; limits that no row has are numbers all the same."""
    return pl.DataFrame(rows, infer_schema_length=None).with_columns(pl.col(pl.Null).cast(pl.Float64))


def _side(side: str, value: float, error: Interval, what: str = "wait") -> dict[str, object]:
    name = f"{side} {what}"
    low, high = (None if np.isnan(x) else x for x in error[1:])
    return {name: value, f"{name} error": error.value, f"{name} error low": low, f"{name} error high": high}


def _foremost(names: pl.Series) -> pl.Series:
    """Leave the classes with the most jobs, and make all others one."""
    counted = names.value_counts().sort("count", names.name, descending=[True, False])[names.name].to_list()
    kept = counted if len(counted) <= MOST else counted[: MOST - 1]
    return names.to_frame().select(pl.when(names.is_in(kept)).then(names).otherwise(pl.lit(OTHERS))).to_series()
